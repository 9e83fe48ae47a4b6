"""The folder of a training run: its settings, log, checkpoints and best weights, and the adapter.

A run can be killed at any moment and resumed later, and half an adapter must never be mistaken for
a whole one. So everything that is read again is written under another name and then renamed. A
model that is trained whole takes the place of the adapter.
"""

import json
import os
import shutil
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any, NamedTuple, NotRequired, TypedDict

from kbqa.engine.files.manifest import check_same_settings, lock
from kbqa.kb.durable import write_safely
from kbqa.sparql.errors import TrainingError

if TYPE_CHECKING:
    from torch import Tensor

LOG_FILE = "training_log.jsonl"
ADAPTER_CONFIG_FILE = "adapter_config.json"
ADAPTER_WEIGHTS_FILE = "adapter_model.safetensors"
MODEL_CONFIG_FILE = "config.json"
_SETTINGS_FILE = "training_config.json"
_STATE_FILE = "state.pt"
_BEST = "best"
_CHECKPOINTS_KEPT = 2
_LOGS = (".log", ".txt", ".out", ".err")

# What torch raises on damaged files.
_UNREADABLE = (
    *(OSError, EOFError, RuntimeError, UnpicklingError, zipfile.BadZipFile),
    *(ValueError, LookupError, TypeError, AttributeError, AssertionError),
)


class BestState(TypedDict):
    """The best validation of a run, and the step after which it came."""

    step: int
    loss: float
    main_path: float | None


class TrainingCheckpoint(TypedDict):
    """The state of a run, with everything needed to resume it.

    Runs of the first kbqa, which can still be resumed, have only some of these.

    Attributes:
        adapter: The trained weights by name.
        optimizer: The optimizer's state.
        step: Steps done.
        randoms: States of the random generators (the CPU's, the GPU's) of each process.
        random: State of the CPU's, in the first runs.
        best: The best validation, if there was one.
        stale: Validations since then.
        losses: Of the steps since the last report.
        seconds: Wall time of the steps, in all processes that resumed the run.
    """

    adapter: "dict[str, Tensor]"
    optimizer: dict[str, object]
    step: int
    randoms: "NotRequired[list[list[Tensor]]]"
    random: "NotRequired[Tensor]"
    best: NotRequired[BestState | None]
    stale: NotRequired[int]
    losses: NotRequired[list[float]]
    seconds: NotRequired[float]


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The folder of a run."""

    path: Path

    def check(self, settings: Mapping[str, object]) -> None:
        """Check that the folder holds nothing, or a run with the same settings.

        Raises:
            TrainingError: It holds something else, or another run; the message names the settings
                that differ.
        """
        path = self.path / _SETTINGS_FILE
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            self.check_empty()
            return
        except (OSError, ValueError) as error:
            raise TrainingError(f"{path} cannot be read: {error}") from None
        # A setting that is newer than the run does not make it another run.
        older = {name: value for name, value in settings.items() if name in found}
        check_same_settings(self.path, found, older, TrainingError)

    def check_empty(self) -> None:
        """Check that nothing is in the folder that a run could replace; a log may be there.

        Raises:
            TrainingError: Something else is.
        """
        found = sorted(self.path.iterdir()) if self.path.is_dir() else []
        for path in found:
            if path.is_dir() or not (path.suffix in _LOGS or path.name.startswith(".")):
                raise TrainingError(
                    f"{self.path} holds {path.name}, and no run to resume. Choose an empty folder."
                )

    @contextmanager
    def claimed(self, settings: Mapping[str, object]) -> Iterator[None]:
        """Reserve the folder for this process and a run with these settings; create it if needed.

        Raises:
            TrainingError: Another process is writing to it, it holds another run, or it cannot be
                written to.
        """
        path = self.path / _SETTINGS_FILE
        with self.locked():
            self.check(settings)
            if not path.is_file():
                self._write(path, json.dumps(settings, indent=2) + "\n")
            yield

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Reserve the folder for this process; create it if needed.

        Raises:
            TrainingError: Another process is writing to it, or it cannot be written to.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path, os.O_RDONLY)
        except OSError as error:
            raise self._not_writable(error) from None
        try:
            lock(descriptor, self.path, TrainingError)
            yield
        finally:
            os.close(descriptor)

    def log(self, record: Mapping[str, object]) -> None:
        """Add a record, which has its `step`, to the log."""
        with (self.path / LOG_FILE).open("a", encoding="utf-8") as log:
            log.write(json.dumps(record) + "\n")

    def cut_log(self, step: int) -> None:
        """Remove from the log what was logged after a step, because it will be logged again."""
        path = self.path / LOG_FILE
        text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
        self._write(path, "".join(f"{line}\n" for line in _logged_until(step, text, path)))

    def save_checkpoint(self, state: TrainingCheckpoint) -> None:
        """Keep a checkpoint and the one before it, and delete older ones."""
        import torch

        partial = self._empty("checkpoint.tmp")
        torch.save(state, partial / _STATE_FILE)
        partial.rename(self.path / f"checkpoint-{state['step']}")
        for old in self._checkpoints()[:-_CHECKPOINTS_KEPT]:
            shutil.rmtree(old)

    def last_checkpoint(self) -> TrainingCheckpoint | None:
        """Read the last checkpoint; None if there is none.

        Raises:
            TrainingError: It cannot be read.
        """
        checkpoints = self._checkpoints()
        if not checkpoints:
            return None
        path = checkpoints[-1] / _STATE_FILE
        advice = f"Delete {path.parent} to resume from the checkpoint before it, or from the start."
        state: TrainingCheckpoint = read_state(path, ("adapter", "optimizer", "step"), advice)
        return state

    def keep_best(self, write: Callable[[Path], None]) -> None:
        """Let a function write the adapter into an empty folder; keep it as the best so far."""
        partial, best = self._empty("best.tmp"), self.path / _BEST
        write(partial)
        # A run killed between these two resumes from an earlier checkpoint and comes here again.
        shutil.rmtree(best, ignore_errors=True)
        partial.rename(best)

    def publish_best(self) -> None:
        """Copy the best adapter to the run's own folder."""
        best = self.path / _BEST
        # Copied last: without its configuration, a folder is not an adapter or a model.
        last = (ADAPTER_CONFIG_FILE, MODEL_CONFIG_FILE)
        for path in sorted(best.iterdir(), key=lambda path: (path.name in last, path.name)):
            partial = self.path / f"{path.name}.tmp"
            shutil.copy(path, partial)
            partial.replace(self.path / path.name)

    def _write(self, path: Path, text: str) -> None:
        try:
            write_safely(path, text)
        except OSError as error:
            raise self._not_writable(error) from None

    def _not_writable(self, error: OSError) -> TrainingError:
        return TrainingError(f"{self.path} cannot be written to: {error}")

    def _empty(self, name: str) -> Path:
        directory = self.path / name
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        return directory

    def _checkpoints(self) -> list[Path]:
        found = [p for p in self.path.glob("checkpoint-*") if p.name[11:].isdigit()]
        return sorted(found, key=lambda path: int(path.name[11:]))


