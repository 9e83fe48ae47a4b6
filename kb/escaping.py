"""Make other people's texts, such as names in a graph, safe to show anywhere.

A control character can move a terminal's cursor, change its title or forge what it shows. A
bidirectional one turns around what follows it. The rest is for HTML, SVG and prompts.
"""

import json
import re
from html import escape

_LONGEST = 300
_LONGEST_IN_PROMPT = 200
_JOINERS = "\u200c\u200d"  # they shape words of many scripts, and hide nothing
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


def prompt_line(text: str) -> str:
    r"""Write a name or a value for a prompt: printable, on one line, and cut if it is endless.

    Otherwise a value of a megabyte would be paid for, and a line break in a name would forge lines.

    >>> prompt_line("two\r\n lines\x00\u202e"), len(prompt_line("x" * 1_000_000))
    ('two lines', 200)
    """
    if len(text) <= _LONGEST_IN_PROMPT and text.isascii() and text.isprintable():
        return " ".join(text.split())
    begun = text[: 10 * _LONGEST_IN_PROMPT]
    shown = "".join(c for c in begun if c.isprintable() or c.isspace() or c in _JOINERS)
    line = " ".join(shown.split())
    is_whole = len(line) <= _LONGEST_IN_PROMPT and len(begun) == len(text)
    return line if is_whole else f"{line[: _LONGEST_IN_PROMPT - 1]}…"


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
