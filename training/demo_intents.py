"""What the demo questions ask: forty intents, each with its wordings and its CRP.

A wording holds a place for each of the intent's slots, ``{country}``; a slot is filled with an
entity of a type, a code that an entity bears, or a number. `kbqa.training.demo_questions` fills
them.
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

_PEOPLE = Number((100_000, 200_000, 500_000, 1_000_000, 2_000_000, 5_000_000))
_NATION = Number((1_000_000, 5_000_000, 10_000_000, 20_000_000, 50_000_000, 100_000_000))
_AREA = Number((10_000, 50_000, 100_000, 200_000, 500_000, 1_000_000))
_DEGREES = Number((100, 500, 1500, 2000, 2500, 3000))
_YEAR = Number((1750, 1800, 1825, 1850, 1875, 1900, 1925, 1950))

_POPULATION = (
    "location.statistical_region.population",
    "measurement_unit.dated_integer.number",
)
_ADJOINS = ("location.location.adjoin_s", "location.adjoining_relationship.adjoins")
_NOTABLE = "common.topic.notable_types"
_USES = "location.country.currency_used"
_SPEAKS = "location.country.languages_spoken"
_MELTS = "chemistry.chemical_element.melting_point"
_LATITUDE = ("location.location.geolocation", "location.geocode.latitude")
_ELEVATION = ("location.location.geolocation", "location.geocode.elevation")


def _hops(relations: tuple[str, ...]) -> tuple[Hop, ...]:
    """Read relations, of which one that starts with ``^`` is followed backwards."""
    return tuple(Hop(one.removeprefix("^"), inverse=one.startswith("^")) for one in relations)


def _is(name: str, *relations: str, at: int) -> Constraint:
    return Constraint(at, _hops(relations), IsEntity(Entity(name)))


def _kind(name: str, at: int = 1) -> Constraint:
    return _is(name, _NOTABLE, at=at)


def _compare(operator: Operator, value: str, *relations: str, at: int) -> Constraint:
    return Constraint(at, _hops(relations), Compare(operator, Literal(value)))


def _reads(text: str, *relations: str, at: int) -> Constraint:
    return Constraint(at, _hops(relations), TextEquals(text))


def _most(*relations: str, at: int) -> Order:
    return Order(at, _hops(relations), descending=True)


def _least(*relations: str, at: int) -> Order:
    return Order(at, _hops(relations), descending=False)


def _crp(
    topic: str, path: tuple[str, ...], *constraints: Constraint, order: Order | None = None
) -> Crp:
    return Crp(Entity(topic), _hops(path), constraints, order)


def _simple(slot: Slot, path: tuple[str, ...], *wordings: str) -> Intent:
    """Make an intent without constraints; its only slot is called ``x``."""
    return Intent(wordings, {"x": slot}, lambda filled: _crp(filled["x"], path))


SIMPLE = {
    "capital": _simple(
        COUNTRY,
        ("location.country.capital",),
        "what is the capital of {x}",
        "what's the capital city of {x}",
        "which city is the capital of {x}",
        "capital of {x}",
        "what city is {x}'s capital",
    ),
    "country of capital": _simple(
        CITY,
        ("^location.country.capital",),
        "what country is {x} the capital of",
        "which country has {x} as its capital",
        "{x} is the capital of which country",
    ),
    "currency": _simple(
        COUNTRY,
        (_USES,),
        "what currency is used in {x}",
        "what is the currency of {x}",
        "what money do they use in {x}",
        "what kind of money should i take to {x}",
        "what do people in {x} pay with",
    ),
    "former currency": _simple(
        COUNTRY,
        ("location.country.currency_formerly_used",),
        "what currency did {x} use before",
        "what was the former currency of {x}",
        "what money was used in {x} in the past",
        "what did {x} formerly use as money",
    ),
    "countries of a currency": _simple(
        CURRENCY,
        ("finance.currency.countries_used",),
        "which countries use the {x}",
        "where is the {x} used",
        "what countries use the {x} as their currency",
        "where can i pay with the {x}",
    ),
    "official language": _simple(
        COUNTRY,
        ("location.country.official_language",),
        "what is the official language of {x}",
        "what are the official languages of {x}",
        "which languages are official in {x}",
        "official language of {x}",
    ),
    "languages spoken": _simple(
        COUNTRY,
        (_SPEAKS,),
        "what languages are spoken in {x}",
        "what language do people speak in {x}",
        "which languages do they speak in {x}",
        "what do people in {x} speak",
        "what is spoken in {x}",
    ),
    "countries of a language": _simple(
        LANGUAGE,
        ("language.human_language.countries_spoken_in",),
        "where is {x} spoken",
        "in which countries do people speak {x}",
        "what countries speak {x}",
        "which countries have {x} speakers",
    ),
    "main country of a language": _simple(
        LANGUAGE,
        ("language.human_language.main_country",),
        "what is the main country where {x} is spoken",
        "which country does {x} come from",
        "what country is {x} mainly spoken in",
    ),
    "script": _simple(
        LANGUAGE,
        ("language.human_language.writing_system",),
        "what alphabet does {x} use",
        "what script is {x} written in",
        "which writing system is used for {x}",
        "how is {x} written",
    ),
    "languages of a script": _simple(
        SCRIPT,
        ("language.language_writing_system.languages",),
        "which languages are written in {x}",
        "what languages use the {x}",
        "name languages that use {x}",
    ),
    "neighbours": _simple(
        COUNTRY,
        _ADJOINS,
        "which countries border {x}",
        "what are the neighbors of {x}",
        "what countries are next to {x}",
        "which countries share a border with {x}",
        "who are {x}'s neighbouring countries",
    ),
    "continent": _simple(
        COUNTRY,
        ("base.locations.countries.continent",),
        "what continent is {x} on",
        "which continent does {x} belong to",
        "on what continent is {x}",
        "what part of the world is {x} in",
    ),
    "countries of a continent": _simple(
        CONTINENT,
        ("base.locations.continents.countries_within",),
        "which countries are in {x}",
        "what are the countries of {x}",
        "list the countries in {x}",
    ),
    "time zone of a city": _simple(
        CITY,
        ("location.location.time_zones",),
        "what time zone is {x} in",
        "which time zone does {x} use",
        "what timezone is {x}",
        "what is the time zone of {x}",
    ),
    "time zones of a country": _simple(
        COUNTRY,
        ("location.location.time_zones",),
        "what time zones does {x} have",
        "what time zone is {x} in",
        "which time zones are used in {x}",
    ),
    "calling code": _simple(
        COUNTRY,
        ("location.country.calling_code",),
        "what is the calling code of {x}",
        "what is the country code for {x}",
        "what do i dial to call {x}",
        "what's the phone prefix of {x}",
    ),
    "internet domain": _simple(
        COUNTRY,
        ("location.country.internet_tld",),
        "what is the internet domain of {x}",
        "which top level domain does {x} use",
        "what tld belongs to {x}",
        "what do web addresses in {x} end with",
    ),
    "iso code": _simple(
        COUNTRY,
        ("location.country.iso3166_1_alpha2",),
        "what is the two letter code of {x}",
        "what is the iso alpha 2 code of {x}",
        "what is the 2-letter country code for {x}",
    ),
    "currency code": _simple(
        CURRENCY,
        ("finance.currency.currency_code",),
        "what is the currency code of the {x}",
        "what is the iso code of the {x}",
        "what code do banks use for the {x}",
    ),
    "area": _simple(
        COUNTRY,
        ("location.location.area",),
        "how big is {x}",
        "what is the area of {x}",
        "how many square kilometers is {x}",
        "how large is {x}",
    ),
    "population of a country": _simple(
        COUNTRY,
        _POPULATION,
        "what is the population of {x}",
        "how many people live in {x}",
        "how many inhabitants does {x} have",
        "what's {x}'s population",
    ),
    "population of a city": _simple(
        CITY,
        _POPULATION,
        "how many people live in {x}",
        "what is the population of {x}",
        "how many inhabitants does {x} have",
        "population of {x}",
    ),
    "divisions": _simple(
        COUNTRY,
        ("location.country.administrative_divisions",),
        "what are the administrative divisions of {x}",
        "what provinces does {x} have",
        "which regions is {x} divided into",
        "what are the states and provinces of {x}",
    ),
    "airports of a city": _simple(
        CITY,
        ("location.location.nearby_airports",),
        "what airport is near {x}",
        "which airports serve {x}",
        "what is the closest airport to {x}",
        "what airport do i fly into to get to {x}",
        "where do planes to {x} land",
    ),
    "city of an airport": _simple(
        AIRPORT,
        ("aviation.airport.serves",),
        "which city does {x} serve",
        "what city is {x} near",
        "what city is served by {x}",
    ),
    "code of an airport": _simple(
        AIRPORT,
        ("aviation.airport.iata",),
        "what is the iata code of {x}",
        "what is the airport code for {x}",
        "what three letter code does {x} have",
    ),
    "symbol": _simple(
        ELEMENT,
        ("chemistry.chemical_element.symbol",),
        "what is the chemical symbol for {x}",
        "what is the symbol of {x}",
        "which symbol stands for {x} in the periodic table",
    ),
    "atomic number": _simple(
        ELEMENT,
        ("chemistry.chemical_element.atomic_number",),
        "what is the atomic number of {x}",
        "what number is {x} in the periodic table",
        "how many protons does {x} have",
    ),
    "melting point": _simple(
        ELEMENT,
        (_MELTS,),
        "what is the melting point of {x}",
        "at what temperature does {x} melt",
        "when does {x} melt",
    ),
    "boiling point": _simple(
        ELEMENT,
        ("chemistry.chemical_element.boiling_point",),
        "what is the boiling point of {x}",
        "at what temperature does {x} boil",
    ),
    "discovery": _simple(
        ELEMENT,
        ("chemistry.chemical_element.discovery_date",),
        "when was {x} discovered",
        "what year was {x} discovered",
        "in which year was {x} found",
    ),
    "discovering country": _simple(
        ELEMENT,
        ("chemistry.chemical_element.discovering_country",),
        "where was {x} discovered",
        "in which country was {x} discovered",
        "what country discovered {x}",
    ),
    "series of an element": _simple(
        ELEMENT,
        ("chemistry.chemical_element.chemical_series",),
        "what kind of element is {x}",
        "which group of elements does {x} belong to",
        "what chemical series is {x} in",
    ),
    "elements of a series": _simple(
        SERIES,
        ("chemistry.chemical_series.elements",),
        "which elements are {x}s",
        "what elements belong to the {x} series",
        "list the {x} elements",
    ),
    "isotopes": _simple(
        ELEMENT,
        ("chemistry.chemical_element.isotopes",),
        "what isotopes does {x} have",
        "which isotopes of {x} occur in nature",
        "what are the isotopes of {x}",
    ),
}

ENTITY = {
    "country of a city": Intent(
        (
            "what country is {city} in",
            "which country is {city} located in",
            "where is {city}",
            "in what country do you find {city}",
        ),
        {"city": CITY},
        lambda f: _crp(f["city"], ("location.location.containedby",), _kind("Country")),
    ),
    "state of a city": Intent(
        (
            "what state is {city} in",
            "which us state is {city} located in",
            "in what state is {city}",
        ),
        {"city": CITY},
        lambda f: _crp(f["city"], ("location.location.containedby",), _kind("US State")),
    ),
    "counties of a state": Intent(
        (
            "what counties are in {state}",
            "which counties does {state} have",
            "what are the counties of {state}",
        ),
        {"state": STATE},
        lambda f: _crp(f["state"], ("location.location.contains",), _kind("US County")),
    ),
    "cities of a state": Intent(
        (
            "what cities are in {state}",
            "which cities does {state} have",
            "name the cities in {state}",
        ),
        {"state": STATE},
        lambda f: _crp(f["state"], ("location.location.contains",), _kind("City/Town/Village")),
    ),
    "airports of a country": Intent(
        (
            "what airports are in {country}",
            "which airports does {country} have",
            "what airports can i fly to in {country}",
        ),
        {"country": COUNTRY},
        lambda f: _crp(f["country"], ("location.location.contains",), _kind("Airport")),
    ),
    "countries of a time zone": Intent(
        (
            "which countries are in the {zone}",
            "what countries use the {zone}",
            "which countries have the {zone}",
        ),
        {"zone": TIME_ZONE},
        lambda f: _crp(
            f["zone"], ("time.time_zone.locations_in_this_time_zone",), _kind("Country")
        ),
    ),
    "neighbours by currency": Intent(
        (
            "which countries that border {country} use the {currency}",
            "which neighbors of {country} use the {currency}",
            "what countries next to {country} pay with the {currency}",
            "name the countries bordering {country} whose currency is the {currency}",
        ),
        {"country": COUNTRY, "currency": CURRENCY},
        lambda f: _crp(f["country"], _ADJOINS, _is(f["currency"], _USES, at=2)),
    ),
    "neighbours by language": Intent(
        (
            "which countries that border {country} speak {language}",
            "in which neighboring countries of {country} is {language} spoken",
            "what {language} speaking countries are next to {country}",
            "which of {country}'s neighbors speak {language}",
        ),
        {"country": COUNTRY, "language": LANGUAGE},
        lambda f: _crp(f["country"], _ADJOINS, _is(f["language"], _SPEAKS, at=2)),
    ),
    "neighbours by continent": Intent(
        (
            "which countries in {continent} border {country}",
            "what neighbors of {country} are in {continent}",
            "which countries next to {country} lie in {continent}",
        ),
        {"country": COUNTRY, "continent": CONTINENT},
        lambda f: _crp(
            f["country"],
            _ADJOINS,
            _is(f["continent"], "base.locations.countries.continent", at=2),
        ),
    ),
    "common neighbours": Intent(
        (
            "which countries border both {country} and {other}",
            "what countries lie between {country} and {other}",
            "which country is next to {country} and {other}",
        ),
        {"country": COUNTRY, "other": COUNTRY},
        lambda f: _crp(f["country"], _ADJOINS, _is(f["other"], *_ADJOINS, at=2)),
    ),
    "continent's countries by language": Intent(
        (
            "which countries in {continent} speak {language}",
            "what {language} speaking countries are in {continent}",
            "where in {continent} is {language} spoken",
        ),
        {"continent": CONTINENT, "language": LANGUAGE},
        lambda f: _crp(
            f["continent"],
            ("base.locations.continents.countries_within",),
            _is(f["language"], _SPEAKS, at=1),
        ),
    ),
    "continent's countries by currency": Intent(
        (
            "which countries in {continent} use the {currency}",
            "where in {continent} is the {currency} used",
            "what {continent} countries have the {currency} as currency",
        ),
        {"continent": CONTINENT, "currency": CURRENCY},
        lambda f: _crp(
            f["currency"],
            ("finance.currency.countries_used",),
            _is(f["continent"], "base.locations.countries.continent", at=1),
        ),
    ),
    "country's cities by time zone": Intent(
        (
            "which cities in {country} are in the {zone}",
            "what cities of {country} use the {zone}",
        ),
        {"country": COUNTRY, "zone": TIME_ZONE},
        lambda f: _crp(
            f["country"],
            ("location.location.contains",),
            _kind("City/Town/Village"),
            _is(f["zone"], "location.location.time_zones", at=1),
        ),
    ),
    "elements by series and country": Intent(
        (
            "which {series} elements were discovered in {country}",
            "what {series}s were first found in {country}",
        ),
        {"series": SERIES, "country": COUNTRY},
        lambda f: _crp(
            f["series"],
            ("chemistry.chemical_series.elements",),
            _is(f["country"], "chemistry.chemical_element.discovering_country", at=1),
        ),
    ),
    "currency of a city": Intent(
        (
            "what currency is used in {city}",
            "what money do i need in {city}",
            "how do people pay in {city}",
        ),
        {"city": CITY},
        lambda f: _crp(f["city"], ("location.location.containedby", _USES), _kind("Country")),
    ),
    "language of a city": Intent(
        (
            "what language is spoken in {city}",
            "what do people speak in {city}",
            "which languages are spoken in {city}",
        ),
        {"city": CITY},
        lambda f: _crp(f["city"], ("location.location.containedby", _SPEAKS), _kind("Country")),
    ),
    "capitals by language": Intent(
        (
            "what are the capitals of the countries where {language} is spoken",
            "which capitals do {language} speaking countries have",
        ),
        {"language": LANGUAGE},
        lambda f: _crp(
            f["language"],
            ("language.human_language.countries_spoken_in", "location.country.capital"),
        ),
    ),
}

NUMERIC = {
    "cities above": Intent(
        (
            "which cities in {country} have more than {number} people",
            "what cities in {country} have over {number} inhabitants",
            "cities with a population above {number} in {country}",
            "which cities of {country} are home to more than {number} people",
        ),
        {"country": COUNTRY, "number": _PEOPLE},
        lambda f: _crp(
            f["country"],
            ("location.location.contains",),
            _kind("City/Town/Village"),
            _compare(">", f["number"], *_POPULATION, at=1),
        ),
    ),
    "countries above": Intent(
        (
            "which countries in {continent} have more than {number} people",
            "what countries in {continent} have over {number} inhabitants",
            "which {continent} countries have a population above {number}",
        ),
        {"continent": CONTINENT, "number": _NATION},
        lambda f: _crp(
            f["continent"],
            ("base.locations.continents.countries_within",),
            _compare(">", f["number"], *_POPULATION, at=1),
        ),
    ),
    "countries below": Intent(
        (
            "which countries in {continent} have less than {number} people",
            "what countries in {continent} have fewer than {number} inhabitants",
            "which {continent} countries have a population below {number}",
        ),
        {"continent": CONTINENT, "number": _NATION},
        lambda f: _crp(
            f["continent"],
            ("base.locations.continents.countries_within",),
            _compare("<", f["number"], *_POPULATION, at=1),
        ),
    ),
    "neighbours above": Intent(
        (
            "which countries that border {country} have more than {number} people",
            "what neighbors of {country} have over {number} inhabitants",
        ),
        {"country": COUNTRY, "number": _NATION},
        lambda f: _crp(f["country"], _ADJOINS, _compare(">", f["number"], *_POPULATION, at=2)),
    ),
    "neighbours smaller": Intent(
        (
            "which countries next to {country} are smaller than {number} square kilometers",
            "what neighbors of {country} have an area below {number} square km",
        ),
        {"country": COUNTRY, "number": _AREA},
        lambda f: _crp(
            f["country"], _ADJOINS, _compare("<", f["number"], "location.location.area", at=2)
        ),
    ),
    "language's countries larger": Intent(
        (
            "which {language} speaking countries are larger than {number} square kilometers",
            "what countries with an area over {number} square km speak {language}",
        ),
        {"language": LANGUAGE, "number": _AREA},
        lambda f: _crp(
            f["language"],
            ("language.human_language.countries_spoken_in",),
            _compare(">", f["number"], "location.location.area", at=1),
        ),
    ),
    "elements melting above": Intent(
        (
            "which {series}s melt above {number} degrees",
            "what {series} elements have a melting point over {number} degrees celsius",
        ),
        {"series": SERIES, "number": _DEGREES},
        lambda f: _crp(
            f["series"],
            ("chemistry.chemical_series.elements",),
            _compare(">", f["number"], _MELTS, at=1),
        ),
    ),
    "elements discovered after": Intent(
        (
            "which {series}s were discovered after {year}",
            "what {series} elements have been found since {year}",
        ),
        {"series": SERIES, "year": _YEAR},
        lambda f: _crp(
            f["series"],
            ("chemistry.chemical_series.elements",),
            _compare(">", f["year"], "chemistry.chemical_element.discovery_date", at=1),
        ),
    ),
    "country's elements before": Intent(
        (
            "which elements were discovered in {country} before {year}",
            "what elements did {country} discover before {year}",
        ),
        {"country": COUNTRY, "year": _YEAR},
        lambda f: _crp(
            f["country"],
            ("^chemistry.chemical_element.discovering_country",),
            _compare("<", f["year"], "chemistry.chemical_element.discovery_date", at=1),
        ),
    ),
    "neighbour by calling code": Intent(
        (
            "which country that borders {country} has the calling code {code}",
            "what neighbor of {country} has the country code {code}",
        ),
        {"country": COUNTRY, "code": Code("location.country", "location.country.calling_code")},
        lambda f: _crp(
            f["country"],
            _ADJOINS,
            _compare("=", f["code"], "location.country.calling_code", at=2),
        ),
    ),
    "element by number": Intent(
        (
            "which element has the atomic number {code}",
            "what is element number {code}",
            "what element has {code} protons",
        ),
        {
            "code": Code(
                "chemistry.chemical_element", "chemistry.chemical_element.atomic_number"
            )
        },
        lambda f: _crp(
            "Chemical Element",
            (f"^{_NOTABLE}",),
            _compare("=", f["code"], "chemistry.chemical_element.atomic_number", at=1),
        ),
    ),
}

SUPERLATIVE = {
    "largest city": Intent(
        (
            "what is the largest city in {country}",
            "what is the biggest city of {country}",
            "which city in {country} has the most people",
            "what's {country}'s largest city",
            "most populous city in {country}",
        ),
        {"country": COUNTRY},
        lambda f: _crp(
            f["country"],
            ("location.location.contains",),
            _kind("City/Town/Village"),
            order=_most(*_POPULATION, at=1),
        ),
    ),
    "largest city of a state": Intent(
        (
            "what is the largest city in {state}",
            "what is the biggest city of {state}",
            "which city in {state} has the most people",
        ),
        {"state": STATE},
        lambda f: _crp(
            f["state"],
            ("location.location.contains",),
            _kind("City/Town/Village"),
            order=_most(*_POPULATION, at=1),
        ),
    ),
    "northernmost city": Intent(
        (
            "what is the northernmost city in {country}",
            "which city in {country} is furthest north",
        ),
        {"country": COUNTRY},
        lambda f: _crp(
            f["country"],
            ("location.location.contains",),
            _kind("City/Town/Village"),
            order=_most(*_LATITUDE, at=1),
        ),
    ),
    "southernmost city": Intent(
        (
            "what is the southernmost city in {country}",
            "which city in {country} is furthest south",
        ),
        {"country": COUNTRY},
        lambda f: _crp(
            f["country"],
            ("location.location.contains",),
            _kind("City/Town/Village"),
            order=_least(*_LATITUDE, at=1),
        ),
    ),
    "highest airport": Intent(
        (
            "what is the highest airport in {country}",
            "which airport in {country} has the highest elevation",
        ),
        {"country": COUNTRY},
        lambda f: _crp(
            f["country"],
            ("location.location.contains",),
            _kind("Airport"),
            order=_most(*_ELEVATION, at=1),
        ),
    ),
    "largest country": Intent(
        (
            "what is the largest country in {continent}",
            "which country in {continent} is the biggest",
            "what {continent} country has the largest area",
        ),
        {"continent": CONTINENT},
        lambda f: _crp(
            f["continent"],
            ("base.locations.continents.countries_within",),
            order=_most("location.location.area", at=1),
        ),
    ),
    "smallest country": Intent(
        (
            "what is the smallest country in {continent}",
            "which country in {continent} has the smallest area",
        ),
        {"continent": CONTINENT},
        lambda f: _crp(
            f["continent"],
            ("base.locations.continents.countries_within",),
            order=_least("location.location.area", at=1),
        ),
    ),
    "most populous country": Intent(
        (
            "what is the most populous country in {continent}",
            "which country in {continent} has the most people",
            "what country in {continent} has the largest population",
        ),
        {"continent": CONTINENT},
        lambda f: _crp(
            f["continent"],
            ("base.locations.continents.countries_within",),
            order=_most(*_POPULATION, at=1),
        ),
    ),
    "largest neighbour": Intent(
        (
            "what is the largest country that borders {country}",
            "which neighbor of {country} is the biggest",
            "what is {country}'s largest neighbor",
        ),
        {"country": COUNTRY},
        lambda f: _crp(f["country"], _ADJOINS, order=_most("location.location.area", at=2)),
    ),
    "smallest neighbour": Intent(
        (
            "what is the smallest country that borders {country}",
            "which neighbor of {country} is the smallest",
        ),
        {"country": COUNTRY},
        lambda f: _crp(f["country"], _ADJOINS, order=_least("location.location.area", at=2)),
    ),
    "most populous neighbour": Intent(
        (
            "which country that borders {country} has the most people",
            "what is the most populous neighbor of {country}",
            "which neighboring country of {country} has the largest population",
        ),
        {"country": COUNTRY},
        lambda f: _crp(f["country"], _ADJOINS, order=_most(*_POPULATION, at=2)),
    ),
    "largest country of a language": Intent(
        (
            "what is the largest country where {language} is spoken",
            "which {language} speaking country is the biggest",
        ),
        {"language": LANGUAGE},
        lambda f: _crp(
            f["language"],
            ("language.human_language.countries_spoken_in",),
            order=_most("location.location.area", at=1),
        ),
    ),
    "most populous country of a currency": Intent(
        (
            "which country that uses the {currency} has the most people",
            "what is the most populous country with the {currency}",
        ),
        {"currency": CURRENCY},
        lambda f: _crp(
            f["currency"],
            ("finance.currency.countries_used",),
            order=_most(*_POPULATION, at=1),
        ),
    ),
    "hardest to melt": Intent(
        (
            "which {series} has the highest melting point",
            "what {series} melts at the highest temperature",
        ),
        {"series": SERIES},
        lambda f: _crp(
            f["series"], ("chemistry.chemical_series.elements",), order=_most(_MELTS, at=1)
        ),
    ),
    "heaviest": Intent(
        (
            "what is the heaviest {series}",
            "which {series} has the highest atomic number",
        ),
        {"series": SERIES},
        lambda f: _crp(
            f["series"],
            ("chemistry.chemical_series.elements",),
            order=_most("chemistry.chemical_element.atomic_number", at=1),
        ),
    ),
    "main isotope": Intent(
        (
            "what is the most common isotope of {element}",
            "which isotope of {element} is the most abundant",
        ),
        {"element": ELEMENT},
        lambda f: _crp(
            f["element"],
            ("chemistry.chemical_element.isotopes",),
            order=_most("chemistry.isotope.natural_abundance", at=1),
        ),
    ),
}

STRING = {
    "airport by code": Intent(
        (
            "which airport has the iata code {code}",
            "what airport has the code {code}",
            "which airport is {code}",
            "what airport does the code {code} stand for",
        ),
        {"code": Code("aviation.airport", "aviation.airport.iata")},
        lambda f: _crp("Airport", (f"^{_NOTABLE}",), _reads(f["code"], "aviation.airport.iata", at=1)),
    ),
    "country's airport by code": Intent(
        (
            "which airport in {country} has the iata code {code}",
            "what airport in {country} has the code {code}",
        ),
        {"country": COUNTRY, "code": Code("aviation.airport", "aviation.airport.iata")},
        lambda f: _crp(
            f["country"],
            ("location.location.contains",),
            _reads(f["code"], "aviation.airport.iata", at=1),
        ),
    ),
    "element by symbol": Intent(
        (
            "which element has the symbol {code}",
            "what element is {code}",
            "what does {code} stand for in the periodic table",
            "which chemical element is written {code}",
        ),
        {"code": Code("chemistry.chemical_element", "chemistry.chemical_element.symbol")},
        lambda f: _crp(
            "Chemical Element",
            (f"^{_NOTABLE}",),
            _reads(f["code"], "chemistry.chemical_element.symbol", at=1),
        ),
    ),
    "currency by code": Intent(
        (
            "which currency has the code {code}",
            "what currency is {code}",
            "what does the currency code {code} mean",
        ),
        {"code": Code("finance.currency", "finance.currency.currency_code")},
        lambda f: _crp(
            "Currency", (f"^{_NOTABLE}",), _reads(f["code"], "finance.currency.currency_code", at=1)
        ),
    ),
    "country by code": Intent(
        (
            "which country has the iso code {code}",
            "what country has the code {code}",
            "which country is {code}",
            "what country does {code} stand for",
        ),
        {"code": Code("location.country", "location.country.iso_alpha_3")},
        lambda f: _crp(
            "Country", (f"^{_NOTABLE}",), _reads(f["code"], "location.country.iso_alpha_3", at=1)
        ),
    ),
    "neighbour by code": Intent(
        (
            "which country that borders {country} has the iso code {code}",
            "what neighbor of {country} has the code {code}",
        ),
        {"country": COUNTRY, "code": Code("location.country", "location.country.iso_alpha_3")},
        lambda f: _crp(
            f["country"], _ADJOINS, _reads(f["code"], "location.country.iso_alpha_3", at=2)
        ),
    ),
    "language by code": Intent(
        (
            "which language has the iso code {code}",
            "what language is {code}",
            "what language has the two letter code {code}",
        ),
        {"code": Code("language.human_language", "language.human_language.iso_639_1_code")},
        lambda f: _crp(
            "Human Language",
            (f"^{_NOTABLE}",),
            _reads(f["code"], "language.human_language.iso_639_1_code", at=1),
        ),
    ),
}

INTENTS: Mapping[str, Intent] = {**SIMPLE, **ENTITY, **NUMERIC, **SUPERLATIVE, **STRING}
