"""Command-line options that several commands share: which graph to ask, and how to print."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click
from click.core import ParameterSource

from kbqa.kb.graph import DEFAULT_TIMEOUT_S, Graph

Command = Callable[..., None]

_PRECEDENCE = (
    ParameterSource.COMMANDLINE,
    ParameterSource.ENVIRONMENT,
    ParameterSource.DEFAULT_MAP,
)


@dataclass(frozen=True, slots=True)
class GraphChoice:
    """The graph that the user chose, not yet opened.

    Attributes:
        store: Directory of an embedded store.
        endpoint: URL of a SPARQL endpoint. Neither given means the demo graph.
        timeout_s: Seconds until a query is stopped.
    """

    store: Path | None
    endpoint: str | None
    timeout_s: float = DEFAULT_TIMEOUT_S

    def open(self) -> Graph:
        """Open the graph; raises as `kbqa.kb.select_graph.open_graph` does."""
        from kbqa.kb.select_graph import open_graph

        return open_graph(self.store, self.endpoint, self.timeout_s)


def graph_options(command: Command) -> Command:
    """Add `--store`, `--endpoint` and `--timeout`; the command takes them as `graph: GraphChoice`.

    A flag wins over the environment, which wins over the configuration file: `--endpoint` is obeyed
    although KBQA_STORE is set.
    """

    @click.option(
        "--store",
        type=click.Path(path_type=Path),
        envvar="KBQA_STORE",
        show_envvar=True,
        metavar="DIR",
        help="Embedded store to ask; without --store and --endpoint it is the demo graph.",
    )
    @click.option(
        "--endpoint",
        envvar="KBQA_ENDPOINT",
        show_envvar=True,
        metavar="URL",
        help="SPARQL endpoint to ask.",
    )
    @click.option(
        "--timeout",
        "timeout_s",
        type=click.FloatRange(min=0, min_open=True),
        default=DEFAULT_TIMEOUT_S,
        show_default=True,
        envvar="KBQA_TIMEOUT",
        show_envvar=True,
        metavar="SECONDS",
        help="Stop a query after so many seconds.",
    )
    @functools.wraps(command)
    def with_graph(
        *args: object, store: Path | None, endpoint: str | None, timeout_s: float, **rest: object
    ) -> None:
        if store is not None and endpoint is not None:
            store_rank, endpoint_rank = _rank("store"), _rank("endpoint")
            if store_rank < endpoint_rank:
                endpoint = None
            elif endpoint_rank < store_rank:
                store = None
        command(*args, graph=GraphChoice(store, endpoint, timeout_s), **rest)

    return with_graph


def json_option(command: Command) -> Command:
    """Add `--json`; the command takes it as `as_json: bool`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def _rank(option: str) -> int:
    source = click.get_current_context().get_parameter_source(option)
    return _PRECEDENCE.index(source) if source in _PRECEDENCE else len(_PRECEDENCE)
