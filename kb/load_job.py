"""What loads have in common, into a store or into shards: plan, checkpoint and pipeline."""

import os
import shutil
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

from kbqa.kb.checkpoint import Checkpoint, Plan, find_unfinished, locked
from kbqa.kb.dump import dump_size_bytes
from kbqa.kb.filter_block import BlockFilter
from kbqa.kb.layout import SCHEMA_VERSION, DumpFile, LineCounts, Manifest, StoreLayout
from kbqa.kb.load_forecast import Forecast, check_disk, forecast, shard_size
from kbqa.kb.rejects import RejectsFile
from kbqa.kb.rules import Rules, profile
from kbqa.kb.shard_pipeline import PipelineSettings, ShardPipeline, ShardSink, Stage
from kbqa.sparql.errors import DumpError, InputError


class Progress(Protocol):
    """Told how far a load is."""

    def begin(self, expected: Forecast | None, triples_loaded: int) -> None:
        """A load begins, or goes on with so many triples loaded before."""

    def advance(self, stage: Stage, bytes_read: int, triples_loaded: int) -> None:
        """The load is in this stage, with so many bytes read of all dumps as they lie on disk."""


class SilentProgress:
    """Says nothing of how far a load is."""

    def begin(self, expected: Forecast | None, triples_loaded: int) -> None:
        """Pass over the beginning."""

    def advance(self, stage: Stage, bytes_read: int, triples_loaded: int) -> None:
        """Pass over a step."""


@dataclass(frozen=True, slots=True)
class LoadSettings:
    """How a load works; what comes out is the same.

    Attributes:
        strict: Stop at the first line that has to be mended or rejected.
        shard_triples: Triples of a shard; None to choose by the size of the dumps.
        loaders: Shards that are loaded at the same time; None to choose by the machine's cores.
        checks_disk: Refuse to begin where the disk will not hold it, as far as can be told.
        compacts: Merge the store's files at the end, so that queries are faster.
    """

    strict: bool = False
    shard_triples: int | None = None
    loaders: int | None = None
    checks_disk: bool = True
    compacts: bool = True

    @property
    def sinks(self) -> int:
        """Shards that are loaded at the same time: one for each core, at most eight.

        Each takes a core for most of its time, and memory (docs/freebase.md).
        """
        return self.loaders or min(8, cores())


