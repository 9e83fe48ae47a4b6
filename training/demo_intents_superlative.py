"""Demo questions for the largest and the smallest."""

from collections.abc import Mapping

from kbqa.training.demo_intent import (
    ADJOINS,
    CONTINENT,
    COUNTRY,
    CURRENCY,
    ELEMENT,
    ELEVATION,
    LANGUAGE,
    LATITUDE,
    MELTS,
    POPULATION,
    SERIES,
    STATE,
    Intent,
    kind,
    least,
    most,
    path_crp,
)

SUPERLATIVE: Mapping[str, Intent] = {
    "largest city": Intent(
        (
            "what is the largest city in {country}",
            "what is the biggest city of {country}",
            "which city in {country} has the most people",
            "what's {country}'s largest city",
            "most populous city in {country}",
        ),
        {"country": COUNTRY},
        lambda f: path_crp(
            f["country"],
            ("location.location.contains",),
            kind("City/Town/Village"),
            order=most(*POPULATION, at=1),
        ),
    ),
    "largest city of a state": Intent(
        (
            "what is the largest city in {state}",
            "what is the biggest city of {state}",
            "which city in {state} has the most people",
        ),
        {"state": STATE},
        lambda f: path_crp(
            f["state"],
            ("location.location.contains",),
            kind("City/Town/Village"),
            order=most(*POPULATION, at=1),
        ),
    ),
    "northernmost city": Intent(
        (
            "what is the northernmost city in {country}",
            "which city in {country} is furthest north",
        ),
        {"country": COUNTRY},
        lambda f: path_crp(
            f["country"],
            ("location.location.contains",),
            kind("City/Town/Village"),
            order=most(*LATITUDE, at=1),
        ),
    ),
    "southernmost city": Intent(
        (
            "what is the southernmost city in {country}",
            "which city in {country} is furthest south",
        ),
        {"country": COUNTRY},
        lambda f: path_crp(
            f["country"],
            ("location.location.contains",),
            kind("City/Town/Village"),
            order=least(*LATITUDE, at=1),
        ),
    ),
    "highest airport": Intent(
        (
            "what is the highest airport in {country}",
            "which airport in {country} has the highest elevation",
        ),
        {"country": COUNTRY},
        lambda f: path_crp(
            f["country"],
            ("location.location.contains",),
            kind("Airport"),
            order=most(*ELEVATION, at=1),
        ),
    ),
    "largest country": Intent(
        (
            "what is the largest country in {continent}",
            "which country in {continent} is the biggest",
            "what country of {continent} has the largest area",
        ),
        {"continent": CONTINENT},
        lambda f: path_crp(
            f["continent"],
            ("base.locations.continents.countries_within",),
            order=most("location.location.area", at=1),
        ),
    ),
    "smallest country": Intent(
        (
            "what is the smallest country in {continent}",
            "which country in {continent} has the smallest area",
        ),
        {"continent": CONTINENT},
        lambda f: path_crp(
            f["continent"],
            ("base.locations.continents.countries_within",),
            order=least("location.location.area", at=1),
        ),
    ),
    "most populous country": Intent(
        (
            "what is the most populous country in {continent}",
            "which country in {continent} has the most people",
            "what country in {continent} has the largest population",
        ),
        {"continent": CONTINENT},
        lambda f: path_crp(
            f["continent"],
            ("base.locations.continents.countries_within",),
            order=most(*POPULATION, at=1),
        ),
    ),
    "largest neighbour": Intent(
        (
            "what is the largest country that borders {country}",
            "which neighbor of {country} is the biggest",
            "what is {country}'s largest neighbor",
        ),
        {"country": COUNTRY},
        lambda f: path_crp(f["country"], ADJOINS, order=most("location.location.area", at=2)),
    ),
    "smallest neighbour": Intent(
        (
            "what is the smallest country that borders {country}",
            "which neighbor of {country} is the smallest",
        ),
        {"country": COUNTRY},
        lambda f: path_crp(f["country"], ADJOINS, order=least("location.location.area", at=2)),
    ),
    "most populous neighbour": Intent(
        (
            "which country that borders {country} has the most people",
            "what is the most populous neighbor of {country}",
            "which neighboring country of {country} has the largest population",
        ),
        {"country": COUNTRY},
        lambda f: path_crp(f["country"], ADJOINS, order=most(*POPULATION, at=2)),
    ),
    "largest country of a language": Intent(
        (
            "what is the largest country where {language} is spoken",
            "which {language} speaking country is the biggest",
        ),
        {"language": LANGUAGE},
        lambda f: path_crp(
            f["language"],
            ("language.human_language.countries_spoken_in",),
            order=most("location.location.area", at=1),
        ),
    ),
    "most populous country of a currency": Intent(
        (
            "which country that uses the {currency} has the most people",
            "what is the most populous country with the {currency}",
        ),
        {"currency": CURRENCY},
        lambda f: path_crp(
            f["currency"],
            ("finance.currency.countries_used",),
            order=most(*POPULATION, at=1),
        ),
    ),
    "hardest to melt": Intent(
        (
            "which {series} has the highest melting point",
            "what {series} melts at the highest temperature",
        ),
        {"series": SERIES},
        lambda f: path_crp(
            f["series"], ("chemistry.chemical_series.elements",), order=most(MELTS, at=1)
        ),
    ),
    "heaviest": Intent(
        (
            "what is the heaviest {series}",
            "which {series} has the highest atomic number",
        ),
        {"series": SERIES},
        lambda f: path_crp(
            f["series"],
            ("chemistry.chemical_series.elements",),
            order=most("chemistry.chemical_element.atomic_number", at=1),
        ),
    ),
    "main isotope": Intent(
        (
            "what is the most common isotope of {element}",
            "which isotope of {element} is the most abundant",
        ),
        {"element": ELEMENT},
        lambda f: path_crp(
            f["element"],
            ("chemistry.chemical_element.isotopes",),
            order=most("chemistry.isotope.natural_abundance", at=1),
        ),
    ),
}
