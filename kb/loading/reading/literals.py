r"""Read the literals of N-Triples: text, language tag, escapes."""

import re
from typing import NamedTuple

_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))")
_SHORT_ESCAPES = {"t": "\t", "b": "\b", "n": "\n", "r": "\r", "f": "\f"}


class LiteralParts(NamedTuple):
    """A literal's text, unescaped, and its language tag as written."""

    text: str
    language: str | None


def literal_parts(term: bytes) -> LiteralParts | None:
    r"""Split a literal into text and language; None for an IRI.

    >>> literal_parts(rb'"Reverse Side of \"Stalker\""@en')
    LiteralParts(text='Reverse Side of "Stalker"', language='en')
    """
    if not term.startswith(b'"'):
        return None
    quoted, _, suffix = term.decode("utf-8").rpartition('"')
    language = suffix[1:] if suffix.startswith("@") else None
    text = quoted[1:]
    return LiteralParts(unescape(text) if "\\" in text else text, language)


def unescape(text: str) -> str:
    r"""Read the escapes of N-Triples.

    >>> unescape(r"say \"hi\"")
    'say "hi"'
    """
    return _ESCAPE.sub(_unescape, text)


def _unescape(match: re.Match[str]) -> str:
    short, long, character = match.groups()
    if character is None:
        return chr(int(short or long, 16))
    return _SHORT_ESCAPES.get(character, character)
