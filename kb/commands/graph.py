"""The commands that query a graph: `kbqa sparql` and `kbqa relations`."""

import re
import shlex
import sys
from contextlib import closing

import click

from kbqa.kb.commands.options import GraphChoice, graph_options, json_option
from kbqa.kb.commands.result_formats import Format, format_rows, rows_record
from kbqa.kb.commands.text import (
    TEXT,
    is_terminal,
    print_json,
    print_note,
    print_result,
    read_standard_input,
)
from kbqa.kb.graph import DEFAULT_LIMIT, Direction
from kbqa.sparql.errors import InputError
from kbqa.sparql.queries.dialect import check_read_only
from kbqa.sparql.terms import is_well_formed

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
    show_default=True,
    help="Relations that leave the entity, enter it, or both.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=DEFAULT_LIMIT,
    show_default=True,
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
