"""The folder of a training run: its settings, log, checkpoints and best weights, and the adapter.

A run can be killed at any moment and resumed later, and half an adapter must never be mistaken for
a whole one. So everything that is read again is written under another name and then renamed. A
model that is trained whole takes the place of the adapter.

The log of a training run: its progress, as reported, read again and drawn.

The processes that train one model together, as `torchrun` or `accelerate launch` start them.

Each takes its share of a step's batches, and the results are summed. A single process, the common
case, does not use torch.distributed.
"""

import json
import os
import shutil
import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple, NotRequired, TypedDict, TypeVar

from kbqa.engine.evaluation.plots import new_figure
from kbqa.engine.files import check_same_settings, lock
from kbqa.kb.small_files import write_safely
from kbqa.sparql.errors import TrainingError
from kbqa.training.config import Stage

if TYPE_CHECKING:
    import torch
    from matplotlib.axes import Axes
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


CURVES_FILE = "training_curves.png"


class TrainingProgress(NamedTuple):
    """How far a run has come.

    Attributes:
        step: Steps done.
        steps: All steps, unless the run stops early.
        epoch: Epochs done, with a fraction.
        loss: Mean loss per target token, natural log, since the last report.
        valid_loss: The same on the held-out examples; None between validations, or if nothing is
            held out.
        valid_main_path: Share of the held-out questions asked whose main path is written exactly;
            None between validations, or if no question is asked.
    """

    step: int
    steps: int
    epoch: float
    loss: float
    valid_loss: float | None
    valid_main_path: float | None = None


class RewardProgress(NamedTuple):
    """How far a run of training by reward has come.

    Attributes:
        step: Steps done; 0 for the validation of the start.
        steps: All steps, unless the run stops early.
        epoch: Epochs done, with a fraction.
        reward: Mean reward of the paths drawn in the step.
        spread: Share of the step's questions whose paths differ in their rewards; the others teach
            nothing.
        kl: Estimate of the KL divergence from the start for each choice, in nats; None if nothing
            was learnt.
        clipped: Share of the choices that the clip held back in the last update; None likewise.
        valid_f1: Mean F1 of the best paths for the held-out questions; None between validations.
    """

    step: int
    steps: int
    epoch: float
    reward: float | None
    spread: float | None
    kl: float | None
    clipped: float | None
    valid_f1: float | None


class Stretch(NamedTuple):
    """The steps from one validation to the next, or of one epoch if nothing is held out.

    Attributes:
        step: The last step.
        epoch: Epochs done by then.
        loss: Mean loss of the steps.
        valid_loss: Mean loss on the held-out examples after them, or None.
        valid_main_path: Share of main paths written exactly after them, or None.
    """

    step: int
    epoch: float
    loss: float
    valid_loss: float | None
    valid_main_path: float | None


def read_log(output: Path) -> list[TrainingProgress]:
    """Read what the run in a folder reported."""
    lines = (output / LOG_FILE).read_text(encoding="utf-8").splitlines()
    return [TrainingProgress(**json.loads(line)) for line in lines]


def read_reward_log(output: Path) -> list[RewardProgress]:
    """Read what a run of training by reward reported."""
    lines = (output / LOG_FILE).read_text(encoding="utf-8").splitlines()
    return [RewardProgress(**json.loads(line)) for line in lines]


def reward_stretches(log: list[RewardProgress]) -> Iterator[RewardProgress]:
    """Sum up a log: its rows with a validation, and the last, with means over the steps before."""
    since: list[RewardProgress] = []
    for row in log:
        since.append(row)
        if row.valid_f1 is not None or row is log[-1]:
            yield row._replace(
                reward=_mean(each.reward for each in since),
                spread=_mean(each.spread for each in since),
                kl=_mean(each.kl for each in since),
                clipped=_mean(each.clipped for each in since),
            )
            since = []


def _mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that are known; None if none is."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def stretches(log: list[TrainingProgress]) -> Iterator[Stretch]:
    """Sum up a log from validation to validation."""
    validates = any(row.valid_loss is not None for row in log)
    last_step, loss, steps = 0, 0.0, 0
    for row in log:
        loss += row.loss * (row.step - last_step)
        steps += row.step - last_step
        last_step = row.step
        if row.valid_loss is not None if validates else row.epoch == int(row.epoch):
            yield Stretch(row.step, row.epoch, loss / steps, row.valid_loss, row.valid_main_path)
            loss, steps = 0.0, 0


def draw_curves(output: Path, stage: Stage = "sft") -> Path:
    """Draw the losses or rewards, and the validations, of a run by step: a picture in its folder.

    Args:
        output: Folder of the run, with its log.
        stage: How the run trained.

    Returns:
        The picture.

    Raises:
        ImportError: matplotlib, of the `plots` extra, is not installed.
    """
    figure, axes = new_figure(8, 4.5)
    if stage == "grpo":
        _draw_rewards(axes, read_reward_log(output))
    else:
        _draw_losses(axes, read_log(output))
    figure.legend(loc="outside upper center", ncols=3, frameon=False)
    picture = output / CURVES_FILE
    figure.savefig(picture, dpi=150)
    return picture


def _draw_losses(losses: "Axes", log: list[TrainingProgress]) -> None:
    losses.set(xlabel="step", ylabel="loss per target token, nats", yscale="log")
    losses.plot([row.step for row in log], [row.loss for row in log], "C0", label="training loss")
    valid = [(row.step, row.valid_loss) for row in log if row.valid_loss is not None]
    if valid:
        losses.plot(*zip(*valid, strict=True), "C1o-", label="loss on held-out examples")
    paths = [(row.step, row.valid_main_path) for row in log if row.valid_main_path is not None]
    if paths:
        shares = losses.twinx()
        shares.set(ylabel="main paths written exactly", ylim=(0, 1))
        shares.plot(*zip(*paths, strict=True), "C2s--", label="main paths of held-out questions")


def _draw_rewards(shares: "Axes", log: list[RewardProgress]) -> None:
    shares.set(xlabel="step", ylabel="reward, F1, share", ylim=(0, 1))
    means = list(reward_stretches(log))
    series = (
        ("C0o-", "mean reward", [(each.step, each.reward) for each in means]),
        ("C1s-", "F1 of held-out questions", [(each.step, each.valid_f1) for each in means]),
        ("C2:", "questions with spread", [(each.step, each.spread) for each in means]),
    )
    for style, label, points in series:
        known = [point for point in points if point[1] is not None]
        if known:
            shares.plot(*zip(*known, strict=True), style, label=label)
    divergences = [(each.step, each.kl) for each in means if each.kl is not None]
    if divergences:
        nats = shares.twinx()
        nats.set(ylabel="KL divergence from the start for each choice, nats")
        nats.plot(*zip(*divergences, strict=True), "C3--", label="KL divergence")


_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Processes:
    """This process and its number among the processes that train together.

    Attributes:
        rank: Its number. 0 is the main process, the only one that writes files and reports.
        count: The number of processes.
    """

    rank: int = 0
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

    def total(self, value: float, device: "torch.device") -> float:
        """Return the sum of a value over all processes."""
        import torch

        if self.count == 1:
            return value
        total = torch.tensor(value, device=device, dtype=torch.float64)
        torch.distributed.all_reduce(total)
        return float(total)

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
