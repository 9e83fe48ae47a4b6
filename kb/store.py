"""The embedded graph: a store that `kbqa load-freebase` wrote, opened for reading.

The search operations run in this process, where they take 0.03–0.2 ms. `select` and `ask` run
queries of any origin, so they run in a process that can be killed (`kbqa.kb.worker`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path

import pyoxigraph

from kbqa.kb.graph import DEFAULT_LIMIT, DEFAULT_TIMEOUT_S, Direction, Table
from kbqa.kb.layout import StoreLayout, read_manifest
from kbqa.kb.queries import prepare_query
from kbqa.kb.rows import pick_label, term_from_oxigraph
from kbqa.kb.statistics import Statistics
from kbqa.kb.worker import QueryWorker
from kbqa.sparql.errors import StoreError
from kbqa.sparql.templates import NAME, TYPE, relations_query
from kbqa.sparql.terms import Term, full_iri


class OxigraphStore:
    """A `Graph` in a directory of this machine; open it with `OxigraphStore.open`."""

    def __init__(self, directory: Path, store: pyoxigraph.Store, statistics: Statistics) -> None:
        self._directory = directory
        self._store = store
        self._statistics = statistics
        self._worker = QueryWorker(StoreLayout(directory).graph, self.description)

    @classmethod
    def open(cls, directory: Path) -> "OxigraphStore":
        """Open a store read-only; any number of processes may.

        Raises:
            StoreError: The directory is missing, holds no finished load or no triples, or cannot
                be read.
        """
        read_manifest(directory)
        graph = StoreLayout(directory).graph
        try:
            store = pyoxigraph.Store.read_only(str(graph))
            triples = store.quads_for_pattern(None, None, None, pyoxigraph.DefaultGraph())
            is_empty = next(triples, None) is None
        except (OSError, RuntimeError) as error:  # the latter where files are damaged
            raise StoreError(f"the store at {directory} cannot be opened: {error}") from error
        if is_empty:
            raise StoreError(f"the store at {directory} is empty. Load a dump with --overwrite.")
        return cls(directory, store, Statistics.open(StoreLayout(directory).statistics))

    @property
    def description(self) -> str:
        """Say which graph this is: ``store /data/fb``."""
        return f"store {self._directory}"

    @property
    def directory(self) -> Path:
        """The directory that holds the store, its name index and its schema."""
        return self._directory

    def select(
        self, query: str, *, timeout_s: float = DEFAULT_TIMEOUT_S, limit: int | None = None
    ) -> Table:
        """Run a SELECT query in the worker process; see `Graph.select`."""
        return self._worker.select(prepare_query(query, "select"), timeout_s, limit)

    def ask(self, query: str, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> bool:
        """Run an ASK query in the worker process; see `Graph.ask`."""
        return self._worker.ask(prepare_query(query, "ask"), timeout_s)

    def relations(
        self, entity: str, direction: Direction, limit: int = DEFAULT_LIMIT
    ) -> Sequence[str]:
        """List the distinct relations of an entity; see `Graph.relations`.

        A hub's come from the statistics; where they are more than `limit`, those of the most edges.
        """
        listed = self._statistics.hub_relations(entity, direction, limit)
        if listed is not None:
            return sorted(listed)
        # SPARQL takes half the time of iterating here, because it removes duplicates in Rust.
        solutions = self._store.query(relations_query(entity, direction, limit))
        assert isinstance(solutions, pyoxigraph.QuerySolutions)
        return sorted(str(term_from_oxigraph(solution[0])) for solution in solutions)

    def neighbours(
        self, entity: str, relation: str, direction: Direction, limit: int = DEFAULT_LIMIT
    ) -> Sequence[Term]:
        """List what one relation leads to; see `Graph.neighbours`."""
        return list(islice(self._ends(entity, relation, direction), limit))

    def frontier_relations(
        self, entities: Sequence[str], direction: Direction, limit: int = DEFAULT_LIMIT
    ) -> Sequence[str]:
        """List the distinct relations of any of some entities; see `Graph.frontier_relations`."""
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

    def labels(self, mids: Iterable[str]) -> Mapping[str, str]:
        """Map each mid that has a name to it; see `Graph.labels`."""
        labels: dict[str, str] = {}
        for mid in mids:
            label = pick_label(self._ends(mid, NAME, "out"))
            if label is not None:
                labels[mid] = label
        return labels

    def types(self, mid: str) -> Sequence[str]:
        """List the types of an entity; see `Graph.types`."""
        return sorted(term for term in self._ends(mid, TYPE, "out") if isinstance(term, str))

    def close(self) -> None:
        """End the worker process and close the statistics."""
        self._worker.close()
        self._statistics.close()

    def _ends(self, entity: str, relation: str, direction: Direction) -> Iterator[Term]:
        node = pyoxigraph.NamedNode(full_iri(entity))
        edge = pyoxigraph.NamedNode(full_iri(relation))
        default = pyoxigraph.DefaultGraph()
        if direction == "out":
            quads = self._store.quads_for_pattern(node, edge, None, default)
            return (term_from_oxigraph(quad.object) for quad in quads)
        quads = self._store.quads_for_pattern(None, edge, node, default)
        return (term_from_oxigraph(quad.subject) for quad in quads)
