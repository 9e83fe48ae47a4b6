"""Read the SQLite files that belong to a store; nothing is written through here."""

import sqlite3
import threading
from pathlib import Path

from kbqa.sparql.errors import StoreError


class SqliteFile:
    """A SQLite file that no process writes to any more. Any number of threads may use one object.

    Args:
        path: The file.
        kind: What it is, for messages: ``name index``.
        probe: A statement that fails on any other file; it should read no rows.

    Raises:
        StoreError: The file is missing, or is not of this kind.
    """

    def __init__(self, path: Path, kind: str, probe: str) -> None:
        self._path = path
        self._kind = kind
        # SQLite takes one statement at a time on a connection.
        self._lock = threading.Lock()
        self._is_closed = False
        if not path.is_file():
            raise StoreError(f"there is no {kind} at {path}. Load the store again.")
        try:
            # Immutable: no look at the file's lock at each query, a third of a short one's time.
            self._connection = sqlite3.connect(
                f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True, check_same_thread=False
            )
        except sqlite3.DatabaseError as error:
            raise self._damage(error) from error
        self._connection.row_factory = sqlite3.Row
        # A view in place of a table may be endless, and SQLite has no time limit.
        views = self.rows("SELECT name FROM sqlite_schema WHERE type = 'view'")
        if views:
            raise self._damage(f"it has the view {views[0]['name']}")
        self.rows(probe)

    def rows(self, sql: str, *parameters: str | int) -> list[sqlite3.Row]:
        """Run a statement and fetch all its rows.

        Raises:
            StoreError: The file is damaged, or was closed.
        """
        with self._lock:
            if self._is_closed:
                raise StoreError(f"the {self._kind} {self._path} was closed. Open the graph again.")
            try:
                return self._connection.execute(sql, parameters).fetchall()
            # The second, if SQLite quotes damaged text in its own message.
            except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
                raise self._damage(error) from error

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._is_closed = True
            self._connection.close()

    def _damage(self, error: Exception | str) -> StoreError:
        return StoreError(f"{self._path} is no {self._kind} ({error}). Load the store again.")
