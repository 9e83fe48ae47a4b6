"""Make other people's texts, such as names in a graph, safe to show anywhere.

A control character can move a terminal's cursor, change its title or forge what it shows. A
bidirectional one turns around what follows it. The rest is for HTML and SVG.
"""

import json
import re
from html import escape

_LONGEST = 300
# Control characters but tab and line feed, separators, bidirectional controls, lone surrogates.
_UNPRINTABLE = re.compile(
    "\r\n|[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def printable(text: str) -> str:
    r"""Return a text with what a terminal would obey replaced; tabs and line breaks stay.

    >>> printable("Esc\x1b[2J\u202e\tand\r\nC1\x9b")
    'Esc�[2J�\tand\nC1�'
    """
    return _UNPRINTABLE.sub(_replacement, text)


def one_line(text: str) -> str:
    r"""Return a printable text on one line.

    >>> one_line("two\n lines\x00")
    'two lines�'
    """
    return " ".join(printable(text).split())


def json_text(value: object, indent: int | None = None) -> str:
    r"""Write JSON with its letters as they are; what a terminal would obey is an escape.

    >>> print(json_text(["é", "\x9b\u202e"]))
    ["é", "\u009b\u202e"]
    """
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def html_line(text: str) -> str:
    """Write a text on one line, escaped for HTML and for an attribute's value.

    >>> html_line('<img src="x">')
    '&lt;img src=&quot;x&quot;&gt;'
    """
    return escape(one_line(text))


def html_block(text: str) -> str:
    """Write a text of several lines, escaped for HTML, with its blanks and line breaks."""
    return escape(printable(text))


def html_name(name: str) -> str:
    """Write a name, escaped and with its writing direction to itself; what is endless is cut.

    >>> html_name("Nairobi")
    '<bdi>Nairobi</bdi>'
    """
    return f"<bdi>{html_line(_cut(name))}</bdi>"


def html_tooltip_name(name: str) -> str:
    """Do for a name in a tooltip or a label, which hold no elements, what `html_name` does."""
    return f"\u2068{html_line(_cut(name))}\u2069"


def _cut(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[:_LONGEST]}…"


def _replacement(match: re.Match[str]) -> str:
    found = match.group()
    if found == "\r\n":
        return "\n"
    return " " if found.isspace() else "\N{REPLACEMENT CHARACTER}"
