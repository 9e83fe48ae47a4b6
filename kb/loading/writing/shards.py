"""Fill shards: dumps → blocks → filtered blocks → files of N-Triples.

Several threads filter blocks (polars does not hold the interpreter lock). The blocks are put
together in the order of the dumps, so that the shards do not depend on the number of threads.
A shard has at most half a million triples (`kbqa.kb.loading.forecast.shard_size`). What happens to
it then is up to the caller and its `ShardSink`.
"""

import os
from collections import Counter, deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import polars as pl

from kbqa.kb.loading.checkpoint import Checkpoint, Position, ReadDump
from kbqa.kb.loading.reading.dump import DumpReader
from kbqa.kb.loading.reading.filter_block import BlockFilter, BlockTables, FilteredBlock
from kbqa.kb.loading.rejects import RejectsFile
from kbqa.kb.loading.writing.side_runs import write_run
from kbqa.kb.store.layout import NO_LINES, LineCounts, StoreLayout


class TakenShard(NamedTuple):
    """A shard that the sink has taken for good.

    Attributes:
        path: The file, as it was submitted.
        refused: Lines of it that the sink left out, by line number, 1-based.
    """

    path: Path
    refused: dict[int, str]


class ShardSink(Protocol):
    """Takes complete shards: files of N-Triples, which the sink reads and does not delete."""

    @property
    def pending(self) -> int:
        """Number of shards that were submitted and not yet returned by `take`."""

    def submit(self, shard: Path) -> None:
        """Queue a shard."""

    def take(self, *, wait: bool) -> TakenShard | None:
        """Return a shard that was taken; None if there is none (yet, unless `wait` is set)."""


@dataclass(frozen=True, slots=True)
class Shard:
    """A complete shard, written to disk with its run (`kbqa.kb.loading.writing.side_runs`).

    Attributes:
        path: The file.
        size_bytes: Its size.
        counts: Counts of the lines that it was filled from.
        relations: Its triples of each relation.
        types: Its statements that an entity has a type, by type.
        node_rows: Distinct nodes in it.
        position: How far the dumps were read for it.
        dumps: The dumps that were read to their end for it.
        rejects_bytes: Size of the file of rejected lines up to there.
    """

    path: Path
    size_bytes: int
    counts: LineCounts
    relations: Counter[str]
    types: Counter[str]
    node_rows: int
    position: Position
    dumps: list[ReadDump]
    rejects_bytes: int


class Step(NamedTuple):
    """One more block is filtered.

    Attributes:
        bytes_read: Bytes read of all dumps, as they are on disk.
        shard: The shard that the block completes, if it does.
        dumps: With the last step, when no line is left: all dumps. Before, None.
    """

    bytes_read: int
    shard: Shard | None = None
    dumps: list[ReadDump] | None = None


def fill_shards(
    dumps: Sequence[str],
    work: StoreLayout,
    start: Checkpoint,
    block_filter: BlockFilter,
    shard_triples: int,
    threads: int,
) -> Generator[Step]:
    """Read the rest of the dumps into shards.

    Args:
        dumps: Paths, or ``-`` for standard input.
        work: The folder in which the load works.
        start: The state of the load; read at the beginning and not changed.
        block_filter: Filters the lines.
        shard_triples: Triples after which a shard is complete.
        threads: Blocks filtered at the same time.

    Raises:
        DumpError: A dump cannot be read.
    """
    number, position, read_dumps = start.shards, start.position, list(start.dumps)
    bytes_read = sum(dump.size_bytes for dump in read_dumps)
    rejects = RejectsFile(work.rejects, start.rejects_bytes)
    shard = _OpenShard(work, number)
    try:
        with closing(_filtered(dumps, position, read_dumps, block_filter, threads)) as blocks:
            for position, bytes_read, block in blocks:
                shard.add(block)
                rejects.add(dumps[position.dump], block.rejected)
                if shard.counts.kept < shard_triples:
                    yield Step(bytes_read)
                    continue
                # The reader is some blocks ahead, and may have ended this dump already.
                yield Step(bytes_read, shard.finish(position, read_dumps[: position.dump], rejects))
                number += 1
                shard = _OpenShard(work, number)
        last = shard.finish(position, read_dumps, rejects) if shard.counts.read else None
        yield Step(bytes_read, last, read_dumps)
    finally:
        shard.close()
        rejects.close()


class _OpenShard:
    """A shard that is being filled."""

    def __init__(self, work: StoreLayout, number: int) -> None:
        self.counts = NO_LINES
        self._path = work.shard(number)
        self._work = work
        self._number = number
        self._tables: list[BlockTables] = []
        self._file = self._path.open("wb")

    def add(self, block: FilteredBlock) -> None:
        self._file.write(block.content)
        self._tables.append(block.tables)
        self.counts += block.counts

    def finish(self, position: Position, dumps: list[ReadDump], rejects: RejectsFile) -> Shard:
        """Have everything on disk."""
        size_bytes = self._file.tell()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return Shard(
            self._path,
            size_bytes,
            self.counts,
            _sum(tables.relations for tables in self._tables),
            _sum(tables.types for tables in self._tables),
            write_run(self._work, self._number, self._tables),
            position,
            dumps,
            rejects.sync(),
        )

    def close(self) -> None:
        self._file.close()


class _Filtered(NamedTuple):
    """A filtered block, and how far the dumps are read with it."""

    position: Position
    bytes_read: int
    block: FilteredBlock


class _Submitted(NamedTuple):
    """A block that is being filtered; its position does not count its own lines yet."""

    position: Position
    bytes_read: int
    block: Future[FilteredBlock]

    def result(self) -> _Filtered:
        dump, end, lines_before = self.position
        block = self.block.result()
        position = Position(dump, end, lines_before + block.counts.read)
        return _Filtered(position, self.bytes_read, block)


def _filtered(
    dumps: Sequence[str],
    start: Position,
    read_dumps: list[ReadDump],
    block_filter: BlockFilter,
    threads: int,
) -> Generator[_Filtered]:
    """Filter blocks in threads, a few at a time, and yield them in order."""
    waiting: deque[_Submitted] = deque()
    pool = ThreadPoolExecutor(threads)
    try:
        for submitted in _submit_blocks(dumps, start, read_dumps, block_filter, pool):
            waiting.append(submitted)
            if len(waiting) > threads + 1:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _submit_blocks(
    dumps: Sequence[str],
    start: Position,
    read_dumps: list[ReadDump],
    block_filter: BlockFilter,
    pool: ThreadPoolExecutor,
) -> Iterator[_Submitted]:
    """Submit each block, and add each dump to `read_dumps` when it is read to its end."""
    before = sum(dump.size_bytes for dump in read_dumps)
    for index in range(len(read_dumps), len(dumps)):
        skip = start if index == start.dump else Position(index)
        with closing(DumpReader(dumps[index])) as reader:
            for block in reader.blocks(skip_bytes=skip.end, skip_lines=skip.lines):
                position = Position(index, block.end, block.first_line - 1)
                future = pool.submit(block_filter, block)
                yield _Submitted(position, before + block.bytes_read, future)
            read_dumps.append(ReadDump(reader.sha256, reader.size_bytes))
        before += read_dumps[-1].size_bytes


def _sum(counted: Iterable[pl.DataFrame]) -> Counter[str]:
    summed = pl.concat(counted).group_by("id").agg(pl.col("count").sum())
    return Counter(dict(summed.iter_rows()))
