"""The log of a training run: its progress, as reported, read again and drawn."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from kbqa.engine.evaluation.reports.plots import new_figure
from kbqa.training.writer.config import Stage
from kbqa.training.writer.run_folder import LOG_FILE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
