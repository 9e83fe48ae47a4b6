"""Measure queries on a store: searches and paths of 1 to 3 hops, from ordinary entities and hubs.

    python -m tools.bench.query STORE [--entities 1000] [--seed 1]

Searches go through the store's operations, paths through queries in this process. Each runs once to
warm up and then three times, and the median counts.

Names of a hub's neighbours are asked for as kbqa does: at most 1,000 neighbours, then the names of
these, here as one query with the LIMIT in a sub-SELECT.
"""

import sqlite3
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice, pairwise
from pathlib import Path
from random import Random

import click
import pyoxigraph

from kbqa.kb.graph import DEFAULT_LIMIT, Direction, Schema
from kbqa.kb.layout import StoreLayout, read_manifest
from kbqa.kb.store import OxigraphStore
from kbqa.sparql.terms import NAME, TYPE, full_iri, iri
from tools.bench.measured_run import machine
from tools.options import FOLDER

_TOPIC = "common.topic"
_DIRECTIONS: tuple[Direction, Direction] = ("out", "in")
_CANDIDATES = 20
_HUBS = 20
_QUICK_MS, _HUB_SEARCH_MS, _CAPPED_MS = 0.2, 20.0, 100.0
_ROUNDS = 3


Query = Callable[[], int]
"""Asks the store, and returns the number of rows."""


@dataclass(slots=True)
class Template:
    """Queries of one form."""

    name: str  # what they are called in the table
    bar_ms: float  # the limit of the median, or on hubs of the slowest
    on_hubs: bool = False  # they start from hubs
    queries: list[Query] = field(default_factory=list)


@click.command()
@click.argument("store", type=FOLDER)
@click.option("--entities", "count", default=1000, show_default=True, type=click.IntRange(min=2))
@click.option("--seed", default=1, show_default=True, help="Another seed, other entities.")
def main(store: Path, count: int, seed: int) -> None:
    """Measure queries."""
    kept = read_manifest(store).summary.kept
    print(f"{machine()}; {time.strftime('%Y-%m-%d')}")
    print(f"{store.name}: {kept:,} triples; {count} entities drawn with seed {seed}; warm, ms")
    print(f"\n{'':42}{'n':>6}{'rows':>8}{'median':>9}{'p95':>10}{'max':>10}{'bar':>7}")
    with closing(OxigraphStore.open(store)) as graph:
        for template in _Queries(graph, count, seed).templates():
            if template.queries:
                _measure(template)


