"""What each shard says for the side indexes: small sorted files, merged range by range.

A shard leaves two files: how many triples hold each node, and the triples that names and schema
come from. Both are sorted by a hash of the node's IRI, so that any range of hashes is read from all
of them without the rest: memory holds one range, whatever the size of the dump.

The hash is polars' own and stable within one version of it; a load goes on only with the same one.
Two of 100 million nodes share a hash with probability 3 in 10,000; they would count as one.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

_RANGE_ROWS = 4_000_000
_GROUP_ROWS = 65_536
_HASHES = 1 << 64


@dataclass(frozen=True, slots=True)
class NodeRange:
    """All nodes in a range of hashes.

    Attributes:
        nodes: ``key``, ``node`` (id), ``out`` and ``in`` (triples that leave and enter it).
        noted: ``key``, ``subject`` and ``predicate`` (ids), ``object`` (as in the dump): in the
            order of the dump for each subject.
    """

    nodes: pl.DataFrame
    noted: pl.DataFrame


def write_run(
    directory: Path, shard: int, nodes: Sequence[pl.DataFrame], noted: Sequence[pl.DataFrame]
) -> int:
    """Write what the blocks of a shard say.

    Returns:
        The number of distinct nodes.
    """
    summed = _sum(pl.concat(nodes, how="diagonal").lazy()).sort("key").collect()
    _write(summed, directory / f"{shard:05}.nodes.parquet")
    ordered = pl.concat(noted).sort("key", maintain_order=True)
    _write(ordered, directory / f"{shard:05}.noted.parquet")
    return summed.height


def merge_runs(directory: Path, rows: int) -> Iterator[NodeRange]:
    """Merge the runs of all shards.

    Args:
        directory: Where the runs are.
        rows: Rows of their node counts, all together.
    """
    # A list of files and no pattern: the order of shards is the order of the dump.
    noted = sorted(directory.glob("*.noted.parquet"))
    for nodes, is_inside in zip(merge_nodes(directory, rows), _ranges(rows), strict=True):
        part = pl.scan_parquet(noted).filter(is_inside).collect()
        yield NodeRange(nodes, part.sort("key", maintain_order=True))


def merge_nodes(directory: Path, rows: int) -> Iterator[pl.DataFrame]:
    """Merge the node counts of all shards; arguments as of `merge_runs`, `NodeRange.nodes` out."""
    nodes = sorted(directory.glob("*.nodes.parquet"))
    for is_inside in _ranges(rows):
        yield _sum(pl.scan_parquet(nodes).filter(is_inside)).collect()


def _ranges(rows: int) -> Iterator[pl.Expr]:
    parts = -(-rows // _RANGE_ROWS)
    for part in range(parts):
        low, high = (_HASHES * bound // parts for bound in (part, part + 1))
        yield pl.col("key").is_between(pl.lit(low, pl.UInt64), pl.lit(high - 1, pl.UInt64))


def _sum(nodes: pl.LazyFrame) -> pl.LazyFrame:
    return nodes.group_by("key").agg(pl.col("node").first(), pl.col("out", "in").sum())


def _write(table: pl.DataFrame, path: Path) -> None:
    with path.open("wb") as file:
        try:
            table.write_parquet(file, compression="lz4", row_group_size=_GROUP_ROWS)
        except pl.exceptions.ComputeError as error:
            raise OSError(str(error)) from error  # So polars tells that the disk is full.
        file.flush()
        os.fsync(file.fileno())
