"""Training by reward, from end to end on a tiny model and the small graph."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kbqa.engine.cli import main
from kbqa.engine.questions.question_sets import Question
from kbqa.engine.writing.generate import load_prompt_format
from kbqa.sparql.errors import TrainingError
from kbqa.training.config import GrpoConfig, TrainingConfig
from kbqa.training.grpo.train import (
    RewardProgress,
    RewardSplit,
    train_by_reward,
)
from kbqa.training.run import LOG_FILE
from kbqa.training.writer import RewardResult

torch = pytest.importorskip("torch", reason="needs the lm extra")
pytestmark = pytest.mark.usefixtures("one_thread", "float32")

STEPS = 12  # four epochs of three


class KilledError(Exception):
    """Stands in for a signal that ends the process."""


Train = Callable[..., RewardResult]


@pytest.fixture(scope="module")
def train(asked_questions: Sequence[Question], start_config: TrainingConfig, small_graph) -> Train:
    """Train on five questions, and hold out two."""
    split = RewardSplit(tuple(asked_questions[:5]), tuple(asked_questions[5:]))
    config = replace(
        start_config, epochs=4, validate_every=4, checkpoint_steps=5, patience=0, batch_size=5
    )

    def run(folder: Path, report=lambda progress: None, split=split, **settings) -> RewardResult:
        return train_by_reward(
            split,
            folder,
            replace(config, **settings),
            GrpoConfig(group=6, questions=2),
            small_graph.decoding,
            small_graph.reward,
            report,
        )

    return run


@pytest.fixture(scope="module")
def whole(train: Train, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RewardResult]:
    """A run that nothing stopped."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    return folder, train(folder)


def _log(folder: Path) -> list[dict[str, float | None]]:
    return [json.loads(line) for line in (folder / LOG_FILE).read_text().splitlines()]


def _weights(folder: Path) -> dict[str, "torch.Tensor"]:
    from safetensors.torch import load_file

    return load_file(folder / "adapter_model.safetensors")


def _last(folder: Path) -> dict[str, "torch.Tensor"]:
    """Return the weights after the last step, in full precision."""
    return torch.load(folder / f"checkpoint-{STEPS}" / "state.pt")["adapter"]


def test_what_happens_is_logged(whole: tuple[Path, RewardResult]) -> None:
    folder, result = whole
    log = _log(folder)
    assert [row["step"] for row in log] == list(range(STEPS + 1))
    assert [row["step"] for row in log if row["valid_f1"] is not None] == [0, 4, 8, 12]
    assert all(0 <= row["reward"] <= 1 and 0 <= row["spread"] <= 1 for row in log[1:])
    assert all(row["kl"] > 0 and 0 <= row["clipped"] <= 1 for row in log if row["spread"])
    assert all(row["kl"] is None for row in log[1:] if row["spread"] == 0)
    assert (result.steps, result.train_questions) == (STEPS, 5)


@pytest.mark.parametrize("step", [1, 5, 7, 12])
def test_a_killed_run_ends_as_if_nothing_had_been(
    step: int, train: Train, whole: tuple[Path, RewardResult], tmp_path: Path
) -> None:
    def kill(progress: RewardProgress) -> None:
        if progress.step == step:
            raise KilledError

    with pytest.raises(KilledError):
        train(tmp_path, kill)
    assert not (tmp_path / "adapter_config.json").exists()
    result = train(tmp_path)
    folder, expected = whole
    assert result._replace(adapter=folder, seconds=expected.seconds) == expected
    assert _log(tmp_path) == _log(folder)
    for name, weight in _last(folder).items():
        assert torch.equal(_last(tmp_path)[name], weight)
    for name, weight in _weights(folder).items():
        assert torch.equal(_weights(tmp_path)[name], weight)


def test_the_best_weights_are_published(
    train: Train, whole: tuple[Path, RewardResult], start: Path, tmp_path: Path
) -> None:
    folder, result = whole
    f1s = {row["step"]: row["valid_f1"] for row in _log(folder) if row["valid_f1"] is not None}
    assert result.valid_f1 == max(f1s.values()) == f1s[result.best_step]
    assert result.start_f1 == f1s[0]
    # With steps too small to change a path, nothing is better than the start.
    still = train(tmp_path, learning_rate=1e-9, epochs=1)
    assert still.best_step == 0
    for name, weight in _weights(start).items():
        assert torch.equal(_weights(tmp_path)[name], weight)


