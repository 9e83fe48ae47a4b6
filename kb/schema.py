"""The facts of a graph's schema about relations, and the form in which people read their literals.

A store has its schema in a file. An endpoint's has thousands of properties, so only those of the
relations that are asked about are fetched, once each.
"""

import re
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TYPE_CHECKING

from kbqa.kb.graph import DEFAULT_TIMEOUT_S, Graph, Property, Schema, batches
from kbqa.sparql.errors import GraphError
from kbqa.sparql.terms import (
    NAME,
    NOTABLE_TYPES,
    LiteralTerm,
    iri,
    is_well_formed,
    sparql_term,
    term_text,
)

if TYPE_CHECKING:
    from kbqa.sparql.crp import Hop

_BATCH = 500
_MEDIATOR = "freebase.type_hints.mediator"
_MEDIATORS = f"SELECT ?type ?is {{ ?type {iri(_MEDIATOR)} ?is }}"

_PRESENCE_BATCH = 250  # few enough for any server's limit on the length of a query

# EXISTS stops at the first triple, where a join would walk through all of a hub's.
_ENTITY = "EXISTS { ?x ?p ?o } || EXISTS { ?s ?q ?x }"
_RELATION = "EXISTS { ?s ?x ?o }"
_OBJECT = "EXISTS { ?s ?p ?x }"

_NUMBERS = {"type.int", "type.float", "integer", "int", "long", "float", "double", "decimal"}
_DATES = {"type.datetime", "date", "dateTime", "gYear", "gYearMonth"}

# A number with leading zeros is a code, such as 06037.
_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,17})(?:\.\d{1,17})?(?:[eE][+-]?\d{1,2})?")
_DATE = re.compile(r"(-?\d{4})(?:-(\d\d)(?:-(\d\d)(?:T([\d:.]+))?)?)?(?:Z|[+-]\d\d:\d\d)?")
_MOST_DIGITS = 18
_SEPARATED_FROM = 5  # digits; a shorter number may be a year or a dialling code

MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)

LEFT_OUT = (
    "common.document.",
    "common.image.",
    "common.licensed_object.",
    "common.topic.",
    "common.webpage.",
    "dataworld.",
    "freebase.",
    "owl#",
    "pipeline.",
    "rdf-schema#",
    "type.",
)
"""The beginnings of the ids of bookkeeping relations."""

KEPT = (NOTABLE_TYPES,)  # no bookkeeping, although it begins like it


class SchemaBuilder:
    """Gathers a schema from the triples that state it, in any order."""

    PREDICATES = frozenset(
        {
            _MEDIATOR,
            NAME,
            "type.property.expected_type",
            "type.property.master_property",
            "type.property.reverse_property",
            "type.property.schema",
            "type.property.unique",
        }
    )

    def __init__(self) -> None:
        self._values: dict[str, dict[str, str]] = {}
        self._mediators: set[str] = set()

    def add(self, subject: str, predicate: str, value: str) -> None:
        """Take a statement by one of `PREDICATES`, a name in English; the first value counts."""
        if predicate == _MEDIATOR:
            if value == "true":
                self._mediators.add(subject)
        else:
            self._values.setdefault(predicate, {}).setdefault(subject, value)

    def build(self) -> Schema:
        """Build the schema. A subject with nothing but a name is not a property."""
        of = {predicate: self._values.get(predicate, {}) for predicate in self.PREDICATES}
        reverse = of["type.property.master_property"] | of["type.property.reverse_property"]
        # The dump states some pairs on one side only.
        for stated, other in sorted(reverse.items()):
            reverse.setdefault(other, stated)
        ids = {
            subject
            for predicate, values in of.items()
            if predicate.startswith("type.property.")
            for subject in values
        }
        properties = {
            property_id: Property(
                id=property_id,
                domain=of["type.property.schema"].get(property_id)
                or property_id.rpartition(".")[0],
                expected_type=of["type.property.expected_type"].get(property_id),
                reverse=reverse.get(property_id),
                is_unique=of["type.property.unique"].get(property_id) == "true",
                name=of[NAME].get(property_id),
            )
            for property_id in ids
        }
        return Schema(properties, frozenset(self._mediators))


def list_relations(graph: Graph, timeout_s: float = DEFAULT_TIMEOUT_S) -> list[str]:
    """List a graph's relations, sorted, or raise `GraphError` if it holds none.

    For a store they are those of its triples, and the others of the same types in the schema. For
    an endpoint they are the properties of its schema; only without any is every triple read.
    """
    found = graph.all_relations(timeout_s)
    if not found:
        raise GraphError(f"{graph.description} holds no relation")
    return sorted(found)


