import json
from collections import Counter
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest

from kbqa.engine.questions.question_sets import read_questions
from kbqa.training.card import draw_curves, write_model_card, write_writer_reports
from kbqa.training.config import TrainingConfig
from kbqa.training.data.training_set import DataFile, Example, ExampleSet, Split, write_untrained
from kbqa.training.run import LOG_FILE, MANIFEST_FILE
from kbqa.training.writer import TrainingProgress, TrainingResult

pytest.importorskip("peft", reason="needs the lm extra")

WEBQSP = [Example(str(n), f"webqsp {n}?", "Main Path:", "webqsp.train") for n in range(1_234)]
DEMO = [Example(str(n), f"demo {n}?", "Main Path:", "demo") for n in range(20)]
CONFIG = TrainingConfig(epochs=2, learning_rate=5e-4)
GATHERED = ExampleSet(
    [*WEBQSP, *DEMO],
    Counter({"union": 1_013, "no question": 2}),
    [DataFile("webqsp.train.jsonl.gz", "ab" * 32)],
    [DataFile("webqsp.test.json", "cd" * 32)],
    {"no question": ["webqsp.train 7", "webqsp.train 9"]},
)
LOG = [
    TrainingProgress(100, 312, 100 / 156, 2.0, None),
    TrainingProgress(156, 312, 1.0, 1.0, 0.75, 0.5),
    TrainingProgress(312, 312, 2.0, 0.25, 0.5, 0.625),
]


def _write(
    folder: Path, config: TrainingConfig = CONFIG, log: list[TrainingProgress] = LOG
) -> None:
    """Write the log and the reports."""
    text = "".join(json.dumps(progress._asdict()) + "\n" for progress in log)
    (folder / LOG_FILE).write_text(text, encoding="utf-8")
    result = TrainingResult(
        adapter=folder,
        steps=312,
        best_step=312,
        stopped_early=False,
        train_examples=1_240,
        too_long=tuple(f"webqsp.train {n}" for n in range(12)),
        trained_tokens=61_024,
        trainable_parameters=4_000_000,
        base_revision="0123abc",
        valid_loss=log[-1].valid_loss,
        valid_main_path=log[-1].valid_main_path,
        seconds=3_661.4,
    )
    split = Split((*WEBQSP[4:], *DEMO[1:]), (*WEBQSP[:4], DEMO[0]))
    write_writer_reports(folder, config, GATHERED, split, result)


def _card(folder: Path) -> list[str]:
    return (folder / "README.md").read_text(encoding="utf-8").splitlines()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    _write(folder)
    return folder


@pytest.mark.parametrize(
    "line",
    [
        "base_model: smollm2-135m-instruct",
        "| webqsp.train | 1,230 | 4 |",
        "| demo | 19 | 1 |",
        "- 12: to be trained on, but longer than 400 tokens",
        "- 1,013: union",
        "- 2: no question",
        f"- `webqsp.train.jsonl.gz`: SHA-256 {'ab' * 32}",
        "- base model: smollm2-135m-instruct (0123abc)",
        "- epochs: 2 of 1,240 examples at most, 312 steps of 8 taken",
        "- 3,661 seconds, 61,024 tokens, 17 tokens a second, validation included",
        "| 156 | 1 | 1.6410 | 0.7500 | 0.5000 |",  # (100 · 2 + 56 · 1) / 156
        "| 312 | 2 | 0.2500 | 0.5000 | 0.6250 |",
        f"- peft {version('peft')}",
    ],
)
def test_the_card_holds_the_runs_own_numbers(line: str, folder: Path) -> None:
    assert line in _card(folder)


def test_the_manifest_names_what_was_left_out_and_the_machine(folder: Path) -> None:
    manifest = json.loads((folder / MANIFEST_FILE).read_text(encoding="utf-8"))
    rows = {one["reason"]: one["rows"] for one in manifest["data"]["left_out"]}
    assert rows["no question"] == ["webqsp.train 7", "webqsp.train 9"]
    assert len(rows["to be trained on, but longer than 400 tokens"]) == 10
    assert manifest["settings"]["learning_rate"] == CONFIG.learning_rate
    assert manifest["hardware"]["processor"]
    assert manifest["hardware"]["processes"] == 1
    assert manifest["packages"]["torch"] == version("torch")
    assert manifest["result"]["tokens_per_second"] == 16.7


def test_a_run_without_held_out_examples_has_a_card(tmp_path: Path) -> None:
    _write(tmp_path, log=[TrainingProgress(312, 312, 1.0, 2.0, None)])
    write_model_card(tmp_path)
    assert "| 312 | 1 | 2.0000 | – | – |" in _card(tmp_path)


def test_a_whole_model_is_called_one(tmp_path: Path) -> None:
    _write(tmp_path, replace(CONFIG, full=True))
    write_model_card(tmp_path)
    card = _card(tmp_path)
    assert "library_name: transformers" in card
    assert "- full fine-tuning; 4,000,000 parameters, saved in bf16" in card
    assert "lora" not in "\n".join(card).lower()


@pytest.mark.parametrize("log", [LOG, LOG[:1]], ids=["validated", "not validated"])
def test_curves_are_drawn_and_shown_in_the_card(
    log: list[TrainingProgress], tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib", reason="needs the plots extra")
    _write(tmp_path, log=log)
    picture = draw_curves(tmp_path)
    assert picture.read_bytes().startswith(b"\x89PNG")
    write_model_card(tmp_path)
    assert f"![Losses and validations by step]({picture.name})" in _card(tmp_path)


def test_the_questions_held_out_are_question_sets(tmp_path: Path) -> None:
    twice = Example("0", "webqsp 0?", "another target", "webqsp.train")
    write_untrained(tmp_path, Split((), (*WEBQSP[:2], twice, DEMO[0])))
    questions = read_questions(tmp_path / "held_out.webqsp.train.jsonl")
    assert [(each.id, each.text) for each in questions] == [("0", "webqsp 0?"), ("1", "webqsp 1?")]
    assert len(read_questions(tmp_path / "held_out.demo.jsonl")) == 1
