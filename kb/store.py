"""The embedded graph: a store that `kbqa load-freebase` wrote, opened for reading.

The search operations run in this process, where they take 0.03–0.2 ms. `select` and `ask` run
queries of any origin, so they use processes that can be killed (`kbqa.kb.worker`).

A hub is a node with `HUB_DEGREE` edges or more in one direction. Finding its distinct relations in
the store takes 0.4–0.9 µs an edge, and a hub has up to millions. So a load lists them once in the
statistics, an SQLite file; lines that repeat a statement count each time:

    relation(id, triples)
    type(id, entities)
    hub_relation(node, direction, edges, relation)   each hub's relations, most frequent first

Without it the graph would give the same answers, only slower.
"""

import hashlib
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict
from functools import cache, partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import pyoxigraph
from pyoxigraph import DefaultGraph, NamedNode

from kbqa.kb.deadline import bound, check_deadline
from kbqa.kb.graph import (
    DEFAULT_LIMIT,
    DEFAULT_TIMEOUT_S,
    Direction,
    Edges,
    Graph,
    GraphIdentity,
    Neighbours,
    Schema,
    Table,
    edge_pattern,
    pick_label,
    prepare_query,
    relations_query,
    sorted_edges,
)
from kbqa.kb.layout import SqliteFile, StoreLayout, check_manifest, parse_manifest
from kbqa.kb.schema import is_telling
from kbqa.kb.worker import QueryWorkers
from kbqa.sparql.errors import InputError, StoreError
from kbqa.sparql.terms import (
    NAME,
    Term,
    full_iri,
    iri,
    is_well_formed,
    read_literal,
    resource_id,
    term_order,
)

if TYPE_CHECKING:
    from kbqa.kb.names import NameIndex

HUB_DEGREE = 1000
"""Edges in one direction that make a node a hub: below, a search takes less than a millisecond."""

_TABLES = """
    CREATE TABLE relation (id TEXT PRIMARY KEY, triples INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE type (id TEXT PRIMARY KEY, entities INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE hub_relation (
        node TEXT NOT NULL, direction TEXT NOT NULL, edges INTEGER NOT NULL, relation TEXT NOT NULL,
        PRIMARY KEY (node, direction, edges DESC, relation)
    ) WITHOUT ROWID;
"""


HubRow: TypeAlias = tuple[str, str, int, str]  # node, direction, edges, relation

_FEW = 32  # nodes that are found sooner by iterating in Python than by a query


class Hub(NamedTuple):
    """A node that many edges leave (`out`) or enter (`in`)."""

    node: str  # a resource: an entity, a type, or anything else that is not a literal
    direction: Direction  # which of its edges count
    degree: int  # how many there are; an estimate will do


class Statistics(SqliteFile):
    """The statistics of a store, for reading. Any number of threads may use one object."""

    # Checking that a node is not a hub takes 7 µs, so there is no need to read all hubs at first.
    KIND = "file of statistics"
    PROBE = "SELECT 1 FROM relation, type, hub_relation LIMIT 0"

    def relations(self) -> Mapping[str, int]:
        """Map each relation to the number of its triples."""
        rows = self._rows("SELECT id, triples FROM relation")
        return {row["id"]: row["triples"] for row in rows}

    def types(self) -> Mapping[str, int]:
        """Map each type to the number of its entities."""
        rows = self._rows("SELECT id, entities FROM type")
        return {row["id"]: row["entities"] for row in rows}

    def hub_relations(self, node: str, direction: Direction, limit: int) -> list[str] | None:
        """List at most `limit` of a hub's relations, the most frequent; None if it is no hub."""
        rows = self._rows(
            "SELECT relation FROM hub_relation WHERE node = ? AND direction = ? "
            "ORDER BY edges DESC, relation LIMIT ?",
            resource_id(node),
            direction,
            limit,
        )
        return [row["relation"] for row in rows] or None

    def hub_edges(self, node: str, direction: Direction) -> Mapping[str, int]:
        """Map each relation of a hub to the number of its edges; empty if the node is no hub."""
        rows = self._rows(
            "SELECT relation, edges FROM hub_relation WHERE node = ? AND direction = ?",
            resource_id(node),
            direction,
        )
        return {row["relation"]: row["edges"] for row in rows}


def write_statistics(
    path: Path, relations: Mapping[str, int], types: Iterable[tuple[str, int]]
) -> None:
    """Write a new file of statistics, without hubs, in place of another."""
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(_TABLES)
        connection.executemany("INSERT INTO relation VALUES (?, ?)", relations.items())
        connection.executemany("INSERT INTO type VALUES (?, ?)", types)


