"""Small files of a store, and texts from a graph made safe for terminals, HTML, SVG and prompts.

A control character can move a terminal's cursor, change its title or forge its content, and a
bidirectional one turns around what follows it.
"""

import json
import os
import re
import secrets
import threading
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from kbqa.sparql.errors import StoreError
from kbqa.sparql.terms import Term

if TYPE_CHECKING:
    import sqlite3

_LONGEST = 300
_LONGEST_IN_PROMPT = 200
_JOINERS = "\u200c\u200d"  # they shape words of many scripts, and hide nothing
# Control characters but tab and line feed, separators, bidirectional controls, lone surrogates.
_UNPRINTABLE = re.compile(
    "\r\n|[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)

_SHOWN = 20


def write_safely(path: Path, text: str) -> None:
    """Replace a file's content: even a crash of the machine leaves the old or the new, whole."""
    unfinished = path.with_name(f"{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with unfinished.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    sync(path.parent)


def sync(path: Path) -> None:
    """Wait until a file's content, or a directory's entries, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def printable(text: str) -> str:
    """Return a text with its control characters replaced; tabs and line breaks stay."""
    return _UNPRINTABLE.sub(_replacement, text)


def one_line(text: str) -> str:
    """Return a printable text on one line."""
    return " ".join(printable(text).split())


def json_text(value: object, indent: int | None = None) -> str:
    """Write JSON with its letters as they are, and control characters as escapes."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def prompt_line(text: str) -> str:
    """Write a name or a value for a prompt: printable, on one line, and cut at 200 characters.

    Otherwise a value of a megabyte would be paid for, and a line break in a name would forge lines.
    """
    if len(text) <= _LONGEST_IN_PROMPT and text.isascii() and text.isprintable():
        return " ".join(text.split())
    begun = text[: 10 * _LONGEST_IN_PROMPT]
    shown = "".join(c for c in begun if c.isprintable() or c.isspace() or c in _JOINERS)
    line = " ".join(shown.split())
    is_whole = len(line) <= _LONGEST_IN_PROMPT and len(begun) == len(text)
    return line if is_whole else f"{line[: _LONGEST_IN_PROMPT - 1]}…"


def html_line(text: str) -> str:
    """Write a text on one line, escaped for HTML and for an attribute's value."""
    return escape(one_line(text))


def html_block(text: str) -> str:
    """Write a text escaped for HTML, with its blanks and line breaks."""
    return escape(printable(text))


def html_name(name: str) -> str:
    """Write a name escaped, cut at 300 characters, with its writing direction to itself."""
    return f"<bdi>{html_line(_cut(name))}</bdi>"


def html_tooltip_name(name: str) -> str:
    """Write a name as `html_name` does, for a tooltip or a label, which hold no elements."""
    return f"\u2068{html_line(_cut(name))}\u2069"


def _cut(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[:_LONGEST]}…"


def _replacement(match: re.Match[str]) -> str:
    found = match.group()
    if found == "\r\n":
        return "\n"
    return " " if found.isspace() else "\N{REPLACEMENT CHARACTER}"


class SqliteFile:
    """A SQLite file that no process writes to any more. Any number of threads may use one object.

    `kind` names it in messages; `probe` is a statement that fails on a file of another kind and
    reads no rows. Everything but `close` may raise `StoreError`.
    """

    def __init__(self, path: Path, kind: str, probe: str) -> None:
        import sqlite3

        self._path = path
        self._kind = kind
        # SQLite takes one statement at a time on a connection.
        self._lock = threading.Lock()
        self._is_closed = False
        if not path.is_file():
            raise StoreError(f"there is no {kind} at {path}. Load the store again.")
        try:
            # Immutable: no look at the file's lock at each query, a third of a short one's time.
            self._connection = sqlite3.connect(
                f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True, check_same_thread=False
            )
        except sqlite3.DatabaseError as error:
            raise self._damage(error) from error
        self._connection.row_factory = sqlite3.Row
        # A view in place of a table may be endless, and SQLite has no time limit.
        views = self.rows("SELECT name FROM sqlite_schema WHERE type = 'view'")
        if views:
            raise self._damage(f"it has the view {views[0]['name']}")
        self.rows(probe)

    def rows(self, sql: str, *parameters: str | int) -> "list[sqlite3.Row]":
        """Fetch all rows of a statement."""
        import sqlite3

        with self._lock:
            if self._is_closed:
                raise StoreError(f"the {self._kind} {self._path} was closed. Open the graph again.")
            try:
                return self._connection.execute(sql, parameters).fetchall()
            # The second, if SQLite quotes damaged text in its own message.
            except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
                raise self._damage(error) from error

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._is_closed = True
            self._connection.close()

    def _damage(self, error: Exception | str) -> StoreError:
        return StoreError(f"{self._path} is no {self._kind} ({error}). Load the store again.")


def table_html(
    variables: Sequence[str], rows: Sequence[Sequence[Term | None]], *, truncated: bool
) -> str:
    """Write the first 20 rows as an HTML table, and how many are left out."""
    head = "".join(f"<th>{html_line(name)}</th>" for name in variables)
    lines = ['<div class="kbqa-table"><table>', f"<thead><tr>{head}</tr></thead>", "<tbody>"]
    for row in rows[:_SHOWN]:
        lines.append(f"<tr>{''.join(f'<td>{_cell(term)}</td>' for term in row)}</tr>")
    lines.append("</tbody></table>")
    if len(rows) > _SHOWN:
        lines.append(f"<p>… and {len(rows) - _SHOWN:,} other rows</p>")
    if truncated:
        lines.append("<p>More exist than were fetched.</p>")
    return "\n".join([*lines, "</div>"])


def _cell(term: Term | None) -> str:
    if term is None:
        return ""
    return html_name(term if isinstance(term, str) else term.text)
