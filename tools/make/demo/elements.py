"""Chemical elements and their natural isotopes, from mendeleev's table.

Its discoverers are left out (many of the names are misspelt), and so is its year for neodymium,
which is a misprint.
"""

from collections.abc import Mapping

from tools.make.demo.sources import mendeleev_database
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


def add_elements(graph: DemoTriples, countries: Mapping[str, str]) -> None:
    """Add elements, series, blocks and natural isotopes."""
    database = mendeleev_database()
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