class _Queries:
    """Draws queries that have answers from a store."""

    def __init__(self, graph: OxigraphStore, count: int, seed: int) -> None:
        layout = StoreLayout(graph.directory)
        self._graph = graph
        self._store = pyoxigraph.Store.read_only(str(layout.graph))
        self._schema = Schema.open(layout.schema)
        self._random = Random(seed)
        self._entities = self._draw_entities(count)
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

    def _draw_entities(self, count: int) -> list[str]:
        """Draw topics, as many as there are at most."""
        type_, topic = (pyoxigraph.NamedNode(full_iri(name)) for name in (TYPE, _TOPIC))
        of_type = self._store.quads_for_pattern(None, type_, topic, pyoxigraph.DefaultGraph())
        # The store keeps subjects by their hashes: the first are as good as any.
        first = [quad.subject for quad in islice(of_type, count * _CANDIDATES)]
        nodes = [node for node in first if isinstance(node, pyoxigraph.NamedNode)]
        mids = [node.value.rpartition("/")[2] for node in nodes]
        return self._random.sample(mids, min(count, len(mids)))

    def templates(self) -> Iterator[Template]:
        """Make the queries of every template."""
        for direction in _DIRECTIONS:
            relations = Template(f"T1 relations {direction}", _QUICK_MS)
            relations.queries = [self._relations(each, direction) for each in self._entities]
            neighbours = Template(f"T2 neighbours {direction}", _QUICK_MS)
            for entity in self._entities:
                if found := self._graph.relations(entity, direction):
                    relation = self._random.choice(found)
                    neighbours.queries.append(self._neighbours(entity, relation, direction))
            yield from (relations, neighbours)
        yield from self._paths()
        for direction in _DIRECTIONS:
            yield from self._on_hubs(direction)
        between = Template("hub: ASK two free hops", _CAPPED_MS, on_hubs=True)
        for hub, _ in self._hubs["in"]:
            between.queries += [self._linked(each, hub) for each in self._entities[:_HUBS]]
        yield between

    def _relations(self, entity: str, direction: Direction) -> Query:
        return lambda: len(self._graph.relations(entity, direction))

    def _neighbours(self, entity: str, relation: str, direction: Direction) -> Query:
        return lambda: len(self._graph.neighbours(entity, relation, direction))

    def _query(self, text: str) -> Query:
        return lambda: self._rows(text)

    def _linked(self, start: str, end: str) -> Query:
        # The start comes first: a store without statistics begins there, so it is not to be a hub.
        return self._query(f"ASK {{ {iri(start)} ?p ?m . ?m ?q {iri(end)} }}")

    def _rows(self, text: str) -> int:
        result = self._store.query(text)
        if isinstance(result, pyoxigraph.QueryBoolean):
            return int(bool(result))
        assert isinstance(result, pyoxigraph.QuerySolutions)
        return sum(1 for _ in result)

    def _paths(self) -> list[Template]:
        named = Template("T3 two hops over a mediator, name", _QUICK_MS)
        superlative = Template("T4 three hops, type, filter, order", _QUICK_MS)
        linked = Template("T5 ASK two free hops", _QUICK_MS)
        strangers = Template("T5 the same, of strangers", _QUICK_MS)
        for start, stranger in pairwise(self._entities):
            strangers.queries.append(self._linked(start, stranger))
            walk = self._walk(start)
            if walk is None:
                continue
            first, second, end = walk
            path = f"{iri(start)} {iri(first)} ?m . ?m {iri(second)} ?x"
            text = (
                f"SELECT DISTINCT ?n WHERE {{ {path} . ?x {iri(NAME)} ?n "
                f'FILTER(LANG(?n) = "en") }} LIMIT {DEFAULT_LIMIT}'
            )
            named.queries.append(self._query(text))
            linked.queries.append(self._linked(start, end))
            third = self._step(end, lambda relation: relation not in (NAME, TYPE))
            types = self._graph.types(end)
            if third is not None and types:
                text = (
                    f"SELECT DISTINCT ?x WHERE {{ {path} . ?x {iri(third)} ?y . "
                    f"?x {iri(TYPE)} {iri(self._random.choice(types))} "
                    f"FILTER(?x != {iri(start)}) }} ORDER BY ?y LIMIT 1"
                )
                superlative.queries.append(self._query(text))
        return [named, superlative, linked, strangers]

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
        neighbours = Template(f"hub: neighbours {direction}", _CAPPED_MS, on_hubs=True)
        named = Template(f"hub: names, neighbours capped, {direction}", _CAPPED_MS, on_hubs=True)
        for hub, relation in self._hubs[direction]:
            relations.queries.append(self._relations(hub, direction))
            neighbours.queries.append(self._neighbours(hub, relation, direction))
            ends = (iri(hub), "?x") if direction == "out" else ("?x", iri(hub))
            near = (
                f"SELECT ?x WHERE {{ {ends[0]} {iri(relation)} {ends[1]} }} LIMIT {DEFAULT_LIMIT}"
            )
            named.queries.append(
                self._query(f"SELECT ?x ?n WHERE {{ {{ {near} }} ?x {iri(NAME)} ?n }}")
            )
        return [relations, neighbours, named]


def _measure(template: Template) -> None:
    queries = template.queries
    rows = sum(query() for query in queries)
    taken: list[list[float]] = [[] for _ in queries]
    for _ in range(_ROUNDS):  # each of all queries
        for times, query in zip(taken, queries, strict=True):
            started = time.perf_counter()
            query()
            times.append(1000 * (time.perf_counter() - started))
    medians = sorted(map(statistics.median, taken))
    median, slowest = statistics.median(medians), medians[-1]
    p95 = medians[int(0.95 * (len(medians) - 1))]
    is_over = (slowest if template.on_hubs else median) > template.bar_ms
    print(
        f"{template.name:42}{len(queries):6}{rows / len(queries):8.1f}{median:9.3f}{p95:10.3f}"
        f"{slowest:10.3f}{template.bar_ms:7g}{' over' if is_over else '   ok'}"
    )


if __name__ == "__main__":
    main()
