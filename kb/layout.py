"""The parts of a store on disk, the manifest that marks it as finished, and its SQLite files.

A store is written under `StoreLayout.building`, and its parts are then moved into place, the
manifest last: a directory without a manifest is not a store, whatever else it holds.
"""

import json
import os
import secrets
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self, cast

from kbqa.sparql.errors import StoreError

if TYPE_CHECKING:
    import sqlite3

SCHEMA_VERSION = 3
"""Version of the layout and of every file in it; a store of another version is loaded again."""

RUN_KINDS = ("nodes", "edges", "noted")  # of the files in `StoreLayout.runs`

_DUMP_SUFFIXES = frozenset({".nt", ".nq", ".ttl", ".gz", ".xz", ".bz2", ".zst"})


@dataclass(frozen=True, slots=True)
class LineCounts:
    """The lines that a load read; ``read = kept + filtered + rejected``."""

    read: int
    kept: int  # triples written, repetitions included
    filtered: Mapping[str, int]  # lines left out on purpose, by reason
    rejected: Mapping[str, int]  # lines that are not triples, by reason
    mended: Mapping[str, int]  # lines with repaired defects; they count as kept or filtered

    def __add__(self, other: "LineCounts") -> "LineCounts":
        return LineCounts(
            self.read + other.read,
            self.kept + other.kept,
            dict(Counter(self.filtered) + Counter(other.filtered)),
            dict(Counter(self.rejected) + Counter(other.rejected)),
            dict(Counter(self.mended) + Counter(other.mended)),
        )

    def reject(self, lines: int, reason: str) -> "LineCounts":
        """Return the counts with some of the kept lines rejected instead."""
        return self + LineCounts(0, -lines, {}, {reason: lines}, {}) if lines else self


NO_LINES = LineCounts(0, 0, {}, {}, {})


@dataclass(frozen=True, slots=True)
class OutputSummary(LineCounts):
    """The counts of a finished load into shards."""

    seconds: float  # over all runs of a load that was resumed
    size_bytes: int  # of the output on disk


@dataclass(frozen=True, slots=True)
class LoadSummary(OutputSummary):
    """The counts of a finished load into a store."""

    entities: int  # distinct machine ids among the triples, mediators included
    names: int  # names and aliases in the index
    properties: int  # in the schema
    hubs: int  # nodes whose relations are listed, counted once in each direction


@dataclass(frozen=True, slots=True)
class DumpFile:
    """A file that a store was loaded from."""

    name: str  # as the user gave it; `-` is standard input
    size_bytes: int  # on disk, compressed or not
    sha256: str  # of those bytes, in hexadecimal


@dataclass(frozen=True, slots=True)
class Manifest:
    """The origin of a finished store."""

    versions: Mapping[str, str]  # of kbqa and pyoxigraph
    rules: str  # what the load left out, as TOML
    languages: tuple[str, ...]  # of the name index
    dumps: tuple[DumpFile, ...]  # in order
    summary: LoadSummary


class StoreLayout:
    """The paths inside a store's directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        # The parts of a store.
        self.graph = directory / "graph"  # pyoxigraph's
        self.names = directory / "names.sqlite"
        self.schema = directory / "schema.json"
        self.statistics = directory / "statistics.sqlite"
        self.rejects = directory / "rejects.tsv"  # the lines that are not triples, with reasons
        self.manifest = directory / "manifest.json"  # written last
        # The folder that a load works in, with the same layout; deleted when it has ended.
        self.building = directory / "building"
        # What a load keeps in the folder that it works in.
        self.checkpoint = directory / "checkpoint.json"
        self.lock = directory / "lock"
        self.runs = directory / "runs"  # what the side indexes are built from

    def shard(self, number: int) -> Path:
        """The file of a shard, plain N-Triples."""
        return self.directory / f"shard-{number:05}.nt"

    def run(self, shard: int, kind: str) -> Path:
        """The Parquet file of a shard's run, of one of `RUN_KINDS`."""
        return self.runs / f"{shard:05}.{kind}.parquet"

    @property
    def is_finished(self) -> bool:
        """Whether a load has finished here."""
        return self.manifest.is_file()


def write_manifest(path: Path, manifest: Manifest) -> None:
    """Write a manifest whole or not at all, even in a crash."""
    fields = {"schema_version": SCHEMA_VERSION, **asdict(manifest)}
    write_safely(path, json.dumps(fields, indent=2) + "\n")


