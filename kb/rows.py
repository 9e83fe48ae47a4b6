"""Terms and rows on their way into kbqa: from pyoxigraph, over a pipe, and from SPARQL JSON.

A blank node becomes the resource ``_:label``, which is valid within one result only.
"""

import reprlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias, TypeGuard, TypeVar

import pyoxigraph

from kbqa.sparql.terms import XSD_NS, LiteralTerm, Term, has_scheme, resource_id, term_order

# A cell of a store's rows in built-in types; a literal is (text, datatype's IRI, language).
Cell: TypeAlias = str | tuple[str, str, str | None] | None

_XSD_STRING = XSD_NS + "string"
_RDF_LANG_STRING = "http://www.w3.org/1999/02/22-rdf-syntax-ns#langString"

_COUNT_DIGITS = 18  # Python refuses to read some thousands of them.

_T = TypeVar("_T")
_EXCERPT = reprlib.Repr()  # bounds what a message shows, in length and in depth
_EXCERPT.maxstring = _EXCERPT.maxother = 100


def term_from_oxigraph(node: object) -> Term:
    """Convert a pyoxigraph node. Freebase has no quoted triples: those raise `TypeError`."""
    match node:
        case pyoxigraph.NamedNode():
            return resource_id(node.value)
        case pyoxigraph.Literal():
            return _literal(node.value, node.datatype.value, node.language)
        case pyoxigraph.BlankNode():
            return f"_:{node.value}"
        case _:
            raise TypeError(f"not a resource or literal: {node}")


def rows_from_json(
    result: Mapping[str, object],
) -> tuple[tuple[str, ...], tuple[tuple[Term | None, ...], ...]]:
    """Read the variables and the rows of SPARQL 1.1 Query Results JSON.

    Raises:
        ValueError: It is another JSON. The message continues "answered with".
    """
    head, results = result.get("head"), result.get("results")
    variables = head.get("vars") if isinstance(head, dict) else None
    bindings = results.get("bindings") if isinstance(results, dict) else None
    if not _is_list(variables, str) or not _is_list(bindings, dict):
        raise ValueError(f"JSON that is not a SPARQL result: {_EXCERPT.repr(result)}")
    rows = tuple(
        tuple(_term_from_json(row[name]) if name in row else None for name in variables)
        for row in bindings
    )
    return tuple(variables), rows


def term_from_cell(cell: Cell) -> Term | None:
    """Convert a cell from the process that runs a store's queries."""
    if cell is None:
        return None
    return resource_id(cell) if isinstance(cell, str) else _literal(*cell)


def read_count(rows: Sequence[Sequence[Term | None]]) -> int | None:
    """Read the only row of a query that counts; None if it is no count."""
    match rows:
        case [[LiteralTerm(text=text)]] if text.isdecimal() and len(text) <= _COUNT_DIGITS:
            return int(text)
    return None


def sorted_edges(edges: Mapping[str, Sequence[Term]]) -> dict[str, Sequence[Term]]:
    """Sort the edges of an entity: the relations, and the ends of each."""
    return {relation: _sorted(edges[relation]) for relation in sorted(edges)}


def pick_label(names: Iterable[Term]) -> str | None:
    """Choose the name to show: English, else without a language, else the first by language."""
    literals = [name for name in names if isinstance(name, LiteralTerm) and name.text.strip()]
    if not literals:
        return None
    return min(literals, key=_label_rank).text


def _is_list(value: object, kind: type[_T]) -> TypeGuard[list[_T]]:
    return isinstance(value, list) and all(isinstance(each, kind) for each in value)


def _term_from_json(binding: object) -> Term:
    """Convert one binding of a row."""
    if isinstance(binding, dict) and isinstance(value := binding.get("value"), str):
        datatype, language = binding.get("datatype"), binding.get("xml:lang")
        match binding.get("type"):
            case "uri" if has_scheme(value):
                return resource_id(value)
            case "bnode":
                return f"_:{value}"
            # Virtuoso writes typed-literal.
            case "literal" | "typed-literal" if isinstance(language, str | None) and (
                datatype is None or (isinstance(datatype, str) and has_scheme(datatype))
            ):
                return _literal(value, datatype, language)
    raise ValueError(f"a value that is not an RDF term: {_EXCERPT.repr(binding)}")


def _literal(text: str, datatype: str | None, language: str | None) -> LiteralTerm:
    if language:
        return LiteralTerm(text, language=language)
    if datatype is None or datatype in (_XSD_STRING, _RDF_LANG_STRING):
        return LiteralTerm(text)
    return LiteralTerm(text, datatype=datatype.removeprefix(XSD_NS))


def _sorted(terms: Sequence[Term]) -> Sequence[Term]:
    return sorted(terms, key=term_order) if len(terms) > 1 else terms


def _label_rank(name: LiteralTerm) -> tuple[int, str, str]:
    language = (name.language or "").lower()
    kind = "en-" if language.startswith("en-") else language
    return ({"en": 0, "en-": 1, "": 2}.get(kind, 3), language, name.text)
