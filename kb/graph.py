"""The graph as the engine sees it: one protocol, whatever answers behind it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal as Choice
from typing import Protocol

from kbqa.sparql.terms import Term

Direction = Choice["out", "in"]

DEFAULT_TIMEOUT_S = 30.0
DEFAULT_LIMIT = 1000
"""Rows of a relation or neighbour search, at most, unless the caller says otherwise."""


@dataclass(frozen=True, slots=True)
class Table:
    """The rows of a SELECT.

    Attributes:
        variables: Column names without ``?``, in the order of the projection.
        rows: One tuple a row; None where a variable is unbound.
        truncated: True where more rows exist than were asked for.
    """

    variables: tuple[str, ...]
    rows: tuple[tuple[Term | None, ...], ...]
    truncated: bool = False


class Graph(Protocol):
    """A knowledge graph in Freebase's vocabulary.

    Every method raises a `GraphError` when the graph does not answer; an empty result means that
    the graph holds nothing that matches.
    """

    @property
    def description(self) -> str:
        """Say in a few words which graph this is, for messages: ``store /data/fb``."""

    def select(
        self, query: str, *, timeout_s: float = DEFAULT_TIMEOUT_S, limit: int | None = None
    ) -> Table:
        """Run a SELECT query of any origin under a time limit that really stops it.

        Args:
            query: SPARQL, prefixed names welcome; `ns:`, `fb:` and `xsd:` need no declaration.
            timeout_s: Seconds until the query is stopped.
            limit: Rows to return at most; None for all of them.

        Raises:
            QuerySyntaxError: The query does not parse.
            QueryRefused: The query is not a SELECT, or uses SERVICE or FROM.
            QueryTimeout: The limit passed; nothing of the query is left running.
            ResultTruncated: A server keeps rows back that exist and were asked for.
        """

    def ask(self, query: str, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> bool:
        """Run an ASK query of any origin; raises as `select` does."""

    def relations(
        self, entity: str, direction: Direction, limit: int = DEFAULT_LIMIT
    ) -> Sequence[str]:
        """List the distinct relations that leave (`out`) or enter (`in`) an entity, sorted.

        Source: KnowPath, appendix G, head and tail relation search.
        """

    def neighbours(
        self, entity: str, relation: str, direction: Direction, limit: int = DEFAULT_LIMIT
    ) -> Sequence[Term]:
        """List what one relation leads to from an entity, at most `limit` terms.

        Source: KnowPath, appendix G, head and tail entity search.
        """

    def frontier_relations(
        self, entities: Sequence[str], direction: Direction, limit: int = DEFAULT_LIMIT
    ) -> Sequence[str]:
        """List the distinct relations of any of some entities, sorted, as one search.

        Source: RouterKGQA §3.3, equation 8, whose relations only leave.
        """

    def frontier_neighbours(
        self,
        entities: Sequence[str],
        relation: str,
        direction: Direction,
        limit: int = DEFAULT_LIMIT,
    ) -> Sequence[Term]:
        """List what one relation leads to from any of some entities, as one search.

        Each of at most `limit` terms comes once.

        Source: RouterKGQA §3.3, equation 7.
        """

    def labels(self, mids: Iterable[str]) -> Mapping[str, str]:
        """Map each mid that has a name to it: English where there is one."""

    def types(self, mid: str) -> Sequence[str]:
        """List the types of an entity, sorted."""

    def close(self) -> None:
        """Free what the graph holds; it is not used afterwards."""
