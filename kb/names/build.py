"""Build the name index from the names of entities; `kbqa.kb.names.index` reads it.

Memory does not grow with the number of names: they are staged in a second file, SQLite sorts them
on disk, and each table is then written from its beginning to its end.
"""

import sqlite3
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import polars as pl

from kbqa.kb.names.index import (
    POPULARITY_MASK,
    deletion_forms,
    is_spelled,
    name_weight,
    word_errors,
)
from kbqa.kb.names.keys import normalise

_CACHE_KIB = 64 << 10
# Fits the cache of a core. With the default of FTS5, 1 MB, inserting words takes 1.7 times as long;
# with 16 MB, 3.5 times.
_HASH_BYTES = 256 << 10

# No journal: the file is thrown away with the whole unfinished store if the machine stops.
_TABLES = f"""
    PRAGMA page_size = 8192;
    PRAGMA auto_vacuum = INCREMENTAL;
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
    CREATE TABLE word (id INTEGER PRIMARY KEY, word TEXT NOT NULL);
"""

# Words are the texts between spaces. They are collected in hashes, which are merged at the end.
_WORD_INDEX = f"""
    CREATE VIRTUAL TABLE {{name}} USING fts5(
        {{column}}, content='', columnsize=0, detail=none,
        tokenize="unicode61 remove_diacritics 0 categories 'L* M* N* P* S* C*'"
    );
    INSERT INTO {{name}} ({{name}}, rank) VALUES ('hashsize', {_HASH_BYTES});
    INSERT INTO {{name}} ({{name}}, rank) VALUES ('automerge', 0);
    INSERT INTO {{name}} ({{name}}, rank) VALUES ('crisismerge', 1000);
"""

_STAGING = """
    PRAGMA staging.page_size = 8192;
    PRAGMA staging.journal_mode = OFF;
    PRAGMA staging.synchronous = OFF;
    CREATE TABLE staging.unsorted (key TEXT, weight INTEGER, mid TEXT, text TEXT, own_name TEXT);
    BEGIN;
"""

_FINISH = (
    "INSERT INTO name SELECT * FROM unsorted ORDER BY key, weight DESC, mid",
    f"INSERT INTO key (key, popularity) SELECT key, max(weight & {POPULARITY_MASK}) AS popularity "
    "FROM name GROUP BY key ORDER BY popularity DESC, key",
    "INSERT INTO key_word (rowid, key) SELECT id, key FROM key",
    "INSERT INTO key_word (key_word) VALUES ('optimize')",
    "CREATE VIRTUAL TABLE vocabulary USING fts5vocab(key_word, row)",
    "INSERT INTO word (word) SELECT term FROM vocabulary WHERE is_spelled(term) "
    "ORDER BY doc DESC, term",
    "DROP TABLE vocabulary",
    "INSERT INTO word_form (rowid, form) SELECT id, forms(word) FROM word",
    "INSERT INTO word_form (word_form) VALUES ('optimize')",
    "COMMIT",
)

_POLL_S = 0.1

# Names in which normalisation changes only the case and the words of `_TREATED_WORD`.
_PLAIN_NAME = "^[A-Za-z0-9]{2,}(?: [A-Za-z0-9]{2,})*$"
_TREATED_WORD = r"^the |\bst "


class NameIndexBuilder:
    """Collects entities with their names, then writes the index, in some 150 MB of memory.

    It first deletes the files that a killed build left.
    """

    def __init__(self, path: Path) -> None:
        self._staging = path.with_name(f"{path.name}.staging")
        path.unlink(missing_ok=True)
        self._staging.unlink(missing_ok=True)
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._connection.create_function("is_spelled", 1, is_spelled)
        self._connection.create_function("forms", 1, _forms)
        self._connection.executescript(_TABLES)
        self._connection.executescript(_WORD_INDEX.format(name="key_word", column="key"))
        self._connection.executescript(_WORD_INDEX.format(name="word_form", column="form"))
        self._connection.execute("ATTACH ? AS staging", (str(self._staging),))
        self._connection.executescript(_STAGING)
        self._count = 0

    def add(self, names: pl.DataFrame) -> None:
        """Add names and aliases, all those of an entity at once.

        The columns are ``mid``, ``popularity`` (triples that hold the entity), ``text`` (as in the
        graph) and ``is_alias``. An entity is shown by its first own name.
        """
        weights = names.select("popularity", "is_alias").unique()
        weight = pl.Series([name_weight(*row) for row in weights.iter_rows()], dtype=pl.Int64)
        own_names = names.filter(~pl.col("is_alias")).unique("mid", keep="first")
        rows = (
            names.with_columns(_keys(names["text"]).alias("key"))
            # Own names first: an alias that normalises to the same adds nothing.
            .sort("is_alias", maintain_order=True)
            .unique(["mid", "key"], keep="first")
            .join(weights.with_columns(weight=weight), on=["popularity", "is_alias"])
            .join(own_names.select("mid", own_name="text"), on="mid", how="left")
            .with_columns(own_name=pl.when(pl.col("own_name") != pl.col("text")).then("own_name"))
            .select("key", "weight", "mid", "text", "own_name")
        )
        self._connection.executemany(
            "INSERT INTO unsorted VALUES (?, ?, ?, ?, ?)", rows.iter_rows()
        )
        self._count += rows.height

    def finish(self) -> int:
        """Write the index, close the file, and return the number of names and aliases in it.

        Those of one entity that normalise to the same key count once.
        """
        # In a thread, which gets no signals: Ctrl-C in a function that SQLite calls would become an
        # error of SQLite's, and elsewhere it would wait for the end of a statement.
        with ThreadPoolExecutor(1) as pool:
            finishing = pool.submit(self._finish)
            try:
                finishing.result()
            except BaseException:
                while not finishing.done():  # between two statements there is nothing to interrupt
                    self._connection.interrupt()
                    wait([finishing], _POLL_S)
                raise
        self.close()
        return self._count

    def _finish(self) -> None:
        # SQLite would sort in /tmp, which may be small, or memory.
        directory = str(self._staging.parent.resolve()).replace("'", "''")
        self._connection.execute(f"PRAGMA temp_store_directory = '{directory}'")
        try:
            for statement in _FINISH:
                self._connection.execute(statement)
            # Merging has freed a tenth of the file. A script, because each page is one step.
            self._connection.executescript("PRAGMA incremental_vacuum")
        finally:
            self._connection.execute("PRAGMA temp_store_directory = ''")

    def close(self) -> None:
        """Close the file, finished or not."""
        self._connection.close()
        self._staging.unlink(missing_ok=True)


def _keys(names: pl.Series) -> pl.Series:
    """Normalise names: the plain ones all together, which takes a tenth of the time."""
    lower = names.str.to_lowercase()
    is_plain = names.str.contains(_PLAIN_NAME) & ~lower.str.contains(_TREATED_WORD)
    others = (~is_plain).arg_true()
    return lower.scatter(others, [normalise(name) for name in names.gather(others)])


def _forms(word: str) -> str:
    return " ".join(deletion_forms(word, word_errors(word)))
