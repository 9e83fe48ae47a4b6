"""Fill a shard: the kept triples of a run of blocks, in one file, with what they count."""

import os
from collections.abc import Iterable

import polars as pl

from kbqa.kb.checkpoint import Counts
from kbqa.kb.filter_block import BlockTables, FilteredBlock
from kbqa.kb.layout import StoreLayout
from kbqa.kb.side_runs import write_run


class ShardFiller:
    """Takes filtered blocks and writes them into a shard.

    Args:
        work: The folder in which the load works.
        number: The shard's number.

    Attributes:
        path: Its file.
        counts: What became of the blocks' lines; of relations and types, when it is finished.
        size_bytes: The file's size.
    """

    def __init__(self, work: StoreLayout, number: int) -> None:
        self.path = work.shard(number)
        self.counts = Counts()
        self.size_bytes = 0
        self._runs = work.runs
        self._number = number
        self._tables: list[BlockTables] = []
        self._file = self.path.open("wb")

    def add(self, block: FilteredBlock) -> None:
        """Take a block's triples."""
        self.size_bytes += self._file.write(block.content)
        self._tables.append(block.tables)
        self.counts.add(block.counts)

    def finish(self) -> int:
        """Have the shard and its run on the disk.

        Returns:
            The number of distinct nodes in it.
        """
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self.counts.relations.update(_sum(tables.relations for tables in self._tables))
        self.counts.types.update(_sum(tables.types for tables in self._tables))
        return write_run(self._runs, self._number, self._tables)

    def close(self) -> None:
        """Let go of the file, finished or not."""
        self._file.close()


def _sum(counted: Iterable[pl.DataFrame]) -> dict[str, int]:
    return dict(pl.concat(counted).group_by("id").agg(pl.col("count").sum()).iter_rows())
