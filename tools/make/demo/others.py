"""Chemical elements, from mendeleev's table, and currencies and languages, from CLDR (by babel).

Of elements, the discoverers are left out (many of the names are misspelt), and so is the year for
neodymium, which is a misprint.
"""

import datetime
import importlib.util
import sqlite3
from collections.abc import Mapping
from pathlib import Path

import pycountry
from babel import Locale
from babel.core import get_global
from babel.languages import get_territory_language_info
from babel.numbers import get_currency_name, get_territory_currencies

from tools.make.demo.triples import DemoTriples

_KELVIN = 273.15
_DISCOVERING_COUNTRIES = {
    "England": "GB",
    "Scotland": "GB",
    "Great Britain": "GB",
    "Austria": "AT",
    "Denmark": "DK",
    "Finland": "FI",
    "France": "FR",
    "Germany": "DE",
    "Italy": "IT",
    "Japan": "JP",
    "Romania": "RO",
    "Russia": "RU",
    "Spain": "ES",
    "Sweden": "SE",
    "Switzerland": "CH",
    "United States": "US",
}
_SPELLINGS = {"Aluminum": "Aluminium", "Cesium": "Caesium", "Sulfur": "Sulphur"}
_MISPRINTED_YEARS = {"Neodymium"}  # 1925; its salts were separated in 1885
_FIRST_DAY = datetime.date(1900, 1, 1)
_LAST_DAY = datetime.date(2026, 1, 1)
"""Currencies in use at any time between these days are in the graph."""

_CURRENCY_ALIASES = {
    "CNY": ("Renminbi", "Yuan"),
    "GBP": ("Pound sterling",),
    "JPY": ("Yen",),
    "RUB": ("Rouble",),
    "USD": ("US Dollar", "U.S. Dollar"),
}
_CURRENCY_NAMES = {"USD": "United States Dollar"}  # as Freebase has it

_SPOKEN_PERCENT = 5.0
"""The least share of speakers for a language that is not official in a country."""

_OFFICIAL = {"official", "de_facto_official"}


def add_elements(graph: DemoTriples, countries: Mapping[str, str]) -> None:
    """Add elements, series, blocks and natural isotopes."""
    database = _mendeleev_database()
    series = {
        row["id"]: _add_series(graph, row["name"])
        for row in database.execute("SELECT * FROM series")
    }
    element_mids = {}
    for row in database.execute("SELECT * FROM elements ORDER BY atomic_number"):
        name = row["name"]
        mid = graph.entity(f"element/{row['symbol']}", name, "chemistry.chemical_element")
        element_mids[row["atomic_number"]] = mid, name
        graph.aliases(mid, name, [_SPELLINGS.get(name)])
        graph.plain(mid, "chemistry.chemical_element.atomic_number", row["atomic_number"])
        graph.plain(mid, "chemistry.chemical_element.symbol", row["symbol"])
        graph.link(mid, "chemistry.chemical_element.chemical_series", series[row["series_id"]])
        block = graph.entity(
            f"block/{row['block']}", f"{row['block']}-block", "chemistry.periodic_table_block"
        )
        graph.link(mid, "chemistry.chemical_element.periodic_table_block", block)
        if row["en_pauling"] is not None:
            graph.plain(mid, "chemistry.chemical_element.electronegativity", row["en_pauling"])
        if row["discovery_year"] and name not in _MISPRINTED_YEARS:
            graph.year(mid, "chemistry.chemical_element.discovery_date", row["discovery_year"])
        for place in (row["discovery_location"] or "").split("/"):
            if place in _DISCOVERING_COUNTRIES:
                country = countries[_DISCOVERING_COUNTRIES[place]]
                graph.link(mid, "chemistry.chemical_element.discovering_country", country)
    # Elements with several rows have several allotropes, and no one melting point.
    transitions = database.execute(
        "SELECT * FROM phasetransitions WHERE is_sublimation_point IS NOT 1 "
        "GROUP BY atomic_number HAVING count(*) = 1"
    )
    for row in transitions:
        for kind in ("melting_point", "boiling_point"):
            if row[kind] is not None:
                celsius = round(row[kind] - _KELVIN, 2)
                mid, _ = element_mids[row["atomic_number"]]
                graph.plain(mid, f"chemistry.chemical_element.{kind}", celsius)
    natural = database.execute("SELECT * FROM isotopes WHERE abundance > 0")
    for row in natural:
        mid_of_element, element = element_mids[row["atomic_number"]]
        name = f"{element}-{row['mass_number']}"
        mid = graph.entity(f"isotope/{name}", name, "chemistry.isotope")
        graph.link(mid, "chemistry.isotope.isotope_of", mid_of_element)
        graph.plain(mid, "chemistry.isotope.mass_number", row["mass_number"])
        graph.plain(mid, "chemistry.isotope.natural_abundance", round(row["abundance"], 6))
        graph.plain(mid, "chemistry.isotope.stable", "false" if row["is_radioactive"] else "true")


