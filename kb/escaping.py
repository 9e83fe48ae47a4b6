"""Make other people's texts, such as names in a graph, safe to stand in HTML, SVG and prompts."""

from html import escape

_LONGEST = 300
_LONGEST_IN_PROMPT = 200
_JOINERS = "\u200c\u200d"  # they shape words of many scripts, and hide nothing
_CONTROLS = (*range(9), 11, 12, *range(14, 32), *range(127, 160), *range(0xD800, 0xE000))
_PRINTABLE = dict.fromkeys(_CONTROLS, "\ufffd")


def one_line(text: str) -> str:
    r"""Return a text on one line, with control characters and lone surrogates replaced.

    >>> one_line("two\n lines\x00")
    'two lines\ufffd'
    """
    return " ".join(text.translate(_PRINTABLE).split())


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
    return escape(text.translate(_PRINTABLE))


def html_name(name: str) -> str:
    """Write a name, escaped and with its writing direction to itself; what is endless is cut.

    >>> html_name("Nairobi")
    '<bdi>Nairobi</bdi>'
    """
    shown = name if len(name) <= _LONGEST else f"{name[:_LONGEST]}…"
    return f"<bdi>{html_line(shown)}</bdi>"


def isolated(name: str) -> str:
    """Do for the text of a tooltip what `html_name` does for HTML; it is not escaped yet."""
    shown = name if len(name) <= _LONGEST else f"{name[:_LONGEST]}…"
    return f"\u2068{shown}\u2069"
