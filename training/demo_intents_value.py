"""Demo questions with numeric and string constraints."""

from collections.abc import Mapping

from kbqa.training.demo_intent import (
    ADJOINS,
    AREA_KM2,
    CONTINENT,
    COUNTRY,
    DEGREES,
    LANGUAGE,
    MELTS,
    NATION,
    NOTABLE,
    POPULATION,
    SERIES,
    TOWNSPEOPLE,
    YEAR,
    Code,
    Intent,
    compare,
    kind,
    path_crp,
    reads,
)

NUMERIC: Mapping[str, Intent] = {
    "cities above": Intent(
        (
            "which cities in {country} have more than {number} people",
            "what cities in {country} have over {number} inhabitants",
            "cities with a population above {number} in {country}",
            "which cities of {country} are home to more than {number} people",
        ),
        {"country": COUNTRY, "number": TOWNSPEOPLE},
        lambda f: path_crp(
            f["country"],
            ("location.location.contains",),
            kind("City/Town/Village"),
            compare(">", f["number"], *POPULATION, at=1),
        ),
    ),
    "countries above": Intent(
        (
            "which countries in {continent} have more than {number} people",
            "what countries in {continent} have over {number} inhabitants",
            "which countries of {continent} have a population above {number}",
        ),
        {"continent": CONTINENT, "number": NATION},
        lambda f: path_crp(
            f["continent"],
            ("base.locations.continents.countries_within",),
            compare(">", f["number"], *POPULATION, at=1),
        ),
    ),
    "countries below": Intent(
        (
            "which countries in {continent} have less than {number} people",
            "what countries in {continent} have fewer than {number} inhabitants",
            "which countries of {continent} have a population below {number}",
        ),
        {"continent": CONTINENT, "number": NATION},
        lambda f: path_crp(
            f["continent"],
            ("base.locations.continents.countries_within",),
            compare("<", f["number"], *POPULATION, at=1),
        ),
    ),
    "neighbours above": Intent(
        (
            "which countries that border {country} have more than {number} people",
            "what neighbors of {country} have over {number} inhabitants",
        ),
        {"country": COUNTRY, "number": NATION},
        lambda f: path_crp(f["country"], ADJOINS, compare(">", f["number"], *POPULATION, at=2)),
    ),
    "neighbours smaller": Intent(
        (
            "which countries next to {country} are smaller than {number} square kilometers",
            "what neighbors of {country} have an area below {number} square km",
        ),
        {"country": COUNTRY, "number": AREA_KM2},
        lambda f: path_crp(
            f["country"], ADJOINS, compare("<", f["number"], "location.location.area", at=2)
        ),
    ),
    "language's countries larger": Intent(
        (
            "which {language} speaking countries are larger than {number} square kilometers",
            "what countries with an area over {number} square km speak {language}",
        ),
        {"language": LANGUAGE, "number": AREA_KM2},
        lambda f: path_crp(
            f["language"],
            ("language.human_language.countries_spoken_in",),
            compare(">", f["number"], "location.location.area", at=1),
        ),
    ),
    "elements melting above": Intent(
        (
            "which {series}s melt above {number} degrees",
            "what {series} elements have a melting point over {number} degrees celsius",
        ),
        {"series": SERIES, "number": DEGREES},
        lambda f: path_crp(
            f["series"],
            ("chemistry.chemical_series.elements",),
            compare(">", f["number"], MELTS, at=1),
        ),
    ),
    "elements discovered after": Intent(
        (
            "which {series}s were discovered after {year}",
            "what {series} elements have been found since {year}",
        ),
        {"series": SERIES, "year": YEAR},
        lambda f: path_crp(
            f["series"],
            ("chemistry.chemical_series.elements",),
            compare(">", f["year"], "chemistry.chemical_element.discovery_date", at=1),
        ),
    ),
    "country's elements before": Intent(
        (
            "which elements were discovered in {country} before {year}",
            "what elements did {country} discover before {year}",
        ),
        {"country": COUNTRY, "year": YEAR},
        lambda f: path_crp(
            f["country"],
            ("^chemistry.chemical_element.discovering_country",),
            compare("<", f["year"], "chemistry.chemical_element.discovery_date", at=1),
        ),
    ),
    "neighbour by calling code": Intent(
        (
            "which country that borders {country} has the calling code {code}",
            "what neighbor of {country} has the country code {code}",
        ),
        {"country": COUNTRY, "code": Code("location.country", "location.country.calling_code")},
        lambda f: path_crp(
            f["country"],
            ADJOINS,
            compare("=", f["code"], "location.country.calling_code", at=2),
        ),
    ),
    "element by number": Intent(
        (
            "which element has the atomic number {code}",
            "what is element number {code}",
            "what element has {code} protons",
        ),
        {"code": Code("chemistry.chemical_element", "chemistry.chemical_element.atomic_number")},
        lambda f: path_crp(
            "Chemical Element",
            (f"^{NOTABLE}",),
            compare("=", f["code"], "chemistry.chemical_element.atomic_number", at=1),
        ),
    ),
}

STRING: Mapping[str, Intent] = {
    "airport by code": Intent(
        (
            "which airport has the iata code {code}",
            "what airport has the code {code}",
            "which airport is {code}",
            "what airport does the code {code} stand for",
        ),
        {"code": Code("aviation.airport", "aviation.airport.iata")},
        lambda f: path_crp(
            "Airport", (f"^{NOTABLE}",), reads(f["code"], "aviation.airport.iata", at=1)
        ),
    ),
    "country's airport by code": Intent(
        (
            "which airport in {country} has the iata code {code}",
            "what airport in {country} has the code {code}",
        ),
        {"country": COUNTRY, "code": Code("aviation.airport", "aviation.airport.iata")},
        lambda f: path_crp(
            f["country"],
            ("location.location.contains",),
            reads(f["code"], "aviation.airport.iata", at=1),
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
        lambda f: path_crp(
            "Chemical Element",
            (f"^{NOTABLE}",),
            reads(f["code"], "chemistry.chemical_element.symbol", at=1),
        ),
    ),
    "currency by code": Intent(
        (
            "which currency has the code {code}",
            "what currency is {code}",
            "what does the currency code {code} mean",
        ),
        {"code": Code("finance.currency", "finance.currency.currency_code")},
        lambda f: path_crp(
            "Currency", (f"^{NOTABLE}",), reads(f["code"], "finance.currency.currency_code", at=1)
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
        lambda f: path_crp(
            "Country", (f"^{NOTABLE}",), reads(f["code"], "location.country.iso_alpha_3", at=1)
        ),
    ),
    "neighbour by code": Intent(
        (
            "which country that borders {country} has the iso code {code}",
            "what neighbor of {country} has the code {code}",
        ),
        {"country": COUNTRY, "code": Code("location.country", "location.country.iso_alpha_3")},
        lambda f: path_crp(
            f["country"], ADJOINS, reads(f["code"], "location.country.iso_alpha_3", at=2)
        ),
    ),
    "language by code": Intent(
        (
            "which language has the iso code {code}",
            "what language is {code}",
            "what language has the two letter code {code}",
        ),
        {"code": Code("language.human_language", "language.human_language.iso_639_1_code")},
        lambda f: path_crp(
            "Human Language",
            (f"^{NOTABLE}",),
            reads(f["code"], "language.human_language.iso_639_1_code", at=1),
        ),
    ),
}
