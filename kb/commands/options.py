"""Command-line options that several commands share: which graph to query, and how to print."""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from kbqa.kb.graph import DEFAULT_TIMEOUT_S, Graph

Command = Callable[..., None]

_PRECEDENCE = (
    ParameterSource.COMMANDLINE,
    ParameterSource.ENVIRONMENT,
    ParameterSource.DEFAULT_MAP,
)


class _Seconds(click.FloatRange):
    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        seconds: float = super().convert(value, param, ctx)
        if math.isnan(seconds):  # which a range does not notice
            self.fail(f"{value!r} is not a number of seconds.", param, ctx)
        return seconds


SECONDS = _Seconds(min=0, min_open=True)
"""The type of an option that limits a time."""


@dataclass(frozen=True, slots=True)
class GraphChoice:
    """The graph that the user chose, not yet opened.

    Attributes:
        store: Directory of an embedded store.
        endpoints: URLs of SPARQL endpoints with copies of one graph. Neither given means the demo
            graph.
        timeout_s: Seconds until a query is stopped.
    """

    store: Path | None
    endpoints: tuple[str, ...] = ()
    timeout_s: float = DEFAULT_TIMEOUT_S

    @property
    def is_demo(self) -> bool:
        """Whether no other graph than the demo graph is given."""
        return self.store is None and not self.endpoints

    def open(self, workers: int = 1, *, low_priority: bool = False) -> Graph:
        """Open the graph; see `kbqa.kb.open.open_graph`."""
        from kbqa.kb.open import open_graph

        return open_graph(
            self.store,
            self.endpoints or None,
            self.timeout_s,
            workers=workers,
            low_priority=low_priority,
        )


def graph_options(command: Command) -> Command:
    """Add `--store`, `--endpoint` and `--timeout`; the command takes them as `graph: GraphChoice`.

    A flag wins over the environment, which wins over the configuration file: `--endpoint` counts
    even if KBQA_STORE is set.
    """

    @click.option(
        "--store",
        type=click.Path(path_type=Path),
        envvar="KBQA_STORE",
        show_envvar=True,
        metavar="DIR",
        help="Embedded store to query. Without --store or --endpoint: the demo graph.",
    )
    @click.option(
        "--endpoint",
        "endpoints",
        multiple=True,
        envvar="KBQA_ENDPOINT",
        show_envvar=True,
        metavar="URL",
        help="SPARQL endpoint to query. Repeatable, for copies of one graph: if one fails, the "
        "next is asked. KBQA_ENDPOINT separates several by blanks.",
    )
    @click.option(
        "--timeout",
        "timeout_s",
        type=SECONDS,
        default=DEFAULT_TIMEOUT_S,
        show_default=True,
        envvar="KBQA_TIMEOUT",
        show_envvar=True,
        metavar="SECONDS",
        help="Stop a query after this many seconds.",
    )
    @functools.wraps(command)
    def with_graph(
        *args: object,
        store: Path | None,
        endpoints: tuple[str, ...],
        timeout_s: float,
        **rest: object,
    ) -> None:
        if store is not None and endpoints:
            store_rank, endpoint_rank = _rank("store"), _rank("endpoints")
            if store_rank < endpoint_rank:
                endpoints = ()
            elif endpoint_rank < store_rank:
                store = None
        command(*args, graph=GraphChoice(store, endpoints, timeout_s), **rest)

    return with_graph


def json_option(command: Command) -> Command:
    """Add `--json`; the command takes it as `as_json: bool`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def _rank(option: str) -> int:
    source = click.get_current_context().get_parameter_source(option)
    return _PRECEDENCE.index(source) if source in _PRECEDENCE else len(_PRECEDENCE)
