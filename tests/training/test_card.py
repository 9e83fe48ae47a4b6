import json
from collections import Counter
from importlib.metadata import version
from pathlib import Path

import pytest

from kbqa.training.card import write_model_card
from kbqa.training.data import DataFile, Example, ExampleSet, Split
from kbqa.training.run_folder import LOG_FILE
from kbqa.training.train import Progress, TrainingConfig, TrainingResult

pytest.importorskip("peft", reason="needs the lm extra")

WEBQSP = [Example(str(n), f"webqsp {n}?", "Main Path:", "webqsp.train") for n in range(1_234)]
DEMO = [Example(str(n), f"demo {n}?", "Main Path:", "demo") for n in range(20)]


def _card(folder: Path, log: list[Progress]) -> str:
    text = "".join(json.dumps(progress._asdict()) + "\n" for progress in log)
    (folder / LOG_FILE).write_text(text, encoding="utf-8")
    write_model_card(
        folder,
        TrainingConfig(base="smollm2-135m-instruct", epochs=2, learning_rate=5e-4),
        ExampleSet(
            [*WEBQSP, *DEMO],
            Counter({"union": 1_013, "no question": 2}),
            [DataFile("webqsp.train.jsonl.gz", "ab" * 32)],
        ),
        Split((*WEBQSP[4:], *DEMO[1:]), (*WEBQSP[:4], DEMO[0])),
        TrainingResult(folder, 312, 1_240, 9, 4_000_000, 0.5, seconds=3_661.4),
    )
    return (folder / "README.md").read_text(encoding="utf-8")


@pytest.fixture
def card(tmp_path: Path) -> str:
    return _card(
        tmp_path,
        [
            Progress(100, 312, 100 / 156, 2.0, None),
            Progress(156, 312, 1.0, 1.0, 0.75),
            Progress(312, 312, 2.0, 0.25, 0.5),
        ],
    )


@pytest.mark.parametrize(
    "line",
    [
        "base_model: smollm2-135m-instruct",
        "| webqsp.train | 1,230 | 4 |",
        "| demo | 19 | 1 |",
        "Training examples left out because they are longer than 320 tokens: 9.",
        "- 1,013: union",
        "- 2: no question",
        f"- `webqsp.train.jsonl.gz`: SHA-256 {'ab' * 32}",
        "- epochs: 2 of 1,240 examples, 312 steps of 8",
        "- 3,661 seconds",
        "| 1 | 1.6410 | 0.7500 |",  # (100 · 2 + 56 · 1) / 156
        "| 2 | 0.2500 | 0.5000 |",
        f"- peft {version('peft')}",
    ],
)
def test_the_card_holds_the_runs_own_numbers(line: str, card: str) -> None:
    assert line in card.splitlines()


def test_a_run_without_held_out_examples_has_a_card(tmp_path: Path) -> None:
    assert "| 1 | 2.0000 | – |" in _card(tmp_path, [Progress(312, 312, 1.0, 2.0, None)])