_FIELDS = sorted(SchemaBuilder.PREDICATES - {_MEDIATOR, NAME})


class GraphSchema:
    """The schema of a graph, fetched as it is needed. Any number of threads may use one.

    `timeout_s` is for each query to an endpoint.

    Raises:
        GraphError: From most methods: the endpoint does not answer.
        StoreError: The store's file of the schema is missing or broken.
    """

    def __init__(self, graph: Graph, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        self._graph, self._timeout_s = graph, timeout_s
        self._builder = SchemaBuilder()
        self._met: set[str] = set()
        self._lock = threading.Lock()
        self._schema = graph.schema()
        self._is_whole = self._schema is not None

    def of(self, relations: Iterable[str]) -> Schema:
        """Return a schema with all that the graph states about these relations."""
        with self._lock:
            new = [] if self._is_whole else sorted(set(relations) - self._met)
            if self._schema is None:
                self._learn(_MEDIATORS, _MEDIATOR)
            for batch in batches(new, _BATCH):
                self._learn(_query(batch))
            if self._schema is None or new:
                self._met.update(new)
                self._schema = self._builder.build()
            return self._schema

    def leads_to_mediator(self, hop: "Hop") -> bool:
        """Return whether a hop ends at mediators."""
        end = self.end(hop)
        return end is not None and self.of([hop.relation]).is_mediator(end)

    def start(self, hop: "Hop") -> str | None:
        """Return the type of the nodes that a hop leaves; None if the graph does not say."""
        return self.end(hop.back)

    def end(self, hop: "Hop") -> str | None:
        """Return the type of the nodes that a hop leads to; None if the graph does not say."""
        stated = self.of([hop.relation]).property(hop.relation)
        if stated is None:
            return None
        return stated.domain if hop.inverse else stated.expected_type

    def canonical(self, hops: "Iterable[Hop]") -> "tuple[Hop, ...]":
        """Write each hop by the same one of its two names: a relation, or its reverse backwards.

        The dump holds both relations of a pair, so both lead to the same entities.
        """
        hops = tuple(hops)
        schema = self.of([hop.relation for hop in hops])
        return tuple(_canonical(schema, hop) for hop in hops)

    def _learn(self, query: str, field: str | None = None) -> None:
        for row in self._graph.select(query, timeout_s=self._timeout_s).rows:
            *subject, value = row
            predicate = field or str(subject[1])
            if value is not None:
                self._builder.add(str(subject[0]), predicate, term_text(value))


def _canonical(schema: Schema, hop: "Hop") -> "Hop":
    stated = schema.property(hop.relation)
    if stated is None or stated.reverse is None:
        return hop
    return min(
        hop,
        replace(hop, relation=stated.reverse, inverse=not hop.inverse),
        key=lambda each: each.relation,
    )


def _query(relations: Sequence[str]) -> str:
    subjects, fields = (" ".join(map(iri, each)) for each in (relations, _FIELDS))
    return (
        f"SELECT ?relation ?field ?value {{ VALUES ?relation {{ {subjects} }} "
        f"VALUES ?field {{ {fields} }} ?relation ?field ?value }}"
    )


def present_entities(
    graph: Graph, entities: Collection[str], timeout_s: float = DEFAULT_TIMEOUT_S
) -> set[str]:
    """Select the entities that have a triple in the graph, in either direction.

    `timeout_s` is for each batch of them.
    """
    return _present_resources(graph, entities, _ENTITY, timeout_s)


def present_relations(
    graph: Graph, relations: Collection[str], timeout_s: float = DEFAULT_TIMEOUT_S
) -> set[str]:
    """Select the relations that have a triple in the graph."""
    return _present_resources(graph, relations, _RELATION, timeout_s)


def present_texts(
    graph: Graph, texts: Collection[str], timeout_s: float = DEFAULT_TIMEOUT_S
) -> set[str]:
    """Select the texts whose value a literal of the graph has, in English or no language.

    ``1968`` is found if the graph holds a gYear, and ``12.0`` if it holds 12.
    """
    written = [(text, literal) for text in sorted(texts) for literal in _spellings(text)]
    found: set[str] = set()
    for batch in batches(written, _PRESENCE_BATCH):
        literals = list(dict.fromkeys(literal for _, literal in batch))
        # Engines write literals differently, so each is identified by a number.
        rows = " ".join(f"({at} {sparql_term(literal)})" for at, literal in enumerate(literals))
        query = f"SELECT DISTINCT ?at {{ VALUES (?at ?x) {{ {rows} }} FILTER ({_OBJECT}) }}"
        held = {
            literals[int(at.text)]
            for (at,) in graph.select(query, timeout_s=timeout_s).rows
            if isinstance(at, LiteralTerm)
        }
        found.update(text for text, literal in batch if literal in held)
    return found


def _present_resources(
    graph: Graph, resources: Iterable[str], test: str, timeout_s: float
) -> set[str]:
    found: set[str] = set()
    wanted = sorted(filter(is_well_formed, set(resources)))
    for batch in batches(wanted, _PRESENCE_BATCH):
        values = " ".join(map(sparql_term, batch))
        query = f"SELECT DISTINCT ?x {{ VALUES ?x {{ {values} }} FILTER ({test}) }}"
        rows = graph.select(query, timeout_s=timeout_s).rows
        found.update(resource for (resource,) in rows if isinstance(resource, str))
    return found


def _spellings(text: str) -> Iterator[LiteralTerm]:
    from kbqa.sparql.values import equal_literals

    for literal in (*equal_literals(LiteralTerm(text)), LiteralTerm(text, language="en")):
        if is_well_formed(literal):
            yield literal


@dataclass(frozen=True, slots=True)
class LiteralForms:
    """The expected types of some relations, and the units, by which their literals are written."""

    types: Mapping[str, str] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)  # their abbreviations, or else names

    def write(self, literal: LiteralTerm, relation: str | None = None) -> str:
        """Write a literal of a relation for people: ``103,000 km²``, ``4 May 1980``.

        The expected type of the relation says how, such as ``type.int``, else the literal's own
        datatype. Texts and codes stay as they are.
        """
        kind = self.types.get(relation or "", literal.datatype)
        if kind in _NUMBERS:
            unit = self.units.get(relation or "", "")
            return f"{_number(literal.text)} {unit}".rstrip()
        return _date(literal.text) if kind in _DATES else literal.text