def read_manifest(directory: Path) -> Manifest:
    """Read the manifest of a finished store; raises `StoreError`."""
    return parse_manifest(directory, check_manifest(directory))


def parse_manifest(directory: Path, fields: Mapping[str, object]) -> Manifest:
    """Read a manifest from what `check_manifest` returned."""
    from pydantic import TypeAdapter

    known = {name: value for name, value in fields.items() if name != "schema_version"}
    try:
        return TypeAdapter(Manifest).validate_python(known)
    except ValueError as error:
        raise _unreadable(StoreLayout(directory).manifest, error) from error


def check_manifest(directory: Path) -> dict[str, object]:
    """Check that a directory holds a finished store of this version, and return its manifest.

    Otherwise it raises `StoreError`.
    """
    # Opening a store needs no more; pydantic alone takes as long to import as a query does.
    layout = StoreLayout(directory)
    if directory.is_file() and not _DUMP_SUFFIXES.isdisjoint(directory.suffixes):
        raise StoreError(
            f"{directory} is a dump, not a store. Load it with "
            f"`kbqa load-freebase {directory} --store DIR`, then use --store DIR."
        )
    if directory.is_file():
        raise StoreError(
            f"{directory} is a file, not a store. A store is a folder that `kbqa load-freebase` "
            "wrote."
        )
    if not directory.is_dir():
        raise StoreError(
            f"there is no store at {directory}. Make one with "
            f"`kbqa load-freebase DUMP --store {directory}`."
        )
    if not layout.is_finished:
        state = "the load has not finished" if layout.building.exists() else "it holds no manifest"
        raise StoreError(
            f"{directory} is not a finished store: {state}. "
            f"Run `kbqa load-freebase DUMP --store {directory}` to its end."
        )
    try:
        fields = json.loads(layout.manifest.read_text(encoding="utf-8"))
        version = fields["schema_version"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise _unreadable(layout.manifest, error) from error
    if version != SCHEMA_VERSION:
        raise StoreError(
            f"{directory} has version {version} of the store format, and this kbqa reads version "
            f"{SCHEMA_VERSION}. Load the store again with --overwrite."
        )
    return cast(dict[str, object], fields)


def _unreadable(path: Path, error: Exception) -> StoreError:
    return StoreError(f"{path} cannot be read ({error}). Load the store again.")


def write_safely(path: Path, text: str) -> None:
    """Replace a file's content: even a crash of the machine leaves the old or the new, whole."""
    unfinished = path.with_name(f"{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with unfinished.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    sync(path.parent)


def sync(path: Path) -> None:
    """Wait until a file's content, or a directory's entries, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class SqliteFile:
    """A SQLite file that no process writes to any more. Any number of threads may use one object.

    Everything but `close` may raise `StoreError`.
    """

    KIND: ClassVar[str]  # names it in messages
    PROBE: ClassVar[str]  # a statement that fails on a file of another kind and reads no rows

    def __init__(self, path: Path) -> None:
        import sqlite3

        self._path = path
        # SQLite takes one statement at a time on a connection.
        self._lock = threading.Lock()
        self._is_closed = False
        if not path.is_file():
            raise StoreError(f"there is no {self.KIND} at {path}. Load the store again.")
        try:
            # Immutable: no look at the file's lock at each query, a third of a short one's time.
            self._connection = sqlite3.connect(
                f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True, check_same_thread=False
            )
        except sqlite3.DatabaseError as error:
            raise self._damage(error) from error
        self._connection.row_factory = sqlite3.Row
        # A view in place of a table may be endless, and SQLite has no time limit.
        views = self._rows("SELECT name FROM sqlite_schema WHERE type = 'view'")
        if views:
            raise self._damage(f"it has the view {views[0]['name']}")
        self._rows(self.PROBE)

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open a file for reading, or raise `StoreError`."""
        return cls(path)

    def _rows(self, sql: str, *parameters: str | int) -> "list[sqlite3.Row]":
        """Fetch all rows of a statement."""
        import sqlite3

        with self._lock:
            if self._is_closed:
                raise StoreError(f"the {self.KIND} {self._path} was closed. Open the graph again.")
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
        return StoreError(f"{self._path} is no {self.KIND} ({error}). Load the store again.")
