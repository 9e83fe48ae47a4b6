"""Command-line options that several commands share: the small model, and the questions."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from typing import Literal as Choice

import click

from kbqa.engine.levels import DEFAULT_LEVEL, GRAPH_LEVELS, LEVELS, Level

if TYPE_CHECKING:
    from kbqa.engine.generate import Generator
    from kbqa.kb.graph import Graph

Command = Callable[..., None]
Backend = Choice["transformers", "vllm", "server"]


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """The small model that the user chose, not yet loaded.

    Attributes:
        base: Base model, or None for the one that the adapter names.
        adapter: Folder of the adapter, or None for the shipped one.
        n: Candidates a question.
        decoding: How far what it writes is constrained.
        backend: What runs it.
        server: Where it is served, for the back end ``server``.
        served_model: As the server calls it; None where it serves only one.
    """

    base: str | None
    adapter: Path | None
    n: int
    decoding: Level = DEFAULT_LEVEL
    backend: Backend = "transformers"
    server: str | None = None
    served_model: str | None = None

    @property
    def needs_graph(self) -> bool:
        """Whether the graph constrains what the model writes."""
        return self.decoding in GRAPH_LEVELS

    def check(self) -> None:
        """Make sure that the model can be loaded, as far as that is quickly told.

        Raises:
            ModelError: The `lm` extra is missing, and the back end needs it.
        """
        from kbqa.engine.models import require_lm_extra

        if self.backend == "transformers":
            require_lm_extra()

    def load(self, graph: "Graph | None") -> "Generator":
        """Load the model.

        Args:
            graph: Where it is to answer; None will do where `needs_graph` says no.

        Raises:
            ModelError: What the back end needs, the base model or the adapter is missing or broken,
                or the server does not answer.
            GraphError: The graph does not answer.
        """
        from kbqa.engine.decoding import Decoding
        from kbqa.engine.generate import DEFAULT_ADAPTER

        adapter = self.adapter or DEFAULT_ADAPTER
        decoding = Decoding(self.decoding, graph)
        if self.server is not None:
            from kbqa.engine.prompt import load_prompt_format
            from kbqa.engine.server_generator import ServerGenerator

            prompt = load_prompt_format(adapter)
            return ServerGenerator(self.server, prompt, self.served_model, decoding)
        if self.backend == "vllm":
            from kbqa.engine.vllm_generator import VllmGenerator

            return VllmGenerator.load(adapter, self.base, decoding)
        from kbqa.engine.transformers_generator import TransformersGenerator

        return TransformersGenerator.load(adapter, self.base, decoding)


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
    """Add what chooses the small model; the command takes it as `model: ModelChoice`."""

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
        help="What constrains them while they are written: nothing, the form of a path, also the "
        "graph's relations, or also the ways that the graph has from the question's entities.  "
        f"[default: {DEFAULT_LEVEL} under transformers, else none]",
    )
    @click.option(
        "--backend",
        type=click.Choice(["transformers", "vllm", "server"]),
        help="What runs the model.  [default: transformers, or server with --server]",
    )
    @click.option(
        "--server",
        metavar="URL",
        help="OpenAI-compatible server of the model, such as http://127.0.0.1:8000/v1.",
    )
    @click.option(
        "--served-model", metavar="NAME", help="The model as --server calls it, if it has several."
    )
    @functools.wraps(command)
    def with_model(
        *args: object,
        base: str | None,
        adapter: Path | None,
        n: int,
        decoding: Level | None,
        backend: Backend | None,
        server: str | None,
        served_model: str | None,
        **rest: object,
    ) -> None:
        backend = backend or ("transformers" if server is None else "server")
        if (backend == "server") != (server is not None):
            raise click.UsageError("--backend server and --server URL go together")
        if backend != "transformers" and decoding == "graph":
            raise click.UsageError(
                f"--decoding graph is for --backend transformers; {backend} offers up to schema"
            )
        level = decoding or (DEFAULT_LEVEL if backend == "transformers" else "none")
        model = ModelChoice(base, adapter, n, level, backend, server, served_model)
        command(*args, model=model, **rest)

    return with_model


def questions_option(command: Command) -> Command:
    """Add `--questions`, a file that exists; the command takes it as `file: Path`."""
    return click.option(
        "--questions",
        "file",
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        required=True,
        metavar="FILE",
        help="Question set: JSON Lines, gzipped or not, or an official file of WebQSP or CWQ.",
    )(command)
