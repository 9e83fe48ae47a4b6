"""Terms and rows on their way into kbqa: from pyoxigraph, over a pipe, and from SPARQL JSON.

A blank node becomes the resource ``_:label``, which is valid within one result only.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import pyoxigraph

from kbqa.sparql.terms import XSD_NS, LiteralTerm, Term, resource_id, term_order

Cell: TypeAlias = str | tuple[str, str, str | None] | None
"""A cell of a store's rows in built-in types: a literal is (text, datatype's IRI, language)."""

_XSD_STRING = XSD_NS + "string"
_RDF_LANG_STRING = "http://www.w3.org/1999/02/22-rdf-syntax-ns#langString"


def term_from_oxigraph(node: object) -> Term:
    """Convert a pyoxigraph node.

    Raises:
        TypeError: The node is a quoted triple, which Freebase does not have.
    """
    match node:
        case pyoxigraph.NamedNode():
            return resource_id(node.value)
        case pyoxigraph.Literal():
            return _literal(node.value, node.datatype.value, node.language)
        case pyoxigraph.BlankNode():
            return f"_:{node.value}"
        case _:
            raise TypeError(f"not a resource or literal: {node}")


def term_from_json(binding: Mapping[str, str]) -> Term:
    """Convert one binding of SPARQL 1.1 Query Results JSON.

    Raises:
        KeyError: The binding lacks its type or value.
        ValueError: Its type is unknown.
    """
    value = binding["value"]
    match binding["type"]:
        case "uri":
            return resource_id(value)
        case "literal" | "typed-literal":  # Virtuoso writes the latter
            return _literal(value, binding.get("datatype"), binding.get("xml:lang"))
        case "bnode":
            return f"_:{value}"
        case kind:
            raise ValueError(f"unknown term type {kind!r}")


def term_from_cell(cell: Cell) -> Term | None:
    """Convert a cell from the process that runs a store's queries."""
    if cell is None:
        return None
    return resource_id(cell) if isinstance(cell, str) else _literal(*cell)


def sorted_edges(edges: Mapping[str, Sequence[Term]]) -> dict[str, Sequence[Term]]:
    """Sort the edges of an entity: the relations, and what each of them leads to."""
    return {relation: _sorted(edges[relation]) for relation in sorted(edges)}


def pick_label(names: Iterable[Term]) -> str | None:
    """Choose the name to show: English, else one without a language, else the first by language."""
    literals = [name for name in names if isinstance(name, LiteralTerm)]
    if not literals:
        return None
    return min(literals, key=_label_rank).text


def _literal(text: str, datatype: str | None, language: str | None) -> LiteralTerm:
    if language:
        return LiteralTerm(text, language=language)
    if datatype is None or datatype in (_XSD_STRING, _RDF_LANG_STRING):
        return LiteralTerm(text)
    return LiteralTerm(text, datatype=datatype.removeprefix(XSD_NS))


def _sorted(terms: Sequence[Term]) -> Sequence[Term]:
    return sorted(terms, key=term_order) if len(terms) > 1 else terms


def _label_rank(name: LiteralTerm) -> tuple[int, str, str]:
    language = name.language or ""
    return ({"en": 0, "": 1}.get(language, 2), language, name.text)
