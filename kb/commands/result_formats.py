"""Print the rows of a SELECT: an aligned table for people, and the three formats of the W3C.

The table shows Freebase ids and bare texts; JSON, CSV and TSV are those of SPARQL 1.1 (full IRIs),
so that other tools read them.
"""

import csv
import io
from collections.abc import Sequence
from typing import Literal

from kbqa.kb.escaping import json_text
from kbqa.kb.graph import Table
from kbqa.sparql.terms import (
    FREEBASE_NS,
    XSD_NS,
    LiteralTerm,
    Term,
    has_scheme,
    is_well_formed,
    sparql_term,
)

Format = Literal["table", "json", "csv", "tsv"]


def format_rows(table: Table, style: Format) -> str:
    """Render the rows; the text has no line break at its end."""
    match style:
        case "table":
            return _aligned(table)
        case "json":
            return json_text(rows_record(table))
        case "csv":
            return _csv(table)
        case "tsv":
            return _tsv(table)


def rows_record(table: Table) -> dict[str, object]:
    """Return the rows as SPARQL 1.1's JSON has them."""
    bindings = [
        {
            name: _binding(term)
            for name, term in zip(table.variables, row, strict=True)
            if term is not None
        }
        for row in table.rows
    ]
    return {"head": {"vars": table.variables}, "results": {"bindings": bindings}}


def _aligned(table: Table) -> str:
    lines = [list(table.variables)]
    lines += [["" if term is None else _plain(term) for term in row] for row in table.rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, ["─" * width for width in widths])
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def _csv(table: Table) -> str:
    rows = (["" if term is None else _full(term) for term in row] for row in table.rows)
    return "\n".join(map(_csv_line, (table.variables, *rows)))


def _csv_line(cells: Sequence[str]) -> str:
    line = io.StringIO()
    # With CRLF as its line end, it quotes a lone CR on every Python; see cpython gh-67044.
    csv.writer(line, lineterminator="\r\n").writerow(cells)
    return line.getvalue().removesuffix("\r\n")


def _tsv(table: Table) -> str:
    lines = ["\t".join(f"?{name}" for name in table.variables)]
    for row in table.rows:
        lines.append("\t".join("" if term is None else _turtle(term) for term in row))
    return "\n".join(lines)


def _plain(term: Term) -> str:
    text = term if isinstance(term, str) else term.text
    return " ".join(text.split())


def _full(term: Term) -> str:
    if isinstance(term, LiteralTerm):
        return term.text
    return term if term.startswith("_:") else _iri(term)


def _iri(resource: str) -> str:
    """Write an IRI in full, even one that a dump should not hold."""
    return resource if has_scheme(resource) else FREEBASE_NS + resource


def _turtle(term: Term) -> str:
    if isinstance(term, str) and not is_well_formed(term):
        return term if term.startswith("_:") else f"<{_iri(term)}>"
    return sparql_term(term)


def _binding(term: Term) -> dict[str, str]:
    if isinstance(term, str):
        if term.startswith("_:"):
            return {"type": "bnode", "value": term.removeprefix("_:")}
        return {"type": "uri", "value": _iri(term)}
    binding = {"type": "literal", "value": term.text}
    if term.language is not None:
        binding["xml:lang"] = term.language
    if term.datatype is not None:
        datatype = term.datatype
        binding["datatype"] = datatype if has_scheme(datatype) else XSD_NS + datatype
    return binding
