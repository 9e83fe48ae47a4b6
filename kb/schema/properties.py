"""Freebase's schema: what each property leads from and to, and which types are mediators."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType

from kbqa.kb.graph import DEFAULT_TIMEOUT_S, Graph
from kbqa.kb.store.layout import SCHEMA_VERSION
from kbqa.sparql.errors import GraphError, StoreError


@dataclass(frozen=True, slots=True)
class Property:
    """A property of the schema.

    Attributes:
        id: ``people.person.place_of_birth``.
        domain: The type whose entities carry it: ``people.person``.
        expected_type: The type of its values, or None where the graph does not say.
        reverse: The property that says the same in the other direction, if there is one.
        is_unique: An entity has at most one value.
        name: What people call it, if the graph says so: ``Place of birth``.
    """

    id: str
    domain: str
    expected_type: str | None
    reverse: str | None
    is_unique: bool
    name: str | None


@dataclass(frozen=True, slots=True)
class _File:
    properties: list[Property]
    mediators: list[str]


class Schema:
    """The properties and mediator types of a graph."""

    def __init__(self, properties: Mapping[str, Property], mediators: frozenset[str]) -> None:
        self._properties = MappingProxyType(dict(properties))
        self._mediators = mediators

    @property
    def properties(self) -> Mapping[str, Property]:
        """Every property by its id."""
        return self._properties

    @property
    def mediators(self) -> frozenset[str]:
        """The types whose entities only tie others together (Freebase's CVTs)."""
        return self._mediators

    def property(self, property_id: str) -> Property | None:
        """Return a property, or None where the graph states no schema for it."""
        return self._properties.get(property_id)

    def is_mediator(self, type_id: str) -> bool:
        """Return whether the entities of a type only tie others together."""
        return type_id in self._mediators

    @classmethod
    def open(cls, path: Path) -> "Schema":
        """Read a schema that `save` wrote.

        Raises:
            StoreError: The file is missing or cannot be read.
        """
        from pydantic import TypeAdapter

        try:
            file = TypeAdapter(_File).validate_json(path.read_bytes())
        except (OSError, ValueError) as error:
            raise StoreError(f"{path} holds no schema ({error}). Load the store again.") from error
        return cls({entry.id: entry for entry in file.properties}, frozenset(file.mediators))

    def save(self, path: Path) -> None:
        """Write the schema as JSON, sorted, a property on each line."""
        names = [field.name for field in fields(Property)]
        properties = ",\n".join(
            json.dumps({name: getattr(self._properties[key], name) for name in names})
            for key in sorted(self._properties)
        )
        path.write_text(
            f'{{"schema_version": {SCHEMA_VERSION},\n'
            f'"mediators": {json.dumps(sorted(self._mediators))},\n'
            f'"properties": [\n{properties}\n]}}\n',
            encoding="utf-8",
        )


class SchemaBuilder:
    """Gathers a schema from the triples that state it, in any order."""

    PREDICATES = frozenset(
        {
            "freebase.type_hints.mediator",
            "type.object.name",
            "type.property.expected_type",
            "type.property.master_property",
            "type.property.reverse_property",
            "type.property.schema",
            "type.property.unique",
        }
    )
    """The predicates that `add` takes."""

    def __init__(self) -> None:
        self._values: dict[str, dict[str, str]] = {}
        self._mediators: set[str] = set()

    def add(self, subject: str, predicate: str, value: str) -> None:
        """Take one statement; of several values of a property's field the first counts.

        Args:
            subject: A schema id.
            predicate: One of `PREDICATES`.
            value: An id, or a literal's text; of names only English ones should come.
        """
        if predicate == "freebase.type_hints.mediator":
            if value == "true":
                self._mediators.add(subject)
        else:
            self._values.setdefault(predicate, {}).setdefault(subject, value)

    def build(self) -> Schema:
        """Put the statements together. Something with only a name is not a property."""
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
                name=of["type.object.name"].get(property_id),
            )
            for property_id in ids
        }
        return Schema(properties, frozenset(self._mediators))


def list_relations(graph: Graph, timeout_s: float = DEFAULT_TIMEOUT_S) -> list[str]:
    """List a graph's relations, sorted.

    For a store they are those that a triple has, from its statistics, and the other relations of
    the same types that the schema states. For an endpoint they are the properties that its schema
    states; only if it states none is every triple read.

    Raises:
        GraphError: The graph does not answer, or holds no relation.
    """
    found = graph.all_relations(timeout_s)
    if not found:
        raise GraphError(f"{graph.description} holds no relation")
    return sorted(found)
