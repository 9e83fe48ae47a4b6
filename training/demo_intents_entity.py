"""Demo questions with entity constraints, and paths through a node that needs one."""

from collections.abc import Mapping

from kbqa.training.demo_intent import (
    ADJOINS,
    CITY,
    CONTINENT,
    COUNTRY,
    CURRENCY,
    LANGUAGE,
    SERIES,
    SPEAKS,
    STATE,
    TIME_ZONE,
    USES,
    Intent,
    is_entity,
    kind,
    path_crp,
)

ENTITY: Mapping[str, Intent] = {
    "country of a city": Intent(
        (
            "what country is {city} in",
            "which country is {city} located in",
            "where is {city}",
            "in what country do you find {city}",
        ),
        {"city": CITY},
        lambda f: path_crp(f["city"], ("location.location.containedby",), kind("Country")),
    ),
    "state of a city": Intent(
        (
            "what state is {city} in",
            "which us state is {city} located in",
            "in what state is {city}",
        ),
        {"city": CITY},
        lambda f: path_crp(f["city"], ("location.location.containedby",), kind("US State")),
    ),
    "counties of a state": Intent(
        (
            "what counties are in {state}",
            "which counties does {state} have",
            "what are the counties of {state}",
        ),
        {"state": STATE},
        lambda f: path_crp(f["state"], ("location.location.contains",), kind("US County")),
    ),
    "cities of a state": Intent(
        (
            "what cities are in {state}",
            "which cities does {state} have",
            "name the cities in {state}",
        ),
        {"state": STATE},
        lambda f: path_crp(f["state"], ("location.location.contains",), kind("City/Town/Village")),
    ),
    "airports of a country": Intent(
        (
            "what airports are in {country}",
            "which airports does {country} have",
            "what airports can i fly to in {country}",
        ),
        {"country": COUNTRY},
        lambda f: path_crp(f["country"], ("location.location.contains",), kind("Airport")),
    ),
    "countries of a time zone": Intent(
        (
            "which countries are in the {zone}",
            "what countries use the {zone}",
            "which countries have the {zone}",
        ),
        {"zone": TIME_ZONE},
        lambda f: path_crp(
            f["zone"], ("time.time_zone.locations_in_this_time_zone",), kind("Country")
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
        lambda f: path_crp(f["country"], ADJOINS, is_entity(f["currency"], USES, at=2)),
    ),
    "neighbours by language": Intent(
        (
            "which countries that border {country} speak {language}",
            "in which neighboring countries of {country} is {language} spoken",
            "what {language} speaking countries are next to {country}",
            "which of {country}'s neighbors speak {language}",
        ),
        {"country": COUNTRY, "language": LANGUAGE},
        lambda f: path_crp(f["country"], ADJOINS, is_entity(f["language"], SPEAKS, at=2)),
    ),
    "neighbours by continent": Intent(
        (
            "which countries in {continent} border {country}",
            "what neighbors of {country} are in {continent}",
            "which countries next to {country} lie in {continent}",
        ),
        {"country": COUNTRY, "continent": CONTINENT},
        lambda f: path_crp(
            f["country"],
            ADJOINS,
            is_entity(f["continent"], "base.locations.countries.continent", at=2),
        ),
    ),
    "continent's countries by language": Intent(
        (
            "which countries in {continent} speak {language}",
            "what {language} speaking countries are in {continent}",
            "where in {continent} is {language} spoken",
        ),
        {"continent": CONTINENT, "language": LANGUAGE},
        lambda f: path_crp(
            f["continent"],
            ("base.locations.continents.countries_within",),
            is_entity(f["language"], SPEAKS, at=1),
        ),
    ),
    "continent's countries by currency": Intent(
        (
            "which countries in {continent} use the {currency}",
            "where in {continent} is the {currency} used",
            "what countries of {continent} have the {currency} as currency",
        ),
        {"continent": CONTINENT, "currency": CURRENCY},
        lambda f: path_crp(
            f["currency"],
            ("finance.currency.countries_used",),
            is_entity(f["continent"], "base.locations.countries.continent", at=1),
        ),
    ),
    "country's cities by time zone": Intent(
        (
            "which cities in {country} are in the {zone}",
            "what cities of {country} use the {zone}",
        ),
        {"country": COUNTRY, "zone": TIME_ZONE},
        lambda f: path_crp(
            f["country"],
            ("location.location.contains",),
            kind("City/Town/Village"),
            is_entity(f["zone"], "location.location.time_zones", at=1),
        ),
    ),
    "elements by series and country": Intent(
        (
            "which {series} elements were discovered in {country}",
            "what {series}s were first found in {country}",
        ),
        {"series": SERIES, "country": COUNTRY},
        lambda f: path_crp(
            f["series"],
            ("chemistry.chemical_series.elements",),
            is_entity(f["country"], "chemistry.chemical_element.discovering_country", at=1),
        ),
    ),
    "currency of a city": Intent(
        (
            "what currency is used in {city}",
            "what money do i need in {city}",
            "how do people pay in {city}",
        ),
        {"city": CITY},
        lambda f: path_crp(f["city"], ("location.location.containedby", USES), kind("Country")),
    ),
    "language of a city": Intent(
        (
            "what language is spoken in {city}",
            "what do people speak in {city}",
            "which languages are spoken in {city}",
        ),
        {"city": CITY},
        lambda f: path_crp(f["city"], ("location.location.containedby", SPEAKS), kind("Country")),
    ),
    "capitals by language": Intent(
        (
            "what are the capitals of the countries where {language} is spoken",
            "which capitals do {language} speaking countries have",
        ),
        {"language": LANGUAGE},
        lambda f: path_crp(
            f["language"],
            ("language.human_language.countries_spoken_in", "location.country.capital"),
        ),
    ),
}