def read_state(path: Path, fields: Collection[str], advice: str) -> Any:
    """Read the state of a run, as `torch.save` wrote it.

    Args:
        path: The file.
        fields: What it must have.
        advice: What to do if it cannot be read, a sentence.

    Raises:
        TrainingError: It cannot be read.
    """
    import torch

    try:
        if not zipfile.is_zipfile(path):  # torch would read it as a bare pickle
            raise EOFError("cut short or missing")
        state = torch.load(path, map_location="cpu", weights_only=True)
        if not isinstance(state, dict) or not state.keys() >= set(fields):
            raise EOFError("it is not the state of a run")
    except _UNREADABLE as error:
        reason = " ".join(str(error).split())
        raise TrainingError(f"{path} cannot be read ({reason}). {advice}") from None
    return state


def _logged_until(step: int, text: str, path: Path) -> Iterator[str]:
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        try:
            is_wanted = json.loads(line)["step"] <= step
        except (ValueError, LookupError, TypeError):
            if number == len(lines):
                return  # the run was killed while it wrote this line
            raise TrainingError(
                f"{path}, line {number}, cannot be read. Delete the line to resume."
            ) from None
        if is_wanted:
            yield line


class TrainingResult(NamedTuple):
    """What a run came to.

    Attributes:
        adapter: The folder of the adapter, in PEFT layout, or of the whole model.
        steps: Steps done.
        best_step: The step whose weights are written.
        stopped_early: Whether the run stopped because validations no longer improved.
        train_examples: Examples trained on, without those that are too long.
        too_long: Set and id of the examples that are too long.
        trained_tokens: Tokens of prompts and targets in all steps, without padding.
        trainable_parameters: Their number.
        base_revision: Commit of the base model, or the SHA-256 of its weights; None if unknown.
        valid_loss: Mean loss per target token of the written weights on the held-out examples,
            natural log; None if nothing is held out.
        valid_main_path: Share of the questions asked whose main path they write exactly; None if
            no question is asked.
        seconds: Wall time, including that of the processes that this one resumed.
    """

    adapter: Path
    steps: int
    best_step: int
    stopped_early: bool
    train_examples: int
    too_long: tuple[str, ...]
    trained_tokens: int
    trainable_parameters: int
    base_revision: str | None
    valid_loss: float | None
    valid_main_path: float | None
    seconds: float


class RewardResult(NamedTuple):
    """What a run came to.

    Attributes:
        adapter: The folder of the adapter, in PEFT layout.
        steps: Steps done.
        best_step: The step whose weights are written; 0 if none were better than the start.
        stopped_early: Whether the run stopped because validations no longer improved.
        train_questions: Questions trained on.
        trainable_parameters: Their number.
        base_revision: Commit of the base model, or the SHA-256 of its weights; None if unknown.
        start_f1: Mean F1 of the start on the held-out questions; None if nothing is held out.
        valid_f1: The same of the written weights.
        seconds: Wall time, including that of the processes that this one resumed.
    """

    adapter: Path
    steps: int
    best_step: int
    stopped_early: bool
    train_questions: int
    trainable_parameters: int
    base_revision: str | None
    start_f1: float | None
    valid_f1: float | None
    seconds: float
