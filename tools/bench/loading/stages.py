"""Measure the CPU time of a load's stages, the basis of the estimate in docs/freebase.md.

    python -m tools.bench.loading.stages DUMP [LARGER] --work FOLDER [--loaders 1]

First the dump is only read: unpacked, hashed and cut into blocks. Then it is loaded. This process
reads, filters and builds the side indexes; its child writes the store. Names and schema are built
while the child loads the last shards and compacts, so one line of the table can have parts of both.
Two dumps show the growth, from which the load of the full dump is estimated; docs/freebase.md has
the formulas in words and the limits of the estimate.
"""

import math
import os
import resource
import shutil
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import click

from kbqa.kb.loading.dump import DumpReader
from kbqa.kb.loading.job import KEPT_SHARE, Forecast, LoadSettings, LoadStage
from kbqa.kb.loading.load import load_freebase
from tools.bench.measured_run import cpu_seconds, machine, process_tree
from tools.options import FILE, NEW_FOLDER

_CORES = (4, 16, 64)
LINES = 3.13e9  # L: lines of the final dump, as others report
_NAMES_SHARE = 0.075  # N / K: names and aliases, as in the synthetic dumps
_MOST_LOADERS = 8  # that a load chooses by default


@dataclass(frozen=True, slots=True)
class StageCosts:
    """CPU time of the stages of a load, in microseconds."""

    triples: int  # triples that were kept
    reading: float  # g, per line, to unpack, hash and cut into blocks
    filling: float  # f, per line, the same with cleaning, filtering and writing shards
    writing: float  # w, per triple, to load
    compacting: float  # c, per triple, to compact
    indexing: float  # n, per name, to build names, schema and statistics


@dataclass(frozen=True, slots=True)
class Estimate:
    """The load of the full dump on some cores, in seconds."""

    reading: float  # one stream must be unpacked: the minimum
    work: float  # all work up to the triples in the store, shared by all cores
    writing: float  # the part of it that only the loaders can do
    compacting: float  # on one core
    indexing: float  # on one core, while the store is compacted

    @property
    def loading(self) -> float:
        """Until all triples are in the store: as long as the slowest of the three."""
        return max(self.reading, self.work, self.writing)

    @property
    def total(self) -> float:
        """From the dump to the finished store."""
        return self.loading + max(self.compacting, self.indexing)

    @property
    def total_without_compaction(self) -> float:
        """The same with ``--no-compact``."""
        return self.loading + self.indexing


def estimate(costs: StageCosts, writing: float, cores: int) -> Estimate:
    """Estimate the load of the full dump from the costs of the larger load.

    `writing` is w′, microseconds a triple at full size; each loader keeps one core busy. We assume
    that compacting costs the same for a triple at any size, since it writes each once.
    """
    kept = LINES * KEPT_SHARE
    return Estimate(
        reading=LINES * costs.reading / 1e6,
        work=(LINES * costs.filling + kept * writing) / cores / 1e6,
        writing=kept * writing / min(cores, _MOST_LOADERS) / 1e6,
        compacting=kept * costs.compacting / 1e6,
        indexing=kept * _NAMES_SHARE * costs.indexing / 1e6,
    )


def at_full_size(small: float, large: float, small_triples: int, large_triples: int) -> float:
    """Extrapolate the growth of a cost from a small to a large load to the full dump.

    The growth is a power of the number of triples; a cost never shrinks.

    >>> round(at_full_size(2.0, 3.0, 1_000_000, 10_000_000), 2)  # 1.5 times for ten times as many
    7.17
    """
    exponent = math.log(large / small) / math.log(large_triples / small_triples)
    return large * math.pow(LINES * KEPT_SHARE / large_triples, max(exponent, 0.0))


@dataclass(frozen=True, slots=True)
class Mark:
    """The clocks at the start of a stage."""

    stage: str  # the stage that starts
    wall_s: float  # wall-clock time
    own_s: float  # CPU time of this process
    children_s: float  # CPU time of its children


class StageClock:
    """Progress of a load that records when each stage starts."""

    def __init__(self) -> None:
        self.marks: list[Mark] = []

    def begin(self, expected: Forecast | None, triples_loaded: int) -> None:
        """Ignore the start."""

    def advance(self, stage: LoadStage, bytes_read: int, triples_loaded: int) -> None:
        """Record the first step of a stage."""
        if stage not in [mark.stage for mark in self.marks]:
            self.mark(stage)

    def mark(self, stage: str) -> None:
        """Record that a stage starts."""
        own = time.process_time()
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        running = sum(cpu_seconds(child) for child in process_tree(os.getpid())[1:])
        children = ended.ru_utime + ended.ru_stime + running
        self.marks.append(Mark(stage, time.monotonic(), own, children))


