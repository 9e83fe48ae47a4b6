"""Measure queries on a store: searches and paths of 1 to 3 hops, from ordinary entities and hubs.

    python -m tools.bench.query STORE [--entities 1000] [--seed 1] [--virtuoso FOLDER]

Searches go through the store's operations, paths through queries in this process. Each runs once to
warm up and then three times, and the median counts. FOLDER holds the store's triples as N-Triples
(``kbqa load-freebase DUMP --emit-shards FOLDER``): with it, a plain SPARQLWrapper sends the same
queries to a Virtuoso.

Names of a hub's neighbours are asked for in two ways. *Neighbours capped* is what kbqa does: at
most 1,000 neighbours, then the names of these, here as one query with the LIMIT in a sub-SELECT.
*Rows capped* has the LIMIT outside: if few neighbours have a name, or the requested type, it goes
through all edges of the hub in search of 1,000 rows. A typed name is one with a type and a filter
on its language.

Two kinds of row have no bar, because kbqa never waits for them. "T4 of no such entity" asks the
queries above it about an entity that does not exist, and so shows what share of their time is
parsing and planning. The other is the relations of hubs by SPARQL alone, without the store's list.
"""

import sqlite3
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from random import Random
from typing import Literal

import click
import pyoxigraph

from kbqa.kb.graph import DEFAULT_LIMIT, Schema, neighbours_query, relations_query
from kbqa.kb.layout import StoreLayout, read_manifest
from kbqa.kb.store import OxigraphStore
from kbqa.sparql.terms import NAME, TYPE, full_iri, iri
from tools.bench.measured_run import machine
from tools.graph_servers import MissingServer, Virtuoso, empty_virtuoso

Direction = Literal["out", "in"]

_TOPIC = "common.topic"
_DIRECTIONS: tuple[Direction, Direction] = ("out", "in")
_CANDIDATES = 20
_HUBS = 20
_QUICK_MS, _HUB_SEARCH_MS, _CAPPED_MS = 0.2, 20.0, 100.0
_ABSENT = "m.there_is_no_such_entity"
_BUFFERS = 340_000
_ROUNDS = 3


@dataclass(slots=True)
class Template:
    """Queries of one form.

    Attributes:
        name: What they are called in the table.
        bar_ms: The limit of the median, or on hubs of the slowest; None for no limit.
        on_hubs: They start from hubs.
        runs: For each query, what answers it here and returns the number of rows.
        texts: The same as SPARQL.
    """

    name: str
    bar_ms: float | None
    on_hubs: bool = False
    runs: list[Callable[[], int]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)


