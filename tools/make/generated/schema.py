"""The schema of a synthetic dump: types, properties and predicates like those of Freebase."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from random import Random

from tools.make.generated.lines import END
from tools.make.generated.words import (
    DOMAIN_WORDS,
    FIRST_MEDIATORS,
    FIRST_TYPES,
    PROPERTY_WORDS,
    TYPE_WORDS,
)

_MOST_TYPES = 2000
_FEWEST_TYPES = 60
_LINES_PER_TYPE = 2500
_MEDIATOR_SHARE = 0.35
_LISTED_BY_COUNTRIES = 0.15, 0.1
"""The share of frequent types whose topics countries list, and that of the others."""


NS = "http://rdf.freebase.com/ns/"
_KEY = "http://rdf.freebase.com/key/"
_RDFS = "http://www.w3.org/2000/01/rdf-schema#"


class Fixed(StrEnum):
    """Predicates that every dump has."""

    RDF_TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
    LABEL = _RDFS + "label"
    DOMAIN = _RDFS + "domain"
    RANGE = _RDFS + "range"
    INVERSE_OF = "http://www.w3.org/2002/07/owl#inverseOf"
    NAME = NS + "type.object.name"
    TYPE = NS + "type.object.type"
    OBJECT_KEY = NS + "type.object.key"
    INSTANCE = NS + "type.type.instance"
    ALIAS = NS + "common.topic.alias"
    DESCRIPTION = NS + "common.topic.description"
    NOTABLE_TYPES = NS + "common.topic.notable_types"
    NOTABLE_FOR = NS + "common.topic.notable_for"
    EQUIVALENT_PAGE = NS + "common.topic.topic_equivalent_webpage"
    OFFICIAL_PAGE = NS + "common.topic.official_website"
    KEY_TITLE = _KEY + "wikipedia.en_title"
    KEY_ID = _KEY + "wikipedia.en_id"
    KEY_IMDB = _KEY + "authority.imdb.name"
    INCLUDED_TYPES = NS + "freebase.type_hints.included_types"
    MEDIATOR = NS + "freebase.type_hints.mediator"
    EXPECTED_TYPE = NS + "type.property.expected_type"
    MASTER_PROPERTY = NS + "type.property.master_property"
    REVERSE_PROPERTY = NS + "type.property.reverse_property"
    PROPERTY_SCHEMA = NS + "type.property.schema"
    UNIQUE = NS + "type.property.unique"
    PROPERTIES = NS + "type.type.properties"


class Kind(IntEnum):
    """The kind of a property's values."""

    LINK = 0
    MEDIATOR = 1
    OWNER = 2
    COUNTRY = 3
    GENDER = 4
    LANGUAGE = 5
    DATE = 6
    WHOLE = 7
    DECIMAL = 8
    TRUTH = 9
    TEXT = 10


_EXPECTED = {
    Kind.COUNTRY: "location.country",
    Kind.GENDER: "people.gender",
    Kind.LANGUAGE: "language.human_language",
    Kind.DATE: "type.datetime",
    Kind.WHOLE: "type.int",
    Kind.DECIMAL: "type.float",
    Kind.TRUTH: "type.boolean",
    Kind.TEXT: "type.text",
}
_PLAIN_KINDS = [Kind.LINK] * 11 + [Kind.DATE] * 3 + [Kind.WHOLE] * 3 + [Kind.DECIMAL] * 2
_PLAIN_KINDS += [Kind.TRUTH, Kind.TEXT]
_FIRST_PROPERTIES = {
    "people.person": (
        ("gender", Kind.GENDER),
        ("place_of_birth", Kind.LINK),
        ("date_of_birth", Kind.DATE),
        ("profession", Kind.LINK),
        ("height_meters", Kind.DECIMAL),
    ),
    "film.film": (("directed_by", Kind.LINK), ("initial_release_date", Kind.DATE)),
    "location.location": (("containedby", Kind.LINK), ("area", Kind.DECIMAL)),
}


def iri(text: str) -> bytes:
    """Write an IRI."""
    return f"<{text}>".encode()


def iri_object(text: str) -> bytes:
    """Write an IRI as the object that ends a line."""
    return iri(text) + END


@dataclass(slots=True)
class Property:
    """A property."""

    id: str  # people.person.gender
    domain: str  # the type it belongs to
    kind: Kind  # what its values are
    # The number of the type of its values: of a topic type for a `LINK` or `OWNER`, of a mediator
    # type for a `MEDIATOR`.
    expected: int = -1
    reverse: int = -1  # number of the reverse property


@dataclass(slots=True)
class Type:
    """A type of topics or of mediators; properties and types are named by their numbers."""

    id: str  # people.person
    plain: list[int]  # the properties that its nodes draw from, the most likely first
    country: int = -1  # the property that leads to a country
    language: int = -1  # the property that leads to a language
    # The properties that lead to mediators; of a mediator type, the one that leads to it.
    mediators: list[int] = field(default_factory=list)
    includes: list[int] = field(default_factory=list)  # the other types that its topics have


