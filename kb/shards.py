"""Load triples into a pyoxigraph store, shard by shard.

A shard is a plain N-Triples file: `bulk_load` reads it without holding the interpreter, and takes
all of it or nothing. A line that its parser refuses is found and left out.
"""

import logging
from collections.abc import Sequence
from pathlib import Path

from pyoxigraph import RdfFormat, Store, parse

logger = logging.getLogger(__name__)

SHARD_TRIPLES = 5_000_000
"""About 600 MB on disk while it is loaded; larger shards load no faster (notes/stores.md §1)."""


class ShardLoader:
    """Gathers lines and loads them into a new store, a shard at a time."""

    def __init__(self, graph: Path, shard: Path) -> None:
        self._store: Store | None = Store(graph)
        self._path = shard
        self._file = shard.open("wb")
        self._lines = 0

    @property
    def is_full(self) -> bool:
        """Tell whether the shard should be loaded before more is added."""
        return self._lines >= SHARD_TRIPLES

    def add(self, lines: Sequence[bytes]) -> None:
        """Add whole lines of N-Triples to the shard."""
        self._file.writelines(lines)
        if lines and not lines[-1].endswith(b"\n"):
            self._file.write(b"\n")
        self._lines += len(lines)

    def load(self) -> int:
        """Load the shard and start the next.

        Returns:
            The number of lines that the store's parser refused.
        """
        assert self._store is not None, "the loader is closed"
        self._file.close()
        refused = 0
        try:
            self._store.bulk_load(path=self._path, format=RdfFormat.N_TRIPLES, lenient=True)
        except SyntaxError as error:
            logger.debug("a shard does not load whole: %s", error)
            refused = self._leave_out_refused()
            self._store.bulk_load(path=self._path, format=RdfFormat.N_TRIPLES, lenient=True)
        self._file = self._path.open("wb")
        self._lines = 0
        return refused

    def close(self) -> None:
        """Close the store and throw the shard away."""
        if self._store is not None:
            self._store.flush()
            self._store = None  # pyoxigraph has no close: the lock goes with the last reference
        self._file.close()
        self._path.unlink(missing_ok=True)

    def _leave_out_refused(self) -> int:
        refused = _refused_lines(self._path)
        cleaned = self._path.with_suffix(".cleaned")
        with self._path.open("rb") as lines, cleaned.open("wb") as kept:
            kept.writelines(
                line for number, line in enumerate(lines, start=1) if number not in refused
            )
        cleaned.replace(self._path)
        return len(refused)


def _refused_lines(shard: Path) -> set[int]:
    """Find every line of a shard that the store's parser refuses, 1-based."""
    refused: set[int] = set()
    quads = parse(path=shard, format=RdfFormat.N_TRIPLES, lenient=True)
    while True:
        try:
            # The iterator goes on after an error, at the next line.
            for _ in quads:
                pass
        except SyntaxError as error:
            assert error.lineno is not None, "pyoxigraph says which line"
            refused.add(error.lineno)
        else:
            return refused