@click.command()
@click.argument("dump", type=FILE)
@click.argument("larger", required=False, type=FILE)
@click.option(
    "--work",
    required=True,
    type=NEW_FOLDER,
    help="Folder for the stores, which are deleted at the end.",
)
@click.option("--loaders", type=click.IntRange(min=1), help="By default the load chooses.")
def main(dump: Path, larger: Path | None, work: Path, loaders: int | None) -> None:
    """Measure the stages of a load."""
    print(f"{machine()}; {time.strftime('%Y-%m-%d')}")
    costs = _measure(dump, work / "stages", loaders)
    if larger is not None:
        _print_estimate(costs, _measure(larger, work / "stages", loaders))


def _measure(dump: Path, store: Path, loaders: int | None) -> StageCosts:
    """Read a dump, load it, and print the times of both."""
    clock = StageClock()
    clock.mark("only reading")
    with closing(DumpReader(str(dump))) as reader:
        for _ in reader.blocks():
            pass
    clock.mark("starting")
    before = _written_bytes()
    try:
        settings = LoadSettings(loaders=loaders)
        summary = load_freebase([dump], store, settings=settings, progress=clock)
        clock.mark("end")
        written = (_written_bytes() - before) / summary.kept
    finally:
        shutil.rmtree(store, ignore_errors=True)
    print(
        f"\n{dump.name}: {summary.read:,} lines, {summary.kept:,} triples, "
        f"{summary.names:,} names and aliases, {summary.hubs:,} hubs"
    )
    print(f"{'':16}{'wall s':>9}{'this, CPU s':>13}{'writer, CPU s':>15}")
    for mark, following in zip(clock.marks, clock.marks[1:], strict=False):
        print(
            f"{mark.stage:16}{following.wall_s - mark.wall_s:9.1f}"
            f"{following.own_s - mark.own_s:13.1f}"
            f"{following.children_s - mark.children_s:15.1f}"
        )
    at = {mark.stage: mark for mark in clock.marks}
    reading_s = at["starting"].own_s - at["only reading"].own_s
    filling_s = at["loading"].own_s - at["starting"].own_s
    writing_s = at["compacting"].children_s - at["starting"].children_s
    compacting_s = at["end"].children_s - at["compacting"].children_s
    indexing_s = at["end"].own_s - at["loading"].own_s
    costs = StageCosts(
        triples=summary.kept,
        reading=1e6 * reading_s / summary.read,
        filling=1e6 * filling_s / summary.read,
        writing=1e6 * writing_s / summary.kept,
        compacting=1e6 * compacting_s / summary.kept,
        indexing=1e6 * indexing_s / summary.names,
    )
    print("µs of CPU:")
    print(f"  g, reading alone, a line                  {costs.reading:8.2f}")
    print(f"  f, reading, filtering and shards, a line  {costs.filling:8.2f}")
    print(f"  w, writing, a triple                      {costs.writing:8.2f}")
    print(f"  c, compacting, a triple                   {costs.compacting:8.2f}")
    print(f"  n, side indexes, a name                   {costs.indexing:8.2f}")
    print(f"{written:.0f} bytes were written to the disk for each triple")
    return costs


def _written_bytes() -> int:
    """Return the bytes written by this process and its ended children, deleted files included."""
    each = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return 512 * sum(usage.ru_oublock for usage in each)


def _print_estimate(small: StageCosts, large: StageCosts) -> None:
    writing = at_full_size(small.writing, large.writing, small.triples, large.triples)
    print("\nThe full dump, an estimate:")
    print(f"w′, writing, a triple: {writing:.1f} µs")
    each = [estimate(large, writing, cores) for cores in _CORES]
    print(f"{'minutes on':34}" + "".join(f"{cores:>4} cores" for cores in _CORES))
    rows = {
        "reading, one stream": [one.reading for one in each],
        "all work on all cores": [one.work for one in each],
        "the loaders alone": [one.writing for one in each],
        "→ triples in the store": [one.loading for one in each],
        "compacting": [one.compacting for one in each],
        "side indexes, at the same time": [one.indexing for one in each],
        "in all": [one.total for one in each],
        "in all, --no-compact": [one.total_without_compaction for one in each],
    }
    for name, seconds in rows.items():
        print(f"{name:34}" + "".join(f"{value / 60:10.0f}" for value in seconds))


if __name__ == "__main__":
    main()
