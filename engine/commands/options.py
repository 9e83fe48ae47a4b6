"""Command-line options that several commands share: the small model, and the questions."""

import functools
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import click

from kbqa.engine.commands.terminal.screen import waiting
from kbqa.engine.config import check_key
from kbqa.engine.writing.generate import (
    DEFAULT_LEVEL,
    LEVELS,
    DecodingLevel,
)
from kbqa.engine.writing.model_choice import BEAM_BACKENDS, Backend, ModelChoice
from kbqa.kb.commands.options import SECONDS
from kbqa.sparql.errors import GraphError

if TYPE_CHECKING:
    from kbqa.engine.commands.chat_options import ChatChoice
    from kbqa.engine.commands.methods import MethodChoice
    from kbqa.engine.engine import Engine
    from kbqa.engine.writing.generate import Generator
    from kbqa.kb.commands.options import GraphChoice
    from kbqa.kb.graph import Graph

Command = Callable[..., None]


def weights_options(command: Command) -> Command:
    """Add `--model` and `--adapter`; the command takes them as `base` and `adapter`."""
    base = click.option(
        "--model", "base", metavar="MODEL", help="Base model instead of the adapter's."
    )
    adapter = click.option(
        "--adapter",
        type=click.Path(path_type=Path, file_okay=False),
        metavar="DIR",
        help="Adapter of `kbqa train-crp` instead of the shipped one.",
    )
    return base(adapter(command))


class _Level(click.Choice[str]):
    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        if value == "grammar":
            self.fail("grammar was removed: it improved nothing. Use schema.", param, ctx)
        return super().convert(value, param, ctx)


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
        type=_Level(LEVELS),
        help="What constrains the writing: nothing, the graph's relations, or its ways from the "
        f"question's entities.  [default: {DEFAULT_LEVEL}; none under vllm and server]",
    )
    @click.option(
        "--backend",
        type=click.Choice(get_args(Backend)),
        help="What runs the small model.  [default: openvino if it is installed and there is no "
        "GPU, else transformers]",
    )
    @click.option(
        "--server",
        metavar="URL",
        help="OpenAI-compatible server of the small model.",
    )
    @click.option(
        "--served-model", metavar="NAME", help="Its name on --server, if that has several."
    )
    @click.option(
        "--threads",
        type=click.IntRange(1),
        metavar="N",
        help="Threads of the small model.  [default: one a core]",
    )
    @functools.wraps(command)
    def with_model(
        *args: object,
        base: str | None,
        adapter: Path | None,
        n: int,
        decoding: DecodingLevel | None,
        backend: Backend | None,
        server: str | None,
        served_model: str | None,
        threads: int | None,
        **rest: object,
    ) -> None:
        backend = backend or ("server" if server is not None else None)
        if (backend == "server") != (server is not None):
            raise click.UsageError("--backend server and --server URL go together")
        if server is not None and rest.get("via") is None:
            check_key("server", server, "KBQA_SERVER_API_KEY")
        searches = backend is None or backend in BEAM_BACKENDS
        level = decoding or (DEFAULT_LEVEL if searches else "none")
        model = ModelChoice(base, adapter, n, level, backend, server, served_model, threads)
        command(*args, model=model, **rest)

    return with_model


def deadline_option(command: Command) -> Command:
    """Add `--deadline`; the command takes it as `deadline_s: float | None`."""
    return click.option(
        "--deadline",
        "deadline_s",
        type=SECONDS,
        metavar="SECONDS",
        help="Give up a question after this time in all.",
    )(command)


@contextmanager
def open_engine(
    graph: "GraphChoice",
    model: ModelChoice,
    chat: "ChatChoice",
    method: "MethodChoice",
    saved: "Generator | None" = None,
    workers: int = 1,
) -> "Iterator[Engine]":
    """Open what a question needs, as the user chose it.

    Args:
        graph: The graph.
        model: The small model, loaded only if the method writes paths.
        chat: The general model.
        method: The method and its settings.
        saved: Stands in for the small model if all paths have been written before.
        workers: Queries that run at once.

    Raises:
        InputError: The choices contradict each other.
        ModelError: A model is missing or broken.
        GraphError: The graph does not answer, or holds nothing.
    """
    with waiting("Opening the graph"):
        from kbqa.engine.engine import Engine
        from kbqa.engine.methods.modules import make_method
        from kbqa.engine.resources import Resources

        chat.check()
        opened = graph.open(workers)
    with closing(opened):
        check_answers(opened, graph.timeout_s)

        def load() -> "Generator":
            return model.load(opened) if saved is None else saved

        resources = Resources(
            opened,
            load,
            chat.open,
            n=model.n,
            timeout_s=graph.timeout_s,
            chooser=method.chooser,
            call_budget=method.call_budget,
            unsure_below=method.unsure_below,
            threads=model.threads,
        )
        with closing(resources):
            with waiting("Loading the model"):
                made = make_method(resources, method.name, method.settings)
            yield Engine.over(resources, made)


def check_answers(graph: "Graph", timeout_s: float) -> None:
    """Check that a graph answers and holds something, before work begins.

    Raises:
        GraphError: It does not.
    """
    if not graph.ask("ASK { ?s ?p ?o }", timeout_s=timeout_s):
        raise GraphError(f"{graph.description} holds no triples")


def questions_option(command: Command) -> Command:
    """Add `--questions`, a file that exists; the command takes it as `file: Path`."""
    return click.option(
        "--questions",
        "file",
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        required=True,
        metavar="FILE",
        help="Question set: JSON Lines, gzipped or not, or an official file of WebQSP, CWQ, "
        "GrailQA, Free917 or SimpleQuestions.",
    )(command)
