r"""Clean one line of a dump that is not in the dump's usual form.

This is the slow path: a line ``<s>\t<p>\t<o>\t.`` does not need it. Each line is repaired into that
form, or rejected with a reason. Its meaning never changes, and no line raises. Each line is read by
itself: a ``@prefix`` line has no effect on the next.

docs/freebase.md lists what is repaired. tests/kb/loading/test_cleaning.py numbers the defects.
"""

import re
from typing import NamedTuple, TypeAlias

from kbqa.kb.loading.reading.cleaning_terms import (
    BARE,
    IRI,
    LITERAL,
    NAME,
    PREFIXES,
    Unrepairable,
    repair_resource,
    repair_term,
)

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


class Repaired(NamedTuple):
    r"""A triple.

    Attributes:
        line: ``<s>\t<p>\t<o>\t.`` without an end of line, which every store reads; it has no other
            tabs.
        defects: Short stable names of what was repaired. Empty if the line was legal N-Triples, and
            at most its spacing changed or a raw tab in a text became ``\t``.
    """

    line: bytes
    defects: tuple[str, ...]


class Rejected(NamedTuple):
    """A line that should be a triple, but has no certain meaning as one.

    Attributes:
        reason: Short and stable, for counting.
    """

    reason: str


class Skipped(NamedTuple):
    """A line without a statement.

    Attributes:
        reason: ``blank line``, ``comment`` or ``Turtle directive``.
    """

    reason: str


Cleaned: TypeAlias = Repaired | Rejected | Skipped


def clean_line(line: bytes) -> Cleaned:
    r"""Repair a line, or return why not.

    >>> clean_line(b'<a:s>    <a:p>  "Linuxov\\xe9"@cs .\r\n')
    Repaired(line=b'<a:s>\t<a:p>\t"Linuxov\xc3\xa9"@cs\t.', defects=('Python escape',))
    >>> clean_line(b"<a:s>\t<a:p>\t.\n")
    Rejected(reason='empty object')

    Args:
        line: One line, with or without its end of line.
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
