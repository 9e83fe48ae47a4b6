"""The command `kbqa train-crp`, from end to end on a tiny model."""

import importlib.util
import json
import re
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from kbqa.engine.cli import main
from kbqa.engine.writing.checkpoint import INSTALL_LM
from kbqa.engine.writing.generate import load_prompt_format
from kbqa.training.cli import complete_config, config_options, preset_option
from kbqa.training.config import ALL_LAYERS, FULL_LEARNING_RATE, TrainingConfig
from kbqa.training.data.training_set import Example

PUBLISHED_PROMPT = (
    "Generate a reasoning path that retrieves the information corresponding to the given question."
    "\n\nQuestion: { {question} }"
)
TABLE_9 = {
    "template": PUBLISHED_PROMPT,
    "max_length": 2048,
    "learning_rate": 5e-5,
    "warmup": 0.0,
    "final_rate": 0.0,
    "batch_size": 4,
    "accumulate": 4,
    "lora_rank": 8,
    "lora_alpha": 16,
    "lora_targets": ("q_proj", "k_proj", "v_proj", "o_proj"),
    "patience": 0,
}


@pytest.fixture
def questions(examples: Sequence[Example], tmp_path: Path) -> Path:
    """Twelve rows, of which the last is of no use."""
    rows: list[dict[str, object]] = [
        {"id": one.id, "question": one.question, "crp_routerkgqa": one.target}
        for one in examples[:11]
    ]
    rows.append({"id": "last", "question": "who?", "crp_routerkgqa": "?", "test_parent": True})
    path = tmp_path / "questions.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def _train(questions: Path, base: Path | str, output: Path, *more: str) -> Result:
    arguments = ["--data", str(questions), "--base", str(base), "--output", str(output)]
    return CliRunner().invoke(
        main, ["train-crp", *arguments, "--demo-questions", "0", "--epochs", "1", *more]
    )


def test_a_file_of_questions_becomes_an_adapter(
    questions: Path, tiny_base: Path, tmp_path: Path
) -> None:
    output = tmp_path / "run"
    result = _train(questions, tiny_base, output, "--json")
    assert result.exit_code == 0, result.stderr
    record = json.loads(result.stdout)
    assert record["adapter"] == str(output)
    assert (record["train_examples"], record["steps"]) == (10, 2)
    assert "11 examples\n  left out 1: a test question was made from it" in result.stderr
    assert re.search(r"step 2/2  epoch 1.00  loss \S+  held out \S+  main paths ", result.stderr)
    card = (output / "README.md").read_text(encoding="utf-8")
    assert "| questions | 10 | 1 |" in card
    assert {
        "adapter_config.json",
        "adapter_model.safetensors",
        "kbqa_prompt.json",
        "training_curves.png",
        "training_manifest.json",
    } <= {path.name for path in output.iterdir()}

    again = _train(questions, tiny_base, output)
    assert again.exit_code == 0
    assert f"kbqa ask --adapter {output}" in again.stdout
    assert "step " not in again.stderr


def test_the_papers_preset_trains_on_all_rows_with_the_published_prompt(
    questions: Path, tiny_base: Path, tmp_path: Path
) -> None:
    output, epoch = tmp_path / "run", ("--epochs", "1")
    paper = ["--preset", "routerkgqa-cwq", *epoch, "--json"]
    arguments = ["--data", str(questions), "--base", str(tiny_base), "--output"]
    result = CliRunner().invoke(main, ["train-crp", *arguments, str(output), *paper])
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["train_examples"] == 11
    template = load_prompt_format(output).template
    assert PUBLISHED_PROMPT in template
    # Who trains it further asks it the same.
    further = ["--start", str(output), *epoch, "--demo-questions", "0", "--valid-size", "0"]
    result = CliRunner().invoke(main, ["train-crp", *arguments, str(tmp_path / "next"), *further])
    assert result.exit_code == 0, result.stderr
    assert load_prompt_format(tmp_path / "next").template == template