def add_hub_relations(path: Path, rows: Iterable[HubRow]) -> None:
    """Add relations of hubs to a file of statistics: all, or none if the rows fail."""
    # No query can name the other nodes.
    can_be_named = cache(is_well_formed)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executemany(
            "INSERT INTO hub_relation VALUES (?, ?, ?, ?)",
            (row for row in rows if can_be_named(row[0])),
        )


def count_hub_relations(
    store: pyoxigraph.Store, hubs: Iterable[Hub], threads: int
) -> Iterator[HubRow]:
    """Ask a store for the relations of hubs, several at a time, at 0.4–0.9 µs an edge."""
    # Looking up every relation of the store takes 12–39 µs each. That counts nothing, and is
    # quicker only for the few hubs with more than 40 edges for each relation.
    queue = [hub for hub in hubs if is_well_formed(hub.node)]
    # The biggest first, so that no thread is left with one at the end.
    queue.sort(key=lambda hub: hub.degree, reverse=True)
    with ThreadPoolExecutor(threads) as pool:
        for rows in pool.map(lambda hub: _count_relations(store, hub), queue):
            yield from rows


def _count_relations(store: pyoxigraph.Store, hub: Hub) -> list[HubRow]:
    edge = edge_pattern(iri(hub.node), "?relation", "?end", hub.direction)
    solutions = store.query(
        f"SELECT ?relation (COUNT(*) AS ?edges) WHERE {{ {edge} }} GROUP BY ?relation"
    )
    assert isinstance(solutions, pyoxigraph.QuerySolutions)
    node = resource_id(hub.node)
    return [
        (node, hub.direction, int(edges.value), str(_term(relation)))
        for relation, edges in solutions
    ]


class _Parts(NamedTuple):
    """The parts of an open store."""

    store: pyoxigraph.Store
    statistics: Statistics
    workers: QueryWorkers


