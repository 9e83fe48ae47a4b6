"""The graph as the engine sees it: one base class for every kind of graph, and its results."""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple, Self, TypeAlias

from kbqa.kb.layout import SCHEMA_VERSION
from kbqa.kb.small_files import table_html
from kbqa.sparql.errors import QueryRefused, QuerySyntaxError, StoreError
from kbqa.sparql.terms import LiteralTerm, Term

if TYPE_CHECKING:
    import polars

    from kbqa.kb.names.index import Names

Direction = Literal["out", "in"]

Edges: TypeAlias = Mapping[str, Sequence[Term]]
"""The edges of an entity in one direction: each relation, and what it leads to."""

DEFAULT_TIMEOUT_S = 30.0
DEFAULT_LIMIT = 1000  # rows of a relation or neighbour search

RESULT_BYTES = 16_000_000
"""The largest result of a query of other people, such as a server's client: far more than anybody
reads, and read in a tenth of a second."""

_POSITION = re.compile(r"error at (\d+):(\d+)")


@dataclass(frozen=True, slots=True)
class Table:
    """The rows of a SELECT."""

    variables: tuple[str, ...]  # column names without `?`, in the order of the projection
    rows: tuple[tuple[Term | None, ...], ...]  # None for an unbound variable
    # Whether more rows exist than were asked for, or than `RESULT_BYTES` hold.
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
    """The first of what a relation leads to."""

    terms: tuple[Term, ...]  # sorted by id, or by text for literals
    hidden: int = 0  # how many more there are


@dataclass(frozen=True, slots=True)
class GraphIdentity:
    """The identity of a graph, for the manifest of a run."""

    # What determines the graph's answers, such as the hashes of the loaded dumps.
    settings: Mapping[str, object]
    # What is worth knowing and may change, such as where the store is.
    notes: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Property:
    """A property of the schema."""

    id: str  # people.person.place_of_birth
    domain: str  # the type whose entities carry it: people.person
    expected_type: str | None  # of its values; None if the graph does not say
    reverse: str | None  # the property that says the same in the other direction, if any
    is_unique: bool  # an entity has at most one value
    name: str | None  # what people call it, if the graph says so: Place of birth


@dataclass(frozen=True, slots=True)
class _SchemaFile:
    properties: list[Property]
    mediators: list[str]


class Schema:
    """The properties of a graph by their ids, and its mediator types (Freebase's CVTs)."""

    def __init__(self, properties: Mapping[str, Property], mediators: frozenset[str]) -> None:
        self.properties: Mapping[str, Property] = MappingProxyType(dict(properties))
        self.mediators = mediators

    def property(self, property_id: str) -> Property | None:
        """Return a property; None if the graph states no schema for it."""
        return self.properties.get(property_id)

    def is_mediator(self, type_id: str) -> bool:
        """Return whether the entities of a type only connect others."""
        return type_id in self.mediators

    @classmethod
    def open(cls, path: Path) -> "Schema":
        """Read a schema that `save` wrote; raises `StoreError`."""
        from pydantic import TypeAdapter

        try:
            file = TypeAdapter(_SchemaFile).validate_json(path.read_bytes())
        except (OSError, ValueError) as error:
            raise StoreError(f"{path} holds no schema ({error}). Load the store again.") from error
        return cls({entry.id: entry for entry in file.properties}, frozenset(file.mediators))

    def save(self, path: Path) -> None:
        """Write the schema as JSON, sorted, a property on each line."""
        names = [field.name for field in fields(Property)]
        properties = ",\n".join(
            json.dumps({name: getattr(self.properties[key], name) for name in names})
            for key in sorted(self.properties)
        )
        path.write_text(
            f'{{"schema_version": {SCHEMA_VERSION},\n'
            f'"mediators": {json.dumps(sorted(self.mediators))},\n'
            f'"properties": [\n{properties}\n]}}\n',
            encoding="utf-8",
        )


