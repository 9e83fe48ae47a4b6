"""Answers and summaries of runs as text, for a terminal's width and colours or for a file."""

import json
import logging
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING

import click

from kbqa.engine.answer import Line, Style
from kbqa.kb.commands.options import is_terminal, print_result
from kbqa.kb.graph import printable

if TYPE_CHECKING:
    from kbqa.engine.evaluation.rows import Row


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
    """What lines are written for."""

    width: int | None = None  # columns at which words wrap; None for lines of any length
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


def render_summary(rows: Sequence["Row"], *, entities: str, as_json: bool) -> str:
    """Write the scores of a run with ``gold`` or ``linked`` entities, as Markdown or JSON."""
    from kbqa.engine.evaluation.breakdowns import score_tiers, share_right
    from kbqa.engine.evaluation.tables import (
        BREAKDOWN_NAMES,
        METRIC_NAMES,
        MarkdownTable,
        markdown_table,
    )

    tiers = score_tiers(rows)
    right = share_right(rows)
    failed = sum(row.error is not None for row in rows)
    unscored = sum(row.scores is None for row in rows)
    if as_json:
        record = {
            "entities": entities,
            "failed": failed,
            "unscored": unscored,
            "tiers": {
                tier: {metric: asdict(mean) for metric, mean in means.items()}
                for tier, means in tiers.items()
            },
            "exact_match": {
                way: {group: asdict(mean) for group, mean in groups.items()}
                for way, groups in right.items()
            },
        }
        return json.dumps(record, indent=2)
    columns = ("hit", "hits_at_1", "exact_match", "f1")
    table = MarkdownTable(
        (f"tier ({entities} entities)", "n", *(METRIC_NAMES[name] for name in columns)),
        [
            (tier, str(means["f1"].n), *(means[name] for name in columns))
            for tier, means in tiers.items()
        ],
    )
    tables = [markdown_table(table)]
    for way, groups in right.items():
        members = [(group, str(mean.n), mean) for group, mean in groups.items()]
        header = (BREAKDOWN_NAMES[way], "n", "exact match")
        tables.append(markdown_table(MarkdownTable(header, members)))
    note = f"95 % bootstrap intervals. {failed} failed, {unscored} not scored."
    return "\n\n".join([*tables, note])
