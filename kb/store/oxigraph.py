"""The embedded graph: a store that `kbqa load-freebase` wrote, opened for reading.

The search operations run in this process, where they take 0.03–0.2 ms. `select` and `ask` run
queries of any origin, so they run in processes that can be killed (`kbqa.kb.store.worker`).
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cache, partial
from itertools import chain, islice
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

import pyoxigraph
from pyoxigraph import DefaultGraph, NamedNode

from kbqa.kb.graph import (
    DEFAULT_LIMIT,
    DEFAULT_TIMEOUT_S,
    Direction,
    Edges,
    GraphIdentity,
    Neighbours,
    Table,
)
from kbqa.kb.queries import prepare_query
from kbqa.kb.rows import pick_label, sorted_edges, term_from_oxigraph
from kbqa.kb.schema.telling import is_telling
from kbqa.kb.store.layout import StoreLayout, check_manifest, parse_manifest
from kbqa.kb.store.statistics import Statistics
from kbqa.kb.store.worker import QueryWorkers
from kbqa.sparql.errors import InputError, StoreError
from kbqa.sparql.queries.templates import NAME, TYPE, relations_query
from kbqa.sparql.terms import Term, full_iri, iri, is_well_formed, resource_id, term_order

if TYPE_CHECKING:
    from kbqa.kb.names.index import NameIndex
    from kbqa.kb.schema.properties import Schema

_FEW = 32
"""Nodes that are found sooner by iterating in Python than by a query."""


class _Parts(NamedTuple):
    """What an open store holds."""

    store: pyoxigraph.Store
    statistics: Statistics
    workers: QueryWorkers


class OxigraphStore:
    """A `Graph` in a directory of this machine; open it with `OxigraphStore.open`.

    If another load replaces the store meanwhile, what was opened stays as it was, and what would
    have to be opened raises `StoreError`: no answer comes from two graphs.
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
        # A method would hold this object, and what is forgotten would not end at once.
        self._check = partial(_check_not_replaced, self._directory, manifest, self.description)
        graph = StoreLayout(self._directory).graph
        pool = QueryWorkers(graph, self.description, workers, low_priority, self._check)
        self._parts: _Parts | None = _Parts(store, statistics, pool)

    @classmethod
    def open(
        cls, directory: Path, workers: int = 1, *, low_priority: bool = False
    ) -> "OxigraphStore":
        """Open a store read-only; any number of processes may.

        Args:
            directory: The store.
            workers: Queries that run at once; further ones wait, within their time limit.
            low_priority: Let other processes go before the queries, give them half of the memory,
                and cut their results at `RESULT_BYTES`. A server opens a second store so, for
                queries that people write, which then cannot hold up its answers.

        Raises:
            InputError: There is no worker.
            StoreError: The directory is missing, holds no finished load or no triples, or cannot
                be read.
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
        """Return what the store was loaded from; see `Graph.identity`.

        Raises:
            StoreError: The manifest cannot be read.
        """
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
        """Run a SELECT query in a worker process; see `Graph.select`."""
        return self._open.workers.select(prepare_query(query, "select"), timeout_s, limit)

    def ask(self, query: str, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> bool:
        """Run an ASK query in a worker process; see `Graph.ask`."""
        return self._open.workers.ask(prepare_query(query, "ask"), timeout_s)

    def relations(
        self, entity: str, direction: Direction, limit: int = DEFAULT_LIMIT
    ) -> Sequence[str]:
        """List the distinct relations of an entity; see `Graph.relations`.

        Those of a hub come from the statistics; if there are more than `limit`, those with the most
        edges.
        """
        listed = self._open.statistics.hub_relations(entity, direction, limit)
        if listed is not None:
            return sorted(listed)
        # A dump may hold IRIs that Oxigraph stores and cannot be asked for, such as <http://x/[1]>.
        if not is_well_formed(entity):
            return []
        # SPARQL takes half the time of iterating here, because it removes duplicates in Rust.
        solutions = self._open.store.query(relations_query(entity, direction, limit))
        assert isinstance(solutions, pyoxigraph.QuerySolutions)
        return sorted(str(term_from_oxigraph(solution[0])) for solution in solutions)

    def neighbours(
        self, entity: str, relation: str, direction: Direction, limit: int = DEFAULT_LIMIT
    ) -> Sequence[Term]:
        """List what one relation leads to; see `Graph.neighbours`."""
        return list(islice(self._ends(entity, relation, direction), limit))

    def first_neighbours(
        self, entity: str, relation: str, direction: Direction, limit: int = DEFAULT_LIMIT
    ) -> Neighbours:
        """List the first of what one relation leads to; see `Graph.first_neighbours`."""
        # SPARQL's ORDER BY takes ten times as long.
        found = sorted(self._all_ends(entity, relation, direction), key=term_order)
        return Neighbours(tuple(found[:limit]), max(len(found) - limit, 0))

    def frontier_relations(
        self, entities: Sequence[str], direction: Direction, limit: int = DEFAULT_LIMIT
    ) -> Sequence[str]:
        """List the distinct relations that any entity has; see `Graph.frontier_relations`."""
        found = {each for node in entities for each in self.relations(node, direction, limit)}
        return sorted(found)[:limit]

    def frontier_neighbours(
        self,
        entities: Sequence[str],
        relation: str,
        direction: Direction,
        limit: int = DEFAULT_LIMIT,
    ) -> Sequence[Term]:
        """List what one relation leads to from any; see `Graph.frontier_neighbours`."""
        ends = chain.from_iterable(self._ends(node, relation, direction) for node in entities)
        found: dict[Term, None] = {}
        for end in ends:
            found[end] = None
            if len(found) == limit:
                break
        return list(found)

    def relations_of_each(
        self, entities: Iterable[str], direction: Direction, limit: int = DEFAULT_LIMIT
    ) -> Mapping[str, Sequence[str]]:
        """Map each entity to its relations; see `Graph.relations_of_each`."""
        return {entity: self.relations(entity, direction, limit) for entity in entities}

    def neighbours_of_each(
        self,
        starts: Iterable[tuple[str, str]],
        direction: Direction,
        limit: int = DEFAULT_LIMIT,
    ) -> Mapping[tuple[str, str], Sequence[Term]]:
        """Map each entity with a relation to its ends; see `Graph.neighbours_of_each`."""
        return {start: self.neighbours(*start, direction, limit) for start in starts}

    def edges(
        self, entities: Iterable[str], direction: Direction, limit: int = DEFAULT_LIMIT
    ) -> Mapping[str, Edges]:
        """Map entities to their edges; see `Graph.edges`."""
        found = ((entity, self._edges(entity, direction, limit)) for entity in entities)
        return {entity: edges for entity, edges in found if edges is not None}

    def labels(self, mids: Iterable[str]) -> Mapping[str, str]:
        """Map each mid that has a name to its name; see `Graph.labels`."""
        labels: dict[str, str] = {}
        for mid in mids:
            label = pick_label(self._ends(mid, NAME, "out"))
            if label is not None:
                labels[mid] = label
        return labels

    def types(self, mid: str) -> Sequence[str]:
        """List the types of an entity; see `Graph.types`."""
        return sorted(term for term in self._ends(mid, TYPE, "out") if isinstance(term, str))

    def all_relations(self, timeout_s: float = DEFAULT_TIMEOUT_S) -> set[str]:
        """Collect the relations that a triple has, and more of the same types from the schema."""
        used = set(self._open.statistics.relations())
        domains = {relation.rpartition(".")[0] for relation in used}
        return used | {
            item.id for item in self.schema().properties.values() if item.domain in domains
        }

    def schema(self) -> "Schema":
        """Read the schema.

        Raises:
            StoreError: Its file is missing or broken, or the store was replaced.
        """
        from kbqa.kb.schema.properties import Schema

        schema = Schema.open(StoreLayout(self._directory).schema)
        self._check()
        return schema

    def names(self, timeout_s: float = DEFAULT_TIMEOUT_S) -> "NameIndex":
        """Open the name index.

        Raises:
            StoreError: Its file is missing or broken, or the store was replaced.
        """
        from kbqa.kb.names.index import NameIndex

        names = NameIndex.open(StoreLayout(self._directory).names)
        self._check()
        return names

    def close(self) -> None:
        """End the worker processes and close the statistics.

        Waits for queries that run in other threads, until their time limits at most.
        """
        parts, self._parts = self._parts, None
        if parts is not None:
            parts.workers.close()
            parts.statistics.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def _open(self) -> _Parts:
        if self._parts is None:
            raise StoreError(f"{self.description} was closed. Open it again to ask it.")
        return self._parts

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
        if not is_well_formed(entity):
            return edges
        is_out, node, default = direction == "out", NamedNode(full_iri(entity)), DefaultGraph()
        subject, object_ = (node, None) if is_out else (None, node)
        for quad in self._open.store.quads_for_pattern(subject, None, object_, default):
            relation = _telling_id(quad.predicate.value)
            if relation is not None:
                end = quad.object if is_out else quad.subject
                # Most are resources; asking here spares them a call.
                if isinstance(end, NamedNode):
                    edges[relation].append(resource_id(end.value))
                else:
                    edges[relation].append(term_from_oxigraph(end))
                most -= 1
                if not most:
                    break
        return edges

    def _ends(self, entity: str, relation: str, direction: Direction) -> Iterator[Term]:
        if not (is_well_formed(entity) and is_well_formed(relation)):
            return iter(())
        node = NamedNode(full_iri(entity))
        edge = NamedNode(full_iri(relation))
        default = DefaultGraph()
        store = self._open.store
        if direction == "out":
            quads = store.quads_for_pattern(node, edge, None, default)
            return (term_from_oxigraph(quad.object) for quad in quads)
        quads = store.quads_for_pattern(None, edge, node, default)
        return (term_from_oxigraph(quad.subject) for quad in quads)

    def _all_ends(self, entity: str, relation: str, direction: Direction) -> Sequence[Term]:
        found = list(islice(self._ends(entity, relation, direction), _FEW))
        if len(found) < _FEW:
            return found
        # A query takes longer to start, and half the time for each node.
        pattern = (iri(entity), iri(relation), "?end")
        query = f"SELECT ?end {{ {' '.join(pattern if direction == 'out' else pattern[::-1])} }}"
        solutions = self._open.store.query(query)
        assert isinstance(solutions, pyoxigraph.QuerySolutions)
        return [term_from_oxigraph(solution[0]) for solution in solutions]


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
