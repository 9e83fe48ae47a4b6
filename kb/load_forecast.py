"""Say before a load how large it becomes, and whether the disk holds it."""

import shutil
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from kbqa.kb.checkpoint import Counts
from kbqa.kb.dump import DumpReader, dump_size_bytes
from kbqa.kb.filter_block import BlockFilter
from kbqa.sparql.errors import InputError

STORE_BYTES = 140
"""Of a finished store for each triple, names and statistics included (`tools/bench_load.py`)."""

PEAK_BYTES = 200
"""Of disk for each triple at the worst moment of a load: RocksDB rewrites what it merges."""

MIN_SHARDS = 8
MAX_SHARD_TRIPLES = 4_000_000
_MIN_SHARD_TRIPLES = 100_000

_SAMPLE_BLOCKS = 2


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a load will come to, if its dumps go on as they begin.

    Attributes:
        lines: Lines of the dumps.
        triples: Those kept.
        free_bytes: What is free on the disk of the store.
    """

    lines: int
    triples: int
    free_bytes: int

    @property
    def store_bytes(self) -> int:
        """The finished store."""
        return self.triples * STORE_BYTES

    @property
    def peak_bytes(self) -> int:
        """The disk that the load needs."""
        return self.triples * PEAK_BYTES


def forecast(dumps: Sequence[str], directory: Path, block_filter: BlockFilter) -> Forecast | None:
    """Estimate a load from the first lines of each dump.

    Returns:
        None where a dump is standard input or a pipe, which cannot be read twice.

    Raises:
        InputError: A dump does not exist.
        DumpError: A dump cannot be read.
    """
    lines = triples = 0
    for dump in dumps:
        size = dump_size_bytes(dump)
        if size is None:
            return None
        sample = Counts()
        bytes_read = size
        with closing(DumpReader(dump)) as reader:
            for number, block in enumerate(reader.blocks()):
                if number == _SAMPLE_BLOCKS:
                    bytes_read = block.bytes_read
                    break
                sample.add(block_filter(block).counts)
        lines += sample.read * size // bytes_read
        triples += sample.kept * size // bytes_read
    return Forecast(lines, triples, _free_bytes(directory))


def shard_size(expected: Forecast | None) -> int:
    """Choose how many triples a shard holds: at least 8 shards, but none too small or too large."""
    if expected is None:
        return MAX_SHARD_TRIPLES // MIN_SHARDS
    return min(max(expected.triples // MIN_SHARDS, _MIN_SHARD_TRIPLES), MAX_SHARD_TRIPLES)


def check_disk(expected: Forecast, directory: Path) -> None:
    """Refuse a load that the disk will not hold.

    Raises:
        InputError: With what is needed and what is there.
    """
    if expected.peak_bytes > expected.free_bytes:
        raise InputError(
            f"loading about {expected.triples:,} triples takes {expected.peak_bytes / 1e9:,.1f} GB "
            f"of disk, and {directory} has {expected.free_bytes / 1e9:,.1f} GB free. Choose "
            "another disk, drop more with --rules, or try all the same with --no-disk-check."
        )


def _free_bytes(directory: Path) -> int:
    existing = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    return shutil.disk_usage(existing).free
