"""Currencies and languages of countries, as CLDR (by babel) has them."""

import datetime
from collections.abc import Mapping

import pycountry
from babel import Locale
from babel.core import get_global
from babel.languages import get_territory_language_info
from babel.numbers import get_currency_name, get_territory_currencies

from tools.make.demo.triples import DemoTriples

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
