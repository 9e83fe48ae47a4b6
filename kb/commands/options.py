"""Options that several commands share, and text on its way in and out of the commands.

`options_of` makes options of the fields of settings. Arguments are UTF-8 in any locale, and results
and notes are printed as the stream and the terminal can take them.
"""

import functools
import json
import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    TextIO,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import click
from click.core import ParameterSource

from kbqa.kb.graph import DEFAULT_TIMEOUT_S, Graph, json_text, printable
from kbqa.kb.option import Option
from kbqa.sparql.errors import InputError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Command = Callable[..., None]
SettingsT = TypeVar("SettingsT", bound="DataclassInstance")


def options_of(
    settings: type[SettingsT],
    parameter: str,
    then: Callable[[SettingsT], SettingsT] = lambda chosen: chosen,
) -> Callable[[Command], Command]:
    """Add an option for each field of a dataclass that is ``Annotated[type, Option(...)]``.

    The command takes the settings as `parameter`, checked or completed by `then`.
    """
    described = _described(settings)
    names = option_names(settings)
    defaults = {field.name: field.default for field in fields(settings)}

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def with_settings(*args: object, **given: object) -> None:
            chosen = settings(**{field: given.pop(name) for field, name in names.items()})
            command(*args, **{parameter: then(chosen)}, **given)

        decorated: Command = with_settings
        for field, (kind, option) in reversed(described.items()):
            decorated = _click_option(field, kind, option, defaults[field])(decorated)
        return decorated

    return decorate


def option_names(settings: type[Any]) -> dict[str, str]:
    """Map the fields of settings to click's names of their options.

    Click names an option after its text: `--llm-model` is ``llm_model``.
    """
    texts = {field: _text(field, option) for field, (_, option) in _described(settings).items()}
    return {
        field: text.partition("/")[0].removeprefix("--").replace("-", "_")
        for field, text in texts.items()
    }


def _text(field: str, option: Option) -> str:
    return option.name or f"--{field.replace('_', '-')}"


def _described(settings: type[Any]) -> dict[str, tuple[Any, Option]]:
    """Return the type and the `Option` of each field that has one."""
    hints = get_type_hints(settings, include_extras=True)
    return {
        name: (get_args(hint)[0], annotation)
        for name, hint in hints.items()
        if get_origin(hint) is Annotated
        for annotation in hint.__metadata__
        if isinstance(annotation, Option)
    }


def _click_option(
    field: str, kind: Any, option: Option, default: Any
) -> Callable[[Command], Command]:
    attributes: dict[str, Any] = {}
    if default is MISSING:
        attributes["required"] = True
    elif not option.repeatable:
        attributes["default"] = ",".join(default) if isinstance(default, tuple) else default
    while get_origin(kind) in (Union, UnionType, tuple):  # of `X | None` and `tuple[X, ...]`, X
        kind = get_args(kind)[0]
    return click.option(
        _text(field, option),
        type=option.type or _click_type(kind, option),
        is_flag=kind is bool,
        multiple=option.repeatable,
        metavar=option.metavar,
        envvar=option.envvar,
        show_envvar=option.envvar is not None,
        help=option.help,
        **attributes,
    )


def _click_type(kind: Any, option: Option) -> "click.ParamType[Any] | None":
    """Return the type of an option of one value; None for a text or a flag."""
    if get_origin(kind) is Literal:
        return click.Choice(get_args(kind))
    if kind is Path:
        return click.Path(
            path_type=Path,
            exists=option.path in ("input file", "input folder"),
            dir_okay=option.path not in ("file", "input file"),
            file_okay=option.path not in ("folder", "input folder"),
        )
    if kind not in (int, float):
        return None
    least = option.at_least if option.above is None else option.above
    most = option.at_most if option.below is None else option.below
    if least is None and most is None:
        return click.INT if kind is int else click.FLOAT
    bounds: dict[str, Any] = {"min": least, "max": most}
    bounds |= {"min_open": option.above is not None, "max_open": option.below is not None}
    return click.IntRange(**bounds) if kind is int else _Number(**bounds)


