r"""Clean one line of a dump that is not in the dump's usual form ``<s>\t<p>\t<o>\t.``.

Each line is read by itself, and repaired into that form or rejected with a reason. A term is
repaired only if it has exactly one possible meaning. Odd but legal terms stay: impossible dates,
``$XXXX`` keys, percent-encoded Latin-1, the case of ids. No literal gets another type.

docs/freebase.md lists the repairs. tests/kb/loading/test_cleaning.py numbers the defects.
"""

import re
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from kbqa.sparql.dialect import KNOWN_PREFIXES

PREFIXES = KNOWN_PREFIXES | {
    "key": "http://rdf.freebase.com/key/",
    "owl": "http://www.w3.org/2002/07/owl#",
}
"""The prefixes of the Turtle dumps of 2012 and 2013, and those that papers use for these."""

# Forms of terms, before any check. `<` and `>` never occur inside an IRI: a missing bracket must
# not swallow the next term. Possessive repetition: no backtracking.
IRI = r"<[^<>]*+>"
_NAME_PART = r"(?:[^\s<>\"#;,\\.]++|\\.)+"
NAME = rf"[A-Za-z][A-Za-z0-9_-]{{0,30}}+:{_NAME_PART}(?:\.++{_NAME_PART})*"
LITERAL = rf'"[^"\\]*+(?:\\.[^"\\]*+)*"(?:@[A-Za-z0-9_-]*+|\^\^(?:{IRI}|{NAME}))?'
BARE = r"(?:[+-]?+(?:[0-9]++(?:\.[0-9]++)?|\.[0-9]++)(?:[eE][+-]?+[0-9]++)?|true|false)"

_GOOD_IRI = re.compile(r'<[A-Za-z][A-Za-z0-9+.\-]*+:[^\x00-\x20<>"{}|^`\\]*+>')
_GOOD_TEXT = (
    r'[^"\\\r\t]*+(?:\\(?:[tbnrf"\'\\]|u(?![dD][89A-Fa-f])[0-9A-Fa-f]{4}'
    r"|U(?:0000(?![dD][89A-Fa-f])|000[1-9A-Fa-f]|0010)[0-9A-Fa-f]{4})[^\"\\\r\t]*+)*"
)
_GOOD_TAG = r"[A-Za-z]++(?:-[A-Za-z0-9]++)*"
_GOOD_LITERAL = re.compile(rf'"{_GOOD_TEXT}"(?:@{_GOOD_TAG})?')
_LITERAL_PARTS = re.compile(
    r'"([^"\\]*+(?:\\.[^"\\]*+)*)"(?:@([A-Za-z0-9_-]*+)|\^\^(.*+))?', flags=re.DOTALL
)

