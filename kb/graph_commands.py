"""The commands that look into a graph: `kbqa sparql` and `kbqa relations`."""

import json
import sys
from contextlib import closing

import click

from kbqa.kb.graph import DEFAULT_LIMIT, Direction
from kbqa.kb.options import GraphChoice, graph_options, json_option
from kbqa.kb.result_formats import Format, format_rows
from kbqa.sparql.dialect import check_read_only
from kbqa.sparql.errors import InputError
from kbqa.sparql.terms import iri


@click.command()
@click.argument("query")
@graph_options
@click.option(
    "--format",
    "style",
    type=click.Choice(["table", "json", "csv", "tsv"]),
    default=None,
    help="How to print rows.  [default: table on a terminal, else tsv]",
)
@click.option("--limit", type=click.IntRange(min=1), help="Print so many rows at most.")
@json_option
def sparql(
    query: str, graph: GraphChoice, style: Format | None, limit: int | None, as_json: bool
) -> None:
    """Run QUERY, a SELECT or ASK; `-` reads it from standard input.

    Prefixed names are welcome; ns:, fb:, xsd:, rdf: and rdfs: need no declaration. JSON, CSV and
    TSV are the formats of SPARQL 1.1. ASK prints true or false.
    """
    text = sys.stdin.read() if query == "-" else query
    if as_json:
        style = "json"
    elif style is None:
        style = "table" if sys.stdout.isatty() else "tsv"
    form = check_read_only(text)
    with closing(graph.open()) as opened:
        if form == "ask":
            answer = opened.ask(text, timeout_s=graph.timeout_s)
            said = {"head": {}, "boolean": answer} if style == "json" else answer
            click.echo(json.dumps(said))
            return
        table = opened.select(text, timeout_s=graph.timeout_s, limit=limit)
    click.echo(format_rows(table, style))
    if table.truncated:
        click.echo(f"There are more than {limit} rows; raise --limit to see them.", err=True)


@click.command()
@click.argument("mid")
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
    help="List so many relations of a direction at most.",
)
@json_option
def relations(mid: str, graph: GraphChoice, direction: str, limit: int, as_json: bool) -> None:
    """List the relations of the entity MID, such as m.09c7w0."""
    try:
        iri(mid)
    except ValueError as error:
        raise InputError(f"{mid!r} is no id such as m.09c7w0; `kbqa entities` finds ids") from error
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
        click.echo(json.dumps(record, ensure_ascii=False))
        return
    if not found:
        click.echo(f"{mid} has no such relations in {description}.", err=True)
    width = max((len(relation) for _, relation in found), default=0)
    for way, relation in found:
        click.echo(f"{way:<3}  {relation:<{width}}  {names.get(relation, '')}".rstrip())
