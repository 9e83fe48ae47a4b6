r"""Clean one line of a dump that is not in the dump's usual form.

This is the slow path: a line ``<s>\t<p>\t<o>\t.`` needs none of it. Each line comes out mended, in
that very form, or rejected with its reason; never changed in what it means, and never by a crash.
Lines are taken one by one: nothing is remembered from a ``@prefix`` line to the next.

What is mended and what not: docs/freebase.md. Defects by number: tests/kb/test_cleaning.py.
"""

import re
from typing import NamedTuple, TypeAlias

from kbqa.kb.cleaning_terms import (
    BARE,
    IRI,
    LITERAL,
    NAME,
    PREFIXES,
    Unmendable,
    mend_resource,
    mend_term,
)

_STATEMENT = re.compile(
    rf"({IRI}|{NAME})[ \t]*+({IRI}|{NAME})[ \t]*+({IRI}|{LITERAL}|{NAME}|{BARE})[ \t]*+"
    r"(?:(\.)[ \t]*+(?:#.*+)?+)?+[ \t\r\n]*+",
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
# Files that go by the name of Freebase and hold no RDF.
_FOREIGN_ROWS = (
    (re.compile(r"www\.freebase\.com/"), "FB2M row, not RDF"),
    (re.compile(r"/[^\t]*+\t/[^\t]*+\t/[mg]/[^\t]*+$"), "FB15k row, not RDF"),
    (re.compile(r"/[^\t]*+\t/[^\t]*+\t"), "quad TSV row, not RDF"),
)


class Mended(NamedTuple):
    r"""A triple.

    Attributes:
        line: ``<s>\t<p>\t<o>\t.`` without an end of line, as every store takes it; no tab but
            these three.
        defects: What was mended, by short stable names; empty where the line was legal
            N-Triples and at most its spacing is new, or a raw tab in a text is now ``\t``.
    """

    line: bytes
    defects: tuple[str, ...]


class Rejected(NamedTuple):
    """A line that should be a triple, and is none that could be told for certain.

    Attributes:
        reason: Short and stable, for counting.
    """

    reason: str


class Skipped(NamedTuple):
    """A line that states nothing.

    Attributes:
        reason: ``blank line``, ``comment`` or ``Turtle directive``.
    """

    reason: str


Cleaned: TypeAlias = Mended | Rejected | Skipped


def clean_line(line: bytes) -> Cleaned:
    r"""Mend a line, or say why not.

    >>> clean_line(b'<a:s>    <a:p>  "Linuxov\\xe9"@cs .\r\n')
    Mended(line=b'<a:s>\t<a:p>\t"Linuxov\xc3\xa9"@cs\t.', defects=('Python escape',))
    >>> clean_line(b"<a:s>\t<a:p>\t.\n")
    Rejected(reason='empty object')

    Args:
        line: One line, with or without its end.
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
        start, middle, end = mend_resource(subject), mend_resource(predicate), mend_term(object_)
    except Unmendable as error:
        return Rejected(str(error))
    defects += start.defects + middle.defects + end.defects
    canonical = f"{start.text}\t{middle.text}\t{end.text}\t."
    return Mended(canonical.encode("utf-8"), tuple(dict.fromkeys(defects)))


def _is_whole(object_: str) -> bool:
    """Tell whether an object shows by itself that it is not cut: `ns:m.02` may be half an id."""
    return object_.endswith((">", '"')) or object_.rpartition('"')[2].startswith("@")


def _directive(text: str) -> Skipped | Rejected:
    bound = _PREFIX_DIRECTIVE.match(text)
    if bound is not None and PREFIXES.get(bound[1], bound[2]) != bound[2]:
        # The names that follow mean something else than we take them for: this must be seen.
        return Rejected(f"prefix {bound[1]}: with another namespace")
    return Skipped("Turtle directive")


def _reason(text: str) -> str:
    """Say why a line is no statement."""
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
        return "Turtle list"
    if "literal" in kinds[:2]:
        return "literal as subject" if kinds[0] == "literal" else "literal as predicate"
    terms = [kind for kind in kinds if kind != "dot"]
    if "scrap" in kinds:
        return "not a triple"
    if len(terms) == 2 and kinds[-1] == "dot":
        return "empty object"
    if len(terms) < 3:
        return "too few terms"
    return "more than three terms" if len(terms) > 3 else "not a triple"
