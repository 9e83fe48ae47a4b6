"""Blocks of everything but ordinary nodes: properties, types and hubs with their lists."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tools.make.generated.lines import END, Lines
from tools.make.generated.plan import Plan
from tools.make.generated.schema import NS, Fixed, Kind, Property, Schema, iri, iri_object
from tools.make.generated.values import NAMES_A_LANGUAGE, Values
from tools.make.generated.words import COUNTRIES, GENDERS, LANGUAGES, OTHER_LANGUAGES

_LINES_A_BLOCK = 200_000

_TOPIC = "common.topic"
_HUBS = {
    **{mid: (name, "location.country") for mid, name in COUNTRIES},
    **{mid: (name, "people.gender") for mid, name in GENDERS},
    **{mid: (name, "language.human_language") for mid, name in LANGUAGES},
}


@dataclass(frozen=True, slots=True)
class Listing:
    """Lines of one subject and one predicate, to nodes at some places of the plan."""

    subject: str  # id of the type or hub
    predicate: int
    of_topics: bool  # the places are those of topics; else of mediators
    places: range  # which nodes
    opens: bool = False  # these are the first of the subject's lists, after its other lines


class SchemaBlocks:
    """Makes the blocks of a schema and of hubs."""

    def __init__(self, schema: Schema, plan: Plan, values: Values) -> None:
        self._schema, self._plan = schema, plan
        self._number = schema.fixed
        self._foreign_names = values.foreign_names
        self._types = {node.id: node for node in (*schema.topics, *schema.mediators)}
        self._mediators = frozenset(node.id for node in schema.mediators)

    def sections(self) -> list[list[Listing]]:
        """Cut the lists of types and hubs into blocks; the lists of a subject are adjacent."""
        sections: list[list[Listing]] = []
        room = 0
        for listing in self._listings():
            while listing.places or listing.opens:
                if not room:
                    sections.append([])
                    room = _LINES_A_BLOCK
                part = listing.places[:room]
                sections[-1].append(replace(listing, places=part))
                listing = replace(listing, places=listing.places[room:], opens=False)
                room -= len(part)
        return sections

    def listing_lines(self, section: Sequence[Listing]) -> Lines:
        """Make the lines of a section."""
        subjects = {listing.subject: 0 for listing in section}
        subjects = {subject: at for at, subject in enumerate(subjects)}
        lines = Lines([iri(NS + subject) for subject in subjects], self._schema.predicates)
        for listing in section:
            subject = subjects[listing.subject]
            if listing.opens:
                self._state(lines, subject, self._said_of(listing.subject))
            places = np.arange(listing.places.start, listing.places.stop)
            at = self._plan.topics_at if listing.of_topics else self._plan.mediators_at
            objects = self._plan.terms(at(places), b">" + END)
            lines.add(np.full(len(objects), subject), listing.predicate, objects)
        return lines

    def property_lines(self) -> Lines:
        """Make the lines of the properties."""
        stated = sorted(self._schema.properties, key=lambda each: each.id)
        subjects = [iri(NS + each.id) for each in stated]
        lines = Lines(subjects, self._schema.predicates)
        numbers = {each.id: number for number, each in enumerate(self._schema.properties)}
        for at, each in enumerate(stated):
            self._state(lines, at, self._said_of_property(each, numbers[each.id]))
        return lines

    def _state(self, lines: Lines, subject: int, said: Sequence[tuple[str, bytes]]) -> None:
        predicates = np.array([self._number[predicate] for predicate, _ in said])
        lines.add(np.full(len(said), subject), predicates, [value for _, value in said])

    def _listings(self) -> Iterator[Listing]:
        plan, instance = self._plan, self._number[Fixed.INSTANCE]
        every_topic = range(plan.topic_count)
        yield Listing(_TOPIC, instance, True, every_topic, opens=True)
        including: dict[int, list[int]] = {}
        for number, node in enumerate(self._schema.topics):
            for included in node.includes:
                including.setdefault(included, []).append(number)
        for number, node in enumerate(self._schema.topics):
            places = plan.topic_places(number)
            yield Listing(node.id, instance, True, places, opens=True)
            for other in including.get(number, ()):
                yield Listing(node.id, instance, True, plan.topic_places(other))
        for number, node in enumerate(self._schema.mediators):
            yield Listing(node.id, instance, False, plan.mediator_places(number), opens=True)
        for number, mid in enumerate(_HUBS):
            yield Listing(mid, instance, True, range(0), opens=True)
            if number < len(COUNTRIES):
                for at, node in enumerate(self._schema.topics):
                    back = self._schema.properties[node.country].reverse
                    if back >= 0:
                        places = plan.topic_places(at, number)
                        yield Listing(mid, back, True, places)

    def _said_of(self, subject: str) -> list[tuple[str, bytes]]:
        if subject in _HUBS:
            return self._said_of_hub(subject)
        said = [*_called(_readable(subject)), *_typed("type.type")]
        if subject in self._mediators:
            said.append((Fixed.MEDIATOR, b'"true"' + END))
        node = self._types.get(subject)
        if node is not None:
            of_type = [*node.plain, *([node.country] if node.country >= 0 else [])]
            ids = [self._schema.properties[number].id for number in of_type]
            said += [(Fixed.PROPERTIES, iri_object(NS + each)) for each in ids]
            included = [self._schema.topics[number].id for number in node.includes]
            said += [(Fixed.INCLUDED_TYPES, iri_object(NS + each)) for each in included]
        return said

    def _said_of_hub(self, mid: str) -> list[tuple[str, bytes]]:
        name, type_id = _HUBS[mid]
        said = [*_called(name), *_typed(_TOPIC), *_typed(type_id)]
        for at in range(len(OTHER_LANGUAGES)):
            foreign = self._foreign_names[at * NAMES_A_LANGUAGE + list(_HUBS).index(mid)]
            said += [(Fixed.NAME, foreign), (Fixed.LABEL, foreign)]
        return said

    def _said_of_property(self, stated: Property, number: int) -> list[tuple[str, bytes]]:
        expected = iri_object(NS + self._schema.expected_id(number))
        domain = iri_object(NS + stated.domain)
        is_unique = stated.kind in (Kind.GENDER, Kind.DATE, Kind.TRUTH)
        said = [
            *_called(_readable(stated.id)),
            *_typed("type.property"),
            (Fixed.PROPERTY_SCHEMA, domain),
            (Fixed.DOMAIN, domain),
            (Fixed.EXPECTED_TYPE, expected),
            (Fixed.RANGE, expected),
            (Fixed.UNIQUE, (b'"true"' if is_unique else b'"false"') + END),
        ]
        if stated.reverse >= 0:
            other = iri_object(NS + self._schema.properties[stated.reverse].id)
            is_master = stated.reverse > number
            said.append((Fixed.REVERSE_PROPERTY if is_master else Fixed.MASTER_PROPERTY, other))
            said.append((Fixed.INVERSE_OF, other))
        return said


def _called(name: str) -> list[tuple[str, bytes]]:
    literal = f'"{name}"@en'.encode() + END
    return [(Fixed.NAME, literal), (Fixed.LABEL, literal)]


def _typed(type_id: str) -> list[tuple[str, bytes]]:
    return [(Fixed.TYPE, iri_object(NS + type_id)), (Fixed.RDF_TYPE, iri_object(NS + type_id))]


def _readable(schema_id: str) -> str:
    return schema_id.rpartition(".")[2].replace("_", " ").capitalize()
