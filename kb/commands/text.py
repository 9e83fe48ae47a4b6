"""Text on its way in and out of the commands: arguments in any locale, and results."""

import os
import sys

import click


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


def print_result(text: str) -> None:
    """Print a result to standard output, with characters that its encoding lacks as escapes."""
    encoding = (sys.stdout and sys.stdout.encoding) or "utf-8"  # stdout is None if it is closed
    click.echo(text.encode(encoding, "backslashreplace").decode(encoding))
