"""Keep on disk what was made of texts: their vectors, the CRPs of queries.

SQLite, because several processes write at once, each the few texts that it met: of a file that is
written anew and renamed, the last writer's texts alone would remain. Nothing is read before it is
asked for, so opening takes no time however many are kept. A file that fails costs time and nothing
else, so no method raises: what cannot be read is made again.
"""

import logging
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

logger = logging.getLogger(__name__)

_LOCK_TIMEOUT_S = 10.0
_TEXTS_A_QUERY = 500
_BROKEN = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_PRIMARY_CODE = 0xFF  # The rest of an error's code says more exactly what it is.


class TextCache:
    """What was made of texts, as bytes. Any number of threads and processes may use one file.

    One file holds one kind of thing, made in one way: whatever can change it is in the file's name.
    """

    def __init__(self, path: Path, kind: str) -> None:
        """Open nothing yet.

        Args:
            path: The file, which need not exist.
            kind: What is kept, in the plural, for the log: ``"embeddings"``.
        """
        self._path = path
        self._kind = kind
        self._is_usable = True

    def read(self, texts: Sequence[str]) -> dict[str, bytes]:
        """Return what is kept, of those texts of which anything is."""
        found: dict[str, bytes] = {}
        if not self._is_usable or not self._path.is_file():
            return found
        try:
            with closing(self._connect()) as connection:
                for start in range(0, len(texts), _TEXTS_A_QUERY):
                    asked = texts[start : start + _TEXTS_A_QUERY]
                    places = ",".join("?" * len(asked))
                    query = f"SELECT text, made FROM made_of WHERE text IN ({places})"
                    found.update(connection.execute(query, asked))
        except (sqlite3.Error, OSError) as error:
            self._give_up(error)
        return found

    def write(self, made: Mapping[str, bytes]) -> None:
        """Keep what was made of each text; where anything is kept, that stays."""
        if not self._is_usable:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with closing(self._connect()) as connection, connection:
                connection.executemany("INSERT OR IGNORE INTO made_of VALUES (?, ?)", made.items())
        except (sqlite3.Error, OSError) as error:
            self._give_up(error)

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=_LOCK_TIMEOUT_S)
        try:
            connection.execute(
                "CREATE TABLE IF NOT EXISTS made_of (text TEXT PRIMARY KEY, made BLOB NOT NULL)"
            )
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def _give_up(self, error: sqlite3.Error | OSError) -> None:
        """Remove a broken file, so that the next write begins anew; else leave the file alone."""
        # Errors that the Python module raises by itself have no code.
        code: int = getattr(error, "sqlite_errorcode", 0)
        if code & _PRIMARY_CODE in _BROKEN:
            logger.warning("%s is broken (%s), and is made anew", self._path, error)
            try:
                # Its journal with it, which SQLite would play back into the new file.
                for path in (self._path, Path(f"{self._path}-journal")):
                    path.unlink(missing_ok=True)
                return
            except OSError as reason:
                error = reason
        self._is_usable = False
        logger.warning("%s are not kept, as %s cannot be used: %s", self._kind, self._path, error)
