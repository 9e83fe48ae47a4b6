"""The graph as the engine sees it: one base class for every kind of graph, and its results.

Texts of a graph are made safe here for terminals, HTML, SVG and prompts. A control character can
move a terminal's cursor, change its title or forge its content, and a bidirectional one turns
around what follows it.
"""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from html import escape
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple, Self, TypeAlias, TypeVar

from kbqa.kb.layout import SCHEMA_VERSION
from kbqa.sparql.errors import QueryRefused, QuerySyntaxError, StoreError
from kbqa.sparql.terms import TYPE, LiteralTerm, Term, iri, is_well_formed, term_order, term_text

if TYPE_CHECKING:
    import polars

    from kbqa.kb.names import Names

_T = TypeVar("_T")

Direction = Literal["out", "in"]

Edges: TypeAlias = Mapping[str, Sequence[Term]]
"""The edges of an entity in one direction: each relation, and what it leads to."""

DEFAULT_TIMEOUT_S = 30.0
DEFAULT_LIMIT = 1000  # rows of a relation or neighbour search

RESULT_BYTES = 16_000_000
"""The largest result of a query of other people, such as a server's client: far more than anybody
reads, and read in a tenth of a second."""

_POSITION = re.compile(r"error at (\d+):(\d+)")
_COUNT_DIGITS = 18  # Python refuses to read some thousands of them.
_SHOWN_ROWS = 20

