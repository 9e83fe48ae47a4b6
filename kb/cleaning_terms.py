r"""Mend single terms of a dump's line: IRIs, literals, prefixed names and bare values.

Only what has one possible meaning is mended; a term that has none, or two, is given up. What is
odd but legal stays: dates of no calendar, ``$XXXX`` keys, percent-encoded Latin-1, the case of ids.
Nothing is retyped.
"""

import re
from functools import lru_cache
from typing import NamedTuple

from kbqa.sparql.terms import FREEBASE_NS, XSD_NS

PREFIXES = {
    "ns": FREEBASE_NS,
    "fb": FREEBASE_NS,
    "key": "http://rdf.freebase.com/key/",
    "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
    "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
    "owl": "http://www.w3.org/2002/07/owl#",
    "xsd": XSD_NS,
}
"""The prefixes of the Turtle dumps of 2012 and 2013, and those that papers use for the same."""

# What a term looks like before it is known to be right; `<` and `>` never stand inside an IRI, as
# one bracket too few must not swallow the next term. Possessive repetition: no backtracking.
IRI = r"<[^<>]*+>"
_NAME_PART = r"(?:[^\s<>\"#;,\\.]++|\\.)++"
NAME = rf"[A-Za-z][A-Za-z0-9_-]{{0,30}}+:{_NAME_PART}(?:\.++{_NAME_PART})*+"
LITERAL = rf'"[^"\\]*+(?:\\.[^"\\]*+)*+"(?:@[A-Za-z0-9_-]*+|\^\^(?:{IRI}|{NAME}))?+'
BARE = r"(?:[+-]?+(?:[0-9]++(?:\.[0-9]++)?+|\.[0-9]++)(?:[eE][+-]?+[0-9]++)?+|true|false)"

_GOOD_IRI = re.compile(r'<[A-Za-z][A-Za-z0-9+.\-]*+:[^\x00-\x20<>"{}|^`\\]*+>')
_GOOD_TEXT = (
    r'[^"\\\r\t]*+(?:\\(?:[tbnrf"\'\\]|u(?![dD][89A-Fa-f])[0-9A-Fa-f]{4}'
    r"|U(?:0000(?![dD][89A-Fa-f])|000[1-9A-Fa-f]|0010)[0-9A-Fa-f]{4})[^\"\\\r\t]*+)*+"
)
_GOOD_TAG = r"[A-Za-z]++(?:-[A-Za-z0-9]++)*+"
_GOOD_LITERAL = re.compile(rf'"{_GOOD_TEXT}"(?:@{_GOOD_TAG})?+')
_LITERAL_PARTS = re.compile(
    r'"([^"\\]*+(?:\\.[^"\\]*+)*+)"(?:@([A-Za-z0-9_-]*+)|\^\^(.*+))?+', flags=re.DOTALL
)