_SURROGATE_PAIR = r"\\u([dD][89ABab][0-9A-Fa-f]{2})\\u([dD][C-Fc-f][0-9A-Fa-f]{2})"
_CODE = r"\\u([0-9A-Fa-f]{4})|\\U([0-9A-Fa-f]{8})"
_TEXT_FAULT = re.compile(
    rf"{_SURROGATE_PAIR}|{_CODE}|((?:\\x[0-9A-Fa-f]{{2}})+)|\\[tbnrf\"'\\]|(\\)|[\r\t]"
)
_IRI_FAULT = re.compile(rf'{_SURROGATE_PAIR}|{_CODE}|[\x00-\x20"{{}}|^`\\]')
_NOT_IN_IRI = frozenset(map(chr, range(0x21))) | frozenset('<>"{}|^`\\')
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*+:")
_ESCAPED_IN_NAME = re.compile(r"\\(.)")
_ESCAPABLE_IN_NAME = frozenset("_~.-!$&'()*+,;=/?#@%")
_ESCAPES = str.maketrans({'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"})

DIRECTIVE = "Turtle directive"
TURTLE_LIST = "Turtle list"
FOUR_TERMS = "more than three terms"

_STATEMENT = re.compile(
    rf"({IRI}|{NAME})[ \t]*+({IRI}|{NAME})[ \t]*+({IRI}|{LITERAL}|{NAME}|{BARE})[ \t]*+"
    r"(?:(\.)[ \t]*+(?:#.*+)?)?[ \t\r\n]*+",
    flags=re.DOTALL,
)
_DIRECTIVE = re.compile(r"(?:@(?:prefix|base)|(?i:prefix|base))[ \t]")
_PREFIX_DIRECTIVE = re.compile(r"(?i:@?prefix)[ \t]+([^\s:]*):[ \t]*<([^<>]*)>")

_TOKEN = re.compile(
    rf"(?P<iri>{IRI})|(?P<literal>{LITERAL})|(?P<node>_:[^ \t\r\n]++)|(?P<name>{NAME})"
    rf"|(?P<bare>{BARE})(?![^ \t\r\n.])|(?P<dot>\.)|(?P<scrap>[^ \t\r\n]++)",
    flags=re.DOTALL,
)
_SCRAP_REASONS = {
    '"': "unterminated literal",
    "<": "unterminated IRI",
    "@": "bad language tag",
    "^": "bad datatype",
}
# Files derived from Freebase that are not RDF.
_FOREIGN_ROWS = (
    (re.compile(r"www\.freebase\.com/"), "FB2M row, not RDF"),
    (re.compile(r"/[^\t]*+\t/[^\t]*+\t/[mg]/[^\t]*+$"), "FB15k row, not RDF"),
    (re.compile(r"/[^\t]*+\t/[^\t]*+\t"), "quad TSV row, not RDF"),
)


class RepairedTerm(NamedTuple):
    """A term in N-Triples, and the names of the defects that were repaired."""

    text: str
    defects: tuple[str, ...] = ()


class Unrepairable(Exception):
    """A term has no certain meaning; the message is the reason, short and stable."""


def repair_term(term: str) -> RepairedTerm:
    r"""Write a term that `IRI`, `NAME`, `LITERAL` or `BARE` matches in N-Triples.

    >>> repair_term("ns:m.02mjmr")
    RepairedTerm(text='<http://rdf.freebase.com/ns/m.02mjmr>', defects=('prefixed name',))

    Raises:
        Unrepairable: It has no certain meaning.
    """
    if term.startswith('"'):
        return _repair_literal(term)
    if term.startswith("<") or ":" in term:
        return repair_resource(term)
    return RepairedTerm(f'"{term}"', ("bare value",))


# Dumps are grouped by subject and have few predicates, so most terms repeat.
@lru_cache(maxsize=1 << 15)
def repair_resource(term: str) -> RepairedTerm:
    """Write a term that `IRI` or `NAME` matches, as `repair_term` does."""
    if term.startswith("<"):
        return _repair_iri(term)
    prefix, _, local = term.partition(":")
    namespace = PREFIXES.get(prefix)
    if namespace is None:
        is_iri = local.startswith("//")
        raise Unrepairable("IRI without brackets" if is_iri else f"unknown prefix {prefix}:")
    if "\\" in local:
        if not _ESCAPABLE_IN_NAME.issuperset(_ESCAPED_IN_NAME.findall(local)):
            raise Unrepairable("bad escape")
        local = _ESCAPED_IN_NAME.sub(r"\1", local)
    iri, defects = _repair_iri(f"<{namespace}{local}>")
    return RepairedTerm(iri, ("prefixed name", *defects))


def _repair_iri(iri: str) -> RepairedTerm:
    if _GOOD_IRI.fullmatch(iri):
        return RepairedTerm(iri)
    defects = []

    def repaired(match: re.Match[str]) -> str:
        high, low, short, long = match.groups()
        if high:
            defects.append("surrogate pair")
            return _from_pair(high, low)
        character = _character(short or long) if short or long else match[0]
        if character not in _NOT_IN_IRI:
            return match[0]
        defects.append("forbidden character in IRI")
        return f"%{ord(character):02X}"

    whole = _IRI_FAULT.sub(repaired, iri[1:-1])
    if not _SCHEME.match(whole):
        raise Unrepairable("relative IRI" if whole else "empty IRI")
    return RepairedTerm(f"<{whole}>", tuple(defects))


def _repair_literal(literal: str) -> RepairedTerm:
    if _GOOD_LITERAL.fullmatch(literal):
        return RepairedTerm(literal)
    parts = _LITERAL_PARTS.fullmatch(literal)
    assert parts is not None
    written, tag, datatype = parts.groups()
    text, defects = _repair_text(written)
    if datatype is not None:
        iri, of_datatype = repair_resource(datatype)
        return RepairedTerm(f'"{text}"^^{iri}', defects + of_datatype)
    if tag is None:
        return RepairedTerm(f'"{text}"', defects)
    if "_" in tag:
        defects += ("language tag with _",)
        tag = tag.replace("_", "-")
    if not re.fullmatch(_GOOD_TAG, tag):
        raise Unrepairable("bad language tag")
    return RepairedTerm(f'"{text}"@{tag}', defects)


def _repair_text(text: str) -> RepairedTerm:
    defects = []

    def repaired(match: re.Match[str]) -> str:
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
            raise Unrepairable("bad escape")
        elif match[0] == "\r":
            defects.append("raw carriage return")
            return "\\r"
        # A raw tab is legal, but then a line could not be split at its tabs.
        return "\\t" if match[0] == "\t" else match[0]

    return RepairedTerm(_TEXT_FAULT.sub(repaired, text), tuple(defects))


def _character(code: str) -> str:
    number = int(code, 16)
    if 0xD800 <= number < 0xE000:
        raise Unrepairable("lone surrogate")
    if number > 0x10FFFF:
        raise Unrepairable("bad escape")
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
    # \xc3\xa9 is Ã© if Python printed characters, and é if it printed bytes.
    if from_bytes != characters:
        raise Unrepairable("ambiguous escape")
    return characters


class Repaired(NamedTuple):
    r"""A triple, as ``<s>\t<p>\t<o>\t.`` without an end of line and without other tabs."""

    line: bytes
    # Short stable names. Of legal N-Triples, only the spacing and raw tabs in texts change.
    defects: tuple[str, ...]


class Rejected(NamedTuple):
    """A line that should be a triple, but has no certain meaning as one."""

    reason: str  # short and stable, for counting


class Skipped(NamedTuple):
    """A line without a statement."""

    reason: str  # blank line, comment or Turtle directive


Cleaned: TypeAlias = Repaired | Rejected | Skipped


def clean_line(line: bytes) -> Cleaned:
    r"""Repair a line, with or without its end of line, or return why not; never raises.

    >>> clean_line(b'<a:s>    <a:p>  "Linuxov\\xe9"@cs .\r\n')
    Repaired(line=b'<a:s>\t<a:p>\t"Linuxov\xc3\xa9"@cs\t.', defects=('Python escape',))
    >>> clean_line(b"<a:s>\t<a:p>\t.\n")
    Rejected(reason='empty object')
    """
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError:
        return Rejected("not UTF-8")
    defects: list[str] = []
    if text.startswith("\ufeff"):
        defects.append("byte order mark")
    text = text.lstrip("\ufeff \t\r\n")
    if not text:
        return Skipped("blank line")
    if text.startswith("#"):
        return Skipped("comment")
    match = _STATEMENT.fullmatch(text)
    if match is None:
        return _directive(text) if _DIRECTIVE.match(text) else Rejected(_reason(text))
    subject, predicate, object_, dot = match.groups()
    if not dot:
        if not _is_whole(object_):
            return Rejected("no final dot")
        defects.append("missing final dot")
    try:
        start, middle, end = (
            repair_resource(subject),
            repair_resource(predicate),
            repair_term(object_),
        )
    except Unrepairable as error:
        return Rejected(str(error))
    defects += start.defects + middle.defects + end.defects
    canonical = f"{start.text}\t{middle.text}\t{end.text}\t."
    return Repaired(canonical.encode("utf-8"), tuple(dict.fromkeys(defects)))


def _is_whole(object_: str) -> bool:
    """Return whether an object has a clear end; `ns:m.02` may be half an id."""
    return object_.endswith((">", '"')) or object_.rpartition('"')[2].startswith("@")


def _directive(text: str) -> Skipped | Rejected:
    bound = _PREFIX_DIRECTIVE.match(text)
    if bound is not None and PREFIXES.get(bound[1], bound[2]) != bound[2]:
        # The names that follow do not mean what we assume, so reject this line to show it.
        return Rejected(f"prefix {bound[1]}: with another namespace")
    return Skipped(DIRECTIVE)


def _reason(text: str) -> str:
    """Return why a line is not a statement."""
    for row, reason in _FOREIGN_ROWS:
        if row.match(text):
            return reason
    kinds = []
    end_of_literal = -1
    for token in _TOKEN.finditer(text):
        if token.lastgroup == "scrap" and token[0][0] in _SCRAP_REASONS:
            return _SCRAP_REASONS[token[0][0]]
        if token.start() == end_of_literal and token.lastgroup != "dot":
            return "text after a literal"
        kinds.append(token.lastgroup)
        end_of_literal = token.end() if token.lastgroup == "literal" else -1
    if "node" in kinds:
        return "blank node"
    if text.rstrip().endswith((";", ",")):
        return TURTLE_LIST
    if "literal" in kinds[:2]:
        return "literal as subject" if kinds[0] == "literal" else "literal as predicate"
    terms = [kind for kind in kinds if kind != "dot"]
    if "scrap" in kinds:
        return "not a triple"
    if len(terms) == 2 and kinds[-1] == "dot":
        return "empty object"
    if len(terms) < 3:
        return "too few terms"
    return FOUR_TERMS if len(terms) > 3 else "not a triple"
