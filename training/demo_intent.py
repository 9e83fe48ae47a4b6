"""The words in which the demo questions' intents are written: slots, relations, parts of CRPs.

A wording holds a place for each of the intent's slots, ``{country}``; a slot is filled with an
entity of a type, a code that an entity bears, or a number. The intents themselves are in
`kbqa.training.demo_intents_simple` and its sisters.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from kbqa.sparql.crp import (
    Compare,
    Constraint,
    Crp,
    Entity,
    Hop,
    IsEntity,
    Operator,
    Order,
    TextEquals,
)
from kbqa.sparql.terms import Literal


@dataclass(frozen=True, slots=True)
class OfType:
    """Filled with an entity of this type; the CRP gets its name."""

    type_id: str


@dataclass(frozen=True, slots=True)
class Code:
    """Filled with a code that an entity of this type bears by this relation."""

    type_id: str
    relation: str


@dataclass(frozen=True, slots=True)
class Number:
    """Filled with one of these numbers."""

    choices: tuple[int, ...]


Slot: TypeAlias = OfType | Code | Number


@dataclass(frozen=True, slots=True)
class Intent:
    """One kind of question.

    Attributes:
        wordings: Ways to ask, with a place for each slot.
        slots: What fills the places.
        build: Makes the CRP from what fills the slots.
    """

    wordings: tuple[str, ...]
    slots: Mapping[str, Slot]
    build: Callable[[Mapping[str, str]], Crp]


COUNTRY = OfType("location.country")
CITY = OfType("location.citytown")
CONTINENT = OfType("location.continent")
CURRENCY = OfType("finance.currency")
LANGUAGE = OfType("language.human_language")
SCRIPT = OfType("language.language_writing_system")
STATE = OfType("location.us_state")
TIME_ZONE = OfType("time.time_zone")
AIRPORT = OfType("aviation.airport")
ELEMENT = OfType("chemistry.chemical_element")
SERIES = OfType("chemistry.chemical_series")

TOWNSPEOPLE = Number((100_000, 200_000, 500_000, 1_000_000, 2_000_000, 5_000_000))
NATION = Number((1_000_000, 5_000_000, 10_000_000, 20_000_000, 50_000_000, 100_000_000))
AREA_KM2 = Number((10_000, 50_000, 100_000, 200_000, 500_000, 1_000_000))
DEGREES = Number((100, 500, 1500, 2000, 2500, 3000))
YEAR = Number((1750, 1800, 1825, 1850, 1875, 1900, 1925, 1950))

POPULATION = (
    "location.statistical_region.population",
    "measurement_unit.dated_integer.number",
)
ADJOINS = ("location.location.adjoin_s", "location.adjoining_relationship.adjoins")
NOTABLE = "common.topic.notable_types"
USES = "location.country.currency_used"
SPEAKS = "location.country.languages_spoken"
MELTS = "chemistry.chemical_element.melting_point"
LATITUDE = ("location.location.geolocation", "location.geocode.latitude")
ELEVATION = ("location.location.geolocation", "location.geocode.elevation")


def hops(relations: tuple[str, ...]) -> tuple[Hop, ...]:
    """Read relations, of which one that starts with ``^`` is followed backwards."""
    return tuple(Hop(one.removeprefix("^"), inverse=one.startswith("^")) for one in relations)


def is_entity(name: str, *relations: str, at: int) -> Constraint:
    """Make a constraint that the relations lead to the entity of this name."""
    return Constraint(at, hops(relations), IsEntity(Entity(name)))


def kind(name: str, at: int = 1) -> Constraint:
    """Make a constraint that the node is notable as this kind of thing."""
    return is_entity(name, NOTABLE, at=at)


def compare(operator: Operator, value: str, *relations: str, at: int) -> Constraint:
    """Make a constraint that the relations lead to such a number or year."""
    return Constraint(at, hops(relations), Compare(operator, Literal(value)))


def reads(text: str, *relations: str, at: int) -> Constraint:
    """Make a constraint that the relations lead to this text."""
    return Constraint(at, hops(relations), TextEquals(text))


def most(*relations: str, at: int) -> Order:
    """Keep the answer for which the relations lead to the largest value."""
    return Order(at, hops(relations), descending=True)


def least(*relations: str, at: int) -> Order:
    """Keep the answer for which the relations lead to the smallest value."""
    return Order(at, hops(relations), descending=False)


def path_crp(
    topic: str, path: tuple[str, ...], *constraints: Constraint, order: Order | None = None
) -> Crp:
    """Make a CRP from the topic's name and the relations of its main path."""
    return Crp(Entity(topic), hops(path), constraints, order)


def simple(slot: Slot, path: tuple[str, ...], *wordings: str) -> Intent:
    """Make an intent without constraints; its only slot is called ``x``."""
    return Intent(wordings, {"x": slot}, lambda filled: path_crp(filled["x"], path))
