"""The runs: small sorted files of each shard for the side indexes, merged range by range.

Each shard has three: the number of triples with each node, the relations of these triples, and the
triples for names and schema. All are sorted by a hash of the node's IRI, so that a range of hashes
can be read from all of them without the rest. Memory holds one range, whatever the size of the
dump.

The hash is polars' own, and stable within one version of polars; a load resumes only with the same
version. Two of 100 million nodes share a hash with probability 3 in 10,000; they would
count as one.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from kbqa.kb.loading.reading.filter_block import BlockTables
from kbqa.kb.store.layout import RUN_KINDS, StoreLayout
from kbqa.sparql.errors import DumpError

_FEW_EDGES = 8
"""A node with fewer edges in a shard is hardly a hub: its relations are not written."""

_RANGE_ROWS = 1_000_000
_GROUP_ROWS = 65_536
_HASHES = 1 << 64


@dataclass(frozen=True, slots=True)
class NodeRange:
    """All nodes in a range of hashes.

    Attributes:
        nodes: ``key``, ``node`` (id), ``out`` and ``in`` (triples that leave and enter it).
        noted: ``key``, ``subject`` and ``predicate`` (ids), ``object`` (as in the dump): in the
            order of the dump for each subject.
        hubs: ``node``, ``direction`` (``out``, ``in``), ``degree`` (edges that way): nodes with
            many edges in one direction.
        hub_relations: ``node``, ``direction``, ``edges``, ``relation`` (id): the relations of those
            hubs whose edges are all in the runs.
    """

    nodes: pl.DataFrame
    noted: pl.DataFrame
    hubs: pl.DataFrame
    hub_relations: pl.DataFrame


def write_run(work: StoreLayout, shard: int, tables: Sequence[BlockTables]) -> int:
    """Write the runs of a shard.

    Returns:
        The number of distinct nodes.
    """
    counted = pl.concat([block.nodes for block in tables], how="diagonal").lazy()
    nodes = _sum(counted).sort("key").collect()
    _write(nodes, work.run(shard, "nodes"))
    _write(_edges(tables, nodes), work.run(shard, "edges"))
    noted = pl.concat([block.noted for block in tables]).sort("key", maintain_order=True)
    _write(noted, work.run(shard, "noted"))
    return nodes.height


def merge_runs(directory: Path, rows: int, hub_degree: int) -> Iterator[NodeRange]:
    """Merge the runs of all shards.

    Args:
        directory: Where the runs are.
        rows: Rows of their node counts, all together.
        hub_degree: Edges in one direction that make a hub.

    Raises:
        DumpError: The runs are damaged.
    """
    # Sorted lists of files: the order of the shards is the order of the dump.
    files = {kind: sorted(directory.glob(f"*.{kind}.parquet")) for kind in RUN_KINDS}
    try:
        yield from _merged(files, rows, hub_degree)
    except pl.exceptions.PolarsError as error:
        raise DumpError(
            f"the files in {directory} are damaged ({error}). "
            f"Delete {directory.parent} to start again."
        ) from error


def _merged(files: Mapping[str, list[Path]], rows: int, hub_degree: int) -> Iterator[NodeRange]:
    for is_inside in _ranges(rows):
        # Not glob: the name of the store's folder may hold a bracket or a star.
        runs = (pl.scan_parquet(files[kind], glob=False) for kind in RUN_KINDS)
        nodes, edges, noted = (run.filter(is_inside) for run in runs)
        summed = _sum(nodes).collect()
        large = summed.filter(pl.max_horizontal("out", "in") >= hub_degree)
        hubs = _by_direction(large, "degree").filter(pl.col("degree") >= hub_degree)
        yield NodeRange(
            summed,
            noted.collect().sort("key", maintain_order=True),
            hubs.select("node", "direction", "degree"),
            _hub_relations(edges, hubs),
        )


def _hub_relations(edges: pl.LazyFrame, hubs: pl.DataFrame) -> pl.DataFrame:
    noted = edges.join(hubs.lazy(), on="key", how="semi")
    summed = noted.group_by("key", "relation").agg(pl.col("out", "in").sum()).collect()
    is_complete = pl.col("edges").sum().over("key", "direction") == pl.col("degree")
    return (
        _by_direction(summed, "edges")
        .join(hubs, on=["key", "direction"])
        .filter(is_complete)
        .select("node", "direction", "edges", "relation")
    )


def _edges(tables: Sequence[BlockTables], nodes: pl.DataFrame) -> pl.DataFrame:
    """Sum the edges of a shard's larger nodes by relation."""
    large = nodes.filter(pl.max_horizontal("out", "in") >= _FEW_EDGES)
    relations = pl.concat([block.relations for block in tables]).unique("code")
    return (
        pl.concat([block.edges for block in tables], how="diagonal")
        .join(large, on="key", how="semi")
        .group_by("key", "code")
        .agg(pl.col("out", "in").sum())
        .join(relations, on="code")
        .select("key", pl.col("id").alias("relation"), "out", "in")
        .sort("key")
    )


def _by_direction(table: pl.DataFrame, value: str) -> pl.DataFrame:
    """Turn the columns ``out`` and ``in`` into rows."""
    rows = table.unpivot(
        on=["out", "in"],
        index=[name for name in table.columns if name not in ("out", "in")],
        variable_name="direction",
        value_name=value,
    )
    return rows.filter(pl.col(value) > 0)


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
            raise OSError(str(error)) from error  # polars raises this if the disk is full.
        file.flush()
        os.fsync(file.fileno())
