"""The schema of a synthetic dump: types, properties and predicates like those of Freebase."""

from dataclasses import dataclass
from enum import IntEnum
from random import Random

from tools.make.generated.lines import END
from tools.make.generated.words import DOMAIN_WORDS, PROPERTY_WORDS, TYPE_WORDS

_MOST_TYPES = 2000
_FEWEST_TYPES = 60
_LINES_PER_TYPE = 2500
_MEDIATOR_SHARE = 0.35
_LISTED_BY_COUNTRIES = 0.15, 0.1
"""The share of frequent types whose topics countries list, and that of the others."""


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
_PLAIN_KINDS = ([Kind.LINK] * 11 + [Kind.DATE] * 3 + [Kind.WHOLE] * 3 + [Kind.DECIMAL] * 2) + [
    Kind.TRUTH,
    Kind.TEXT,
]
_FIRST_TYPES = (
    "people.person",
    "location.location",
    "film.film",
    "music.recording",
    "book.written_work",
    "film.actor",
    "location.citytown",
    "business.business_operation",
    "organization.organization",
    "music.artist",
    "tv.tv_series_episode",
    "biology.organism_classification",
    "book.author",
    "music.album",
    "sports.pro_athlete",
)
_FIRST_MEDIATORS = (
    "film.performance",
    "people.marriage",
    "education.education",
    "award.award_honor",
    "measurement_unit.dated_integer",
    "business.employment_tenure",
)
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


@dataclass(slots=True)
class Property:
    """A property.

    Attributes:
        id: ``people.person.gender``.
        domain: The type it belongs to.
        kind: What its values are.
        expected: Number of the type of its values among the topic types (for a `LINK` or `OWNER`)
            or the mediator types (for a `MEDIATOR`); else -1.
        reverse: Number of the reverse property, or -1.
    """

    id: str
    domain: str
    kind: Kind
    expected: int = -1
    reverse: int = -1


@dataclass(slots=True)
class Type:
    """A type of topics or of mediators.

    Attributes:
        id: ``people.person``.
        plain: Numbers of the properties that its nodes draw from, the most likely first.
        country: Number of the property that leads to a country, or -1.
        language: Number of the property that leads to a language, or -1.
        mediators: Numbers of the properties that lead to mediators; those of a mediator type are
            the ones that lead to it.
        includes: Numbers of the other types that its topics have.
    """

    id: str
    plain: list[int]
    country: int
    language: int
    mediators: list[int]
    includes: list[int]


class Schema:
    """The types and properties of a dump with a number of lines."""

    def __init__(self, lines: int, seed: int) -> None:
        self._random = Random(f"schema {seed}")
        self._ids: set[str] = set()
        self.properties: list[Property] = []
        count = max(_FEWEST_TYPES, min(_MOST_TYPES, lines // _LINES_PER_TYPE))
        mediators = int(count * _MEDIATOR_SHARE)
        topic_ids = self._type_ids(_FIRST_TYPES, count - mediators)
        self._topic_count = len(topic_ids)
        self.topics = [
            self._topic_type(number, type_id) for number, type_id in enumerate(topic_ids)
        ]
        self.mediators = [
            self._mediator_type(number, type_id)
            for number, type_id in enumerate(self._type_ids(_FIRST_MEDIATORS, mediators))
        ]
        self._pair_links()

    def expected_id(self, number: int) -> str:
        """Return the id of the type that a property's values have."""
        stated = self.properties[number]
        if stated.kind in _EXPECTED:
            return _EXPECTED[stated.kind]
        types = self.mediators if stated.kind is Kind.MEDIATOR else self.topics
        return types[stated.expected].id

    def _type_ids(self, first: tuple[str, ...], count: int) -> list[str]:
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
        return Type(type_id, plain, country, language, [], sorted(includes))

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
        return Type(type_id, plain, -1, -1, [forth], [])

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


NS = "http://rdf.freebase.com/ns/"
KEY = "http://rdf.freebase.com/key/"
RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
RDFS = "http://www.w3.org/2000/01/rdf-schema#"
OWL = "http://www.w3.org/2002/07/owl#"

RDF_TYPE = RDF + "type"
LABEL = RDFS + "label"
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
KEY_TITLE = KEY + "wikipedia.en_title"
KEY_ID = KEY + "wikipedia.en_id"
KEY_IMDB = KEY + "authority.imdb.name"

DOMAIN = RDFS + "domain"
RANGE = RDFS + "range"
INVERSE_OF = OWL + "inverseOf"
INCLUDED_TYPES = NS + "freebase.type_hints.included_types"
MEDIATOR = NS + "freebase.type_hints.mediator"
EXPECTED_TYPE = NS + "type.property.expected_type"
MASTER_PROPERTY = NS + "type.property.master_property"
REVERSE_PROPERTY = NS + "type.property.reverse_property"
PROPERTY_SCHEMA = NS + "type.property.schema"
UNIQUE = NS + "type.property.unique"
PROPERTIES = NS + "type.type.properties"

_FIXED = (
    RDF_TYPE,
    LABEL,
    DOMAIN,
    RANGE,
    INVERSE_OF,
    NAME,
    TYPE,
    OBJECT_KEY,
    INSTANCE,
    ALIAS,
    DESCRIPTION,
    NOTABLE_TYPES,
    NOTABLE_FOR,
    EQUIVALENT_PAGE,
    OFFICIAL_PAGE,
    KEY_TITLE,
    KEY_ID,
    KEY_IMDB,
    INCLUDED_TYPES,
    MEDIATOR,
    EXPECTED_TYPE,
    MASTER_PROPERTY,
    REVERSE_PROPERTY,
    PROPERTY_SCHEMA,
    UNIQUE,
    PROPERTIES,
)


def iri(text: str) -> bytes:
    """Write an IRI."""
    return f"<{text}>".encode()


def iri_object(text: str) -> bytes:
    """Write an IRI as the object that ends a line."""
    return iri(text) + END


class Vocabulary:
    """Numbers of predicates: the schema's properties first, with the same numbers."""

    def __init__(self, schema: Schema) -> None:
        names = [NS + stated.id for stated in schema.properties] + list(_FIXED)
        self.predicates = [b"\t" + iri(name) + b"\t" for name in names]
        self._fixed = {name: len(schema.properties) + at for at, name in enumerate(_FIXED)}

    def __getitem__(self, name: str) -> int:
        return self._fixed[name]
