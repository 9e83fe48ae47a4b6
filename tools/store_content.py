"""Compute the fingerprint of a store: of what it holds, in whatever order it was written.

python -m tools.store_content STORE
"""

import hashlib
import json
import sqlite3
import sys
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pyoxigraph

from kbqa.kb.layout import StoreLayout

_DIGEST_BYTES = 16


class Content(NamedTuple):
    """How much of something there is, and a hash of all of it."""

    total: int
    digest: str


def store_content(store: Path) -> dict[str, Content]:
    """Count and hash each part of a finished store.

    A hash is the sum of the 128-bit hashes of what there is, triple by triple and row by row, so
    the order does not count, but repetitions do.
    """
    layout = StoreLayout(store)
    parts = {"triples": _triples(layout.graph)}
    for path in (layout.names, layout.statistics):
        parts |= _tables(path)
    parts["schema"] = _content([layout.schema.read_bytes()])
    parts["rejects"] = _content(layout.rejects.read_bytes().splitlines())
    summary = json.loads(layout.manifest.read_text(encoding="utf-8"))["summary"]
    counts = {k: count for k, count in summary.items() if k not in ("seconds", "size_bytes")}
    parts["summary"] = _content([json.dumps(counts, sort_keys=True).encode()])
    return parts


def _triples(graph: Path) -> Content:
    # 13 µs a triple, nearly all of it for looking up the terms in the store.
    return _content(str(quad).encode() for quad in pyoxigraph.Store.read_only(str(graph)))


def _tables(path: Path) -> dict[str, Content]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        listed = "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table'"
        # The shadow tables of a full-text index are not of that type: they may differ in layout.
        names = [name for (name,) in connection.execute(listed) if not name.startswith("sqlite_")]
        return {
            f"{path.stem}.{name}": _content(
                repr(row).encode() for row in connection.execute(f'SELECT * FROM "{name}"')
            )
            for name in sorted(names)
        }


def _content(pieces: Iterable[bytes]) -> Content:
    count = total = 0
    for piece in pieces:
        count += 1
        total += int.from_bytes(hashlib.blake2b(piece, digest_size=_DIGEST_BYTES).digest())
    return Content(count, f"{total % (1 << 8 * _DIGEST_BYTES):0{2 * _DIGEST_BYTES}x}")


def main() -> None:
    """Print the fingerprint of the store that the command line names."""
    for name, content in store_content(Path(sys.argv[1])).items():
        print(f"{name:28}{content.total:14,}  {content.digest}")


if __name__ == "__main__":
    main()
