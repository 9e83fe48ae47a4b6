"""Make other people's texts, such as names in a graph, safe to stand in HTML and SVG."""

from html import escape

_LONGEST = 300
_CONTROLS = (*range(9), 11, 12, *range(14, 32), *range(127, 160), *range(0xD800, 0xE000))
_PRINTABLE = dict.fromkeys(_CONTROLS, "\ufffd")


def one_line(text: str) -> str:
    r"""Return a text on one line, with control characters and lone surrogates replaced.

    >>> one_line("two\n lines\x00")
    'two lines\ufffd'
    """
    return " ".join(text.translate(_PRINTABLE).split())


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
