"""Command-line options that several commands share: which graph to query, and how to print.

Text on its way in and out of the commands: arguments in any locale, results and notes.
"""

import functools
import json
import math
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import click
from click.core import ParameterSource

from kbqa.kb.graph import DEFAULT_TIMEOUT_S, Graph
from kbqa.kb.small_files import json_text, printable

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


class _Text(click.ParamType[str]):
    """Text in UTF-8, whatever the locale says.

    In the C locale, Python reads the bytes of other letters than ASCII as lone surrogates.
    """

    name = "text"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not any("\ud800" <= character <= "\udfff" for character in value):
            return value
        try:
            return os.fsencode(value).decode("utf-8")
        except UnicodeError:
            self.fail("it is not text in UTF-8.", param, ctx)


TEXT = _Text()
"""The type of an argument that is text."""


def read_standard_input() -> str:
    """Read all of standard input as UTF-8, whatever the locale says, without a byte order mark."""
    return sys.stdin.buffer.read().decode("utf-8-sig", "replace")


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether a stream of `sys`, which is None if it is closed, is a terminal."""
    return stream is not None and stream.isatty()


def print_result(text: str, *, is_styled: bool = False) -> None:
    """Print a result to standard output, with characters that its encoding lacks as escapes.

    A terminal gets only what is printable; a file or a pipe gets the text as it is.

    Args:
        text: The result.
        is_styled: It is printable already, and has colours for a terminal.
    """
    if not is_styled and is_terminal(sys.stdout):
        text = printable(text)
    encoding = _output_encoding()
    # By itself, click would cut escape sequences out of what is piped.
    click.echo(text.encode(encoding, "backslashreplace").decode(encoding), color=True)


def print_json(value: object, indent: int | None = None) -> None:
    """Print JSON to standard output; what a terminal would obey is an escape."""
    text = json_text(value, indent)
    try:
        text.encode(_output_encoding())
    except UnicodeEncodeError:
        text = json.dumps(value, indent=indent)
    click.echo(text)


def print_note(text: str) -> None:
    """Print to standard error what is no result, without what a terminal would obey.

    A standard error that cannot be written, such as a log on a full disk, ends no command.
    """
    with suppress(OSError):
        click.echo(printable(text), err=True)


def _output_encoding() -> str:
    return (sys.stdout and sys.stdout.encoding) or "utf-8"  # stdout is None if it is closed
