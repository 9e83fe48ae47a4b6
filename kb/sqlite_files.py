"""Open the SQLite files that stand beside a store; nothing is written through here."""

import sqlite3
from pathlib import Path

from kbqa.sparql.errors import StoreError


def open_read_only(path: Path, kind: str, probe: str) -> sqlite3.Connection:
    """Open a file that nobody writes to any more. Threads may share the connection in turns.

    Args:
        path: The file.
        kind: What it is, for messages: ``name index``.
        probe: A statement that fails on any other file; it should read no rows.

    Raises:
        StoreError: The file is missing, or is no such file.
    """
    if not path.is_file():
        raise StoreError(f"there is no {kind} at {path}. Load the store anew.")
    try:
        # Immutable: no look at the file's lock at each query, a third of a short one's time.
        connection = sqlite3.connect(
            f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True, check_same_thread=False
        )
        connection.execute(probe).fetchall()
    except sqlite3.DatabaseError as error:
        raise StoreError(f"{path} is no {kind} ({error}). Load the store anew.") from error
    return connection
