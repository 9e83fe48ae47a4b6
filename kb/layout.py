"""Where a store keeps its parts on disk, and the manifest that marks it as finished.

A store is a directory. It is written under `StoreLayout.building` and its parts are then moved into
place, the manifest last: a directory without a manifest is no store, whatever else it holds.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from kbqa.kb.durable import write_safely
from kbqa.sparql.errors import StoreError

SCHEMA_VERSION = 3
"""Version of the layout and of every file in it; a store of another version is loaded anew."""


@dataclass(frozen=True, slots=True)
class LineCounts:
    """What a load read and what became of it; ``read = kept + filtered + rejected``.

    Attributes:
        read: Lines of the dumps.
        kept: Triples handed to the store, repetitions included.
        filtered: Lines left out on purpose, by reason.
        rejected: Lines that are no triples, by reason.
        mended: Defects that were mended, by name; their lines count as kept or filtered.
        seconds: Time spent, over all runs of a load that was resumed.
        size_bytes: What came of it, on disk.
    """

    read: int
    kept: int
    filtered: Mapping[str, int]
    rejected: Mapping[str, int]
    mended: Mapping[str, int]
    seconds: float
    size_bytes: int


@dataclass(frozen=True, slots=True)
class LoadSummary(LineCounts):
    """What came of loading a store.

    Attributes:
        entities: Distinct machine ids among the triples, mediators included.
        names: Names and aliases in the index.
        properties: Properties in the schema.
        hubs: Nodes whose relations are listed, counted once in each direction.
    """

    entities: int
    names: int
    properties: int
    hubs: int


@dataclass(frozen=True, slots=True)
class DumpFile:
    """A file that a store was loaded from.

    Attributes:
        name: As it was called; ``-`` is standard input.
        size_bytes: Its size as it lies on disk, compressed or not.
        sha256: Of those bytes, in hexadecimal.
    """

    name: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a finished store is made of.

    Attributes:
        versions: The versions of kbqa and pyoxigraph that loaded it.
        rules: What the load left out, as `kbqa.kb.rules` writes it.
        languages: The languages of its name index.
        dumps: What it was loaded from, in order.
        summary: The counts of the load.
    """

    versions: Mapping[str, str]
    rules: str
    languages: tuple[str, ...]
    dumps: tuple[DumpFile, ...]
    summary: LoadSummary


@dataclass(frozen=True, slots=True)
class StoreLayout:
    """The paths inside a store's directory."""

    directory: Path

    @property
    def graph(self) -> Path:
        """The pyoxigraph store."""
        return self.directory / "graph"

    @property
    def names(self) -> Path:
        """The name index, SQLite."""
        return self.directory / "names.sqlite"

    @property
    def schema(self) -> Path:
        """The schema, JSON."""
        return self.directory / "schema.json"

    @property
    def statistics(self) -> Path:
        """The counts and the hubs' relations, SQLite."""
        return self.directory / "statistics.sqlite"

    @property
    def rejects(self) -> Path:
        """The lines that are no triples, with reasons; tab-separated values."""
        return self.directory / "rejects.tsv"

    @property
    def manifest(self) -> Path:
        """The manifest, written last."""
        return self.directory / "manifest.json"

    @property
    def building(self) -> Path:
        """The folder in which a load works, laid out alike; it is gone when the load has ended."""
        return self.directory / "building"

    @property
    def checkpoint(self) -> Path:
        """How far the load is that works in this folder, JSON."""
        return self.directory / "checkpoint.json"

    @property
    def lock(self) -> Path:
        """Held by the load that works in this folder."""
        return self.directory / "lock"

    @property
    def runs(self) -> Path:
        """What the shards say for the side indexes."""
        return self.directory / "runs"

    def shard(self, number: int) -> Path:
        """A shard of the load that works in this folder: plain N-Triples."""
        return self.directory / f"shard-{number:05}.nt"

    @property
    def is_finished(self) -> bool:
        """Tell whether a load ran to its end here."""
        return self.manifest.is_file()


def write_manifest(path: Path, manifest: Manifest) -> None:
    """Write a manifest at once: a reader, or a crash, sees all of it or none."""
    fields = {"schema_version": SCHEMA_VERSION, **asdict(manifest)}
    write_safely(path, json.dumps(fields, indent=2) + "\n")


def read_manifest(directory: Path) -> Manifest:
    """Read the manifest of a finished store.

    Raises:
        StoreError: There is no such directory, no finished store in it, or one of another version.
    """
    layout = StoreLayout(directory)
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
        if version == SCHEMA_VERSION:
            return Manifest(
                versions=fields["versions"],
                rules=fields["rules"],
                languages=tuple(fields["languages"]),
                dumps=tuple(DumpFile(**dump) for dump in fields["dumps"]),
                summary=LoadSummary(**fields["summary"]),
            )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(
            f"{layout.manifest} cannot be read ({error}). Load the store anew."
        ) from error
    raise StoreError(
        f"{directory} was written in version {version} of the store format, and this kbqa reads "
        f"version {SCHEMA_VERSION}. Load the store anew with --overwrite."
    )
