r"""Read one line of a dump: is it a triple, of what, and is it wanted.

A line that the store's parser would refuse is told apart here, because one such line makes a whole
bulk load fail. Nothing is mended: that is for a later module.
"""

import re
from typing import NamedTuple

from kbqa.sparql.terms import FREEBASE_NS

_NS_OPEN = b"<" + FREEBASE_NS.encode()

DROPPED_PREDICATES = {
    b"<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>": "rdf:type repeats type.object.type",
    b"<http://www.w3.org/2000/01/rdf-schema#label>": "rdfs:label repeats type.object.name",
    _NS_OPEN + b"type.type.instance>": "type.type.instance repeats type.object.type",
}
"""Predicates that state again what another states, with the reason; their triples are left out.

``type.type.instance`` also makes chains over free predicates explode (notes/stores.md §3).
"""

BLANK = "blank line or comment"

# Possessive repetition (`++`, `*+`) throughout: without backtracking a line takes half the time.
_IRI = rb"<[^>\\\n]++(?:\\u[0-9A-Fa-f]{4}[^>\\\n]*+)*+>"
_LITERAL = (
    rb'"[^"\\\n]*+(?:\\(?:[tbnrf"\'\\]|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8})[^"\\\n]*+)*+"'
    rb"(?:@[A-Za-z]{1,8}+(?:-[A-Za-z0-9]{1,8}+)*+|\^\^<[^>\\\n]++>)?+"
)
_TRIPLE = re.compile(
    rb"[ \t]*+(" + _IRI + rb")[ \t]*+(" + _IRI + rb")[ \t]*+(" + _IRI + rb"|" + _LITERAL + rb")"
    rb"[ \t]*+\.[ \t]*+\r?+\n?+"
)
_BAD_ESCAPE = re.compile(rb'\\(?![tbnrf"\'\\]|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8})')
_UNICODE_ESCAPE = re.compile(rb"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8}))")
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))")
_SHORT_ESCAPES = {"t": "\t", "b": "\b", "n": "\n", "r": "\r", "f": "\f"}


class LiteralParts(NamedTuple):
    """A literal's text, unescaped, and its language tag as written."""

    text: str
    language: str | None


class RawTriple(NamedTuple):
    """A triple in the bytes of the dump: brackets, quotes and escapes are still there.

    A named tuple and not a dataclass: one is made for each of billions of lines.
    """

    subject: bytes
    predicate: bytes
    object: bytes


def parse_line(line: bytes) -> RawTriple | None:
    r"""Read a line; None where it is no triple that the store would take.

    UTF-8 is the caller's to check: it costs far less on a block of lines than on each of them.

    >>> parse_line(b'<a:s>\t<a:p>\t"1980"^^<a:gYear>\t.\n')
    RawTriple(subject=b'<a:s>', predicate=b'<a:p>', object=b'"1980"^^<a:gYear>')
    """
    match = _TRIPLE.fullmatch(line)
    if match is None or (line.find(b"\\") >= 0 and not _are_characters(line)):
        return None
    return RawTriple(*match.groups())


def reject_reason(line: bytes) -> str:
    """Say why a line that `parse_line` refused is no triple; a short stable text, for counting."""
    stripped = line.strip()
    if is_blank_or_comment(line):
        return BLANK
    if not is_utf8(stripped):
        return "not UTF-8"
    if not stripped.endswith(b"."):
        return "no final dot"
    if _BAD_ESCAPE.search(stripped) or not _are_characters(stripped):
        return "bad escape"
    if re.fullmatch(rb"<[^>]*>\s*<[^>]*>\s*\.", stripped):
        return "empty object"
    return "not a triple"


def is_blank_or_comment(line: bytes) -> bool:
    """Tell whether N-Triples lets a line pass that holds no triple."""
    stripped = line.strip()
    return not stripped or stripped.startswith(b"#")


def is_utf8(text: bytes) -> bool:
    """Tell whether bytes decode as UTF-8."""
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def resource_name(term: bytes) -> str | None:
    """Shorten an IRI of Freebase's namespace to its id; None for any other term.

    >>> resource_name(b"<http://rdf.freebase.com/ns/m.0abc>")
    'm.0abc'
    """
    if term.startswith(_NS_OPEN):
        return term[len(_NS_OPEN) : -1].decode("utf-8")
    return None


def literal_parts(term: bytes) -> LiteralParts | None:
    r"""Take a literal apart; None for an IRI.

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


def _are_characters(line: bytes) -> bool:
    codes = (int(short or long, 16) for short, long in _UNICODE_ESCAPE.findall(line))
    return all(code < 0xD800 or 0xE000 <= code <= 0x10FFFF for code in codes)


def _unescape(match: re.Match[str]) -> str:
    short, long, character = match.groups()
    if character is None:
        return chr(int(short or long, 16))
    return _SHORT_ESCAPES.get(character, character)
