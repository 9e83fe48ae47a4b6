"""Command-line options that several commands share: the small model, and the questions."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from kbqa.engine.generate import Generator

Command = Callable[..., None]


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """The small model that the user chose, not yet loaded.

    Attributes:
        base: Base model, or None for the one that the adapter names.
        adapter: Folder of the adapter, or None for the shipped one.
        n: Candidates a question.
    """

    base: str | None
    adapter: Path | None
    n: int

    def load(self) -> "Generator":
        """Load the model.

        Raises:
            ModelError: The `lm` extra, the base model or the adapter is missing or broken.
        """
        from kbqa.engine.generate import DEFAULT_ADAPTER
        from kbqa.engine.transformers_generator import TransformersGenerator

        return TransformersGenerator.load(self.adapter or DEFAULT_ADAPTER, self.base)


def weights_options(command: Command) -> Command:
    """Add `--model` and `--adapter`; the command takes them as `base` and `adapter`."""
    base = click.option(
        "--model", "base", metavar="MODEL", help="Base model instead of the adapter's."
    )
    adapter = click.option(
        "--adapter",
        type=click.Path(path_type=Path, file_okay=False),
        metavar="DIR",
        help="Adapter that `kbqa train-crp` made, instead of the shipped one.",
    )
    return base(adapter(command))


def model_options(command: Command) -> Command:
    """Add `--model`, `--adapter` and `--n`; the command takes them as `model: ModelChoice`."""

    @weights_options
    @click.option(
        "--n",
        type=click.IntRange(1, 50),
        default=5,
        show_default=True,
        help="Reasoning paths to write for a question.",
    )
    @functools.wraps(command)
    def with_model(
        *args: object, base: str | None, adapter: Path | None, n: int, **rest: object
    ) -> None:
        command(*args, model=ModelChoice(base, adapter, n), **rest)

    return with_model


def questions_option(command: Command) -> Command:
    """Add `--questions`, a file that exists; the command takes it as `file: Path`."""
    return click.option(
        "--questions",
        "file",
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        required=True,
        metavar="FILE",
        help="Question set, JSON Lines, gzipped or not.",
    )(command)