def _add_series(graph: DemoTriples, plural: str) -> str:
    name = "Noble gas" if plural == "Noble gases" else plural.removesuffix("s")
    mid = graph.entity(f"series/{plural}", name, "chemistry.chemical_series")
    graph.aliases(mid, name, [plural])
    return mid


def _mendeleev_database() -> sqlite3.Connection:
    """Open mendeleev's table of elements, without importing the package and its dependencies."""
    spec = importlib.util.find_spec("mendeleev")
    assert spec is not None and spec.origin is not None
    path = Path(spec.origin).with_name("elements.db")
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    connection.row_factory = sqlite3.Row
    return connection


def add_currencies(graph: DemoTriples, countries: Mapping[str, str]) -> None:
    """Add the legal tender of each country, now and formerly."""
    for code, country in sorted(countries.items()):
        for use in get_territory_currencies(
            code, _FIRST_DAY, _LAST_DAY, tender=True, include_details=True
        ):
            is_used = use["to"] is None
            relation = "currency_used" if is_used else "currency_formerly_used"
            mid = _add_currency(graph, use["currency"])
            graph.link(country, f"location.country.{relation}", mid)


def add_languages(graph: DemoTriples, countries: Mapping[str, str]) -> None:
    """Add the languages of each country, and their scripts."""
    for code, country in sorted(countries.items()):
        for tag, use in sorted(get_territory_language_info(code).items()):
            is_official = use["official_status"] in _OFFICIAL
            if not (is_official or use["population_percent"] >= _SPOKEN_PERCENT):
                continue
            mid = _add_language(graph, tag.partition("_")[0], countries)
            if mid is not None:
                graph.link(country, "location.country.languages_spoken", mid)
                if is_official:
                    graph.link(country, "location.country.official_language", mid)


def _add_currency(graph: DemoTriples, code: str) -> str:
    name = _CURRENCY_NAMES.get(code) or get_currency_name(code, locale="en")
    mid = graph.entity(f"currency/{code}", name, "finance.currency")
    plural = get_currency_name(code, count=2, locale="en")
    graph.aliases(mid, name, [code, plural, *_CURRENCY_ALIASES.get(code, ())])
    graph.plain(mid, "finance.currency.currency_code", code)
    return mid


def _add_language(graph: DemoTriples, tag: str, countries: Mapping[str, str]) -> str | None:
    short = Locale("en").languages.get(tag)
    if short is None:
        return None
    name = short if short.endswith("Language") else f"{short} Language"
    mid = graph.entity(f"language/{tag}", name, "language.human_language")
    graph.aliases(mid, name, [short, f"{short} language"])
    iso = pycountry.languages.get(**{"alpha_2" if len(tag) == 2 else "alpha_3": tag})
    if iso is not None:
        graph.plain(mid, "language.human_language.iso_639_3_code", iso.alpha_3)
    if len(tag) == 2:
        graph.plain(mid, "language.human_language.iso_639_1_code", tag)
    likely = get_global("likely_subtags").get(tag)
    if likely is not None:
        _, script, region = likely.split("_")
        graph.link(mid, "language.human_language.writing_system", _add_script(graph, script))
        if region in countries:
            graph.link(mid, "language.human_language.main_country", countries[region])
    return mid


def _add_script(graph: DemoTriples, code: str) -> str:
    short = Locale("en").scripts[code]
    name = f"{short} script"
    mid = graph.entity(f"script/{code}", name, "language.language_writing_system")
    graph.aliases(mid, name, [f"{short} alphabet"] if code in {"Latn", "Cyrl", "Grek"} else [])
    graph.plain(mid, "language.language_writing_system.iso_15924_alpha", code)
    return mid
