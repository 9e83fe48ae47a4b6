"""A real training process, really stopped, and several processes that train together."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from kbqa.engine.cli import main
from kbqa.training.data.training_set import Example
from kbqa.training.run import LOG_FILE

pytest.importorskip("torch", reason="needs the lm extra")
pytestmark = pytest.mark.usefixtures("one_thread", "float32")  # as in the processes


@pytest.fixture(scope="module")
def command(
    examples: Sequence[Example], tiny_base: Path, tmp_path_factory: pytest.TempPathFactory
) -> list[str]:
    """A run of some 120 steps, with all that it must remember: dropout, accumulation, the best."""
    path = tmp_path_factory.mktemp("data") / "questions.jsonl"
    rows = (
        {"id": one.id, "question": one.question, "crp_routerkgqa": one.target} for one in examples
    )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    options = {
        "--data": path,
        "--base": tiny_base,
        "--demo-questions": 0,
        "--epochs": 20,
        "--batch-size": 2,
        "--accumulate": 2,
        "--learning-rate": 1e-2,
        "--lora-dropout": 0.1,
        "--valid-size": 2,
        "--validate-every": 9,
        "--patience": 50,
        "--checkpoint-steps": 7,
    }
    return ["train-crp", *(str(part) for option in options.items() for part in option)]


@pytest.fixture(scope="module")
def whole(command: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that nothing stopped."""
    return _finish(command, tmp_path_factory.mktemp("runs") / "whole")


def _finish(command: list[str], folder: Path) -> Path:
    result = CliRunner().invoke(main, [*command, "--output", str(folder)])
    assert result.exit_code == 0, result.output
    return folder


def _environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def _log(folder: Path) -> list[dict[str, float | None]]:
    return [json.loads(line) for line in (folder / LOG_FILE).read_text().splitlines()]


def _assert_same(folder: Path, whole: Path, tolerance: float) -> None:
    from safetensors.torch import load_file

    assert _log(folder) == [pytest.approx(row, abs=tolerance) for row in _log(whole)]
    expected = load_file(whole / "adapter_model.safetensors")
    weights = load_file(folder / "adapter_model.safetensors")
    assert weights.keys() == expected.keys()
    for name, weight in weights.items():
        assert (weight - expected[name]).abs().max() <= tolerance


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGTERM, 143), (signal.SIGINT, 130)],
    ids=["SIGKILL", "SIGTERM", "Ctrl-C"],
)
def test_a_process_that_is_stopped_and_run_again_ends_as_if_nothing_had_been(
    number: int, code: int, command: list[str], whole: Path, tmp_path: Path
) -> None:
    log = tmp_path / "run" / LOG_FILE
    process = subprocess.Popen(
        [sys.executable, "-m", "kbqa.engine.cli", *command, "--output", str(log.parent)],
        env=_environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    # Wherever it happens to be some moments after its thirtieth step.
    while process.poll() is None and not (log.is_file() and '"step": 30' in log.read_text()):
        time.sleep(0.01)
    process.send_signal(number)
    _, errors = process.communicate()
    assert process.returncode == code, errors.decode()
    assert b"Traceback" not in errors
    assert not (log.parent / "adapter_config.json").exists()
    assert _log(log.parent)[-1]["step"] < _log(whole)[-1]["step"]
    _assert_same(_finish(command, log.parent), whole, tolerance=1e-4)


def test_two_processes_train_as_one_does(command: list[str], tmp_path: Path) -> None:
    command = [*command, "--lora-dropout", "0", "--epochs", "4"]  # dropout is each one's own
    one, two = tmp_path / "one", tmp_path / "two"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
            *("--nproc-per-node", "2", "-m", "kbqa.engine.cli"),
            *(*command, "--json", "--output", str(two)),
        ],
        env=_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    _assert_same(two, _finish(command, one), tolerance=1e-4)
    assert json.loads(done.stdout)["steps"] == _log(one)[-1]["step"]
    assert done.stderr.count("24 examples") == 1
    manifest = json.loads((two / "training_manifest.json").read_text())
    assert manifest["hardware"]["processes"] == 2


def test_no_thread_of_a_process_group_outlives_it(tmp_path: Path) -> None:
    """One that did ended the process now and then by SIGABRT."""
    script = tmp_path / "joined.py"
    script.write_text(
        "import torch\nfrom pathlib import Path\n"
        "from kbqa.training.run import Processes\n"
        "weights = torch.nn.Parameter(torch.ones(2))\n"
        "processes = Processes.from_environment()\n"
        "with processes.joined(torch.device('cpu')):\n"
        "    weights.sum().backward()\n"
        "    processes.sum_gradients([weights])\n"
        "    torch.optim.AdamW([weights]).step()\n"
        "names = [path.read_text() for path in Path('/proc/self/task').glob('*/comm')]\n"
        "assert not [name for name in names if 'gloo' in name], names\n"
    )
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*run, str(script)], env=_environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_more_processes_than_batches_in_a_step_are_refused(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "3")
    monkeypatch.setenv("RANK", "0")
    result = CliRunner().invoke(main, [*command, "--output", str(tmp_path / "run")])
    assert result.exit_code == 1
    assert (
        "3 processes cannot share the batches of a step: there are only 2. Use --acc"
        in result.stderr
    )
    assert not (tmp_path / "run").exists()
