"""Build the name index from the names of entities; `kbqa.kb.names` reads it.

Nothing is held in memory that grows with the number of names: they are staged in a second file,
SQLite sorts them on disk, and each table is then written from its beginning to its end.
"""

import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeAlias

from kbqa.kb.names import POPULARITY_MASK, name_weight, normalise

_CACHE_KIB = 64 << 10
_HASH_BYTES = 16 << 20

# No journal: the file is thrown away with the whole unfinished store if the machine stops.
# Trigrams gather in a larger hash and are merged once, at the end.
_TABLES = f"""
    PRAGMA page_size = 8192;
    PRAGMA journal_mode = OFF;
    PRAGMA synchronous = OFF;
    PRAGMA cache_size = -{_CACHE_KIB};
    PRAGMA temp_store = FILE;
    CREATE TABLE name (
        key TEXT NOT NULL, weight INTEGER NOT NULL, mid TEXT NOT NULL,
        text TEXT NOT NULL, own_name TEXT,
        PRIMARY KEY (key, weight DESC, mid)
    ) WITHOUT ROWID;
    CREATE TABLE key (id INTEGER PRIMARY KEY, key TEXT NOT NULL, popularity INTEGER NOT NULL);
    CREATE VIRTUAL TABLE trigram USING fts5(
        key, content='', columnsize=0, detail=none, tokenize='trigram case_sensitive 1'
    );
    INSERT INTO trigram (trigram, rank) VALUES ('hashsize', {_HASH_BYTES});
    INSERT INTO trigram (trigram, rank) VALUES ('automerge', 0);
    INSERT INTO trigram (trigram, rank) VALUES ('crisismerge', 1000);
"""

_STAGING = """
    PRAGMA staging.page_size = 8192;
    PRAGMA staging.journal_mode = OFF;
    PRAGMA staging.synchronous = OFF;
    CREATE TABLE staging.stated (key TEXT, weight INTEGER, mid TEXT, text TEXT, own_name TEXT);
    BEGIN;
"""

_FINISH = (
    "INSERT INTO name SELECT * FROM stated ORDER BY key, weight DESC, mid",
    f"INSERT INTO key (key, popularity) SELECT key, max(weight & {POPULARITY_MASK}) AS popularity "
    "FROM name GROUP BY key ORDER BY popularity DESC, key",
    "INSERT INTO trigram (rowid, key) SELECT id, key FROM key",
    "INSERT INTO trigram (trigram) VALUES ('optimize')",
    "COMMIT",
)

_Row: TypeAlias = tuple[str, int, str, str, str | None]


class NamedEntity(NamedTuple):
    """An entity and its names.

    Attributes:
        mid: Its id.
        popularity: The number of triples that hold it.
        names: Texts as in the graph, each with whether it is an alias, in the dump's order; the
            first own name is what the entity is called by.
    """

    mid: str
    popularity: int
    names: list[tuple[str, bool]]


class NameIndexBuilder:
    """Takes entities with their names, then writes the index; takes some 150 MB of memory."""

    def __init__(self, path: Path) -> None:
        """Begin an index; what a killed build has left at the path is deleted."""
        self._staging = path.with_name(f"{path.name}.staging")
        path.unlink(missing_ok=True)
        self._staging.unlink(missing_ok=True)
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.executescript(_TABLES)
        self._connection.execute("ATTACH ? AS staging", (str(self._staging),))
        self._connection.executescript(_STAGING)
        self._count = 0

    def add(self, entities: Iterable[NamedEntity]) -> None:
        """Take entities in any order, each of them once."""
        added = self._connection.executemany(
            "INSERT INTO stated VALUES (?, ?, ?, ?, ?)", _rows(entities)
        )
        self._count += added.rowcount

    def finish(self) -> int:
        """Write the index and close the file.

        Returns:
            How many names and aliases the index holds; those of one entity that normalise to the
            same count once.
        """
        # SQLite would sort in /tmp, which may be small, or memory.
        directory = str(self._staging.parent.resolve()).replace("'", "''")
        self._connection.execute(f"PRAGMA temp_store_directory = '{directory}'")
        try:
            for statement in _FINISH:
                self._connection.execute(statement)
        finally:
            self._connection.execute("PRAGMA temp_store_directory = ''")
            self.close()
        return self._count

    def close(self) -> None:
        """Close the file, finished or not."""
        self._connection.close()
        self._staging.unlink(missing_ok=True)


def _rows(entities: Iterable[NamedEntity]) -> Iterator[_Row]:
    for mid, popularity, names in entities:
        if len(names) == 1:
            ((text, is_alias),) = names
            yield normalise(text), name_weight(popularity, is_alias), mid, text, None
            continue
        called = next((text for text, is_alias in names if not is_alias), None)
        keys: set[str] = set()
        # Own names first: an alias that normalises to the same adds nothing.
        for text, is_alias in sorted(names, key=lambda name: name[1]):
            key = normalise(text)
            if key not in keys:
                keys.add(key)
                own_name = called if called != text else None
                yield key, name_weight(popularity, is_alias), mid, text, own_name
