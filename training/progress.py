"""What a training run tells: where it stands, and what it made."""

from pathlib import Path
from typing import NamedTuple


class Progress(NamedTuple):
    """Where a run stands.

    Attributes:
        step: Steps done.
        steps: Steps in all, unless the run stops early.
        epoch: Epochs done, with fraction.
        loss: Mean loss per target token, natural log, since the last report.
        valid_loss: The same on the held-out examples; None but at a validation, and where no
            example is held out.
        valid_main_path: Share of the held-out questions that were asked whose main path is written
            exactly; None but at a validation, and where none was asked.
    """

    step: int
    steps: int
    epoch: float
    loss: float
    valid_loss: float | None
    valid_main_path: float | None = None


class TrainingResult(NamedTuple):
    """What a run made.

    Attributes:
        adapter: The folder of the adapter, in PEFT layout, or of the whole model.
        steps: Steps done.
        best_step: Steps after which the weights were those that are written.
        stopped_early: Whether it ended because no validation had been better for long.
        train_examples: Examples trained on, after those too long were left out.
        too_long: Set and id of the examples left out for their length.
        trained_tokens: Tokens of prompts and targets that the steps saw, without padding.
        trainable_parameters: How many there are.
        base_revision: Commit of the base model, or the SHA-256 of its weights; None if unknown.
        valid_loss: Mean loss per target token on the held-out examples, natural log, of what is
            written; None where no example is held out.
        valid_main_path: Share of the asked questions whose main path it writes exactly; None
            where none was asked.
        seconds: Wall time, that of processes which this one resumed included.
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
