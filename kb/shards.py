"""Load triples into a pyoxigraph store, shard by shard, while the next shard is being filled.

A shard is a plain N-Triples file: `bulk_load` reads it without holding the interpreter, and takes
all of it or nothing. A line that its parser refuses is found and left out.
"""

import logging
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from pyoxigraph import RdfFormat, Store, parse

logger = logging.getLogger(__name__)

SHARD_TRIPLES = 2_000_000
"""About 250 MB on disk. pyoxigraph sorts a million at a time: larger shards load no faster."""


class ShardLoader:
    """Gathers lines and loads them into a new store, a shard at a time.

    At most two shards are on disk: one is filled while the other is loaded.
    """

    def __init__(self, graph: Path, directory: Path) -> None:
        self._store: Store | None = Store(graph)
        self._directory = directory
        self._thread = ThreadPoolExecutor(max_workers=1)
        self._loading: Future[int] | None = None
        self._refused = 0
        self._number = 0
        self._lines = 0
        self._file = self._path.open("wb")

    def add(self, lines: Sequence[bytes]) -> None:
        """Add whole lines of N-Triples.

        Raises:
            OSError: The shard before could not be loaded, or this one not be written.
        """
        self._file.writelines(lines)
        if lines and not lines[-1].endswith(b"\n"):
            self._file.write(b"\n")
        self._lines += len(lines)
        if self._lines >= SHARD_TRIPLES:
            self._start_loading()

    def finish(self) -> int:
        """Load what is left and close the store.

        Returns:
            The number of lines that the store's parser refused.
        """
        self._start_loading()
        self._wait()
        assert self._store is not None
        self._store.flush()
        self.close()
        return self._refused

    def close(self) -> None:
        """Let go of the store, finished or not; a shard that is being loaded is waited for."""
        self._thread.shutdown()
        self._store = None  # pyoxigraph has no close: its lock goes with the last reference
        self._file.close()
        self._path.unlink(missing_ok=True)

    @property
    def _path(self) -> Path:
        return self._directory / f"shard-{self._number}.nt"

    def _start_loading(self) -> None:
        self._file.close()
        self._wait()
        assert self._store is not None, "the loader is closed"
        self._loading = self._thread.submit(_load, self._store, self._path)
        self._number += 1
        self._lines = 0
        self._file = self._path.open("wb")

    def _wait(self) -> None:
        if self._loading is not None:
            self._refused += self._loading.result()
            self._loading = None


def _load(store: Store, shard: Path) -> int:
    refused: set[int] = set()
    try:
        store.bulk_load(path=shard, format=RdfFormat.N_TRIPLES, lenient=True)
    except SyntaxError as error:
        logger.debug("a shard does not load whole: %s", error)
        refused = _refused_lines(shard)
        _leave_out(shard, refused)
        store.bulk_load(path=shard, format=RdfFormat.N_TRIPLES, lenient=True)
    shard.unlink()
    return len(refused)


def _leave_out(shard: Path, refused: set[int]) -> None:
    cleaned = shard.with_suffix(".cleaned")
    with shard.open("rb") as lines, cleaned.open("wb") as kept:
        kept.writelines(line for number, line in enumerate(lines, start=1) if number not in refused)
    cleaned.replace(shard)


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
