"""Say before a load how large it becomes, and whether the disk holds it."""

import shutil
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from kbqa.kb.dump import DumpReader, dump_size_bytes
from kbqa.kb.filter_block import BlockFilter
from kbqa.kb.rules import Rules
from kbqa.sparql.errors import InputError

STORE_BYTES = 110
"""Of a finished store for each triple, names and statistics included, measured at 26 million; 150
below some 10 million, where RocksDB compresses nothing yet."""

PEAK_BYTES = 230
"""Of disk for each triple at the worst moment of a load: RocksDB has both the old files and the new
while it merges them (193 and 228 in two loads of 3 million)."""

MIN_SHARDS = 8
MAX_SHARD_TRIPLES = 500_000
"""pyoxigraph sorts a million at a time; half of it fits the caches better, in a third of the memory
(1.0 instead of 3.4 GB for two loaders), and less is lost by a kill."""

_MIN_SHARD_TRIPLES = 100_000

_WHOLE_BYTES = 64 << 20
"""Content of a dump that is looked at. Where there is more, its beginning says nothing of the rest:
a dump begins with the schema, and with all the instances of each type."""

_PLAIN_LINE_BYTES = 129
_PACKED_LINE_BYTES = 10.3
"""The final dump of Freebase has 3.13 billion lines, 32.2 GB of gzip, 400 GB in plain."""

KEPT_SHARE = 0.45
"""Of lines, under rules that drop some: a guess between what others kept of the final dump (954.5
million triples, 0.31) and what is kept of the dumps that tools/make_dump.py makes (0.57)."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a load will come to, if its dumps are like Freebase's.

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


class _Size(NamedTuple):
    lines: int
    triples: int


def forecast(dumps: Sequence[str], directory: Path, rules: Rules) -> Forecast | None:
    """Estimate a load: exactly for small dumps, by the shape of Freebase's for large ones.

    Returns:
        None where a dump is standard input or a pipe, which cannot be read twice.

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
    """Choose how many triples a shard holds: at least 8 shards, but none too small or too large."""
    if expected is None:
        return MAX_SHARD_TRIPLES
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


def _estimate(dump: str, rules: Rules) -> _Size:
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
