"""Text on its way in and out of the commands: arguments in any locale, results and notes."""

import json
import os
import sys
from contextlib import suppress
from typing import TextIO

import click

from kbqa.kb.escaping import json_text, printable


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
