"""The graph as the engine sees it: one protocol for every kind of graph.

A query of any origin is prepared for a graph here, which tells where one does not parse.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, Self, TypeAlias

from kbqa.kb.small_files import table_html
from kbqa.sparql.errors import QueryRefused, QuerySyntaxError
from kbqa.sparql.terms import LiteralTerm, Term

if TYPE_CHECKING:
    import polars

    from kbqa.kb.names.search import Names
    from kbqa.kb.schema import Schema


Direction = Literal["out", "in"]

Edges: TypeAlias = Mapping[str, Sequence[Term]]
"""The edges of an entity in one direction: each relation, and what it leads to."""

DEFAULT_TIMEOUT_S = 30.0
DEFAULT_LIMIT = 1000
"""The most rows of a relation or neighbour search, by default."""


RESULT_BYTES = 16_000_000
"""The most bytes of the result of a query that somebody else wrote, such as a server's client. It
is far more than anybody reads, and little enough to be read in a tenth of a second."""


@dataclass(frozen=True, slots=True)
class Table:
    """The rows of a SELECT.

    Attributes:
        variables: Column names without ``?``, in the order of the projection.
        rows: One tuple a row; None for an unbound variable.
        truncated: Whether more rows exist: than were asked for, or than `RESULT_BYTES` hold.
    """

    variables: tuple[str, ...]
    rows: tuple[tuple[Term | None, ...], ...]
    truncated: bool = False

    def to_dataframe(self) -> "polars.DataFrame":
        """Return the rows with every term as text: ids as they are, literals without a datatype."""
        import polars

        rows = [[t.text if isinstance(t, LiteralTerm) else t for t in row] for row in self.rows]
        schema = dict.fromkeys(self.variables, polars.String)
        return polars.DataFrame(rows, schema, orient="row")

    def __repr__(self) -> str:
        n = len(self.rows)
        more = " or more" if self.truncated else ""
        columns = ", ".join(self.variables)
        return f"<Table of {n:,}{more} row{'' if n == 1 else 's'} with the columns {columns}>"

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return table_html(self.variables, self.rows, truncated=self.truncated)


class Neighbours(NamedTuple):
    """The first of what a relation leads to.

    Attributes:
        terms: Sorted by id, or by text for literals.
        hidden: How many there are besides.
    """

    terms: tuple[Term, ...]
    hidden: int = 0


@dataclass(frozen=True, slots=True)
class GraphIdentity:
    """Which graph this is, for the manifest of a run.

    Attributes:
        settings: What determines the graph's answers, such as the hashes of the loaded dumps.
        notes: What is worth knowing and may change, such as where the store is.
    """

    settings: Mapping[str, object]
    notes: Mapping[str, object]


class Graph(Protocol):
    """A knowledge graph in Freebase's vocabulary.

    Every method that asks the graph raises a `GraphError` if it does not answer, or was closed. An
    empty result means that the graph holds nothing that matches. As a context manager, a graph
    closes itself at the end.
    """

    @property
    def description(self) -> str:
        """The graph in a few words, for messages: ``store /data/fb``. It holds no password."""

    def identity(self) -> GraphIdentity:
        """Return which graph this is."""

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
        """Run an ASK query of any origin; see `select`."""

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

    def first_neighbours(
        self, entity: str, relation: str, direction: Direction, limit: int = DEFAULT_LIMIT
    ) -> Neighbours:
        """List the first of what one relation leads to, by id, and count the others.

        Unlike those of `neighbours`, they do not depend on the order of the store.
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

    def relations_of_each(
        self, entities: Iterable[str], direction: Direction, limit: int = DEFAULT_LIMIT
    ) -> Mapping[str, Sequence[str]]:
        """Map each entity to its `relations`. An endpoint is asked for many at once."""

    def neighbours_of_each(
        self,
        starts: Iterable[tuple[str, str]],
        direction: Direction,
        limit: int = DEFAULT_LIMIT,
    ) -> Mapping[tuple[str, str], Sequence[Term]]:
        """Map each entity with a relation to its `neighbours`: at most `limit` of each.

        An endpoint is asked for many at once.
        """

    def edges(
        self, entities: Iterable[str], direction: Direction, limit: int = DEFAULT_LIMIT
    ) -> Mapping[str, Edges]:
        """Map entities to all edges that leave or enter them, if they have at most `limit`.

        An entity with more edges is missing from the result. Bookkeeping relations do not count
        and are left out; see `kbqa.kb.schema`. Relations are sorted, and what each leads
        to is sorted by `term_order`.
        """

    def labels(self, mids: Iterable[str]) -> Mapping[str, str]:
        """Map each mid that has a name to it, preferably in English."""

    def types(self, mid: str) -> Sequence[str]:
        """List the types of an entity, sorted."""

    def all_relations(self, timeout_s: float = DEFAULT_TIMEOUT_S) -> set[str]:
        """Collect the relations of the whole graph; see `kbqa.kb.schema`."""

    def schema(self) -> "Schema | None":
        """Read the whole schema, or return None if it can only be asked for piece by piece."""

    def names(self, timeout_s: float = DEFAULT_TIMEOUT_S) -> "Names":
        """Open the names of the graph's entities. The graph must stay open while they are used.

        Args:
            timeout_s: Seconds for each query that finding a name needs, if it needs any.
        """

    def close(self) -> None:
        """Free what the graph holds. Asking it afterwards is an error; closing it again is not."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


_POSITION = re.compile(r"error at (\d+):(\d+)")


def prepare_query(text: str, form: Literal["select", "ask"]) -> str:
    """Repair a query's dialect, and check that it only reads and has the expected form.

    Raises:
        QuerySyntaxError: The text does not begin like a query.
        QueryRefused: It is of another form, an update, or uses SERVICE or FROM.
    """
    from kbqa.sparql.dialect import check_read_only, repair_query

    found = check_read_only(text)
    if found != form:
        raise QueryRefused(f"expected a {form.upper()} query, got {found.upper()}")
    return repair_query(text)


def syntax_error(query: str, message: str) -> QuerySyntaxError:
    """Return an error that says where a query stops parsing, not all that could follow there.

    >>> print(syntax_error("SELECT ?x {", "error at 1:12: expected one of ..."))
    the query does not parse: line 1, after 'SELECT ?x {'

    Args:
        query: The query as it was parsed.
        message: Oxigraph's message; another message is passed on.
    """
    position = _POSITION.search(message)
    lines = query.split("\n")  # as Oxigraph counts them, not at U+0085 or U+2028
    if position is None or int(position[1]) > len(lines):
        return QuerySyntaxError(f"the query does not parse: {message}")
    before = lines[int(position[1]) - 1][: int(position[2]) - 1]
    shown = before if len(before) <= 60 else "…" + before[-59:]
    where = f"after {shown!r}" if shown.strip() else "at its beginning"
    return QuerySyntaxError(f"the query does not parse: line {position[1]}, {where}")
