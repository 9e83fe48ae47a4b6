"""A load into a store or into shards: its settings, its forecast, and the flow of its shards.

`LoadJob` alone changes and saves the checkpoint. A shard counts once it is on disk and the
checkpoint names it. It is deleted once the sink has taken it and the checkpoint says so.
"""

import os
import re
import shutil
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Literal, Protocol

from kbqa.kb.layout import (
    SCHEMA_VERSION,
    DumpFile,
    Manifest,
    OutputSummary,
    StoreLayout,
)
from kbqa.kb.loading.checkpoint import Checkpoint, Plan, find_unfinished, locked
from kbqa.kb.loading.dump import STDIN, DumpReader, dump_size_bytes
from kbqa.kb.loading.filter_block import REFUSED, BlockFilter, RejectsFile
from kbqa.kb.loading.rules import FilterRules, profile
from kbqa.kb.loading.shards import Shard, ShardSink, fill_shards
from kbqa.sparql.errors import DumpError, InputError

# Size of a finished store for each triple, names and statistics included, measured at 26 million
# triples; 150 below some 10 million, where RocksDB does not compress yet.
STORE_BYTES = 110

# Peak disk space of a load for each triple: while RocksDB merges files, it keeps the old ones too
# (193 and 228 in two loads of 3 million).
PEAK_BYTES = 230

_MIN_SHARDS = 8

# pyoxigraph sorts a million triples at a time. Half a million fits the caches better, takes a third
# of the memory (1.0 instead of 3.4 GB for two loaders), and a kill loses less.
_MAX_SHARD_TRIPLES = 500_000
_MIN_SHARD_TRIPLES = 100_000

# Dumps up to this size are counted. The start of a larger one says nothing about the rest: it has
# the schema, and all the instances of each type.
_WHOLE_BYTES = 64 << 20

# The final dump of Freebase has 3.13 billion lines, 32.2 GB compressed, 400 GB plain.
_PLAIN_LINE_BYTES = 129
_PACKED_LINE_BYTES = 10.3

KEPT_SHARE = 0.45
"""Share of lines kept by rules that drop some. A guess between what others kept of the final dump
(954.5 million triples, 0.31) and what is kept of the dumps of tools/make/dump.py (0.57)."""

LoadStage = Literal["reading", "loading", "compacting", "indexing"]

# Free disk space to keep, in shards of the last one's size: with none, a load could not resume.
_SPARE_SHARDS = 4

# Shards that reading may be ahead of a sink, if the store is not compacted: then the names are
# built on one core while the last shards are loaded. Otherwise they are built during compaction,
# which takes the other core.
_AHEAD_SHARDS = 8

# The names in the folder that a load works in, with those of files that a kill may leave.
_OF_A_LOAD = re.compile(
    r"lock|runs|rejects\.tsv|graph(\.clean|\.old)?|shard-\d+\.(nt|cleaned)|etilqs_\w+"
    r"|(names|statistics)\.sqlite(\.staging)?(-journal)?"
    r"|(checkpoint|manifest|schema)\.json(\.[0-9a-f]+\.tmp)?"
)


@dataclass(frozen=True, slots=True)
class Forecast:
    """The expected size of a load, if its dumps are like Freebase's."""

    lines: int  # of the dumps
    triples: int  # those kept
    free_bytes: int  # on the disk of the store

    @property
    def store_bytes(self) -> int:
        """Size of the finished store."""
        return self.triples * STORE_BYTES

    @property
    def peak_bytes(self) -> int:
        """Disk space that the load needs."""
        return self.triples * PEAK_BYTES


def forecast(dumps: Sequence[str], directory: Path, rules: FilterRules) -> Forecast | None:
    """Forecast a load: exactly for small dumps, by the shape of Freebase for large ones.

    Returns None if a dump is standard input or a pipe, which can be read only once.
    """
    if None in [dump_size_bytes(dump) for dump in dumps]:
        return None
    sizes = [_estimate(dump, rules) for dump in dumps]
    return Forecast(
        sum(lines for lines, _ in sizes),
        sum(triples for _, triples in sizes),
        _free_bytes(directory),
    )