_LONGEST = 300
_LONGEST_IN_PROMPT = 200
_JOINERS = "\u200c\u200d"  # they shape words of many scripts, and hide nothing
# Control characters but tab and line feed, separators, bidirectional controls, lone surrogates.
_UNPRINTABLE = re.compile(
    "\r\n|[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


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

        rows = [[None if t is None else term_text(t) for t in row] for row in self.rows]
        schema = dict.fromkeys(self.variables, polars.String)
        return polars.DataFrame(rows, schema, orient="row")

    def __repr__(self) -> str:
        n = len(self.rows)
        more = " or more" if self.truncated else ""
        columns = ", ".join(self.variables)
        return f"<Table of {n:,}{more} row{'' if n == 1 else 's'} with the columns {columns}>"

    def _repr_html_(self) -> str:
        """Return the first 20 rows as an HTML table, and how many are left out, for a notebook."""
        head = "".join(f"<th>{html_line(name)}</th>" for name in self.variables)
        lines = ['<div class="kbqa-table"><table>', f"<thead><tr>{head}</tr></thead>", "<tbody>"]
        for row in self.rows[:_SHOWN_ROWS]:
            cells = ("" if term is None else html_name(term_text(term)) for term in row)
            lines.append(f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
        lines.append("</tbody></table>")
        if len(self.rows) > _SHOWN_ROWS:
            lines.append(f"<p>… and {len(self.rows) - _SHOWN_ROWS:,} other rows</p>")
        if self.truncated:
            lines.append("<p>More exist than were fetched.</p>")
        return "\n".join([*lines, "</div>"])


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


def edge_pattern(node: str, relation: str, end: str, direction: Direction) -> str:
    """Write the triple pattern of an edge that leaves (`out`) or enters (`in`) a node."""
    return f"{node} {relation} {end}" if direction == "out" else f"{end} {relation} {node}"


def relations_query(entity: str, direction: Direction, limit: int) -> str:
    """Write the query for the relations of an entity, as all queries that explore a graph.

    Rows are capped by LIMIT, so that a hub answers as fast as any other entity.

    Source: KnowPath, appendix G. The paper's queries have no direction, name or limit; "head" is
    `out` here and "tail" is `in`.
    """
    edge = edge_pattern(iri(entity), "?relation", "?entity", direction)
    return f"SELECT DISTINCT ?relation WHERE {{ {edge} }} LIMIT {limit}"


def neighbours_query(entity: str, relation: str, direction: Direction, limit: int) -> str:
    """Write the query for what one relation leads to from an entity."""
    edge = edge_pattern(iri(entity), iri(relation), "?entity", direction)
    return f"SELECT DISTINCT ?entity WHERE {{ {edge} }} LIMIT {limit}"


def batches(items: Sequence[_T], size: int) -> Iterator[Sequence[_T]]:
    """Cut items into runs of at most so many."""
    return (items[start : start + size] for start in range(0, len(items), size))


def read_count(rows: Sequence[Sequence[Term | None]]) -> int | None:
    """Read the only row of a query that counts; None if it is no count."""
    match rows:
        case [[LiteralTerm(text=text)]] if text.isdecimal() and len(text) <= _COUNT_DIGITS:
            return int(text)
    return None


def sorted_edges(edges: Mapping[str, Sequence[Term]]) -> dict[str, Sequence[Term]]:
    """Sort the edges of an entity: the relations, and the ends of each."""
    return {relation: sorted(edges[relation], key=term_order) for relation in sorted(edges)}


def pick_label(names: Iterable[Term]) -> str | None:
    """Choose the name to show: English, else without a language, else the first by language."""
    literals = [name for name in names if isinstance(name, LiteralTerm) and name.text.strip()]
    if not literals:
        return None
    return min(literals, key=_label_rank).text


def _label_rank(name: LiteralTerm) -> tuple[int, str, str]:
    language = (name.language or "").lower()
    kind = "en-" if language.startswith("en-") else language
    return ({"en": 0, "en-": 1, "": 2}.get(kind, 3), language, name.text)


def name_terms(graph: Graph, terms: Collection[Term]) -> dict[Term, str]:
    """Map terms to their names; an entity without a name maps to its id, a literal to its text."""
    # A dump's odd IRIs are among the answers, but no query can hold them.
    labels = graph.labels(term for term in terms if isinstance(term, str) and is_well_formed(term))
    return {term: labels.get(term, term) if isinstance(term, str) else term.text for term in terms}


def printable(text: str) -> str:
    """Return a text with its control characters replaced; tabs and line breaks stay."""
    return _UNPRINTABLE.sub(_replacement, text)


def one_line(text: str) -> str:
    """Return a printable text on one line."""
    return " ".join(printable(text).split())


def json_text(value: object, indent: int | None = None) -> str:
    """Write JSON with its letters as they are, and control characters as escapes."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def prompt_line(text: str) -> str:
    """Write a name or a value for a prompt: printable, on one line, and cut at 200 characters.

    Otherwise a value of a megabyte would be paid for, and a line break in a name would forge lines.
    """
    if len(text) <= _LONGEST_IN_PROMPT and text.isascii() and text.isprintable():
        return " ".join(text.split())
    begun = text[: 10 * _LONGEST_IN_PROMPT]
    shown = "".join(c for c in begun if c.isprintable() or c.isspace() or c in _JOINERS)
    line = " ".join(shown.split())
    is_whole = len(line) <= _LONGEST_IN_PROMPT and len(begun) == len(text)
    return line if is_whole else f"{line[: _LONGEST_IN_PROMPT - 1]}…"


def html_line(text: str) -> str:
    """Write a text on one line, escaped for HTML and for an attribute's value."""
    return escape(one_line(text))


def html_block(text: str) -> str:
    """Write a text escaped for HTML, with its blanks and line breaks."""
    return escape(printable(text))


def html_name(name: str) -> str:
    """Write a name escaped, cut at 300 characters, with its writing direction to itself."""
    return f"<bdi>{html_line(_cut(name))}</bdi>"


def html_tooltip_name(name: str) -> str:
    """Write a name as `html_name` does, for a tooltip or a label, which hold no elements."""
    return f"\u2068{html_line(_cut(name))}\u2069"


def _cut(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[:_LONGEST]}…"


def _replacement(match: re.Match[str]) -> str:
    found = match.group()
    if found == "\r\n":
        return "\n"
    return " " if found.isspace() else "\N{REPLACEMENT CHARACTER}"
