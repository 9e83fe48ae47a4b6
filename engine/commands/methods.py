"""The option `--method` with its settings, and the command `kbqa methods`, which lists them."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import get_args

import click

from kbqa.engine.answer import UNSURE_BELOW
from kbqa.engine.method import ChooserName
from kbqa.engine.methods import DEFAULT_METHOD, METHODS
from kbqa.engine.methods.settings import describe_settings, split_settings
from kbqa.kb.commands.options import json_option
from kbqa.kb.commands.text import print_json, print_result

Command = Callable[..., None]

_OLD_METHODS = {
    "specialised": "--method router --set repair=off",
    "general": "--method router --set write=no",
}
"""What `--method` was called before there were several methods."""

_OLD_OPTIONS = (
    "--repair",
    "--route",
    "--general-calls",
    "--stop",
    "--width",
    "--embedder",
    "--order",
    "--confidence",
    "--without",
)
"""Options that are settings of the router now."""


@dataclass(frozen=True, slots=True)
class MethodChoice:
    """The method that the user chose, not yet made.

    Attributes:
        name: In the table of methods.
        settings: As the user wrote them, by name.
        chooser: Who takes its decisions, if the user says so.
        call_budget: Decisions a question, at most; None for any number.
        unsure_below: The confidence below which an answer is a guess.
    """

    name: str
    settings: dict[str, object]
    chooser: ChooserName | None = None
    call_budget: int | None = None
    unsure_below: float = UNSURE_BELOW


def _complete_method(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in METHODS if name.startswith(incomplete)]


def method_options(command: Command) -> Command:
    """Add the options of methods; the command takes them as `method: MethodChoice`."""

    @click.option(
        "--method",
        "name",
        default=DEFAULT_METHOD,
        show_default=True,
        metavar="NAME",
        shell_complete=_complete_method,
        help="How to answer; `kbqa methods` lists the ways.",
    )
    @click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="NAME=VALUE",
        help="Setting of the method, see `kbqa methods NAME`; repeatable.",
    )
    @click.option(
        "--chooser",
        type=click.Choice(get_args(ChooserName)),
        metavar="NAME",
        help="Who decides: llm, embedder or random.  [default: llm with --llm, else embedder]",
    )
    @click.option(
        "--call-budget",
        type=click.IntRange(1),
        metavar="N",
        help="Decisions a question, at most.",
    )
    @click.option(
        "--unsure-below",
        type=click.FloatRange(0, 1),
        default=UNSURE_BELOW,
        show_default=True,
        metavar="P",
        help="Call an answer of less confidence a guess.",
    )
    @functools.wraps(command)
    def with_method(
        *args: object,
        name: str,
        settings: tuple[str, ...],
        chooser: ChooserName | None,
        call_budget: int | None,
        unsure_below: float,
        **rest: object,
    ) -> None:
        if name in _OLD_METHODS:
            raise click.UsageError(f"--method {name} is now {_OLD_METHODS[name]}")
        method = MethodChoice(name, split_settings(settings), chooser, call_budget, unsure_below)
        command(*args, method=method, **rest)

    wrapped: Command = with_method
    for option in _OLD_OPTIONS:
        setting = option.removeprefix("--").replace("-", "_")
        wrapped = removed_option(option, f"--set {setting}=VALUE")(wrapped)
    return removed_option("--threshold", "--unsure-below P")(wrapped)


def removed_option(option: str, replacement: str) -> Callable[[Command], Command]:
    """Add a hidden option that fails and names what replaces it."""

    def refuse(_: click.Context, parameter: click.Parameter, value: object) -> None:
        if value:
            raise click.UsageError(f"{option} was removed. Use {replacement}.")

    return click.option(option, multiple=True, hidden=True, expose_value=False, callback=refuse)


@click.command()
@click.argument("name", required=False, shell_complete=_complete_method)
@json_option
def methods(name: str | None, as_json: bool) -> None:
    """List the methods, or the settings of the method NAME, for --set."""
    from kbqa.engine.methods.modules import find_method

    if name is None:
        rows = [{"name": each, "summary": method.summary} for each, method in METHODS.items()]
    else:
        rows = [each._asdict() for each in describe_settings(find_method(name).settings)]
    if as_json:
        print_json(rows, indent=2)
        return
    for row in rows:
        if name is None:
            print_result(f"{row['name']}  {row['summary']}")
        else:
            print_result(f"{row['name']} = {row['default']}  ({row['values']})\n    {row['text']}")