def test_a_run_whose_validations_do_not_improve_stops(train: Train, tmp_path: Path) -> None:
    result = train(tmp_path, learning_rate=1e-9, validate_every=1, patience=2)
    assert (result.steps, result.stopped_early) == (2, True)


def test_a_run_with_other_settings_does_not_go_on(
    train: Train, whole: tuple[Path, RewardResult]
) -> None:
    with pytest.raises(TrainingError, match="learning_rate"):
        train(whole[0], learning_rate=0.5)


def test_without_questions_there_is_nothing_to_train_on(train: Train, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="no questions to train on"):
        train(tmp_path / "run", split=RewardSplit((), ()))
    assert not (tmp_path / "run").exists()


def _command(data: Path, start: Path, store: Path, output: Path, *more: str) -> Result:
    arguments = ["--stage", "grpo", "--data", data, "--start", start, "--store", store]
    return CliRunner().invoke(
        main, ["train-crp", *map(str, arguments), "--output", str(output), *more]
    )


def test_paths_that_answer_become_likelier(
    asked_file: Path, start: Path, small_store: Path, tmp_path: Path
) -> None:
    output = tmp_path / "run"
    options = ["--valid-size", "0", "--epochs", "20", "--learning-rate", "1e-2", "--kl", "0"]
    result = _command(asked_file, start, small_store, output, *options, "--json")
    assert result.exit_code == 0, result.stderr
    rewards = [row["reward"] for row in _log(output)]
    assert rewards[0] < 0.5
    assert min(rewards[-3:]) > 0.8
    record = json.loads(result.stdout)
    assert (record["steps"], record["valid_f1"]) == (20, None)


def test_questions_without_gold_are_counted_and_the_run_is_documented(
    asked: list[dict[str, object]], start: Path, small_store: Path, tmp_path: Path
) -> None:
    data, output = tmp_path / "asked.jsonl", tmp_path / "run"
    rows = [{**row, "id": f"{row['id']}-{n}"} for n in range(2) for row in asked]
    for row in rows[7:]:
        row["question"] = f"please, {row['question']}"
    rows[3]["sparql"] = str(rows[3]["sparql"]).replace("location.location.area", "no.such.relation")
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    result = _command(data, start, small_store, output, "--group", "4", "--validate-every", "1")
    assert result.exit_code == 0, result.stderr
    assert "12 questions to train on, 1 held out" in result.stderr
    assert "left out 1: its gold query finds nothing in the graph (asked q3-0)" in result.stderr
    assert "step 2/2  reward " in result.stderr
    assert f"kbqa ask --adapter {output}" in result.stdout
    manifest = json.loads((output / "training_manifest.json").read_text())
    assert manifest["stage"] == "grpo"
    assert (manifest["settings"]["group"], manifest["settings"]["learning_rate"]) == (4, 5e-5)
    assert manifest["settings"]["graph"]
    card = (output / "README.md").read_text(encoding="utf-8")
    assert "- by reward from the graph, with GRPO: 4 paths drawn for each question" in card
    assert "| asked | 12 | 1 |" in card
    assert "| 0 | – | – | – | – | " in card
    assert (output / "training_curves.png").read_bytes().startswith(b"\x89PNG")
    assert (output / "held_out.asked.jsonl").is_file()


