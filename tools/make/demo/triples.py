"""Collect the triples of the demo graph: minted ids, reverse properties, schema, N-Triples.

Nothing here knows what the graph is about.
"""

import hashlib
import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

_SCHEMA = tomllib.loads(Path(__file__).with_name("schema.toml").read_text(encoding="utf-8"))
_REVERSE = _SCHEMA["reverse"] | {back: forth for forth, back in _SCHEMA["reverse"].items()}
_EXPECTED = _SCHEMA["expected"] | {one: _REVERSE[one].rpartition(".")[0] for one in _REVERSE}
_NS = "http://rdf.freebase.com/ns/"
_XSD = "http://www.w3.org/2001/XMLSchema#"
_DIGITS = "0123456789bcdfghjklmnpqrstvwxyz_"
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"}


def mint(key: str) -> str:
    """Make the mid of a source's key, always the same: ``m.d38q4d_7`` for ``country/KE``.

    Freebase's own begin with ``m.0``, and these with ``m.d``, so none is mistaken for another's.
    """
    number = int.from_bytes(hashlib.sha256(key.encode()).digest()[:5], "big")
    return "m.d" + "".join(_DIGITS[number >> shift & 31] for shift in range(0, 35, 5))


class DemoTriples:
    """The triples collected so far: each fact once, each reverse with its fact."""

    def __init__(self) -> None:
        self._lines: set[str] = set()
        self._keys: dict[str, str] = {}
        self._facts: set[tuple[str, str]] = set()

    def entity(self, key: str, name: str, notable_type: str, *other_types: str) -> str:
        """Add an entity with an English name, notable for its first type, and return its mid.

        The key is what the source calls it, with the kind before it: ``country/KE``.
        """
        mid = self._mint(key)
        self.text(mid, "type.object.name", name)
        for type_id in ("common.topic", notable_type, *other_types):
            self.link(mid, "type.object.type", type_id)
        self.link(mid, "common.topic.notable_types", self._mint(f"type/{notable_type}"))
        return mid

    def aliases(self, mid: str, name: str, others: Iterable[str | None]) -> None:
        """Add the names, other than its first, that an entity goes by."""
        for other in {other.strip() for other in others if other} - {name, ""}:
            self.text(mid, "common.topic.alias", other)

    def mediator(self, key: str, type_id: str) -> str:
        """Add a mediator, which has a type and no name, and return its mid."""
        mid = self._mint(key)
        self.link(mid, "type.object.type", type_id)
        return mid

    def link(self, subject: str, relation: str, resource: str) -> None:
        """Add a triple between two resources, and its reverse if there is one."""
        self._add(subject, relation, f"<{_NS}{resource}>")
        if relation in _REVERSE:
            self._add(resource, _REVERSE[relation], f"<{_NS}{subject}>")

    def text(self, subject: str, relation: str, text: str) -> None:
        """Add an English text."""
        self._add(subject, relation, f"{_quote(text)}@en")

    def plain(self, subject: str, relation: str, value: str | int | float) -> None:
        """Add a number, code or boolean, which the dump leaves untyped."""
        self._add(subject, relation, _quote(str(value)))

    def year(self, subject: str, relation: str, year: int) -> None:
        """Add a year."""
        self._add(subject, relation, f'"{year:04d}"^^<{_XSD}gYear>')

    def place(self, key: str, mid: str, latitude: float, longitude: float) -> str:
        """Add the position of a place, in degrees, and return the geocode's mid."""
        geocode = self.mediator(f"geocode/{key}", "location.geocode")
        self.link(mid, "location.location.geolocation", geocode)
        self.plain(geocode, "location.geocode.latitude", float(latitude))
        self.plain(geocode, "location.geocode.longitude", float(longitude))
        return geocode

    def population(self, key: str, mid: str, number: int) -> None:
        """Add the population of a place, without a year, as GeoNames has none."""
        counted = self.mediator(f"population/{key}", "measurement_unit.dated_integer")
        self.link(mid, "location.statistical_region.population", counted)
        self.plain(counted, "measurement_unit.dated_integer.number", number)

    def lines(self) -> list[str]:
        """Return the whole graph with its schema as sorted lines of N-Triples."""
        return sorted(self._lines | set(self._schema()))

    def _schema(self) -> Iterator[str]:
        for property_id in sorted({relation for _, relation in self._facts}):
            yield _link(property_id, "type.object.type", "type.property")
            yield _link(property_id, "type.property.schema", property_id.rpartition(".")[0])
            yield _link(property_id, "type.property.expected_type", _EXPECTED[property_id])
            is_unique = str(property_id in _SCHEMA["unique"]).lower()
            yield _line(property_id, "type.property.unique", f'"{is_unique}"')
            if property_id in _REVERSE:
                yield _link(property_id, "type.property.reverse_property", _REVERSE[property_id])
        for type_id in _SCHEMA["mediators"]:
            yield _line(type_id, "freebase.type_hints.mediator", '"true"')
        for type_id, name in _SCHEMA["notable"].items():
            mid = self._mint(f"type/{type_id}")
            yield _line(mid, "type.object.name", f"{_quote(name)}@en")
            yield _link(mid, "type.object.type", "type.type")

    def has(self, subject: str, relation: str) -> bool:
        """Return whether there is a fact of this kind."""
        return (subject, relation) in self._facts

    def _mint(self, key: str) -> str:
        mid = mint(key)
        if self._keys.setdefault(mid, key) != key:
            raise SystemExit(f"{key} and {self._keys[mid]} are both {mid}: mint longer ids")
        return mid

    def _add(self, subject: str, relation: str, written_object: str) -> None:
        self._facts.add((subject, relation))
        self._lines.add(_line(subject, relation, written_object))


def _link(subject: str, relation: str, resource: str) -> str:
    return _line(subject, relation, f"<{_NS}{resource}>")


def _line(subject: str, relation: str, written_object: str) -> str:
    return f"<{_NS}{subject}>\t<{_NS}{relation}>\t{written_object}\t."


def _quote(text: str) -> str:
    return '"' + re.sub(r'[\\"\n\r]', lambda match: _ESCAPES[match.group()], text) + '"'
