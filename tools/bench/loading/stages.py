"""Measure the CPU time of a load's stages, the basis of the estimate in docs/freebase.md.

    python -m tools.bench.loading.stages DUMP [LARGER] --work FOLDER [--loaders 1]

First the dump is only read: unpacked, hashed and cut into blocks. Then it is loaded. This process
reads, filters and builds the side indexes; its child writes the store. Names and schema are built
while the child loads the last shards and compacts, so one line of the table can have parts of both.
Two dumps show the growth, from which `load_estimate.py` estimates the load of the full dump.
"""

import os
import resource
import shutil
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import click

from kbqa.kb.loading.dump import DumpReader
from kbqa.kb.loading.job import Forecast, LoadSettings, LoadStage
from kbqa.kb.loading.load import load_freebase
from tools.bench.loading.load_estimate import StageCosts, at_full_size, estimate
from tools.bench.measured_run import cpu_seconds, machine, process_tree

_CORES = (4, 16, 64)


@dataclass(frozen=True, slots=True)
class Mark:
    """The clocks at the start of a stage."""

    stage: str  # the stage that starts
    wall_s: float  # wall-clock time
    own_s: float  # CPU time of this process
    children_s: float  # CPU time of its children


class StageClock:
    """Progress of a load that records when each stage starts.

    Attributes:
        marks: One for each stage so far.
    """

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
@click.argument("dump", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("larger", required=False, type=click.Path(exists=True, path_type=Path))
@click.option(
    "--work",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
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
