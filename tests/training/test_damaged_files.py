"""Files of training that were damaged: each is named, with what to do."""

import json
from pathlib import Path

import pytest

from kbqa.sparql.errors import InputError, TrainingError
from kbqa.training.judge.learning import read_judged, read_texts
from kbqa.training.run import LOG_FILE, RunFolder

LINE = json.dumps({"step": 1, "loss": 1.0}) + "\n"


@pytest.mark.parametrize("line", ['{"loss": 1.0}\n', '{"step": "x"}\n', "\xff{\n"])
def test_a_damaged_line_within_a_log_is_named(line: str, tmp_path: Path) -> None:
    log = tmp_path / LOG_FILE
    log.write_text(LINE + line + LINE, encoding="latin-1")
    with pytest.raises(TrainingError, match=f"{LOG_FILE}, line 2, cannot be read. Delete the line"):
        RunFolder(tmp_path).cut_log(9)
    log.write_text(LINE + line, encoding="latin-1")
    RunFolder(tmp_path).cut_log(9)
    assert log.read_text(encoding="utf-8") == LINE


@pytest.mark.parametrize(
    "name", ["README.md", "best/thesis.txt", "config.json", "checkpoint-1/state.pt"]
)
def test_a_run_replaces_no_file_of_the_user(name: str, tmp_path: Path) -> None:
    mine = tmp_path / name
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("mine", encoding="utf-8")
    run, first = RunFolder(tmp_path), Path(name).parts[0]
    with pytest.raises(TrainingError, match=rf"holds {first}, and no run .* Choose an empty"):
        run.check({})
    with pytest.raises(TrainingError, match="and no run"), run.claimed({}):
        pass
    assert mine.read_text(encoding="utf-8") == "mine"


def test_a_run_may_begin_where_its_log_is_and_goes_on_with_all_it_wrote(tmp_path: Path) -> None:
    (tmp_path / "train.log").touch()
    run = RunFolder(tmp_path)
    with run.claimed({"seed": 1}):
        (tmp_path / "best").mkdir()
    with run.claimed({"seed": 1}):
        pass


@pytest.mark.parametrize(
    "row",
    [
        {"question": "a?"},
        {"question": "a?", "candidates": [1.0]},
        {"question": "a?", "candidates": [["x"]]},
        {"question": "a?", "candidates": "xy"},
    ],
)
def test_a_row_of_candidates_that_lacks_something_is_named(row: object, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row) + "\n", encoding="utf-8")
    for read in (read_texts, read_judged):
        with pytest.raises(InputError, match="line 1: not a row of candidates"):
            list(read(path))


def test_damaged_states_of_training_are_named(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="needs the lm extra")
    run = RunFolder(tmp_path)
    run.save_checkpoint({"adapter": {"a": torch.ones(2)}, "optimizer": {}, "step": 2})
    (state,) = tmp_path.rglob("state.pt")
    content = state.read_bytes()
    for damaged in (
        content.replace(b"adapter", b"\xffdapter"),  # what torch decodes is not UTF-8
        content.replace(b"adapter", b"Adapter"),
        content[: len(content) // 2],
    ):
        state.write_bytes(damaged)
        with pytest.raises(TrainingError, match=r"state\.pt cannot be read .* Delete"):
            run.last_checkpoint()


def test_a_damaged_labelled_example_is_named(tmp_path: Path) -> None:
    np = pytest.importorskip("numpy", reason="needs the retrieval extra")
    from kbqa.training.retriever.examples import Labelled, load_labelled, load_names, save_labelled

    path, places = tmp_path / "example.npz", np.array([0], dtype=np.int32)
    arrays = dict.fromkeys(("heads", "links", "tails", "stated", "answers", "shortest"), places)
    save_labelled(path, Labelled("a?", ("a.b",), 1, 1, facts=1, matches=places[None], **arrays))
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    for read in (load_labelled, load_names):
        with pytest.raises(TrainingError, match=r"example\.npz cannot be read .* Delete it"):
            read(path)
    path.write_bytes(content.replace(b"heads.npy", b"tails.npy"))
    with pytest.raises(TrainingError, match=r"example\.npz cannot be read"):
        load_labelled(path)
