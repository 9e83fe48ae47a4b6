"""Write for a terminal: its width, its colours, and a word while somebody waits."""

import logging
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import click

from kbqa.engine.answer_lines import Line, Style
from kbqa.kb.commands.text import is_terminal, print_result
from kbqa.kb.escaping import printable

_STYLES: Mapping[Style, Callable[[str], str]] = {
    "answer": partial(click.style, bold=True),
    "heading": partial(click.style, fg="cyan"),
    "warning": partial(click.style, fg="yellow"),
    "faint": partial(click.style, dim=True),
}
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
        text = printable(line.text).replace("\n", " ").replace("\t", " ")
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


def print_lines(lines: Iterable[Line]) -> None:
    """Print lines to standard output."""
    print_result(standard_output().write_all(lines), is_styled=True)


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
