"""A run of training: its folder, its log, its manifest and card, and the processes that share it.

The writer, the judge and the retriever are trained in a folder each, which one process writes to. A
run can be killed at any moment and resumed later, and half an adapter must never be mistaken for a
whole one. So everything that is read again is written under another name and then renamed. A model
that is trained whole takes the place of the adapter.

Processes train one model together if `torchrun` or `accelerate launch` started them. Each takes its
share of a step's batches, and the results are summed. A single process, the common case, does not
use torch.distributed.
"""

import json
import os
import platform
import shutil
import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any, NotRequired, TypeAlias, TypedDict, TypeVar, cast

from kbqa.engine.files import check_same_settings, git_revision, hardware, lock, package_versions
from kbqa.kb.layout import write_safely
from kbqa.sparql.errors import TrainingError

if TYPE_CHECKING:
    import torch
    from torch import Tensor


LOG_FILE = "training_log.jsonl"
MANIFEST_FILE = "training_manifest.json"
CARD_FILE = "README.md"
ADAPTER_CONFIG_FILE = "adapter_config.json"
MODEL_CONFIG_FILE = "config.json"
_SCHEMA_VERSION = 1  # of the manifest
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

Record: TypeAlias = Mapping[str, Any]  # A row of a log, or a manifest
_T = TypeVar("_T")


class BestState(TypedDict):
    """The best validation of a run, and the step after which it came."""

    step: int
    loss: float
    main_path: float | None


class TrainingCheckpoint(TypedDict):
    """The state of a run of the writer.

    Runs of the first kbqa, which can still be resumed, have only some of these. Runs by reward need
    no more than the first three and the seconds.
    """

    adapter: "dict[str, Tensor]"  # the trained weights by name
    optimizer: dict[str, object]
    step: int
    randoms: "NotRequired[list[list[Tensor]]]"  # of each process: the CPU's, the GPU's
    random: "NotRequired[Tensor]"  # the CPU's, in the first runs
    best: NotRequired[BestState | None]
    stale: NotRequired[int]  # validations since the best
    losses: NotRequired[list[float]]  # of the steps since the last report
    seconds: NotRequired[float]  # of all processes that resumed the run


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The folder of a run."""

    path: Path

    def check(self, settings: Mapping[str, object]) -> None:
        """Raise a `TrainingError` unless the folder holds nothing, or a run with these settings."""
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
        """Raise a `TrainingError` if a run could replace something in the folder but a log."""
        found = sorted(self.path.iterdir()) if self.path.is_dir() else []
        for path in found:
            if path.is_dir() or not (path.suffix in _LOGS or path.name.startswith(".")):
                raise TrainingError(
                    f"{self.path} holds {path.name}, and no run to resume. Choose an empty folder."
                )

    @contextmanager
    def claimed(self, settings: Mapping[str, object]) -> Iterator[None]:
        """Reserve the folder for this process and a run with these settings; create it if needed.

        A `TrainingError` is raised if another process writes to it, or it holds another run.
        """
        path = self.path / _SETTINGS_FILE
        with self.locked():
            self.check(settings)
            if not path.is_file():
                self._write(path, json.dumps(settings, indent=2) + "\n")
            yield

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Reserve the folder for this process, whatever it holds; create it if needed."""
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

    def log(self, record: Record) -> None:
        """Add a record, which has its `step`, to the log."""
        with (self.path / LOG_FILE).open("a", encoding="utf-8") as log:
            log.write(json.dumps(record) + "\n")

    def cut_log(self, step: int) -> None:
        """Remove from the log what was logged after a step, because it will be logged again."""
        path = self.path / LOG_FILE
        text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
        lines, kept = text.splitlines(), ""
        for number, line in enumerate(lines, 1):
            try:
                kept += f"{line}\n" if json.loads(line)["step"] <= step else ""
            except (ValueError, LookupError, TypeError):
                if number == len(lines):
                    break  # the run was killed while it wrote this line
                raise TrainingError(
                    f"{path}, line {number}, cannot be read. Delete the line to resume."
                ) from None
        self._write(path, kept)

    def save_checkpoint(self, state: TrainingCheckpoint) -> None:
        """Keep a checkpoint and the one before it, and delete older ones."""
        import torch

        partial = self._empty_folder("checkpoint.tmp")
        torch.save(state, partial / _STATE_FILE)
        partial.rename(self.path / f"checkpoint-{state['step']}")
        for old in self._checkpoints()[:-_CHECKPOINTS_KEPT]:
            shutil.rmtree(old)

    def last_checkpoint(self) -> TrainingCheckpoint | None:
        """Read the last checkpoint; None if there is none."""
        checkpoints = self._checkpoints()
        if not checkpoints:
            return None
        path = checkpoints[-1] / _STATE_FILE
        advice = f"Delete {path.parent} to resume from the checkpoint before it, or from the start."
        return cast(TrainingCheckpoint, read_state(path, ("adapter", "optimizer", "step"), advice))

    def keep_best(self, write: Callable[[Path], None]) -> None:
        """Let a function write the adapter into an empty folder; keep it as the best so far."""
        partial, best = self._empty_folder("best.tmp"), self.path / _BEST
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

    def _empty_folder(self, name: str) -> Path:
        directory = self.path / name
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        return directory

    def _checkpoints(self) -> list[Path]:
        found = [p for p in self.path.glob("checkpoint-*") if p.name[11:].isdigit()]
        return sorted(found, key=lambda path: int(path.name[11:]))


