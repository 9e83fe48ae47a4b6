"""The pipeline of a load: dumps → blocks → filtered blocks → shards → wherever shards go.

Blocks are filtered by several threads (polars does not hold the interpreter) and put together in
the order of the dumps. A shard counts once it is on the disk and the checkpoint names it; it is
deleted once the sink has taken it and the checkpoint says so.
"""

import shutil
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal as Choice
from typing import NamedTuple, Protocol

from kbqa.kb.checkpoint import Checkpoint, Position, ReadDump
from kbqa.kb.dump import DumpReader
from kbqa.kb.filter_block import BlockFilter, FilteredBlock
from kbqa.kb.layout import StoreLayout
from kbqa.kb.rejects import REFUSED, RejectsFile
from kbqa.kb.shard_filler import ShardFiller
from kbqa.sparql.errors import DumpError

Stage = Choice["reading", "loading", "compacting", "indexing"]
Advance = Callable[[Stage, int, int], None]
"""Told the stage, the bytes read of all dumps as they lie on disk, and the triples loaded."""

_SPARE_SHARDS = 4
"""Free disk to keep, in shards of the size of the last: a load that fills it up could not go on."""


class TakenShard(NamedTuple):
    """A shard that the sink has taken for good.

    Attributes:
        path: The file, as it was submitted.
        refused: Lines of it that the sink left out, by their numbers in it, 1-based.
    """

    path: Path
    refused: dict[int, str]


class ShardSink(Protocol):
    """Where complete shards go: files of N-Triples, which the sink reads and does not delete."""

    @property
    def pending(self) -> int:
        """Shards that were submitted and not returned by `take` yet."""

    def submit(self, shard: Path) -> None:
        """Have a shard taken."""

    def take(self, *, wait: bool) -> TakenShard | None:
        """Return a shard that was taken; None where there is none (yet, unless told to wait)."""


@dataclass(frozen=True, slots=True)
class PipelineSettings:
    """How shards are filled.

    Attributes:
        shard_triples: Triples after which a shard is complete.
        filters: Blocks that are filtered at the same time.
        sinks: Shards that the sink takes at the same time.
    """

    shard_triples: int
    filters: int
    sinks: int


class _Sorted(NamedTuple):
    """A filtered block, and how far the dumps are read with it."""

    position: Position
    bytes_read: int
    block: FilteredBlock


class _Submitted(NamedTuple):
    """A block that is being filtered; its position still lacks its own lines."""

    position: Position
    bytes_read: int
    block: Future[FilteredBlock]


