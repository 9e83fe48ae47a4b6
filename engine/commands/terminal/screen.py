"""Write for a terminal: its width, its colours, and a word while somebody waits."""

import logging
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TextIO

import click

from kbqa.engine.answer_lines import Line, Style

_STYLES: Mapping[Style, Callable[[str], str]] = {
    "answer": partial(click.style, bold=True),
    "heading": partial(click.style, fg="cyan"),
    "warning": partial(click.style, fg="yellow"),
    "faint": partial(click.style, dim=True),
}
# Of a name, these would move the cursor, change colours, or turn what follows around.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
_NARROWEST = 20
"""Columns: on fewer, text is not wrapped."""


@dataclass(frozen=True, slots=True)
class Screen:
    """What lines are written for.

    Attributes:
        width: Columns at which words wrap; None for lines of any length.
        has_colours: Whether lines may be coloured.
    """

    width: int | None = None
    has_colours: bool = False

    def write(self, line: Line) -> str:
        r"""Write a line, wrapped and coloured; control characters become harmless.

        >>> PAPER.write(Line("a name\nof two lines \x1b[31m"))
        'a name of two lines �[31m'
        """
        text = _UNPRINTABLE.sub(_harmless, line.text)
        if self.width is not None and self.width >= _NARROWEST and line.wraps:
            indent = " " * (len(text) - len(text.lstrip()) + 2)
            rows = textwrap.wrap(
                text,
                self.width,
                subsequent_indent=indent,
                break_long_words=False,
                break_on_hyphens=False,
            )
            text = "\n".join(rows)
        if self.has_colours and line.style is not None and text:
            return _STYLES[line.style](text)
        return text

    def write_all(self, lines: Iterable[Line]) -> str:
        """Write lines, one below the other."""
        return "\n".join(map(self.write, lines))


PAPER = Screen()
"""A file or a pipe: lines stay as long as they are, without colours."""


def standard_output() -> Screen:
    """Return what standard output is: a terminal, which NO_COLOR may keep from colours, or not.

    Source: https://no-color.org
    """
    if not is_terminal(sys.stdout):
        return PAPER
    has_colours = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return Screen(shutil.get_terminal_size().columns, has_colours)


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether a stream of `sys`, which is None if it is closed, is a terminal."""
    return stream is not None and stream.isatty()


@contextmanager
def waiting(for_what: str) -> Iterator[None]:
    """Say on stderr what is being done inside the block, and erase it at the end.

    Only on a terminal, and not if what is done is logged anyway.
    """
    is_logged = logging.getLogger("kbqa").isEnabledFor(logging.INFO)
    if is_logged or not is_terminal(sys.stderr):
        yield
        return
    word = f"{for_what} …"
    click.echo(word, err=True, nl=False)
    try:
        yield
    finally:
        click.echo(f"\r{' ' * len(word)}\r", err=True, nl=False)


def _harmless(match: re.Match[str]) -> str:
    return " " if match.group().isspace() else "\N{REPLACEMENT CHARACTER}"
