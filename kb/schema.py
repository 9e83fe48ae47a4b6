"""Freebase's schema: what each property leads from and to, and which types are mediators."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType

from kbqa.kb.layout import SCHEMA_VERSION
from kbqa.sparql.errors import StoreError


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
        """Tell whether the entities of a type only tie others together."""
        return type_id in self._mediators

    @classmethod
    def open(cls, path: Path) -> "Schema":
        """Read a schema that `save` wrote.

        Raises:
            StoreError: The file is missing or cannot be read.
        """
        try:
            fields = json.loads(path.read_text(encoding="utf-8"))
            properties = {entry["id"]: Property(**entry) for entry in fields["properties"]}
            return cls(properties, frozenset(fields["mediators"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StoreError(f"{path} holds no schema ({error}). Load the store anew.") from error

    def save(self, path: Path) -> None:
        """Write the schema as JSON, sorted."""
        fields = {
            "schema_version": SCHEMA_VERSION,
            "mediators": sorted(self._mediators),
            "properties": [asdict(self._properties[key]) for key in sorted(self._properties)],
        }
        path.write_text(json.dumps(fields, indent=1) + "\n", encoding="utf-8")


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
    """The predicates that `add` wants to see."""

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
        """Put the statements together. What has a name alone is no property."""
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