def read_literal_forms(
    graph: Graph, relations: Iterable[str], timeout_s: float = DEFAULT_TIMEOUT_S
) -> LiteralForms:
    """Read the expected types and the units of relations from a graph."""
    wanted = sorted(set(relations))
    if not wanted:
        return LiteralForms()
    schema = GraphSchema(graph, timeout_s).of(wanted)
    stated = filter(None, map(schema.property, wanted))
    types = {each.id: each.expected_type for each in stated if each.expected_type is not None}
    units: dict[str, str] = {}
    for relation, *texts in graph.select(_unit_query(wanted), timeout_s=timeout_s).rows:
        text = next((each.text for each in texts if isinstance(each, LiteralTerm)), None)
        if text is not None:
            units.setdefault(str(relation), text)
    return LiteralForms(types, units)


def _unit_query(relations: Iterable[str]) -> str:
    return (
        f"SELECT ?relation ?short ?name {{ VALUES ?relation {{ {' '.join(map(iri, relations))} }} "
        f"?relation {iri('type.property.unit')} ?unit "
        f"OPTIONAL {{ ?unit {iri('freebase.unit_profile.abbreviation')} ?short }} "
        f"OPTIONAL {{ ?unit {iri(NAME)} ?name FILTER (LANG(?name) = 'en') }} }}"
    )


def _number(text: str) -> str:
    if _NUMBER.fullmatch(text) is None:
        return text
    number = Decimal(text)
    if abs(number.adjusted()) > _MOST_DIGITS:
        return text
    whole, point, rest = f"{number:f}".partition(".")
    rest = rest.rstrip("0")
    if len(whole.lstrip("-")) >= _SEPARATED_FROM:
        whole = f"{int(whole):,}"
    return f"{whole}{point}{rest}" if rest else whole


def _date(text: str) -> str:
    match = _DATE.fullmatch(text)
    if match is None:
        return text
    year, month, day, time = match.groups()
    said = str(int(year)) if int(year) > 0 else f"{-int(year)} BC"
    if month is None:
        return said
    if not 1 <= int(month) <= len(MONTHS):
        return text
    said = f"{MONTHS[int(month) - 1]} {said}"
    if day is not None:
        said = f"{int(day)} {said}"
    return said if time is None else f"{said}, {time}"


def is_telling(relation: str) -> bool:
    """Return whether a relation is more than bookkeeping, a text, or a key of another database.

    >>> is_telling("people.person.spouse_s"), is_telling("type.object.key")
    (True, False)
    """
    return "." in relation and (relation in KEPT or not relation.startswith(LEFT_OUT))