class Graph(ABC):
    """A knowledge graph in Freebase's vocabulary.

    Every method that asks the graph raises a `GraphError` if the graph does not answer or was
    closed. An empty result means that nothing in the graph matches.

    Source: KnowPath, appendix G (relations and neighbours); RouterKGQA §3.3, equations 7 and 8
    (a frontier's).
    """

    @property
    @abstractmethod
    def description(self) -> str:
        """The graph in a few words, for messages: ``store /data/fb``. It holds no password."""

    @abstractmethod
    def identity(self) -> GraphIdentity:
        """Return which graph this is."""

    @abstractmethod
    def select(
        self, query: str, *, timeout_s: float = DEFAULT_TIMEOUT_S, limit: int | None = None
    ) -> Table:
        """Run a SELECT query of any origin under a time limit that really stops it.

        Args:
            query: SPARQL; the prefixes `ns:`, `fb:` and `xsd:` need no declaration.
            timeout_s: Seconds until the query is stopped.
            limit: Rows to return at most; None for all of them.

        Raises:
            QuerySyntaxError: The query does not parse.
            QueryRefused: The query is not a SELECT, or uses SERVICE or FROM.
            QueryTimeout: The limit passed; nothing of the query is left running.
            ResultTruncated: A server keeps rows back that exist and were asked for.
        """

    @abstractmethod
    def ask(self, query: str, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> bool:
        """Run an ASK query of any origin, as `select` does."""

    @abstractmethod
    def relations_of_each(
        self, entities: Iterable[str], direction: Direction, limit: int = DEFAULT_LIMIT
    ) -> Mapping[str, Sequence[str]]:
        """Map each entity to its `relations`."""

    def relations(
        self, entity: str, direction: Direction, limit: int = DEFAULT_LIMIT
    ) -> Sequence[str]:
        """List the distinct relations that leave (`out`) or enter (`in`) an entity, sorted."""
        return self.relations_of_each([entity], direction, limit)[entity]

    @abstractmethod
    def neighbours_of_each(
        self,
        starts: Iterable[tuple[str, str]],
        direction: Direction,
        limit: int = DEFAULT_LIMIT,
    ) -> Mapping[tuple[str, str], Sequence[Term]]:
        """Map each entity with a relation to its `neighbours`, at most `limit` of each."""

    def neighbours(
        self, entity: str, relation: str, direction: Direction, limit: int = DEFAULT_LIMIT
    ) -> Sequence[Term]:
        """List what one relation leads to from an entity, at most `limit` terms."""
        return self.neighbours_of_each([(entity, relation)], direction, limit)[entity, relation]

    @abstractmethod
    def first_neighbours(
        self, entity: str, relation: str, direction: Direction, limit: int = DEFAULT_LIMIT
    ) -> Neighbours:
        """List the first neighbours by id, whatever the order of the store; count the others."""

    @abstractmethod
    def frontier_relations(
        self, entities: Sequence[str], direction: Direction, limit: int = DEFAULT_LIMIT
    ) -> Sequence[str]:
        """List the distinct relations of any of some entities, sorted, as one search."""

    @abstractmethod
    def frontier_neighbours(
        self,
        entities: Sequence[str],
        relation: str,
        direction: Direction,
        limit: int = DEFAULT_LIMIT,
    ) -> Sequence[Term]:
        """List what one relation leads to from any of some entities, each term once."""

    @abstractmethod
    def edges(
        self, entities: Iterable[str], direction: Direction, limit: int = DEFAULT_LIMIT
    ) -> Mapping[str, Edges]:
        """Map entities to all their edges in a direction; one with more than `limit` is left out.

        Bookkeeping relations (see `kbqa.kb.schema.is_telling`) are left out and do not count.
        Relations are sorted, and the ends of each by `term_order`.
        """

    @abstractmethod
    def labels(self, mids: Iterable[str]) -> Mapping[str, str]:
        """Map each mid that has a name to it, preferably in English."""

    def types(self, mid: str) -> Sequence[str]:
        """List the types of an entity, sorted."""
        from kbqa.sparql.templates import TYPE

        return sorted(term for term in self.neighbours(mid, TYPE, "out") if isinstance(term, str))

    @abstractmethod
    def all_relations(self, timeout_s: float = DEFAULT_TIMEOUT_S) -> set[str]:
        """Collect the relations of the whole graph; see `kbqa.kb.schema.list_relations`."""

    @abstractmethod
    def schema(self) -> Schema | None:
        """Read the whole schema, or return None if it can only be asked for piece by piece."""

    @abstractmethod
    def names(self, timeout_s: float = DEFAULT_TIMEOUT_S) -> "Names":
        """Open the names of the graph's entities. The graph must stay open while they are used.

        `timeout_s` is for each query to an endpoint.
        """

    @abstractmethod
    def close(self) -> None:
        """Free what the graph holds. Asking it afterwards is an error; closing it again is not."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def prepare_query(text: str, form: Literal["select", "ask"]) -> str:
    """Repair a query's dialect, and check that it only reads and has the expected form."""
    from kbqa.sparql.dialect import check_read_only, repair_query

    found = check_read_only(text)
    if found != form:
        raise QueryRefused(f"expected a {form.upper()} query, got {found.upper()}")
    return repair_query(text)


def syntax_error(query: str, message: str) -> QuerySyntaxError:
    """Return an error that says where a query stops parsing, from a parser's message.

    >>> print(syntax_error("SELECT ?x {", "error at 1:12: expected one of ..."))
    the query does not parse: line 1, after 'SELECT ?x {'
    """
    position = _POSITION.search(message)
    lines = query.split("\n")  # as Oxigraph counts them, not at U+0085 or U+2028
    if position is None or int(position[1]) > len(lines):
        return QuerySyntaxError(f"the query does not parse: {message}")
    before = lines[int(position[1]) - 1][: int(position[2]) - 1]
    shown = before if len(before) <= 60 else "…" + before[-59:]
    where = f"after {shown!r}" if shown.strip() else "at its beginning"
    return QuerySyntaxError(f"the query does not parse: line {position[1]}, {where}")