def read_state(path: Path, fields: Collection[str], advice: str) -> Any:
    """Read the state of a run, as `torch.save` wrote it; an error ends with the advice."""
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


def read_log(output: Path) -> list[Record]:
    """Read what the run in a folder reported."""
    lines = (output / LOG_FILE).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def write_manifest(
    output: Path, packages: Iterable[str], record: Record, stage: str | None = None
) -> Record:
    """Write the manifest of a run, and return it as it is read again.

    It tells what the run was made with, such as the packages whose versions may change the result,
    and its own record: settings, data and result. All numbers of the card are from here.
    """
    made_with = {
        "schema_version": _SCHEMA_VERSION,
        **({} if stage is None else {"stage": stage}),
        "kbqa": version("kbqa"),
        "git": git_revision(),
        "python": platform.python_version(),
        "packages": package_versions(packages),
        "hardware": hardware(),
    }
    text = json.dumps({**made_with, **record}, indent=2, ensure_ascii=False) + "\n"
    (output / MANIFEST_FILE).write_text(text, encoding="utf-8")
    return read_manifest(output)


def read_manifest(output: Path) -> Record:
    """Read the manifest of a run."""
    manifest: Record = json.loads((output / MANIFEST_FILE).read_text(encoding="utf-8"))
    return manifest


def write_card(
    output: Path,
    manifest: Record,
    *,
    before: Iterable[str] = (),
    title: str,
    introduction: Iterable[str],
    sections: Mapping[str, Iterable[str]],
) -> None:
    """Write the card of a run in Markdown: lines by their headings, and last the versions."""
    versions = [
        f"- kbqa {manifest['kbqa']}, git {manifest['git'] or 'unknown'}",
        f"- Python {manifest['python']}",
        *(f"- {name} {found}" for name, found in manifest["packages"].items() if found),
    ]
    lines = [*before, f"# {title}", "", *introduction]
    for heading, body in {**sections, "Versions": versions}.items():
        lines += ["", f"## {heading}", "", *body]
    text = "".join(f"{line}\n" for line in lines)
    (output / CARD_FILE).write_text(text, encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Processes:
    """This process and its number among the processes that train together."""

    rank: int = 0  # 0 is the main process, the only one that writes files and reports
    count: int = 1

    @classmethod
    def from_environment(cls) -> "Processes":
        """Read rank and count from the launcher's variables; without a launcher, one process."""
        return cls(int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1")))

    @property
    def is_main(self) -> bool:
        """Whether this process writes files and reports."""
        return self.rank == 0

    def device(self) -> "torch.device":
        """Return the GPU of this process, or the CPU if there is no GPU."""
        import torch

        if not torch.cuda.is_available():
            return torch.device("cpu")
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))

    @contextmanager
    def joined(self, device: "torch.device") -> Iterator[None]:
        """Connect all processes; the methods below work inside."""
        import torch.distributed

        if self.count == 1:
            yield
            return
        # Its functions keep the group that is there when it is imported, as the first step of an
        # optimizer does. Then gloo's threads outlive the group, and at the end they may abort the
        # process: "terminate called without an active exception".
        import torch.distributed.nn.functional

        on_gpu = device.type == "cuda"
        if on_gpu:
            torch.cuda.set_device(device)
        torch.distributed.init_process_group("nccl" if on_gpu else "gloo")
        try:
            yield
        finally:
            torch.distributed.destroy_process_group()

    def share(self, items: Sequence[_T]) -> Sequence[_T]:
        """Return this process's share: every `count`-th item, starting at its rank."""
        return items[self.rank :: self.count]

    def sum_gradients(self, parameters: "Iterable[Tensor]") -> None:
        """Replace the gradients of every process by their sum over all processes."""
        import torch

        if self.count == 1:
            return
        for parameter in parameters:
            if parameter.grad is None:  # the process had no batch in this step
                parameter.grad = torch.zeros_like(parameter)
            torch.distributed.all_reduce(parameter.grad)

    def total(self, value: float) -> float:
        """Return the sum of a value over all processes."""
        return sum(self.gather(value))

    def gather(self, value: _T) -> list[_T]:
        """Return the values of all processes in the order of their ranks."""
        import torch.distributed

        if self.count == 1:
            return [value]
        values: list[_T | None] = [None] * self.count
        torch.distributed.all_gather_object(values, value)
        return values  # type: ignore[return-value]  # all are filled now

    def from_main(self, value: _T) -> _T:
        """Return the main process's value in every process."""
        import torch.distributed

        if self.count == 1:
            return value
        values = [value]
        torch.distributed.broadcast_object_list(values, src=0)
        return values[0]
