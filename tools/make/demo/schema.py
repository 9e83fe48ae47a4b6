"""The properties and types of Freebase that the demo graph uses.

Property ids, expected types, reverses and uniqueness are Freebase's own.
"""

from typing import NamedTuple


class Property(NamedTuple):
    """One property of Freebase's schema; its domain is its id without the last part."""

    expected_type: str
    reverse: str | None = None
    unique: bool = False


MEDIATORS = (
    "location.adjoining_relationship",
    "location.geocode",
    "measurement_unit.dated_integer",
)

NOTABLE = {
    "aviation.airport": "Airport",
    "chemistry.chemical_element": "Chemical Element",
    "chemistry.chemical_series": "Chemical Series",
    "chemistry.isotope": "Isotope",
    "chemistry.periodic_table_block": "Periodic Table Block",
    "finance.currency": "Currency",
    "internet.top_level_domain": "Internet Top-Level Domain",
    "language.human_language": "Human Language",
    "language.language_writing_system": "Writing System",
    "location.administrative_division": "Administrative Division",
    "location.citytown": "City/Town/Village",
    "location.continent": "Continent",
    "location.country": "Country",
    "location.us_county": "US County",
    "location.us_state": "US State",
    "time.time_zone": "Time Zone",
}
"""Types that an entity can be notable for, with the names that Freebase shows."""

_ONE_WAY = {
    "aviation.airport.iata": Property("type.enumeration"),
    "aviation.airport.icao": Property("type.enumeration"),
    "chemistry.chemical_element.atomic_number": Property("type.int", unique=True),
    "chemistry.chemical_element.boiling_point": Property("type.float", unique=True),
    "chemistry.chemical_element.discovering_country": Property("location.country"),
    "chemistry.chemical_element.discovery_date": Property("type.datetime", unique=True),
    "chemistry.chemical_element.electronegativity": Property("type.float", unique=True),
    "chemistry.chemical_element.melting_point": Property("type.float", unique=True),
    "chemistry.chemical_element.symbol": Property("type.rawstring", unique=True),
    "chemistry.isotope.mass_number": Property("type.int", unique=True),
    "chemistry.isotope.natural_abundance": Property("type.float", unique=True),
    "chemistry.isotope.stable": Property("type.boolean", unique=True),
    "common.topic.alias": Property("type.text"),
    "common.topic.notable_types": Property("type.type"),
    "finance.currency.currency_code": Property("type.text"),
    "language.human_language.iso_639_1_code": Property("type.enumeration"),
    "language.human_language.iso_639_3_code": Property("type.enumeration"),
    "language.human_language.main_country": Property("location.country"),
    "language.language_writing_system.iso_15924_alpha": Property("type.enumeration"),
    "location.administrative_division.iso_3166_2_code": Property("type.enumeration"),
    "location.country.calling_code": Property("type.int", unique=True),
    "location.country.capital": Property("location.citytown"),
    "location.country.internet_tld": Property("internet.top_level_domain"),
    "location.country.iso3166_1_alpha2": Property("type.enumeration"),
    "location.country.iso_alpha_3": Property("type.enumeration"),
    "location.country.iso_numeric": Property("type.enumeration"),
    "location.country.official_language": Property("language.human_language"),
    "location.geocode.elevation": Property("type.float", unique=True),
    "location.geocode.latitude": Property("type.float", unique=True),
    "location.geocode.longitude": Property("type.float", unique=True),
    "location.location.area": Property("type.float", unique=True),
    "location.location.geolocation": Property("location.geocode", unique=True),
    "location.statistical_region.population": Property("measurement_unit.dated_integer"),
    "location.us_county.fips_6_4_code": Property("type.enumeration", unique=True),
    "measurement_unit.dated_integer.number": Property("type.int", unique=True),
    "time.time_zone.offset_from_uct": Property("type.float", unique=True),
    "type.object.name": Property("type.text", unique=True),
    "type.object.type": Property("type.type"),
}

# Each leads to the domain of the other.
_PAIRS = (
    ("base.locations.countries.continent", "base.locations.continents.countries_within"),
    ("chemistry.chemical_element.chemical_series", "chemistry.chemical_series.elements"),
    ("chemistry.chemical_element.periodic_table_block", "chemistry.periodic_table_block.elements"),
    ("chemistry.isotope.isotope_of", "chemistry.chemical_element.isotopes"),
    ("language.human_language.writing_system", "language.language_writing_system.languages"),
    ("location.administrative_division.country", "location.country.administrative_divisions"),
    (
        "location.administrative_division.first_level_division_of",
        "location.country.first_level_divisions",
    ),
    (
        "location.administrative_division.second_level_division_of",
        "location.country.second_level_divisions",
    ),
    ("location.country.currency_formerly_used", "finance.currency.countries_formerly_used"),
    ("location.country.currency_used", "finance.currency.countries_used"),
    ("location.country.languages_spoken", "language.human_language.countries_spoken_in"),
    ("location.location.adjoin_s", "location.adjoining_relationship.adjoins"),
    ("location.location.containedby", "location.location.contains"),
    ("location.location.nearby_airports", "aviation.airport.serves"),
    ("location.location.time_zones", "time.time_zone.locations_in_this_time_zone"),
)
_UNIQUE = {
    "chemistry.chemical_element.periodic_table_block",
    "chemistry.isotope.isotope_of",
    "location.administrative_division.country",
    "location.administrative_division.first_level_division_of",
    "location.administrative_division.second_level_division_of",
}

PROPERTIES = dict(_ONE_WAY)
for _forward, _backward in _PAIRS:
    for _one, _other in ((_forward, _backward), (_backward, _forward)):
        PROPERTIES[_one] = Property(_other.rpartition(".")[0], _other, _one in _UNIQUE)