def test_a_fold_is_left_out_and_written(questions: Path, tiny_base: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"
    result = _train(questions, tiny_base, output, "--leave-out-fold", "1/2")
    assert result.exit_code == 0, result.stderr
    rows = (output / "fold.questions.jsonl").read_text(encoding="utf-8").splitlines()
    assert f"left out {len(rows)}: in fold 1/2" in result.stderr
    assert {json.loads(row)["question"] for row in rows}


def test_bad_rows_are_counted_and_named_and_end_nothing(
    questions: Path, tiny_base: Path, tmp_path: Path
) -> None:
    with questions.open("a", encoding="utf-8") as lines:
        lines.write('{"id": "q13", "question": "who?", "crp_routerkgqa": "?"}\n')
    result = _train(questions, tiny_base, tmp_path / "run")
    assert result.exit_code == 0, result.stderr
    reason = "published CRP that cannot be read"
    assert f"left out 1: {reason} (questions q13)" in result.stderr
    manifest = json.loads((tmp_path / "run" / "training_manifest.json").read_text())
    assert {"reason": reason, "count": 1, "rows": ["questions q13"]} in manifest["data"]["left_out"]


@pytest.mark.parametrize(
    ("more", "code", "message"),
    [
        (["--valid-size", "0", "--max-length", "16"], 1, "no examples to train on: 11 are longer"),
        (["--learning-rate", "0"], 2, "Invalid value for '--learning-rate'"),
        (["--learning-rate", "nan"], 2, "'nan' is not a number"),
        (["--template", "who?"], 2, "has no {question} in it"),
        (["--data", "nowhere.jsonl"], 2, "File 'nowhere.jsonl' does not exist"),
        (["--base", "./nowhere"], 1, "there is no model folder ./nowhere"),
        (["--start", "nowhere"], 1, "there is no adapter at nowhere"),
        (["--start", "nowhere", "--full"], 2, "--start is for adapters"),
        (["--lora-targets", ","], 2, "names no layer"),
        (["--composed-questions", "5"], 2, "--composed-questions needs a graph: give --store"),
        (["--suggested-relations", "5"], 2, "--suggested-relations needs a graph: give --store"),
        (["--weight", "questions"], 2, "'questions' is not SET=NUMBER, such as webqsp.train=2"),
        (["--weight", "other=2"], 2, "--weight other: there is no such set, only questions"),
        (["--leave-out-fold", "3/2"], 2, "'3/2' is not K/N, such as 1/2 for the first of two"),
        (["--preset", "mine"], 2, "Invalid value for '--preset'"),
    ],
    ids=[
        "too long",
        "learning rate",
        "no learning rate",
        "no question in the template",
        "no file",
        "no model",
        "no start",
        "start of all",
        "no layer",
        "no graph to compose",
        "no graph to suggest",
        "no weight",
        "no such set",
        "no such fold",
        "preset",
    ],
)
def test_mistakes_end_in_one_line(
    more: list[str], code: int, message: str, questions: Path, tiny_base: Path, tmp_path: Path
) -> None:
    result = _train(questions, tiny_base, tmp_path / "run", *more)
    assert result.exit_code == code
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""
    assert not (tmp_path / "run").exists()


def test_the_shape_of_an_adapter_to_start_from_is_its_own(
    questions: Path, tiny_base: Path, tmp_path: Path
) -> None:
    first = tmp_path / "first"
    shape = ["--lora-rank", "4", "--lora-dropout", "0.1"]
    assert _train(questions, tiny_base, first, *shape).exit_code == 0
    start = ["--start", str(first)]
    result = _train(questions, tiny_base, tmp_path / "second", *start)
    assert result.exit_code == 0, result.stderr
    manifest = json.loads((tmp_path / "second" / "training_manifest.json").read_text())
    assert (manifest["settings"]["start"], manifest["settings"]["lora_rank"]) == (str(first), 4)
    assert manifest["settings"]["lora_dropout"] == 0.1
    card = (tmp_path / "second" / "README.md").read_text(encoding="utf-8")
    assert f"started from the adapter in {first} ({manifest['start_sha256']})" in card
    other = _train(questions, tiny_base, tmp_path / "third", *start, "--lora-rank", "8")
    assert other.exit_code == 2
    assert f"--lora-rank 8: the adapter in {first} has 4. Leave the option out." in other.stderr


def test_nothing_to_train_on(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        main, ["train-crp", "--demo-questions", "0", "--output", str(tmp_path / "run")]
    )
    assert result.exit_code == 2
    assert "nothing to train on" in result.stderr


def test_a_model_folder_without_weights(questions: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    result = _train(questions, tmp_path, tmp_path / "run")
    assert result.exit_code == 1
    assert f"Error: {tmp_path} holds no weights" in result.stderr
    assert not (tmp_path / "run").exists()


def test_without_the_lm_extra_it_says_what_to_install(
    questions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec

    def find_but_peft(name: str, package: str | None = None) -> ModuleSpec | None:
        return None if name == "peft" else find(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", find_but_peft)
    result = _train(questions, "smollm2-135m-instruct", tmp_path / "run")
    assert result.exit_code == 1
    assert f"the small model needs peft. Install: {INSTALL_LM}" in result.stderr
    assert not (tmp_path / "run").exists()


def test_test_sets_are_left_out_and_missing_names_looked_up(
    questions: Path, small_store: Path, tiny_base: Path, tmp_path: Path
) -> None:
    test_set = tmp_path / "test.jsonl"
    test_set.write_text(questions.read_text(encoding="utf-8").splitlines()[0] + "\n")
    ns = "PREFIX ns: <http://rdf.freebase.com/ns/>"
    sparql = f"{ns} SELECT ?x WHERE {{ ns:m.03_r3 ns:location.country.capital ?x }}"
    with questions.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps({"id": "q13", "question": "capital?", "sparql": sparql}) + "\n")
    graph = ["--store", str(small_store)]
    result = _train(questions, tiny_base, tmp_path / "run", "--exclude", str(test_set), *graph)
    assert result.exit_code == 0, result.stderr
    assert "11 examples\n" in result.stderr
    assert "left out 1: asked in a test set (questions Kenya-0)" in result.stderr
    card = (tmp_path / "run" / "README.md").read_text(encoding="utf-8")
    assert "- test set `test.jsonl` (neither its questions nor related ones are used)" in card


def _without(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a package look as if it were not installed."""
    for module in [one for one in sys.modules if one.partition(".")[0] == name]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, name, None)


def test_without_matplotlib_all_but_the_curves_is_written(
    questions: Path, tiny_base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _without("matplotlib", monkeypatch)
    result = _train(questions, tiny_base, tmp_path / "run")
    assert result.exit_code == 0, result.stderr
    assert "no curves drawn. To draw them: pip install 'kbqa[plots]'" in result.stderr
    assert "training_curves" not in (tmp_path / "run" / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], TrainingConfig()),
        (["--full"], TrainingConfig(full=True, learning_rate=FULL_LEARNING_RATE)),
        (["--full", "--learning-rate", "1e-4"], TrainingConfig(full=True, learning_rate=1e-4)),
        (["--lora-targets", "all"], TrainingConfig(lora_targets=ALL_LAYERS)),
        (["--lora-targets", "q_proj, k_proj"], TrainingConfig(lora_targets=("q_proj", "k_proj"))),
        (["--format", "compact"], TrainingConfig(crp_format="compact")),
        (
            ["--preset", "routerkgqa-webqsp", "--base", "llama"],
            TrainingConfig(base="llama", epochs=50, **TABLE_9),
        ),
        (
            ["--preset", "routerkgqa-cwq", "--batch-size", "8", "--patience", "2"],
            TrainingConfig(epochs=10, **{**TABLE_9, "batch_size": 8, "patience": 2}),
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_options_win_over_the_preset(arguments: list[str], expected: TrainingConfig) -> None:
    chosen = []

    @click.command()
    @preset_option
    @config_options
    def command(config: TrainingConfig, preset: str) -> None:
        chosen.append(complete_config(config, preset))

    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 0, result.output
    assert chosen == [expected]