class LoadJob:
    """A load, up to the point where every shard is taken.

    Args:
        dumps: Paths, or ``-`` for standard input.
        work: The folder in which it works.
        rules: What is left out; None for the profile ``qa``.
        settings: How to go about it; None for the defaults.
        progress: Told how far the load is.

    Attributes:
        state: The checkpoint.

    Raises:
        InputError: No dump was named, or one does not exist.
    """

    state: Checkpoint

    def __init__(
        self,
        dumps: Sequence[str | Path],
        work: StoreLayout,
        rules: Rules | None,
        settings: LoadSettings | None,
        progress: Progress | None,
    ) -> None:
        if not dumps:
            raise InputError("no dump was named.")
        self.work = work
        self.rules = rules or profile("qa")
        self.settings = settings or LoadSettings()
        self.progress = progress or SilentProgress()
        self._dumps = [str(dump) for dump in dumps]
        self._filter = BlockFilter(self.rules, strict=self.settings.strict)
        self._pipeline: ShardPipeline | None = None
        self._started = time.monotonic()
        self._identities = [_identity(dump) for dump in self._dumps]

    @contextmanager
    def at_work(self, output: str) -> Iterator[None]:
        """Hold the folder, and leave it only where there is something in it to go on with.

        Args:
            output: What the load writes, in words.

        Raises:
            InputError: Another load is at work there.
            DumpError: A file cannot be written.
        """
        with locked(self.work):
            try:
                yield
            except (OSError, sqlite3.Error) as error:
                raise DumpError(
                    f"{output} cannot be written: {error}. Is the disk full, or the folder not "
                    "yours? Run the same command again to go on."
                ) from error
            finally:
                # Before the first checkpoint no shard is complete.
                if not self.work.checkpoint.exists():
                    shutil.rmtree(self.work.directory, ignore_errors=True)

    def begin(self, output: str, overwrite: bool) -> None:
        """Find where to go on, or begin.

        Args:
            output: What the load makes: a load of something else is not gone on with.
            overwrite: Give up an unfinished load that has another plan.

        Raises:
            InputError: An unfinished load has another plan, or the disk is too small.
            DumpError: A dump, or the state of the load, cannot be read.
        """
        plan = self._plan(output)
        found = find_unfinished(self.work, plan, overwrite)
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
        """Read what is left of the dumps, and hand the sink every shard that it has not taken.

        Raises:
            DumpError: A dump cannot be read or holds no triple to keep, or the sink failed.
        """
        settings = PipelineSettings(
            shard_triples=self.settings.shard_triples or self.state.shard_triples,
            filters=cores(),
            sinks=self.settings.sinks,
        )
        self._pipeline = ShardPipeline(
            self._dumps, self.work, self.state, self._filter, settings, self.progress.advance
        )
        self._pipeline.fill(sink)
        counts = self.state.counts
        if not counts.kept:
            raise DumpError(f"none of the {counts.read} lines read is a triple to keep.")

    def drain(self, sink: ShardSink) -> None:
        """Wait until the sink has taken every shard.

        Raises:
            DumpError: The sink failed.
        """
        assert self._pipeline is not None, "there is something to drain"
        self._pipeline.drain(sink)
        # What the sink refused has no place among the lines until no more of them come.
        rejects = RejectsFile(self.work.rejects, self.state.rejects_bytes)
        rejects.add_refused(self.state.refused)
        rejects.close()

    def advance(self, stage: Stage) -> None:
        """Tell the progress that all dumps are read and this stage begins."""
        bytes_read = sum(dump.size_bytes for dump in self.state.dumps)
        self.progress.advance(stage, bytes_read, self.state.triples_loaded)

    def save(self) -> None:
        """Write the checkpoint."""
        self.state.seconds = self._seconds
        self.state.save(self.work.checkpoint)

    def dump_files(self) -> tuple[DumpFile, ...]:
        """Describe the dumps, which were read to their end."""
        return tuple(
            DumpFile(name, read.size_bytes, read.sha256)
            for name, read in zip(self._dumps, self.state.dumps, strict=True)
        )

    def line_counts(self, size_bytes: int) -> LineCounts:
        """Sum up the lines, which were all read; `size_bytes` is what came of them."""
        counts = self.state.counts
        return LineCounts(
            read=counts.read,
            kept=counts.kept,
            filtered=dict(counts.filtered),
            rejected=dict(counts.rejected),
            mended=dict(counts.mended),
            seconds=self._seconds,
            size_bytes=size_bytes,
        )

    def has_made(self, store: Manifest) -> bool:
        """Tell whether a finished store is of these dumps, by these rules."""
        names = [dump.name for dump in store.dumps]
        return names == self._dumps and store.rules == self.rules.to_toml()

    @property
    def _seconds(self) -> float:
        return round(time.monotonic() - self._started, 3)

    def _plan(self, output: str) -> Plan:
        return {
            "output": output,
            "dumps": self._identities,
            "rules": self.rules.to_toml(),
            "versions": [*map(list, versions().items()), ["layout", str(SCHEMA_VERSION)]],
        }


def versions() -> dict[str, str]:
    """Return the versions that what a load writes hangs on."""
    return {package: version(package) for package in ("kbqa", "polars", "pyoxigraph")}


def _identity(dump: str) -> list[str]:
    """Return a dump's path, and what changes when the file does."""
    if dump_size_bytes(dump) is None:
        return [dump, "a stream"]
    path = Path(dump).resolve()
    changed = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    return [str(path), f"{path.stat().st_size:,} bytes of {changed:%Y-%m-%d %H:%M:%S.%f} UTC"]


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))
