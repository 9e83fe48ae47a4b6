"""The folder of a training run: its settings, log, checkpoints and best weights, and the adapter.

A run may be killed at any moment and must be resumable then, and half an adapter must never be
taken for one: what is read again is written under another name, and renamed when it is whole. What
training does with it is not known here. A model that was trained whole stands where the adapter
would.
"""

import json
import shutil
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, NotRequired, TypedDict

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


class BestState(TypedDict):
    """The best validation of a run: the step it came after, and what it found."""

    step: int
    loss: float
    main_path: float | None


class Checkpoint(TypedDict):
    """Where a run stands, and all that it needs to go on from there.

    Kbqa's first runs, which can be resumed still, knew fewer of these.

    Attributes:
        adapter: The trained weights by name.
        optimizer: The optimizer's state.
        step: Steps done.
        randoms: States of the random generators (the CPU's, the GPU's) of each process.
        random: State of the CPU's, in the first runs.
        best: The best validation, if there was one.
        stale: Validations since then.
        losses: Of the steps since the last report.
        seconds: Wall time that the steps took, in all sittings.
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
    """A folder that one run at a time writes to."""

    path: Path

    def check(self, settings: Mapping[str, object]) -> None:
        """Make sure that the folder holds no run, or one with the same settings.

        Raises:
            TrainingError: It holds another run; the message names the settings that differ.
        """
        path = self.path / _SETTINGS_FILE
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            raise TrainingError(f"{path} cannot be read: {error}") from None
        # A setting that came later than the run does not make it another one.
        wanted = json.loads(json.dumps(settings))
        changed = sorted(key for key, value in wanted.items() if found.get(key, value) != value)
        if changed:
            raise TrainingError(
                f"{self.path} holds a run with other settings ({', '.join(changed)}). "
                "Resume it with the same ones, or choose another --output."
            )

    def claim(self, settings: Mapping[str, object]) -> None:
        """Mark the folder, which is made if need be, as that of a run with these settings.

        Raises:
            TrainingError: It cannot be written to.
        """
        path = self.path / _SETTINGS_FILE
        if path.is_file():
            return
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            _write(path, json.dumps(settings, indent=2) + "\n")
        except OSError as error:
            raise TrainingError(f"{self.path} cannot be written to: {error}") from None

    def log(self, record: Mapping[str, object]) -> None:
        """Add a record, which says at which `step` it was made, to the log."""
        with (self.path / LOG_FILE).open("a", encoding="utf-8") as log:
            log.write(json.dumps(record) + "\n")

    def cut_log(self, step: int) -> None:
        """Take from the log what was logged after a step, and will be logged again."""
        path = self.path / LOG_FILE
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        _write(path, "".join(f"{line}\n" for line in _logged_until(step, lines)))

    def save_checkpoint(self, state: Checkpoint) -> None:
        """Keep a checkpoint, and none but the one before it."""
        import torch

        partial = self._empty("checkpoint.tmp")
        torch.save(state, partial / _STATE_FILE)
        partial.rename(self.path / f"checkpoint-{state['step']}")
        for old in self._checkpoints()[:-_CHECKPOINTS_KEPT]:
            shutil.rmtree(old)

    def last_checkpoint(self) -> Checkpoint | None:
        """Read the last checkpoint, if there is one.

        Raises:
            TrainingError: It cannot be read.
        """
        import torch

        checkpoints = self._checkpoints()
        if not checkpoints:
            return None
        path = checkpoints[-1] / _STATE_FILE
        try:
            if not zipfile.is_zipfile(path):  # torch would take it for a bare pickle
                raise EOFError("cut short or missing")
            state: Checkpoint = torch.load(path, map_location="cpu", weights_only=True)
        except (OSError, EOFError, RuntimeError, UnpicklingError) as error:
            raise TrainingError(
                f"{path} cannot be read ({' '.join(str(error).split())}). "
                f"Delete {path.parent} to go on from the checkpoint before it, or from the start."
            ) from None
        return state

    def keep_best(self, write: Callable[[Path], None]) -> None:
        """Let a function write the adapter into an empty folder; keep it as the best so far."""
        partial, best = self._empty("best.tmp"), self.path / _BEST
        write(partial)
        # Killed between the two, the run goes on from a checkpoint before this, and comes here.
        shutil.rmtree(best, ignore_errors=True)
        partial.rename(best)

    def publish_best(self) -> None:
        """Copy the best adapter to where it is looked for."""
        best = self.path / _BEST
        # Without its configuration, a folder is no adapter to anyone, and no model.
        last = (ADAPTER_CONFIG_FILE, MODEL_CONFIG_FILE)
        for path in sorted(best.iterdir(), key=lambda path: (path.name in last, path.name)):
            partial = self.path / f"{path.name}.tmp"
            shutil.copy(path, partial)
            partial.replace(self.path / path.name)

    def _empty(self, name: str) -> Path:
        directory = self.path / name
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        return directory

    def _checkpoints(self) -> list[Path]:
        found = [p for p in self.path.glob("checkpoint-*") if p.name[11:].isdigit()]
        return sorted(found, key=lambda path: int(path.name[11:]))


def _write(path: Path, text: str) -> None:
    partial = path.with_name(f"{path.name}.tmp")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def _logged_until(step: int, lines: list[str]) -> Iterator[str]:
    for line in lines:
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            return  # the line that was being written when the run was killed
        if record["step"] <= step:
            yield line
