"""Forecast the size of a load, and check whether the disk is large enough."""

import shutil
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from kbqa.kb.loading.reading.dump import DumpReader, dump_size_bytes
from kbqa.kb.loading.reading.filter_block import BlockFilter
from kbqa.kb.loading.rules import FilterRules
from kbqa.sparql.errors import InputError

STORE_BYTES = 110
"""Size of a finished store for each triple, names and statistics included, measured at 26 million
triples; 150 below some 10 million, where RocksDB does not compress yet."""

PEAK_BYTES = 230
"""Peak disk space of a load for each triple: while RocksDB merges files, it keeps the old ones too
(193 and 228 in two loads of 3 million)."""

MIN_SHARDS = 8
MAX_SHARD_TRIPLES = 500_000
"""pyoxigraph sorts a million at a time. Half a million fits the caches better, takes a third of the
memory (1.0 instead of 3.4 GB for two loaders), and a kill loses less."""

_MIN_SHARD_TRIPLES = 100_000

_WHOLE_BYTES = 64 << 20
"""Dumps up to this size are counted. The start of a larger one says nothing about the rest: it has
the schema, and all the instances of each type."""

_PLAIN_LINE_BYTES = 129
_PACKED_LINE_BYTES = 10.3
"""The final dump of Freebase has 3.13 billion lines, 32.2 GB compressed, 400 GB plain."""

KEPT_SHARE = 0.45
"""Share of lines kept by rules that drop some. A guess between what others kept of the final dump
(954.5 million triples, 0.31) and what is kept of the dumps of tools/make/dump.py (0.57)."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """The expected size of a load, if its dumps are like Freebase's.

    Attributes:
        lines: Lines of the dumps.
        triples: Those kept.
        free_bytes: Free space on the disk of the store.
    """

    lines: int
    triples: int
    free_bytes: int

    @property
    def store_bytes(self) -> int:
        """Size of the finished store."""
        return self.triples * STORE_BYTES

    @property
    def peak_bytes(self) -> int:
        """Disk space that the load needs."""
        return self.triples * PEAK_BYTES


class _Size(NamedTuple):
    lines: int
    triples: int


def forecast(dumps: Sequence[str], directory: Path, rules: FilterRules) -> Forecast | None:
    """Forecast a load: exactly for small dumps, by the shape of Freebase for large ones.

    Returns:
        None if a dump is standard input or a pipe, which can be read only once.

    Raises:
        InputError: A dump does not exist.
        DumpError: A dump cannot be read.
    """
    if None in [dump_size_bytes(dump) for dump in dumps]:
        return None
    sizes = [_estimate(dump, rules) for dump in dumps]
    return Forecast(
        sum(size.lines for size in sizes),
        sum(size.triples for size in sizes),
        _free_bytes(directory),
    )


def shard_size(expected: Forecast | None) -> int:
    """Choose the triples in a shard: at least 8 shards, but none too small or too large."""
    if expected is None:
        return MAX_SHARD_TRIPLES
    return min(max(expected.triples // MIN_SHARDS, _MIN_SHARD_TRIPLES), MAX_SHARD_TRIPLES)


def check_disk(expected: Forecast, directory: Path) -> None:
    """Refuse a load for which the disk is too small.

    Raises:
        InputError: The disk is too small.
    """
    if expected.peak_bytes > expected.free_bytes:
        raise InputError(
            f"loading about {expected.triples:,} triples takes {expected.peak_bytes / 1e9:,.1f} GB "
            f"of disk space, and {directory} has {expected.free_bytes / 1e9:,.1f} GB free. Choose "
            "another disk, drop more with --rules, or start anyway with --no-disk-check."
        )


def _estimate(dump: str, rules: FilterRules) -> _Size:
    lines = triples = 0
    sort_out = BlockFilter(rules)
    with closing(DumpReader(dump)) as reader:
        for block in reader.blocks():
            if block.end > _WHOLE_BYTES:
                break
            counts = sort_out(block).counts
            lines += counts.read
            triples += counts.kept
        else:
            return _Size(lines, triples)
    size_bytes = dump_size_bytes(dump)
    assert size_bytes is not None, "it is a file"
    is_packed = block.bytes_read < block.end / 2
    lines = round(size_bytes / (_PACKED_LINE_BYTES if is_packed else _PLAIN_LINE_BYTES))
    return _Size(lines, round(lines * (KEPT_SHARE if rules.drops else 1)))


def _free_bytes(directory: Path) -> int:
    existing = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    return shutil.disk_usage(existing).free