def shard_size(expected: Forecast | None) -> int:
    """Choose the triples in a shard: at least 8 shards, but none too small or too large."""
    if expected is None:
        return _MAX_SHARD_TRIPLES
    return min(max(expected.triples // _MIN_SHARDS, _MIN_SHARD_TRIPLES), _MAX_SHARD_TRIPLES)


def check_disk(expected: Forecast, directory: Path) -> None:
    """Raise `InputError` if the disk is too small for a load."""
    if expected.peak_bytes > expected.free_bytes:
        raise InputError(
            f"loading about {expected.triples:,} triples takes {expected.peak_bytes / 1e9:,.1f} GB "
            f"of disk space, and {directory} has {expected.free_bytes / 1e9:,.1f} GB free. Choose "
            "another disk, drop more with --rules, or start anyway with --no-disk-check."
        )


def _estimate(dump: str, rules: FilterRules) -> tuple[int, int]:
    """Return the number of lines in a dump, and of triples kept."""
    lines = triples = 0
    block_filter = BlockFilter(rules)
    with closing(DumpReader(dump)) as reader:
        for block in reader.blocks():
            if block.end > _WHOLE_BYTES:
                break
            counts = block_filter(block).counts
            lines += counts.read
            triples += counts.kept
        else:
            return lines, triples
    size_bytes = dump_size_bytes(dump)
    assert size_bytes is not None, "it is a file"
    is_packed = block.bytes_read < block.end / 2
    lines = round(size_bytes / (_PACKED_LINE_BYTES if is_packed else _PLAIN_LINE_BYTES))
    return lines, round(lines * (KEPT_SHARE if rules.drops else 1))


def _free_bytes(directory: Path) -> int:
    existing = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    return shutil.disk_usage(existing).free


class LoadProgress(Protocol):
    """Receives the progress of a load."""

    def begin(self, expected: Forecast | None, triples_loaded: int) -> None:
        """A load starts, or resumes with this many triples loaded before."""

    def advance(self, stage: LoadStage, bytes_read: int, triples_loaded: int) -> None:
        """The load is in this stage; `bytes_read` counts all dumps as they are on disk."""


class SilentProgress:
    """Shows no progress."""

    def begin(self, expected: Forecast | None, triples_loaded: int) -> None:
        """Ignore the start."""

    def advance(self, stage: LoadStage, bytes_read: int, triples_loaded: int) -> None:
        """Ignore a step."""


@dataclass(frozen=True, slots=True)
class LoadSettings:
    """Settings of a load that do not change its output."""

    strict: bool = False  # stop at the first line that needs repair or is rejected
    shard_triples: int | None = None  # None to choose by the size of the dumps
    loaders: int | None = None  # shards loaded at once; None for one a core, at most eight
    checks_disk: bool = True  # refuse to start if the disk seems too small
    compacts: bool = True  # merge the store's files at the end, so that queries are faster

    @property
    def sinks(self) -> int:
        """Shards loaded at the same time; each takes a core, and memory (docs/freebase.md)."""
        return self.loaders or min(8, cores())


class LoadJob:
    """A load in the folder `work`, until every shard is taken.

    The defaults are the profile ``qa``, the default settings and no progress. A missing dump raises
    `InputError`.
    """

    state: Checkpoint  # set by `begin`

    def __init__(
        self,
        dumps: Sequence[str | Path],
        work: StoreLayout,
        rules: FilterRules | None,
        settings: LoadSettings | None,
        progress: LoadProgress | None,
    ) -> None:
        if not dumps:
            raise InputError("no dump was given.")
        self.work = work
        self.rules = rules or profile("qa")
        self.settings = settings or LoadSettings()
        self.progress = progress or SilentProgress()
        self._dumps = [str(dump) for dump in dumps]
        self._started = time.monotonic()
        self._identities = tuple(_identity(dump) for dump in self._dumps)

    def check_directory(self, manifest: Path, parts: Collection[Path], *, is_placing: bool) -> None:
        """Check that the output's folder, where a load deletes files, has only files of kbqa.

        A finished load leaves the manifest and the parts; `is_placing` says that a stopped one left
        parts and no manifest yet. Raises `InputError` if a file there is not kbqa's, is a link, or
        is a dump.
        """
        directory, work = self.work.directory.parent, self.work.directory
        if directory.exists() and not directory.is_dir():
            raise InputError(f"{directory} is a file. Give a folder to write to.")
        if not directory.is_dir():
            return
        found = sorted(directory.iterdir())
        if foreign := sorted({*found} - {*parts, manifest, work}):
            raise InputError(f"{directory} holds {foreign[0].name}. Choose an empty folder.")
        _refuse_links(found)
        for dump in self._dumps:
            if dump != STDIN and directory.resolve() in Path(dump).resolve().parents:
                raise InputError(f"{dump} is in {directory}, which is to be written. Move it away.")
        ours = [part for part in found if part != work]
        if ours and not is_placing and not _is_kbqas(manifest):
            raise InputError(
                f"{directory} holds {ours[0].name}, and no {manifest.name} that kbqa wrote. "
                "Choose an empty folder, or delete this one if you do not need it."
            )
        if work in found:
            _check_work(self.work)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Lock the folder. If the load fails with nothing to resume, remove all that it created."""
        folders = (self.work.directory, *self.work.directory.parents)
        created = [folder for folder in folders if not folder.exists()]
        try:
            with locked(self.work):
                try:
                    yield
                except BaseException:
                    # Before the first checkpoint no shard is complete.
                    if not self.work.checkpoint.exists():
                        shutil.rmtree(self.work.directory, ignore_errors=True)
                    raise
        except BaseException:
            for folder in created:
                with suppress(OSError):  # A folder with something in it stays.
                    folder.rmdir()
            raise

    def begin(
        self, output: str, overwrite: bool, check: Callable[[Checkpoint], None] = lambda _: None
    ) -> None:
        """Resume a load with the same kind of output, or start one; see `find_unfinished`."""
        plan = self._plan(output)
        found = find_unfinished(self.work, plan, overwrite, check)
        if found is not None:
            self.state = found
            self._started -= found.seconds
            self.progress.begin(None, found.triples_loaded)
            return
        expected = forecast(self._dumps, self.work.directory, self.rules)
        self.progress.begin(expected, 0)
        if expected is not None and self.settings.checks_disk:
            check_disk(expected, self.work.directory.parent)
        self.state = Checkpoint(plan, self.settings.shard_triples or shard_size(expected))

    def fill(self, sink: ShardSink) -> None:
        """Read the rest of the dumps, and submit all shards that the sink has not taken."""
        state = self.state
        for number in state.unloaded:
            sink.submit(self.work.shard(number))
        if state.is_read:
            return
        block_filter = BlockFilter(self.rules, strict=self.settings.strict)
        shard_triples = self.settings.shard_triples or state.shard_triples
        steps = fill_shards(self._dumps, self.work, state, block_filter, shard_triples, cores())
        with closing(steps):
            for step in steps:
                self.progress.advance("reading", step.bytes_read, state.triples_loaded)
                self._take(sink, sink.pending)
                state.is_read = step.dumps is not None
                if step.shard is not None:
                    self._complete(step.shard, sink)
                elif step.dumps is not None:
                    state.dumps = step.dumps
                    self.save()

    def drain(self, sink: ShardSink) -> None:
        """Wait until the sink has taken every shard."""
        while self.state.unloaded:
            self.advance("loading")
            self._take(sink, sink.pending - 1)
        # The lines that the sink refused go to the end, when all of them are known.
        rejects = RejectsFile(self.work.rejects, self.state.rejects_bytes)
        rejects.add_refused(self.state.refused)
        rejects.close()

    def advance(self, stage: LoadStage) -> None:
        """Report that all dumps are read and the load is in this stage."""
        bytes_read = sum(dump.size_bytes for dump in self.state.dumps)
        self.progress.advance(stage, bytes_read, self.state.triples_loaded)

    def save(self) -> None:
        """Write the checkpoint."""
        self.state.seconds = self._seconds
        self.state.save(self.work.checkpoint)

    def dump_files(self) -> tuple[DumpFile, ...]:
        """Describe the dumps, once all are read."""
        return tuple(
            DumpFile(name, read.size_bytes, read.sha256)
            for name, read in zip(self._dumps, self.state.dumps, strict=True)
        )

    def summary(self, size_bytes: int) -> OutputSummary:
        """Return the counts of all lines, with the size of the output."""
        counts = asdict(self.state.counts)
        return OutputSummary(**counts, seconds=self._seconds, size_bytes=size_bytes)

    def has_made(self, store: Manifest) -> bool:
        """Return whether a finished store was loaded from these dumps, by these rules."""
        names = [dump.name for dump in store.dumps]
        return names == self._dumps and store.rules == self.rules.to_toml()

    @property
    def _seconds(self) -> float:
        return round(time.monotonic() - self._started, 3)

    def _plan(self, output: str) -> Plan:
        formats = ("layout", str(SCHEMA_VERSION))
        return Plan(output, self._identities, self.rules.to_toml(), (*versions().items(), formats))

    def _complete(self, shard: Shard, sink: ShardSink) -> None:
        """Note a complete shard, and have the sink take it."""
        state = self.state
        counts = state.counts + shard.counts
        if state.is_read and not counts.kept:
            raise DumpError(
                f"none of the {counts.read:,} lines read is a triple to keep. "
                "Check the rules with --show, or keep everything with --profile full."
            )
        state.counts = counts
        state.relations.update(shard.relations)
        state.types.update(shard.types)
        state.node_rows += shard.node_rows
        state.rejects_bytes = shard.rejects_bytes
        state.position, state.dumps = shard.position, shard.dumps
        state.unloaded[state.shards] = shard.counts.kept
        state.shards += 1
        self.save()
        sink.submit(shard.path)
        if not state.is_read:
            # Few shards wait while the sink is busy with others, to save disk space.
            ahead = 0 if self.settings.compacts else _AHEAD_SHARDS
            self._take(sink, self.settings.sinks + ahead)
            _check_disk(shard.path.parent, shard.size_bytes)

    def _take(self, sink: ShardSink, allowed: int) -> None:
        """Note the shards that the sink has taken; wait until at most `allowed` are pending."""
        state = self.state
        while (taken := sink.take(wait=sink.pending > allowed)) is not None:
            number = next(n for n in state.unloaded if self.work.shard(n) == taken.path)
            state.triples_loaded += state.unloaded.pop(number) - len(taken.refused)
            state.counts = state.counts.reject(len(taken.refused), REFUSED)
            state.refused += [
                f"shard {number}, line {line}: {text}" for line, text in taken.refused.items()
            ]
            self.save()
            taken.path.unlink()


@contextmanager
def naming_write_errors(output: str) -> Iterator[None]:
    """Turn errors of the file system and SQLite into a `DumpError` that names the output."""
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        reason = str(error)
        if isinstance(error, OSError) and error.strerror and error.filename:
            reason = f"{error.filename}: {error.strerror}"
        raise DumpError(
            f"{output} cannot be written ({reason}). Check that you may write there and that the "
            "disk has free space, then run the same command again."
        ) from error


def versions() -> dict[str, str]:
    """Return the versions of the packages that determine the output."""
    return {package: version(package) for package in ("kbqa", "polars", "pyoxigraph")}


def cores() -> int:
    """Return the number of cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS cannot keep a process from a core
        return os.cpu_count() or 1


def _identity(dump: str) -> tuple[str, str]:
    """Return a dump's path, and a text that changes when the file does."""
    if dump_size_bytes(dump) is None:
        return dump, "a stream"
    path = Path(dump).resolve()
    changed = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    return str(path), f"{path.stat().st_size:,} bytes of {changed:%Y-%m-%d %H:%M:%S.%f} UTC"


def _check_work(work: StoreLayout) -> None:
    """Refuse a folder that is not a load's: a load deletes the files that it does not need."""
    is_folder = work.directory.is_dir()
    found = sorted(work.directory.iterdir()) if is_folder else []
    _refuse_links(found)
    # Nobody but a load has this lock, which is empty, or its checkpoint.
    is_ours = work.checkpoint in found or (work.lock in found and not work.lock.stat().st_size)
    foreign = [path.name for path in found if not is_ours or not _OF_A_LOAD.fullmatch(path.name)]
    if foreign or not is_folder:
        holds = f" (it holds {foreign[0]})" if foreign else ""
        raise InputError(
            f"{work.directory} is not the folder of an unfinished load{holds}. "
            "Move it away, or choose an empty folder."
        )


def _refuse_links(paths: Sequence[Path]) -> None:
    if link := next((path for path in paths if path.is_symlink()), None):
        raise InputError(
            f"{link} is a link, which a load does not follow. Remove it. To write to another disk, "
            "give a folder on that disk."
        )


def _is_kbqas(manifest: Path) -> bool:
    """Return whether kbqa wrote a manifest, in this version or another, damaged or not."""
    return manifest.is_file() and manifest.read_bytes().startswith(b'{\n  "schema_version": ')


def _check_disk(directory: Path, shard_bytes: int) -> None:
    free = shutil.disk_usage(directory).free
    if free < _SPARE_SHARDS * shard_bytes:
        raise DumpError(
            f"the disk of {directory} is nearly full ({free / 1e9:.1f} GB left). Free some space "
            "and run the same command again to resume."
        )
