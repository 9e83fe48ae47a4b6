"""The log of a training run: its progress, as reported, read again and drawn."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from kbqa.training.writer.run_folder import LOG_FILE

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


def draw_curves(output: Path) -> Path:
    """Draw the losses and validations of a run by step, as a picture in its folder.

    Args:
        output: Folder of the run, with its log.

    Returns:
        The picture.

    Raises:
        ImportError: matplotlib, of the `plots` extra, is not installed.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    log = read_log(output)
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    losses = figure.add_subplot()
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
    figure.legend(loc="outside upper center", ncols=3, frameon=False)
    picture = output / CURVES_FILE
    figure.savefig(picture, dpi=150)
    return picture
