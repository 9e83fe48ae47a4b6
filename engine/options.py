"""Command-line options that several commands share: the small model, and the questions."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kbqa.engine.levels import DEFAULT_LEVEL, GRAPH_LEVELS, LEVELS, Level

if TYPE_CHECKING:
    from kbqa.engine.generate import Generator
    from kbqa.kb.graph import Graph

Command = Callable[..., None]


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """The small model that the user chose, not yet loaded.

    Attributes:
        base: Base model, or None for the one that the adapter names.
        adapter: Folder of the adapter, or None for the shipped one.
        n: Candidates a question.
        decoding: How far what it writes is constrained.
    """

    base: str | None
    adapter: Path | None
    n: int
    decoding: Level = DEFAULT_LEVEL

    @property
    def needs_graph(self) -> bool:
        """Whether the graph constrains what the model writes."""
        return self.decoding in GRAPH_LEVELS

    def load(self, graph: "Graph | None") -> "Generator":
        """Load the model.

        Args:
            graph: Where it is to answer; None will do where `needs_graph` says no.

        Raises:
            ModelError: The `lm` extra, the base model or the adapter is missing or broken.
            GraphError: The graph does not answer.
        """
        from kbqa.engine.decoding import Decoding
        from kbqa.engine.generate import DEFAULT_ADAPTER
        from kbqa.engine.transformers_generator import TransformersGenerator

        decoding = Decoding(self.decoding, graph)
        return TransformersGenerator.load(self.adapter or DEFAULT_ADAPTER, self.base, decoding)


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
    """Add `--model`, `--adapter`, `--n`, `--decoding`; the command takes a `model: ModelChoice`."""

    @weights_options
    @click.option(
        "--n",
        type=click.IntRange(1, 50),
        default=5,
        show_default=True,
        help="Reasoning paths to write for a question.",
    )
    @click.option(
        "--decoding",
        type=click.Choice(LEVELS),
        default=DEFAULT_LEVEL,
        show_default=True,
        help="What constrains them while they are written: nothing, the form of a path, also the "
        "graph's relations, or also the ways that the graph has from the question's entities.",
    )
    @functools.wraps(command)
    def with_model(
        *args: object,
        base: str | None,
        adapter: Path | None,
        n: int,
        decoding: Level,
        **rest: object,
    ) -> None:
        command(*args, model=ModelChoice(base, adapter, n, decoding), **rest)

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