_SURROGATE_PAIR = r"\\u([dD][89ABab][0-9A-Fa-f]{2})\\u([dD][C-Fc-f][0-9A-Fa-f]{2})"
_CODE = r"\\u([0-9A-Fa-f]{4})|\\U([0-9A-Fa-f]{8})"
_TEXT_FAULT = re.compile(
    rf"{_SURROGATE_PAIR}|{_CODE}|((?:\\x[0-9A-Fa-f]{{2}})++)|\\[tbnrf\"'\\]|(\\)|[\r\t]"
)
_IRI_FAULT = re.compile(rf'{_SURROGATE_PAIR}|{_CODE}|[\x00-\x20"{{}}|^`\\]')
_NOT_IN_IRI = frozenset(map(chr, range(0x21))) | frozenset('<>"{}|^`\\')
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*+:")
_ESCAPED_IN_NAME = re.compile(r"\\(.)")
_ESCAPABLE_IN_NAME = frozenset("_~.-!$&'()*+,;=/?#@%")
_ESCAPES = str.maketrans({'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"})


class MendedTerm(NamedTuple):
    """A term as N-Triples has it, and the names of what was mended in it."""

    text: str
    defects: tuple[str, ...] = ()


class Unmendable(Exception):
    """A term has no certain meaning; the text is the reason, short and stable."""


def mend_term(term: str) -> MendedTerm:
    r"""Write a term as N-Triples has it.

    >>> mend_term(r'"Webov\xfd"@cs')
    MendedTerm(text='"Webový"@cs', defects=('Python escape',))
    >>> mend_term("ns:m.02mjmr")
    MendedTerm(text='<http://rdf.freebase.com/ns/m.02mjmr>', defects=('prefixed name',))

    Args:
        term: What `IRI`, `NAME`, `LITERAL` or `BARE` matches as a whole.

    Raises:
        Unmendable: It cannot be mended.
    """
    if term.startswith('"'):
        return _mend_literal(term)
    if term.startswith("<") or ":" in term:
        return mend_resource(term)
    return MendedTerm(f'"{term}"', ("bare value",))


# Dumps are grouped by subject and have few predicates: most terms come again and again.
@lru_cache(maxsize=1 << 15)
def mend_resource(term: str) -> MendedTerm:
    """Write what `IRI` or `NAME` matches as N-Triples has it, as `mend_term` does."""
    if term.startswith("<"):
        return _mend_iri(term)
    prefix, _, local = term.partition(":")
    namespace = PREFIXES.get(prefix)
    if namespace is None:
        is_iri = local.startswith("//")
        raise Unmendable("IRI without brackets" if is_iri else f"unknown prefix {prefix}:")
    if "\\" in local:
        if not _ESCAPABLE_IN_NAME.issuperset(_ESCAPED_IN_NAME.findall(local)):
            raise Unmendable("bad escape")
        local = _ESCAPED_IN_NAME.sub(r"\1", local)
    iri, defects = _mend_iri(f"<{namespace}{local}>")
    return MendedTerm(iri, ("prefixed name", *defects))


def _mend_iri(iri: str) -> MendedTerm:
    if _GOOD_IRI.fullmatch(iri):
        return MendedTerm(iri)
    defects = []

    def mended(match: re.Match[str]) -> str:
        high, low, short, long = match.groups()
        if high:
            defects.append("surrogate pair")
            return _from_pair(high, low)
        character = _character(short or long) if short or long else match[0]
        if character not in _NOT_IN_IRI:
            return match[0]
        defects.append("forbidden character in IRI")
        return f"%{ord(character):02X}"

    whole = _IRI_FAULT.sub(mended, iri[1:-1])
    if not _SCHEME.match(whole):
        raise Unmendable("relative IRI" if whole else "empty IRI")
    return MendedTerm(f"<{whole}>", tuple(defects))


def _mend_literal(literal: str) -> MendedTerm:
    if _GOOD_LITERAL.fullmatch(literal):
        return MendedTerm(literal)
    parts = _LITERAL_PARTS.fullmatch(literal)
    assert parts is not None
    written, tag, datatype = parts.groups()
    text, defects = _mend_text(written)
    if datatype is not None:
        iri, of_datatype = mend_resource(datatype)
        return MendedTerm(f'"{text}"^^{iri}', defects + of_datatype)
    if tag is None:
        return MendedTerm(f'"{text}"', defects)
    if "_" in tag:
        defects += ("language tag with _",)
        tag = tag.replace("_", "-")
    if not re.fullmatch(_GOOD_TAG, tag):
        raise Unmendable("bad language tag")
    return MendedTerm(f'"{text}"@{tag}', defects)


def _mend_text(text: str) -> MendedTerm:
    defects = []

    def mended(match: re.Match[str]) -> str:
        high, low, short, long, python, backslash = match.groups()
        if high:
            defects.append("surrogate pair")
            return _from_pair(high, low)
        if short or long:
            _character(short or long)
        elif python:
            defects.append("Python escape")
            return _from_python(python).translate(_ESCAPES)
        elif backslash:
            raise Unmendable("bad escape")
        elif match[0] == "\r":
            defects.append("raw carriage return")
            return "\\r"
        # Legal as it stands, but then a line could not be split at its tabs.
        return "\\t" if match[0] == "\t" else match[0]

    return MendedTerm(_TEXT_FAULT.sub(mended, text), tuple(defects))


def _character(code: str) -> str:
    number = int(code, 16)
    if 0xD800 <= number < 0xE000:
        raise Unmendable("lone surrogate")
    if number > 0x10FFFF:
        raise Unmendable("bad escape")
    return chr(number)


def _from_pair(high: str, low: str) -> str:
    return chr(0x10000 + ((int(high, 16) - 0xD800) << 10) + int(low, 16) - 0xDC00)


def _from_python(escapes: str) -> str:
    codes = bytes.fromhex(escapes.replace("\\x", ""))
    characters = codes.decode("latin-1")
    try:
        from_bytes = codes.decode("utf-8")
    except UnicodeDecodeError:
        return characters
    # \xc3\xa9 is Ã© where Python printed characters, and é where it printed bytes.
    if from_bytes != characters:
        raise Unmendable("ambiguous escape")
    return characters
