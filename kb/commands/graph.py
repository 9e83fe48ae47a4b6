"""The commands `kbqa sparql` and `kbqa relations`, and the formats of rows.

A table for people shows Freebase ids and bare texts. JSON, CSV and TSV are those of SPARQL 1.1 with
full IRIs, so that other tools read them.
"""

import csv
import io
import re
import shlex
import sys
from collections.abc import Sequence
from contextlib import closing
from typing import Literal

import click

from kbqa.kb.commands.options import (
    TEXT,
    GraphChoice,
    graph_options,
    is_terminal,
    json_option,
    print_json,
    print_note,
    print_result,
    read_standard_input,
)
from kbqa.kb.graph import DEFAULT_LIMIT, Direction, Table, json_text
from kbqa.sparql.dialect import check_read_only
from kbqa.sparql.errors import InputError
from kbqa.sparql.terms import (
    FREEBASE_NS,
    XSD_NS,
    LiteralTerm,
    Term,
    has_scheme,
    is_well_formed,
    sparql_term,
    term_text,
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
            rows = [["" if term is None else _full(term) for term in row] for row in table.rows]
            return "\n".join(map(_csv_line, (table.variables, *rows)))
        case "tsv":
            rows = [["" if term is None else _turtle(term) for term in row] for row in table.rows]
            return "\n".join(map("\t".join, ([f"?{name}" for name in table.variables], *rows)))


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
    for row in table.rows:
        lines.append(["" if term is None else " ".join(term_text(term).split()) for term in row])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, ["─" * width for width in widths])
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def _csv_line(cells: Sequence[str]) -> str:
    line = io.StringIO()
    # With CRLF as its line end, it quotes a lone CR on every Python; see cpython gh-67044.
    csv.writer(line, lineterminator="\r\n").writerow(cells)
    return line.getvalue().removesuffix("\r\n")


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


_ID = re.compile(r"\w[\w-]*(\.[^\s.]+)+|https?://\S+")
_PREFIXED_MID = re.compile(r"(?:\w*:|/)([mg])[./](\w+)")


@click.command()
@click.argument("query", type=TEXT)
@graph_options
@click.option(
    "--format",
    "style",
    type=click.Choice(["table", "json", "csv", "tsv"]),
    default=None,
    help="How to print rows.  [default: table on a terminal, else tsv]",
)
@click.option("--limit", type=click.IntRange(min=1), help="Print at most N rows.", metavar="N")
@json_option
def sparql(
    query: str, graph: GraphChoice, style: Format | None, limit: int | None, as_json: bool
) -> None:
    """Run QUERY, a SELECT or ASK; `-` reads it from standard input.

    The prefixes ns:, fb:, xsd:, rdf: and rdfs: need no declaration. JSON, CSV and TSV are the
    formats of SPARQL 1.1. ASK prints true or false.
    """
    text = read_standard_input() if query == "-" else query
    if as_json:
        style = "json"
    elif style is None:
        style = "table" if is_terminal(sys.stdout) else "tsv"
    form = check_read_only(text)
    with closing(graph.open()) as opened:
        if form == "ask":
            answer = opened.ask(text, timeout_s=graph.timeout_s)
            print_json({"head": {}, "boolean": answer} if style == "json" else answer)
            return
        table = opened.select(text, timeout_s=graph.timeout_s, limit=limit)
    if style == "json":
        print_json(rows_record(table))
    else:
        print_result(format_rows(table, style))
    if table.truncated:
        print_note(f"There are more than {limit} rows; raise --limit to see them.")


@click.command()
@click.argument("mid", type=TEXT)
@graph_options
@click.option(
    "--direction",
    type=click.Choice(["out", "in", "both"]),
    default="both",
    help="Relations that leave the entity, enter it, or both.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=DEFAULT_LIMIT,
    metavar="N",
    help="List at most N relations a direction.",
)
@json_option
def relations(mid: str, graph: GraphChoice, direction: str, limit: int, as_json: bool) -> None:
    """List the relations of the entity MID, such as m.09c7w0.

    `kbqa entities NAME` finds the MID of a name.
    """
    _check_id(mid)
    directions: tuple[Direction, ...] = ("out", "in")
    with closing(graph.open()) as opened:
        found = [
            (way, relation)
            for way in directions
            if direction in (way, "both")
            for relation in opened.relations(mid, way, limit)
        ]
        names = opened.labels([mid, *(relation for _, relation in found)])
        description = opened.description
    if as_json:
        rows = [
            {"direction": way, "relation": relation, "name": names.get(relation)}
            for way, relation in found
        ]
        record = {"mid": mid, "name": names.get(mid), "relations": rows}
        print_json(record)
        return
    if not found:
        print_note(f"{mid} has no such relations in {description}.")
    width = max((len(relation) for _, relation in found), default=0)
    lines = (f"{way:<3}  {relation:<{width}}  {names.get(relation, '')}" for way, relation in found)
    if found:
        print_result("\n".join(map(str.rstrip, lines)))


def _check_id(text: str) -> None:
    """Check that a text is an id: of an entity, a type, a relation, or a full IRI."""
    if _ID.fullmatch(text) and is_well_formed(text):
        return
    advice = f"Find it with `kbqa entities {shlex.quote(text)}`."
    if (prefixed := _PREFIXED_MID.fullmatch(text)) is not None:
        advice = f"Write {prefixed[1]}.{prefixed[2]}"
    raise InputError(f"{text!r} is not an id such as m.09c7w0. {advice}")
