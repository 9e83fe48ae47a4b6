"""Read the log of a training run: how the losses fell."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from kbqa.training.progress import Progress
from kbqa.training.run_folder import LOG_FILE


class Stretch(NamedTuple):
    """The steps from one validation to the next, or, where nothing is held out, of one epoch.

    Attributes:
        step: The last of them.
        epoch: Epochs done by then.
        loss: Mean loss of the steps.
        valid_loss: Mean loss on what is held out, after them; None where nothing is.
        valid_main_path: Share of main paths written exactly, after them; None where none was asked.
    """

    step: int
    epoch: float
    loss: float
    valid_loss: float | None
    valid_main_path: float | None


def read_log(output: Path) -> list[Progress]:
    """Read what a run in this folder reported."""
    lines = (output / LOG_FILE).read_text(encoding="utf-8").splitlines()
    return [Progress(**json.loads(line)) for line in lines]


def stretches(log: list[Progress]) -> Iterator[Stretch]:
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