class ShardPipeline:
    """Fills shards from where a checkpoint stands, and hands them to a sink.

    Args:
        dumps: Paths, or ``-`` for standard input.
        work: The folder in which the load works.
        checkpoint: The state, kept up to date here and on disk.
        block_filter: Sorts out the lines.
        settings: How.
        advance: Told how far the load is.
    """

    def __init__(
        self,
        dumps: Sequence[str],
        work: StoreLayout,
        checkpoint: Checkpoint,
        block_filter: BlockFilter,
        settings: PipelineSettings,
        advance: Advance,
    ) -> None:
        self._dumps = dumps
        self._work = work
        self._checkpoint = checkpoint
        self._filter = block_filter
        self._settings = settings
        self._advance = advance
        self._read_dumps: list[ReadDump] = []
        self._bytes_read = 0
        self._started = time.monotonic() - checkpoint.seconds

    def fill(self, sink: ShardSink) -> None:
        """Read what is left of the dumps, and submit every shard that was not taken yet.

        Raises:
            DumpError: A dump cannot be read, the sink fails, or the disk is nearly full.
        """
        state = self._checkpoint
        for number in state.unloaded:
            sink.submit(self._work.shard(number))
        if state.is_read:
            return
        rejects = RejectsFile(self._work.rejects, state.rejects_bytes)
        shard = ShardFiller(self._work, state.shards)
        position = state.position
        try:
            with closing(self._in_order()) as blocks:
                for position, self._bytes_read, block in blocks:
                    shard.add(block)
                    rejects.add(self._dumps[position.dump], block.rejected)
                    self._advance("reading", self._bytes_read, state.triples_loaded)
                    self._take(sink, sink.pending)
                    if shard.counts.kept >= self._settings.shard_triples:
                        self._complete(shard, position, rejects, sink)
                        shard = ShardFiller(self._work, state.shards)
            state.is_read = True
            if shard.counts.read:
                self._complete(shard, position, rejects, sink)
            else:
                state.dumps = self._read_dumps
                self._save()
        finally:
            shard.close()
            rejects.close()

    def drain(self, sink: ShardSink) -> None:
        """Wait until every shard is taken.

        Raises:
            DumpError: The sink failed.
        """
        state = self._checkpoint
        bytes_read = sum(dump.size_bytes for dump in state.dumps)
        while state.unloaded:
            self._advance("loading", bytes_read, state.triples_loaded)
            self._take(sink, sink.pending - 1)

    def _complete(
        self, shard: ShardFiller, position: Position, rejects: RejectsFile, sink: ShardSink
    ) -> None:
        state = self._checkpoint
        state.node_rows += shard.finish()
        state.rejects_bytes = rejects.sync()
        state.position = position
        state.counts.add(shard.counts)
        state.dumps = self._read_dumps[: len(self._dumps) if state.is_read else position.dump]
        state.unloaded[state.shards] = shard.counts.kept
        state.shards += 1
        self._save()
        sink.submit(shard.path)
        if not state.is_read:
            # One shard waits while the sink is busy with the others: no more, for the disk's sake.
            self._take(sink, self._settings.sinks)
            self._check_disk(shard.path.parent, shard.size_bytes)

    def _take(self, sink: ShardSink, allowed: int) -> None:
        """Note what the sink has taken, and wait until at most so many shards are pending."""
        while (taken := sink.take(wait=sink.pending > allowed)) is not None:
            state = self._checkpoint
            number = next(n for n in state.unloaded if self._work.shard(n) == taken.path)
            state.triples_loaded += state.unloaded.pop(number) - len(taken.refused)
            state.counts.refuse(len(taken.refused), REFUSED)
            state.refused += [
                f"shard {number}, line {line}: {text}" for line, text in taken.refused.items()
            ]
            self._save()
            taken.path.unlink()

    def _save(self) -> None:
        self._checkpoint.seconds = round(time.monotonic() - self._started, 3)
        self._checkpoint.save(self._work.checkpoint)

    def _check_disk(self, directory: Path, shard_bytes: int) -> None:
        free = shutil.disk_usage(directory).free
        if free < _SPARE_SHARDS * shard_bytes:
            raise DumpError(
                f"the disk of {directory} is nearly full ({free / 1e9:.1f} GB left). Free some of "
                "it and run the same command again: the load goes on where it is."
            )

    def _in_order(self) -> Generator[_Sorted]:
        """Filter blocks in threads; a few are under way, and the first of them comes out first."""
        waiting: deque[_Submitted] = deque()
        pool = ThreadPoolExecutor(self._settings.filters)
        try:
            for submitted in self._submit_blocks(pool):
                waiting.append(submitted)
                if len(waiting) > self._settings.filters + 1:
                    yield _sorted(waiting.popleft())
            while waiting:
                yield _sorted(waiting.popleft())
        finally:
            pool.shutdown(cancel_futures=True)

    def _submit_blocks(self, pool: ThreadPoolExecutor) -> Iterator[_Submitted]:
        start = self._checkpoint.position
        self._read_dumps = list(self._checkpoint.dumps)
        before = sum(dump.size_bytes for dump in self._read_dumps)
        for index in range(len(self._read_dumps), len(self._dumps)):
            skip = start if index == start.dump else Position(index)
            with closing(DumpReader(self._dumps[index])) as reader:
                for block in reader.blocks(skip_bytes=skip.end, skip_lines=skip.lines):
                    future = pool.submit(self._filter, block)
                    yield _Submitted(
                        Position(index, block.end, block.first_line - 1),
                        before + block.bytes_read,
                        future,
                    )
                self._read_dumps.append(ReadDump(reader.sha256, reader.size_bytes))
            before += self._read_dumps[-1].size_bytes


def _sorted(submitted: _Submitted) -> _Sorted:
    dump, end, lines_before = submitted.position
    block = submitted.block.result()
    return _Sorted(
        Position(dump, end, lines_before + block.counts.read), submitted.bytes_read, block
    )
