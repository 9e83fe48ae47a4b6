"""RDF terms as kbqa sees them: Freebase ids, literals and the namespaces they come from.

A resource is a plain ``str``: its Freebase id (``"m.06w2sn5"``, ``"people.person"``) or, outside of
Freebase's namespace, its full IRI. Everything else is a `LiteralTerm`.
"""

import re
from dataclasses import dataclass
from typing import TypeAlias

FREEBASE_NS = "http://rdf.freebase.com/ns/"
XSD_NS = "http://www.w3.org/2001/XMLSchema#"

NAME = "type.object.name"
ALIAS = "common.topic.alias"
TYPE = "type.object.type"
NOTABLE_TYPES = "common.topic.notable_types"

# Characters that SPARQL's IRIREF forbids (SPARQL 1.1 §19.8): an id with one of them is not an IRI.
_NOT_IN_IRI = re.compile(r'[\x00-\x20<>"{}|^`\\]')
_ESCAPES = {
    "\\": "\\\\",
    '"': '\\"',
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\b": "\\b",
    "\f": "\\f",
}
_ESCAPE = re.compile(r'[\\"\x00-\x1f\x7f]')

# An IRI as in RFC 3987, without bracketed hosts. Oxigraph parses no other.
_IRI_CHARACTER = (
    r"(?:[A-Za-z0-9\-._~!$&'()*+,;=\u00a0-\ud7ff\uf900-\ufdcf\ufdf0-\uffef"
    r"\U00010000-\U0001fffd\U00020000-\U0002fffd\U00030000-\U0003fffd]|%[0-9A-Fa-f]{2})"
)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*+:")
_ID = re.compile(rf"(?:{_IRI_CHARACTER}|[:@/])+")
_FULL_IRI = re.compile(
    rf"{_SCHEME.pattern}(?!//)(?:{_IRI_CHARACTER}|[:@/])*"
    rf"(?:\?(?:{_IRI_CHARACTER}|[:@/?])*)?(?:\#(?:{_IRI_CHARACTER}|[:@/?])*)?"
    rf"|{_SCHEME.pattern}//(?:(?:{_IRI_CHARACTER}|:)*@)?(?:{_IRI_CHARACTER})*(?::[0-9]*+)?"
    rf"(?:/(?:{_IRI_CHARACTER}|[:@/])*)?"
    rf"(?:\?(?:{_IRI_CHARACTER}|[:@/?])*)?(?:\#(?:{_IRI_CHARACTER}|[:@/?])*)?"
)
# Language tags of BCP 47 without extensions and private use.
_LANGUAGE = re.compile(
    r"(?:[A-Za-z]{2,3}(?:-[A-Za-z]{3}){0,3}|[A-Za-z]{4,8})(?:-[A-Za-z]{4})?"
    r"(?:-(?:[A-Za-z]{2}|[0-9]{3}))?(?:-(?:[A-Za-z0-9]{5,8}|[0-9][A-Za-z0-9]{3}))*"
)
_SURROGATE = re.compile(r"[\ud800-\udfff]")

# The datatypes of literals that have none to speak of.
_OF_TEXTS = (f"{XSD_NS}string", "http://www.w3.org/1999/02/22-rdf-syntax-ns#langString")


@dataclass(frozen=True, slots=True)
class LiteralTerm:
    """An RDF literal, as the dump or the graph writes it."""

    # Engines may rewrite typed literals: Oxigraph returns "5.50"^^xsd:decimal as 5.5, and Virtuoso
    # completes dates. Untyped literals, as Freebase's numbers are, keep the dump's text.
    text: str  # unescaped
    datatype: str | None = None  # local name in XSD ("gYear"), or full IRI
    language: str | None = None

    def __post_init__(self) -> None:
        if self.datatype is not None and self.language is not None:
            raise ValueError("a literal has a datatype or a language, not both")


Term: TypeAlias = str | LiteralTerm


def read_literal(text: str, datatype: str | None, language: str | None) -> LiteralTerm:
    """Return a literal with a datatype that is a full IRI; ``xsd:string`` says nothing."""
    if language:
        return LiteralTerm(text, language=language)
    if datatype is None or datatype in _OF_TEXTS:
        return LiteralTerm(text)
    return LiteralTerm(text, datatype.removeprefix(XSD_NS))


def term_text(term: Term) -> str:
    """Return a term's id, or a literal's text."""
    return term.text if isinstance(term, LiteralTerm) else term


def term_order(term: Term) -> tuple[str, str]:
    """Return a key that sorts terms by id or text; the datatype decides between equal texts."""
    return (term.text, str(term)) if isinstance(term, LiteralTerm) else (term, "")


def is_mid(text: str) -> bool:
    """Return whether a text is a Freebase machine id, such as ``m.06w2sn5``."""
    return re.fullmatch(r"[mg]\.[0-9a-z_]+", text) is not None


def has_scheme(resource: str) -> bool:
    """Return whether a resource is a full IRI rather than an id in Freebase's namespace."""
    return _SCHEME.match(resource) is not None


def is_well_formed(term: Term) -> bool:
    """Return whether engines can parse a query that contains the term.

    Leniently loaded graphs contain terms that break a query, and so do texts that models write.
    """
    if isinstance(term, str):
        pattern = _FULL_IRI if has_scheme(term) else _ID
        return pattern.fullmatch(term) is not None and not term.startswith("_:")
    return (
        _SURROGATE.search(term.text) is None
        and (term.datatype is None or is_well_formed(term.datatype))
        and (term.language is None or _LANGUAGE.fullmatch(term.language) is not None)
    )


def iri(resource: str) -> str:
    """Write a resource as a SPARQL IRI.

    >>> iri("people.person.gender")
    '<http://rdf.freebase.com/ns/people.person.gender>'

    Raises:
        ValueError: The resource holds a character that no IRI may hold.
    """
    # In full, as released Oxigraph rejects prefixed names with two or more dots.
    if not resource or _NOT_IN_IRI.search(resource):
        raise ValueError(f"not a resource id: {resource!r}")
    return f"<{resource}>" if has_scheme(resource) else f"<{FREEBASE_NS}{resource}>"


def full_iri(resource: str) -> str:
    """Write a resource as its full IRI, without brackets."""
    return iri(resource)[1:-1]


def resource_id(full_iri: str) -> str:
    """Shorten a full IRI to a resource id; the inverse of `full_iri`."""
    short = full_iri.removeprefix(FREEBASE_NS)
    # With a colon, it would read as an IRI of its own, or as a blank node.
    return short if short and ":" not in short else full_iri


def quote(text: str) -> str:
    """Write a string as a SPARQL string literal; no input can end the literal early."""
    return f'"{_ESCAPE.sub(_escape, text)}"'


def sparql_term(term: Term) -> str:
    """Write a term in SPARQL."""
    if isinstance(term, str):
        return iri(term)
    if term.language is not None:
        return f"{quote(term.text)}@{term.language}"
    if term.datatype is not None:
        datatype = term.datatype if has_scheme(term.datatype) else XSD_NS + term.datatype
        return f"{quote(term.text)}^^<{datatype}>"
    return quote(term.text)


def _escape(match: re.Match[str]) -> str:
    character = match.group()
    return _ESCAPES.get(character) or f"\\u{ord(character):04X}"
