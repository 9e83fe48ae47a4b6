"""`kbqa train-crp --stage grpo`, from end to end on a tiny model and the small graph."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kbqa.engine.cli import main
from kbqa.training.writer.run_folder import LOG_FILE

pytest.importorskip("torch", reason="needs the lm extra")
pytestmark = pytest.mark.usefixtures("one_thread", "float32")


def _train(questions: Path, start: Path, store: Path, output: Path, *more: str) -> Result:
    arguments = ["--stage", "grpo", "--data", questions, "--start", start, "--store", store]
    return CliRunner().invoke(
        main, ["train-crp", *map(str, arguments), "--output", str(output), *more]
    )


def _log(folder: Path) -> list[dict[str, float | None]]:
    return [json.loads(line) for line in (folder / LOG_FILE).read_text().splitlines()]


def test_paths_that_answer_become_likelier(
    questions: Path, start: Path, small_store: Path, tmp_path: Path
) -> None:
    output = tmp_path / "run"
    options = ["--valid-size", "0", "--epochs", "40", "--learning-rate", "1e-2", "--kl", "0"]
    result = _train(questions, start, small_store, output, *options)
    assert result.exit_code == 0, result.stderr
    rewards = [row["reward"] for row in _log(output)]
    assert sum(rewards[:3]) / 3 < 0.6 < 0.9 < sum(rewards[-3:]) / 3