@click.command()
@click.argument("store", type=click.Path(exists=True, path_type=Path))
@click.option("--entities", "count", default=1000, show_default=True, type=click.IntRange(min=2))
@click.option("--seed", default=1, show_default=True, help="Another seed, other entities.")
@click.option(
    "--virtuoso",
    "shards",
    type=click.Path(exists=True, path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Compare with a Virtuoso that holds the N-Triples of this folder.",
)
def main(store: Path, count: int, seed: int, shards: Path | None) -> None:
    """Measure queries."""
    kept = read_manifest(store).summary.kept
    print(f"{machine()}; {time.strftime('%Y-%m-%d')}")
    print(f"{store.name}: {kept:,} triples; {count} entities drawn with seed {seed}; warm, ms")
    with ExitStack() as stack:
        graph = OxigraphStore.open(store)
        stack.callback(graph.close)
        templates = _Queries(graph, count, seed).templates()
        virtuoso = None
        if shards is not None:
            files = [file.resolve() for file in sorted(shards.glob("*.nt*"))]
            try:
                starting = empty_virtuoso([shards.resolve()], buffers=_BUFFERS, parent=shards)
                virtuoso = stack.enter_context(starting)
            except MissingServer as error:
                raise click.ClickException(str(error)) from error
            virtuoso.load(files, loaders=2)
        _print_head(virtuoso is not None)
        for template in templates:
            _measure(template, virtuoso)


def draw_entities(store: pyoxigraph.Store, random: Random, count: int) -> list[str]:
    """Draw topics from a store, as many as there are at most."""
    of_type = store.quads_for_pattern(None, _node(TYPE), _node(_TOPIC), pyoxigraph.DefaultGraph())
    # The store keeps subjects by their hashes: the first are as good as any.
    first = [quad.subject for quad in islice(of_type, count * _CANDIDATES)]
    mids = [_id(node) for node in first if isinstance(node, pyoxigraph.NamedNode)]
    return random.sample(mids, min(count, len(mids)))


def median_ms(runs: Sequence[Callable[[], object]]) -> list[float]:
    """Return the median of each query's rounds; a round runs all of them."""
    taken: list[list[float]] = [[] for _ in runs]
    for _ in range(_ROUNDS):
        for times, run in zip(taken, runs, strict=True):
            started = time.perf_counter()
            run()
            times.append(1000 * (time.perf_counter() - started))
    return [statistics.median(times) for times in taken]


class _Queries:
    """Draws queries that have answers from a store."""

    def __init__(self, graph: OxigraphStore, count: int, seed: int) -> None:
        layout = StoreLayout(graph.directory)
        self._graph = graph
        self._store = pyoxigraph.Store.read_only(str(layout.graph))
        self._schema = Schema.open(layout.schema)
        self._random = Random(seed)
        self._entities = draw_entities(self._store, self._random, count)
        with closing(sqlite3.connect(f"file:{layout.statistics}?mode=ro", uri=True)) as connection:
            # Each hub is represented by its relation with the most edges.
            rows = connection.execute(
                "SELECT node, direction, relation, max(edges) FROM hub_relation "
                "GROUP BY node, direction ORDER BY sum(edges) DESC"
            ).fetchall()
        self._hubs: dict[Direction, list[tuple[str, str]]] = {
            direction: [(row[0], row[2]) for row in rows if row[1] == direction][:_HUBS]
            for direction in _DIRECTIONS
        }

    def templates(self) -> list[Template]:
        """Make the queries of every template."""
        made = []
        for direction in _DIRECTIONS:
            made += [self._relations(direction), self._neighbours(direction)]
        made += self._paths()
        for direction in _DIRECTIONS:
            made += self._on_hubs(direction)
        made.append(self._between())
        return [template for template in made if template.runs]

    def _relations(self, direction: Direction) -> Template:
        template = Template(f"T1 relations {direction}", _QUICK_MS)
        for entity in self._entities:
            self._add_relations(template, entity, direction)
        return template

    def _neighbours(self, direction: Direction) -> Template:
        template = Template(f"T2 neighbours {direction}", _QUICK_MS)
        for entity in self._entities:
            relations = self._graph.relations(entity, direction)
            if relations:
                relation = self._random.choice(relations)
                self._add_neighbours(template, entity, relation, direction)
        return template

    def _add_relations(self, template: Template, entity: str, direction: Direction) -> None:
        template.runs.append(lambda: len(self._graph.relations(entity, direction)))
        template.texts.append(relations_query(entity, direction, DEFAULT_LIMIT))

    def _add_neighbours(
        self, template: Template, entity: str, relation: str, direction: Direction
    ) -> None:
        template.runs.append(lambda: len(self._graph.neighbours(entity, relation, direction)))
        template.texts.append(neighbours_query(entity, relation, direction, DEFAULT_LIMIT))

    def _add(self, template: Template, text: str) -> None:
        template.runs.append(lambda: self._rows(text))
        template.texts.append(text)

    def _add_selected(self, template: Template, text: str) -> None:
        template.runs.append(lambda: len(self._graph.select(text).rows))
        template.texts.append(text)

    def _rows(self, text: str) -> int:
        result = self._store.query(text)
        if isinstance(result, pyoxigraph.QueryBoolean):
            return int(bool(result))
        assert isinstance(result, pyoxigraph.QuerySolutions)
        return sum(1 for _ in result)

    def _paths(self) -> list[Template]:
        named = Template("T3 two hops over a mediator, name", _QUICK_MS)
        selected = Template("T3 the same by store.select", _CAPPED_MS)
        superlative = Template("T4 three hops, type, filter, order", _QUICK_MS)
        absent = Template("T4 of no such entity", None)
        linked = Template("T5 ASK two free hops", _QUICK_MS)
        strangers = Template("T5 the same, of strangers", _QUICK_MS)
        for start, stranger in zip(self._entities, self._entities[1:], strict=False):
            self._add(strangers, _linked(start, stranger))
            walk = self._walk(start)
            if walk is None:
                continue
            first, second, end = walk
            path = f"{iri(start)} {iri(first)} ?m . ?m {iri(second)} ?x"
            text = (
                f"SELECT DISTINCT ?n WHERE {{ {path} . ?x {iri(NAME)} ?n "
                f'FILTER(LANG(?n) = "en") }} LIMIT {DEFAULT_LIMIT}'
            )
            self._add(named, text)
            self._add_selected(selected, text)
            self._add(linked, _linked(start, end))
            third = self._step(end, lambda relation: relation not in (NAME, TYPE))
            types = self._graph.types(end)
            if third is not None and types:
                text = (
                    f"SELECT DISTINCT ?x WHERE {{ {path} . ?x {iri(third)} ?y . "
                    f"?x {iri(TYPE)} {iri(self._random.choice(types))} "
                    f"FILTER(?x != {iri(start)}) }} ORDER BY ?y LIMIT 1"
                )
                self._add(superlative, text)
                self._add(absent, text.replace(iri(start), iri(_ABSENT)))
        return [named, selected, superlative, absent, linked, strangers]

    def _walk(self, start: str) -> tuple[str, str, str] | None:
        """Find two relations that lead over a mediator to another entity, and that entity."""
        first = self._step(start, self._leads_to_mediator)
        if first is None:
            return None
        for mediator in self._graph.neighbours(start, first, "out"):
            relations = self._graph.relations(str(mediator), "out")
            for second in self._random.sample(list(relations), len(relations)):
                for end in self._graph.neighbours(str(mediator), second, "out"):
                    if isinstance(end, str) and end.startswith(("m.", "g.")) and end != start:
                        return first, second, end
        return None

    def _step(self, entity: str, is_wanted: Callable[[str], bool]) -> str | None:
        wanted = [each for each in self._graph.relations(entity, "out") if is_wanted(each)]
        return self._random.choice(wanted) if wanted else None

    def _leads_to_mediator(self, relation: str) -> bool:
        stated = self._schema.property(relation)
        return (
            stated is not None
            and stated.expected_type is not None
            and self._schema.is_mediator(stated.expected_type)
        )

    def _on_hubs(self, direction: Direction) -> list[Template]:
        relations = Template(f"hub: relations {direction}", _HUB_SEARCH_MS, on_hubs=True)
        unlisted = Template(f"hub: relations by SPARQL alone, {direction}", None, on_hubs=True)
        neighbours = Template(f"hub: neighbours {direction}", _CAPPED_MS, on_hubs=True)
        wanted = {
            "names": f"?x {iri(NAME)} ?n",
            "typed names": f"?x {iri(TYPE)} {iri(_TOPIC)} . "
            f'?x {iri(NAME)} ?n FILTER(LANG(?n) = "en")',
        }
        named = {
            (what, capped): Template(
                f"hub: {what}, {capped} capped, {direction}", _CAPPED_MS, on_hubs=True
            )
            for what in wanted
            for capped in ("neighbours", "rows")
        }
        cap = f"LIMIT {DEFAULT_LIMIT}"
        for hub, relation in self._hubs[direction]:
            self._add_relations(relations, hub, direction)
            self._add(unlisted, relations_query(hub, direction, DEFAULT_LIMIT))
            self._add_neighbours(neighbours, hub, relation, direction)
            near = f"{iri(hub)} {iri(relation)} ?x"
            if direction == "in":
                near = f"?x {iri(relation)} {iri(hub)}"
            for what, pattern in wanted.items():
                self._add(
                    named[what, "neighbours"],
                    f"SELECT ?x ?n WHERE {{ {{ SELECT ?x WHERE {{ {near} }} {cap} }} {pattern} }}",
                )
                self._add(named[what, "rows"], f"SELECT ?x ?n WHERE {{ {near} . {pattern} }} {cap}")
        return [relations, unlisted, neighbours, *named.values()]

    def _between(self) -> Template:
        template = Template("hub: ASK two free hops", _CAPPED_MS, on_hubs=True)
        for hub, _ in self._hubs["in"]:
            for entity in self._entities[:_HUBS]:
                self._add(template, _linked(entity, hub))
        return template


def _linked(start: str, end: str) -> str:
    # The start comes first: a store without statistics begins there, so it is not to be a hub.
    return f"ASK {{ {iri(start)} ?p ?m . ?m ?q {iri(end)} }}"


def _node(name: str) -> pyoxigraph.NamedNode:
    return pyoxigraph.NamedNode(full_iri(name))


def _id(node: pyoxigraph.NamedNode) -> str:
    return node.value.rpartition("/")[2]


def _measure(template: Template, virtuoso: Virtuoso | None) -> None:
    rows = sum(run() for run in template.runs)
    ours = median_ms(template.runs)
    median, slowest = statistics.median(ours), max(ours)
    p95 = sorted(ours)[int(0.95 * (len(ours) - 1))]
    line = (
        f"{template.name:42}{len(ours):6}{rows / len(ours):8.1f}{median:9.3f}{p95:10.3f}"
        f"{slowest:10.3f}"
    )
    if template.bar_ms is None:
        line += f"{'':12}"
    else:
        is_over = (slowest if template.on_hubs else median) > template.bar_ms
        line += f"{template.bar_ms:7g}{' over' if is_over else '   ok'}"
    if virtuoso is not None:
        asks = [_asker(virtuoso, text) for text in template.texts]
        for ask in asks:
            ask()
        theirs = statistics.median(median_ms(asks))
        line += f"{theirs:10.3f}{theirs / median:8.1f}"
    print(line)


def _print_head(compares: bool) -> None:
    head = f"\n{'':42}{'n':>6}{'rows':>8}{'median':>9}{'p95':>10}{'max':>10}{'bar':>7}{'':5}"
    print(head + (f"{'Virtuoso':>10}{'ratio':>8}" if compares else ""))


def _asker(virtuoso: Virtuoso, text: str) -> Callable[[], int]:
    from SPARQLWrapper import JSON, SPARQLWrapper

    address, _, graph = virtuoso.url.partition("?default-graph-uri=")
    wrapper = SPARQLWrapper(address)
    wrapper.addDefaultGraph(graph)
    wrapper.setReturnFormat(JSON)
    wrapper.setQuery(text)
    return lambda: len(wrapper.queryAndConvert())


if __name__ == "__main__":
    main()