class OxigraphStore(Graph):
    """A graph in a directory of this machine; open it with `OxigraphStore.open`.

    If a load replaces the store meanwhile, parts that are open stay as they were, and opening
    another part raises `StoreError`: no answer comes from two graphs.
    """

    def __init__(
        self,
        directory: Path,
        manifest: Mapping[str, object],
        store: pyoxigraph.Store,
        statistics: Statistics,
        workers: int,
        low_priority: bool,
    ) -> None:
        self._named = directory
        # The process may change its working folder, and a link may be set to another store.
        self._directory = directory.resolve()
        self._manifest = manifest
        # A method would hold this object, and a forgotten graph's processes would not end at once.
        self._check = partial(_check_not_replaced, self._directory, manifest, self.description)
        graph = StoreLayout(self._directory).graph
        pool = QueryWorkers(graph, self.description, workers, low_priority, self._check)
        self._parts: _Parts | None = _Parts(store, statistics, pool)

    @classmethod
    def open(
        cls, directory: Path, workers: int = 1, *, low_priority: bool = False
    ) -> "OxigraphStore":
        """Open a store read-only; any number of processes may. See `kbqa.kb.open.open_graph`.

        With `low_priority`, queries run behind other processes, with half of the memory and results
        of at most `RESULT_BYTES`: people's queries to a server cannot hold up its answers.
        """
        if workers < 1:
            raise InputError(f"a store needs 1 query worker or more, not {workers}")
        manifest = check_manifest(directory)
        graph = StoreLayout(directory).graph
        try:
            store = pyoxigraph.Store.read_only(str(graph))
            triples = store.quads_for_pattern(None, None, None, DefaultGraph())
            is_empty = next(triples, None) is None
        except (OSError, RuntimeError) as error:  # the latter if files are damaged
            raise StoreError(f"the store at {directory} cannot be opened: {error}") from error
        if is_empty:
            raise StoreError(f"the store at {directory} is empty. Load a dump with --overwrite.")
        statistics = Statistics.open(StoreLayout(directory).statistics)
        opened = cls(directory, manifest, store, statistics, workers, low_priority)
        opened._check()
        return opened

    @property
    def description(self) -> str:
        """The graph in a few words: ``store /data/fb``."""
        return f"store {self._named}"

    @property
    def directory(self) -> Path:
        """The directory that holds the store, its name index and its schema."""
        return self._directory

    def identity(self) -> GraphIdentity:
        """Return what the store was loaded from."""
        manifest = parse_manifest(self._named, self._manifest)
        store = {
            "versions": manifest.versions,
            "rules_sha256": hashlib.sha256(manifest.rules.encode()).hexdigest(),
            "languages": manifest.languages,
            "dumps_sha256": [dump.sha256 for dump in manifest.dumps],
        }
        return GraphIdentity(
            {"store": store, "endpoint": None},
            {"graph": self.description, "store_summary": asdict(manifest.summary)},
        )

    def select(
        self, query: str, *, timeout_s: float = DEFAULT_TIMEOUT_S, limit: int | None = None
    ) -> Table:
        """Run a SELECT query in a worker process."""
        return self._open.workers.select(prepare_query(query, "select"), bound(timeout_s), limit)

    def ask(self, query: str, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> bool:
        """Run an ASK query in a worker process."""
        return self._open.workers.ask(prepare_query(query, "ask"), bound(timeout_s))

    def relations_of_each(
        self, entities: Iterable[str], direction: Direction, limit: int = DEFAULT_LIMIT
    ) -> Mapping[str, Sequence[str]]:
        """Map each entity to its relations; if a hub has too many, to the most frequent."""
        return {entity: self._relations(entity, direction, limit) for entity in entities}

    def neighbours_of_each(
        self,
        starts: Iterable[tuple[str, str]],
        direction: Direction,
        limit: int = DEFAULT_LIMIT,
    ) -> Mapping[tuple[str, str], Sequence[Term]]:
        """Map each entity with a relation to what that leads to, in the order of the store."""
        return {start: list(islice(self._ends(*start, direction), limit)) for start in starts}

    def first_neighbours(
        self, entity: str, relation: str, direction: Direction, limit: int = DEFAULT_LIMIT
    ) -> Neighbours:
        """List the first of what one relation leads to, by id, and count the others."""
        # SPARQL's ORDER BY takes ten times as long.
        found = sorted(self._all_ends(entity, relation, direction), key=term_order)
        return Neighbours(tuple(found[:limit]), max(len(found) - limit, 0))

    def frontier_relations(
        self, entities: Sequence[str], direction: Direction, limit: int = DEFAULT_LIMIT
    ) -> Sequence[str]:
        """List the distinct relations that any of some entities has."""
        found = {each for node in entities for each in self._relations(node, direction, limit)}
        return sorted(found)[:limit]

    def frontier_neighbours(
        self,
        entities: Sequence[str],
        relation: str,
        direction: Direction,
        limit: int = DEFAULT_LIMIT,
    ) -> Sequence[Term]:
        """List what one relation leads to from any of some entities."""
        ends = chain.from_iterable(self._ends(node, relation, direction) for node in entities)
        found: dict[Term, None] = {}
        for end in ends:
            found[end] = None
            if len(found) == limit:
                break
        return list(found)

    def edges(
        self, entities: Iterable[str], direction: Direction, limit: int = DEFAULT_LIMIT
    ) -> Mapping[str, Edges]:
        """Map entities to all their edges, if they have at most `limit`."""
        found = ((entity, self._edges(entity, direction, limit)) for entity in entities)
        return {entity: edges for entity, edges in found if edges is not None}

    def labels(self, mids: Iterable[str]) -> Mapping[str, str]:
        """Map each mid that has a name to it."""
        labels = ((mid, pick_label(self._ends(mid, NAME, "out"))) for mid in mids)
        return {mid: label for mid, label in labels if label is not None}

    def all_relations(self, timeout_s: float = DEFAULT_TIMEOUT_S) -> set[str]:
        """Collect the relations that a triple has, and more of the same types from the schema."""
        used = set(self._open.statistics.relations())
        domains = {relation.rpartition(".")[0] for relation in used}
        return used | {
            item.id for item in self.schema().properties.values() if item.domain in domains
        }

    def schema(self) -> Schema:
        """Read the schema, or raise `StoreError` if the store was replaced."""
        schema = Schema.open(StoreLayout(self._directory).schema)
        self._check()
        return schema

    def names(self, timeout_s: float = DEFAULT_TIMEOUT_S) -> "NameIndex":
        """Open the name index, or raise `StoreError` if the store was replaced."""
        from kbqa.kb.names import NameIndex

        names = NameIndex.open(StoreLayout(self._directory).names)
        self._check()
        return names

    def close(self) -> None:
        """End the worker processes once their queries are done, and close the statistics."""
        parts, self._parts = self._parts, None
        if parts is not None:
            parts.workers.close()
            parts.statistics.close()

    @property
    def _open(self) -> _Parts:
        """What a search asks, as long as the question that it is for has time."""
        check_deadline()
        if self._parts is None:
            raise StoreError(f"{self.description} was closed. Open it again to ask it.")
        return self._parts

    def _relations(self, entity: str, direction: Direction, limit: int) -> Sequence[str]:
        listed = self._open.statistics.hub_relations(entity, direction, limit)
        if listed is not None:
            return sorted(listed)
        # A dump may hold IRIs that Oxigraph stores and cannot be asked for, such as <http://x/[1]>.
        if not is_well_formed(entity):
            return []
        # SPARQL takes half the time of iterating here, because it removes duplicates in Rust.
        solutions = self._open.store.query(relations_query(entity, direction, limit))
        assert isinstance(solutions, pyoxigraph.QuerySolutions)
        return sorted(str(_term(solution[0])) for solution in solutions)

    def _edges(self, entity: str, direction: Direction, limit: int) -> Edges | None:
        """List the edges of an entity, sorted; None if there are more than `limit`."""
        degrees = self._open.statistics.hub_edges(entity, direction)
        telling = [relation for relation in degrees if is_telling(relation)]
        if sum(degrees[relation] for relation in telling) > limit:
            return None
        if degrees:  # a hub of bookkeeping, which is not read
            found = {each: list(self._ends(entity, each, direction)) for each in telling}
            edges = {relation: ends for relation, ends in found.items() if ends}
        else:
            edges = self._telling_edges(entity, direction, limit + 1)
        if sum(map(len, edges.values())) > limit:
            return None
        return sorted_edges(edges)

    def _telling_edges(self, entity: str, direction: Direction, most: int) -> dict[str, list[Term]]:
        """List the edges of an entity that are not bookkeeping, at most so many."""
        edges: defaultdict[str, list[Term]] = defaultdict(list)
        is_out = direction == "out"
        for quad in self._quads(entity, None, direction):
            relation = _telling_id(quad.predicate.value)
            if relation is not None:
                end = quad.object if is_out else quad.subject
                # Most are resources; asking here spares them a call.
                if isinstance(end, NamedNode):
                    edges[relation].append(resource_id(end.value))
                else:
                    edges[relation].append(_term(end))
                most -= 1
                if not most:
                    break
        return edges

    def _ends(self, entity: str, relation: str, direction: Direction) -> Iterator[Term]:
        quads = self._quads(entity, relation, direction)
        if direction == "out":
            return (_term(quad.object) for quad in quads)
        return (_term(quad.subject) for quad in quads)

    def _quads(
        self, entity: str, relation: str | None, direction: Direction
    ) -> Iterator[pyoxigraph.Quad]:
        """Find the edges of an entity, by one relation or by all."""
        if not (is_well_formed(entity) and (relation is None or is_well_formed(relation))):
            return iter(())
        node = NamedNode(full_iri(entity))
        edge = None if relation is None else NamedNode(full_iri(relation))
        subject, object_ = (node, None) if direction == "out" else (None, node)
        return self._open.store.quads_for_pattern(subject, edge, object_, DefaultGraph())

    def _all_ends(self, entity: str, relation: str, direction: Direction) -> Sequence[Term]:
        found = list(islice(self._ends(entity, relation, direction), _FEW))
        if len(found) < _FEW:
            return found
        # A query takes longer to start, and half the time for each node.
        pattern = edge_pattern(iri(entity), iri(relation), "?end", direction)
        solutions = self._open.store.query(f"SELECT ?end {{ {pattern} }}")
        assert isinstance(solutions, pyoxigraph.QuerySolutions)
        return [_term(solution[0]) for solution in solutions]


def _check_not_replaced(directory: Path, manifest: Mapping[str, object], description: str) -> None:
    """Check that a directory has the store with this manifest, which a load removes first."""
    try:
        is_same = check_manifest(directory) == manifest
    except StoreError:
        is_same = False
    if not is_same:
        raise StoreError(
            f"{description} was replaced after it was opened. Open it again, or restart the server."
        )


@cache
def _telling_id(full_iri: str) -> str | None:
    """Return the id of a relation; None if it is bookkeeping."""
    relation = resource_id(full_iri)
    return relation if is_telling(relation) else None


def _term(node: object) -> Term:
    """Convert a pyoxigraph node. Freebase has no quoted triples: those raise `TypeError`."""
    match node:
        case pyoxigraph.NamedNode():
            return resource_id(node.value)
        case pyoxigraph.Literal():
            return read_literal(node.value, node.datatype.value, node.language)
        case pyoxigraph.BlankNode():
            return f"_:{node.value}"
        case _:
            raise TypeError(f"not a resource or literal: {node}")