def test_a_model_is_trained_with_suggestions_writes_with_them_and_learns_by_reward(
    asked_file: Path, tiny_base: Path, small_store: Path, tmp_path: Path
) -> None:
    first, rewarded, beams = tmp_path / "first", tmp_path / "rewarded", tmp_path / "beams.jsonl"
    data = ["--data", str(asked_file), "--store", str(small_store), "--valid-size", "0"]
    data += ["--demo-questions", "0"]
    train = ["train-crp", *data, "--base", str(tiny_base)]
    suggest = ["--suggested-relations", "3", "--epochs", "1", "--output", str(first)]
    result = CliRunner().invoke(main, [*train, *suggest])
    assert result.exit_code == 0, result.stderr
    assert load_prompt_format(first).relations == 3
    assert "- suggested with each question: 3 relations" in (first / "README.md").read_text()

    crp = ["crp", "generate", "--questions", str(asked_file), "--store", str(small_store)]
    result = CliRunner().invoke(main, [*crp, "--adapter", str(first), "--output", str(beams)])
    assert result.exit_code == 0, result.stderr
    assert len(beams.read_text(encoding="utf-8").splitlines()) == 7

    result = _command(asked_file, first, small_store, rewarded, "--valid-size", "0", "--group", "4")
    assert result.exit_code == 0, result.stderr
    assert load_prompt_format(rewarded) == load_prompt_format(first)

    further = ["--start", str(first), "--epochs", "1", "--output", str(tmp_path / "further")]
    result = CliRunner().invoke(main, ["train-crp", *data, *further])
    assert result.exit_code == 0, result.stderr
    assert load_prompt_format(tmp_path / "further") == load_prompt_format(first)
    result = CliRunner().invoke(main, ["train-crp", "--data", str(asked_file), *further])
    assert result.exit_code == 2
    assert f"the adapter in {first} is shown relations, which needs a graph" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--stage", "grpo", "--data", "DATA", "--store", "STORE"], 2, "needs --start DIR"),
        (["--stage", "grpo", "--start", "START", "--store", "STORE"], 2, "needs --data FILE"),
        (["--stage", "grpo", "--start", "START", "--data", "DATA"], 2, "needs a graph to run"),
        (["GRPO", "--accumulate", "2"], 2, "--accumulate does not go with --stage grpo"),
        (["GRPO", "--format", "extended"], 2, "--format does not go with --stage grpo"),
        (["GRPO", "--suggested-relations", "5"], 2, "--suggested-relations does not go with"),
        (["GRPO", "--demo-questions", "5"], 2, "--demo-questions does not go with --stage grpo"),
        (["GRPO", "--preset", "routerkgqa-cwq"], 2, "--preset does not go with --stage grpo"),
        (["--data", "DATA", "--group", "4"], 2, "--group does not go with --stage sft"),
        (["--data", "DATA", "--preset", "grpo-8b"], 2, "--preset does not go with --stage sft"),
        (["--data", "DATA", "--rollouts", "URL"], 2, "--rollouts does not go with --stage sft"),
        (["GRPO", "--rollouts", "URL"], 2, "'URL' is not the URL of a server"),
        (["GRPO", "--group", "1"], 2, "Invalid value for '--group'"),
        (["GRPO", "--temperature", "0"], 2, "Invalid value for '--temperature'"),
        (["GRPO", "--lora-rank", "3"], 2, "--lora-rank 3: the adapter in"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistakes_end_in_one_line(
    arguments: list[str],
    code: int,
    message: str,
    asked_file: Path,
    start: Path,
    small_store: Path,
    tmp_path: Path,
) -> None:
    paths = {"DATA": asked_file, "START": start, "STORE": small_store}
    all_needed = ["--stage", "grpo", "--data", "DATA", "--start", "START", "--store", "STORE"]
    spelled = [word for each in arguments for word in (all_needed if each == "GRPO" else [each])]
    command = ["train-crp", *(str(paths.get(word, word)) for word in spelled)]
    result = CliRunner().invoke(main, [*command, "--output", str(tmp_path / "run")])
    assert result.exit_code == code
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "run").exists()


def test_a_start_whose_texts_cannot_be_constrained_is_refused(
    asked_file: Path, start: Path, small_store: Path, tmp_path: Path
) -> None:
    compact = tmp_path / "compact"
    compact.mkdir()
    for path in start.iterdir():
        if path.is_file():
            (compact / path.name).write_bytes(path.read_bytes())
    prompt = json.loads((compact / "kbqa_prompt.json").read_text())
    (compact / "kbqa_prompt.json").write_text(json.dumps({**prompt, "crp_format": "compact"}))
    result = _command(asked_file, compact, small_store, tmp_path / "run")
    assert result.exit_code == 2
    assert "it writes paths in the form 'compact', which cannot be constrained" in result.stderr


def test_several_processes_are_refused(
    asked_file: Path,
    start: Path,
    small_store: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    result = _command(asked_file, start, small_store, tmp_path / "run")
    assert result.exit_code == 1
    assert "--stage grpo trains in one process, and 2 were started" in result.stderr
    assert not (tmp_path / "run").exists()