class Schema:
    """The types and properties of a dump with a number of lines.

    Predicates are numbered: the properties first, then the `Fixed` ones.
    """

    def __init__(self, lines: int, seed: int) -> None:
        self._random = Random(f"schema {seed}")
        self._ids: set[str] = set()
        self.properties: list[Property] = []
        count = max(_FEWEST_TYPES, min(_MOST_TYPES, lines // _LINES_PER_TYPE))
        mediators = int(count * _MEDIATOR_SHARE)
        topic_ids = self._type_ids(FIRST_TYPES, count - mediators)
        self._topic_count = len(topic_ids)
        self.topics = [self._topic_type(*each) for each in enumerate(topic_ids)]
        mediator_ids = self._type_ids(FIRST_MEDIATORS, mediators)
        self.mediators = [self._mediator_type(*each) for each in enumerate(mediator_ids)]
        self._pair_links()
        names = [NS + stated.id for stated in self.properties] + list(Fixed)
        self.predicates = [b"\t" + iri(name) + b"\t" for name in names]
        self.fixed = {name: at for at, name in enumerate(Fixed, len(self.properties))}

    def expected_id(self, number: int) -> str:
        """Return the id of the type that a property's values have."""
        stated = self.properties[number]
        if stated.kind in _EXPECTED:
            return _EXPECTED[stated.kind]
        types = self.mediators if stated.kind is Kind.MEDIATOR else self.topics
        return types[stated.expected].id

    def _type_ids(self, first: Sequence[str], count: int) -> list[str]:
        ids = list(first[:count])
        while len(ids) < count:
            domain = self._random.choice(DOMAIN_WORDS)
            word, other = self._random.sample(TYPE_WORDS, 2)
            shape = self._random.random()
            if shape < 0.45:
                ids.append(self._new_id(f"{domain}.{word}"))
            elif shape < 0.9:
                ids.append(self._new_id(f"base.{domain}{other}.{word}"))
            else:
                ids.append(self._new_id(f"user.{other}maker.default_domain.{domain}_{word}"))
        return ids

    def _new_id(self, wanted: str) -> str:
        new, number = wanted, 2
        while new in self._ids:
            new, number = f"{wanted}_{number}", number + 1
        self._ids.add(new)
        return new

    def _add(self, domain: str, word: str, kind: Kind, expected: int = -1) -> int:
        new = Property(self._new_id(f"{domain}.{word}"), domain, kind, expected)
        self.properties.append(new)
        return len(self.properties) - 1

    def _pair(self, one: int, other: int) -> None:
        self.properties[one].reverse, self.properties[other].reverse = other, one

    def _popular(self, count: int) -> int:
        return int(count * self._random.random() ** 3)

    def _topic_type(self, number: int, type_id: str) -> Type:
        country = self._add(type_id, "country", Kind.COUNTRY)
        frequent, others = _LISTED_BY_COUNTRIES
        if number < frequent * self._topic_count or self._random.random() < others:
            word = type_id.replace(".", "_") + "_here"
            self._pair(country, self._add("location.country", word, Kind.LINK, number))
        language = -1
        if self._random.random() < 0.7 or type_id == "film.film":
            language = self._add(type_id, "language", Kind.LANGUAGE)
        wanted = list(_FIRST_PROPERTIES.get(type_id, ()))
        wanted += [
            (self._random.choice(PROPERTY_WORDS), self._random.choice(_PLAIN_KINDS))
            for _ in range(self._random.randint(1, 6))
        ]
        plain = [
            self._add(
                type_id, word, kind, self._popular(self._topic_count) if kind is Kind.LINK else -1
            )
            for word, kind in wanted
        ]
        includes = {self._popular(number) for _ in range(self._random.randint(0, 2)) if number}
        return Type(type_id, plain, country, language, includes=sorted(includes))

    def _mediator_type(self, number: int, type_id: str) -> Type:
        owner = self._popular(self._topic_count)
        word = self._random.choice(PROPERTY_WORDS)
        forth = self._add(self.topics[owner].id, word, Kind.MEDIATOR, number)
        back = self._add(type_id, self.topics[owner].id.rpartition(".")[2], Kind.OWNER, owner)
        self._pair(forth, back)
        self.topics[owner].mediators.append(forth)
        plain = [
            self._add(type_id, word, Kind.LINK, self._popular(self._topic_count))
            for word in self._random.sample(PROPERTY_WORDS, self._random.randint(1, 3))
        ]
        plain.append(self._add(type_id, "from", Kind.DATE))
        plain.append(self._add(type_id, "to", Kind.DATE))
        plain.append(self._add(type_id, "number", Kind.WHOLE))
        return Type(type_id, plain, mediators=[forth])

    def _pair_links(self) -> None:
        """Add a reverse property to half of the links."""
        numbers = {node.id: number for number, node in enumerate(self.topics)}
        for number in range(len(self.properties)):
            link = self.properties[number]
            if link.kind is not Kind.LINK or link.reverse >= 0 or self._random.random() < 0.5:
                continue
            domain = self.topics[link.expected].id
            word = f"{link.id.rpartition('.')[2]}_of_{link.domain.rpartition('.')[2]}"
            back = self._add(domain, word, Kind.LINK, numbers.get(link.domain, 0))
            self._pair(number, back)
