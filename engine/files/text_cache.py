"""Cache on disk what was computed from texts: their vectors, the CRPs of queries.

The file is SQLite, because several processes add texts at once; if a file were rewritten and
renamed, only the last writer's texts would remain. Texts are read when they are needed, so opening
takes no time. A broken cache only costs time, so no method raises: unreadable values are computed
again.
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
# The second, if SQLite quotes damaged text in its own message.
_ERRORS = (sqlite3.Error, UnicodeDecodeError, OSError)
_PRIMARY_CODE = 0xFF  # The other bits of an error's code are details.


class TextCache:
    """Bytes computed from texts. Any number of threads and processes may use one file.

    A file holds one kind of value, computed in one way; everything that can change the values is
    part of its name.
    """

    def __init__(self, path: Path, kind: str) -> None:
        """Set up a cache without opening the file.

        Args:
            path: The file, which need not exist.
            kind: What is cached, in the plural, for the log: ``"embeddings"``.
        """
        self._path = path
        self._kind = kind
        self._is_usable = True

    def read(self, texts: Sequence[str]) -> dict[str, bytes]:
        """Return the cached values of those texts that have one."""
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
        except _ERRORS as error:
            self._give_up(error)
        return found

    def write(self, made: Mapping[str, bytes]) -> None:
        """Cache a value for each text that has none."""
        if not self._is_usable:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with closing(self._connect()) as connection, connection:
                connection.executemany("INSERT OR IGNORE INTO made_of VALUES (?, ?)", made.items())
        except _ERRORS as error:
            self._give_up(error)

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=_LOCK_TIMEOUT_S)
        try:
            connection.execute(
                "CREATE TABLE IF NOT EXISTS made_of (text TEXT PRIMARY KEY, made BLOB NOT NULL)"
            )
        except _ERRORS:
            connection.close()
            raise
        return connection

    def _give_up(self, error: Exception) -> None:
        """Remove a damaged file, to be created again, or stop using one that fails otherwise."""
        # Errors raised by the Python module itself have no code.
        code: int = getattr(error, "sqlite_errorcode", 0)
        if code & _PRIMARY_CODE in _BROKEN or isinstance(error, UnicodeDecodeError):
            logger.warning("%s is damaged (%s) and will be rebuilt", self._path, error)
            try:
                # Also its journal, which SQLite would replay into the new file.
                for path in (self._path, Path(f"{self._path}-journal")):
                    path.unlink(missing_ok=True)
                return
            except OSError as reason:
                error = reason
        self._is_usable = False
        logger.warning("%s are not cached: %s cannot be used: %s", self._kind, self._path, error)
