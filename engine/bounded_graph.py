"""A graph as one question sees it: searches end at the question's deadline."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Self

from kbqa.kb.graph import (
    DEFAULT_LIMIT,
    DEFAULT_TIMEOUT_S,
    Direction,
    Edges,
    Graph,
    GraphIdentity,
    Neighbours,
    Table,
)
from kbqa.sparql.terms import Term

if TYPE_CHECKING:
    from kbqa.kb.names.search import Names
    from kbqa.kb.schema import Schema


class BoundedGraph:
    """Passes searches on to a graph for as long as the question has time.

    Args:
        graph: The graph.
        bound: Takes the seconds that a query may take and returns those that it has; raises if the
            deadline has passed.
    """

    def __init__(self, graph: Graph, bound: Callable[[float], float]) -> None:
        self._graph, self._bound = graph, bound

    @property
    def description(self) -> str:
        """The graph's own."""
        return self._graph.description

    def select(
        self, query: str, *, timeout_s: float = DEFAULT_TIMEOUT_S, limit: int | None = None
    ) -> Table:
        """Run a SELECT query within the time that is left."""
        return self._graph.select(query, timeout_s=self._bound(timeout_s), limit=limit)

    def ask(self, query: str, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> bool:
        """Run an ASK query within the time that is left."""
        return self._graph.ask(query, timeout_s=self._bound(timeout_s))

    def relations(
        self, entity: str, direction: Direction, limit: int = DEFAULT_LIMIT
    ) -> Sequence[str]:
        """List relations of an entity if there is time."""
        self._bound(DEFAULT_TIMEOUT_S)
        return self._graph.relations(entity, direction, limit)

    def neighbours(
        self, entity: str, relation: str, direction: Direction, limit: int = DEFAULT_LIMIT
    ) -> Sequence[Term]:
        """List neighbours of an entity if there is time."""
        self._bound(DEFAULT_TIMEOUT_S)
        return self._graph.neighbours(entity, relation, direction, limit)

    def first_neighbours(
        self, entity: str, relation: str, direction: Direction, limit: int = DEFAULT_LIMIT
    ) -> Neighbours:
        """List the first neighbours of an entity if there is time."""
        self._bound(DEFAULT_TIMEOUT_S)
        return self._graph.first_neighbours(entity, relation, direction, limit)

    def frontier_relations(
        self, entities: Sequence[str], direction: Direction, limit: int = DEFAULT_LIMIT
    ) -> Sequence[str]:
        """List relations of entities if there is time."""
        self._bound(DEFAULT_TIMEOUT_S)
        return self._graph.frontier_relations(entities, direction, limit)

    def frontier_neighbours(
        self,
        entities: Sequence[str],
        relation: str,
        direction: Direction,
        limit: int = DEFAULT_LIMIT,
    ) -> Sequence[Term]:
        """List neighbours of entities if there is time."""
        self._bound(DEFAULT_TIMEOUT_S)
        return self._graph.frontier_neighbours(entities, relation, direction, limit)

    def relations_of_each(
        self, entities: Iterable[str], direction: Direction, limit: int = DEFAULT_LIMIT
    ) -> Mapping[str, Sequence[str]]:
        """Map entities to relations if there is time."""
        self._bound(DEFAULT_TIMEOUT_S)
        return self._graph.relations_of_each(entities, direction, limit)

    def neighbours_of_each(
        self,
        starts: Iterable[tuple[str, str]],
        direction: Direction,
        limit: int = DEFAULT_LIMIT,
    ) -> Mapping[tuple[str, str], Sequence[Term]]:
        """Map entities with relations to neighbours if there is time."""
        self._bound(DEFAULT_TIMEOUT_S)
        return self._graph.neighbours_of_each(starts, direction, limit)

    def edges(
        self, entities: Iterable[str], direction: Direction, limit: int = DEFAULT_LIMIT
    ) -> Mapping[str, Edges]:
        """Map entities to edges if there is time."""
        self._bound(DEFAULT_TIMEOUT_S)
        return self._graph.edges(entities, direction, limit)

    def labels(self, mids: Iterable[str]) -> Mapping[str, str]:
        """Map entities to names if there is time."""
        self._bound(DEFAULT_TIMEOUT_S)
        return self._graph.labels(mids)

    def types(self, mid: str) -> Sequence[str]:
        """List types of an entity if there is time."""
        self._bound(DEFAULT_TIMEOUT_S)
        return self._graph.types(mid)

    def identity(self) -> GraphIdentity:
        """The graph's own."""
        return self._graph.identity()

    def all_relations(self, timeout_s: float = DEFAULT_TIMEOUT_S) -> set[str]:
        """Collect all relations within the time that is left."""
        return self._graph.all_relations(self._bound(timeout_s))

    def schema(self) -> "Schema | None":
        """The graph's own."""
        return self._graph.schema()

    def names(self, timeout_s: float = DEFAULT_TIMEOUT_S) -> "Names":
        """Open the names within the time that is left."""
        return self._graph.names(self._bound(timeout_s))

    def close(self) -> None:
        """Do nothing: the graph is shared by all questions."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