class _Number(click.FloatRange):
    """A number in a range. For click, NaN is in every range, and no limit would hold with it."""

    meaning = "a number"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not {self.meaning}.", param, ctx)
        return number


class _Seconds(_Number):
    meaning = "a number of seconds"


SECONDS = _Seconds(min=0, min_open=True)
"""The type of an option that limits a time."""

_PRECEDENCE = (
    ParameterSource.COMMANDLINE,
    ParameterSource.ENVIRONMENT,
    ParameterSource.DEFAULT_MAP,
)


def is_given(name: str) -> bool:
    """Return whether the user chose a parameter, as a flag, in the environment or in a file."""
    return _rank(name) < len(_PRECEDENCE)


def _rank(name: str) -> int:
    source = click.get_current_context().get_parameter_source(name)
    return _PRECEDENCE.index(source) if source in _PRECEDENCE else len(_PRECEDENCE)


@dataclass(frozen=True, slots=True)
class GraphChoice:
    """The graph that the user chose, not yet opened; the demo graph if none is given."""

    store: Annotated[
        Path | None,
        Option(
            "Embedded store to query. Without --store or --endpoint: the demo graph.",
            metavar="DIR",
            envvar="KBQA_STORE",
        ),
    ] = None
    endpoints: Annotated[
        tuple[str, ...],
        Option(
            "SPARQL endpoint to query. Repeatable, for copies of one graph: if one fails, the "
            "next is asked. KBQA_ENDPOINT separates several by blanks.",
            "--endpoint",
            metavar="URL",
            repeatable=True,
            envvar="KBQA_ENDPOINT",
        ),
    ] = ()
    timeout_s: Annotated[
        float,
        Option(
            "Stop a query after this many seconds.",
            "--timeout",
            metavar="SECONDS",
            envvar="KBQA_TIMEOUT",
            type=SECONDS,
        ),
    ] = DEFAULT_TIMEOUT_S

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


def _prefer_flags(graph: GraphChoice) -> GraphChoice:
    """Keep the store or the endpoints, whichever ranks higher: a flag, the environment, a file."""
    if graph.store is not None and graph.endpoints:
        store_rank, endpoint_rank = _rank("store"), _rank("endpoint")
        if store_rank < endpoint_rank:
            return replace(graph, endpoints=())
        if endpoint_rank < store_rank:
            return replace(graph, store=None)
    return graph


graph_options = options_of(GraphChoice, "graph", _prefer_flags)


def json_option(command: Command) -> Command:
    """Add `--json`; the command takes it as `as_json: bool`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


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


def asked_questions(argument: str) -> Iterator[str]:
    """Yield the question of a command line, or for ``-`` the lines of standard input."""
    if argument == "-":
        for line in sys.stdin.buffer:
            if text := line.decode("utf-8-sig", "replace").strip():
                yield text
        return
    if not argument.strip():
        raise InputError("the question is empty")
    try:  # In a locale without UTF-8, its bytes arrive as surrogates.
        yield argument.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    except UnicodeEncodeError:  # Other surrogates, which no terminal sends.
        yield argument.encode("utf-8", "replace").decode("utf-8")


def read_standard_input() -> str:
    """Read all of standard input as UTF-8, whatever the locale says, without a byte order mark."""
    return sys.stdin.buffer.read().decode("utf-8-sig", "replace")


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether a stream of `sys`, which is None if it is closed, is a terminal."""
    return stream is not None and stream.isatty()


def print_result(text: str, *, is_styled: bool = False) -> None:
    """Print a result to standard output, with characters that its encoding lacks as escapes.

    A terminal gets only what is printable; a file or a pipe gets the text as it is. A styled text
    is printable already, and has colours for a terminal.
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
