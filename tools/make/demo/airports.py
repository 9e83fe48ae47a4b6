"""Airports and the cities that they serve, from airportsdata."""

import math

import airportsdata

from tools.make.demo.places import City, Places
from tools.make.demo.sources import folded
from tools.make.demo.time_zones import TimeZones
from tools.make.demo.triples import DemoTriples

_FOOT_M = 0.3048
_FARTHEST_KM = 80.0
"""An airport farther away serves another city of the same name."""


def add_airports(graph: DemoTriples, places: Places, time_zones: TimeZones) -> None:
    """Add the airports with an IATA code that serve a city of the graph or are international."""
    cities: dict[tuple[str, str], list[City]] = {}
    for city in places.cities:
        cities.setdefault((city.country, folded(city.name)), []).append(city)
    for code, row in sorted(airportsdata.load("IATA").items()):
        near = [
            city
            for city in cities.get((row["country"], folded(row["city"])), ())
            if _distance_km(city, row["lat"], row["lon"]) <= _FARTHEST_KM
        ]
        if row["country"] not in places.countries or not (near or "International" in row["name"]):
            continue
        mid = graph.entity(f"airport/{code}", row["name"], "aviation.airport", "location.location")
        graph.plain(mid, "aviation.airport.iata", code)
        if row["icao"]:
            graph.plain(mid, "aviation.airport.icao", row["icao"])
        graph.link(mid, "location.location.containedby", places.countries[row["country"]])
        division = places.divisions.get((row["country"], folded(row["subd"])))
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
