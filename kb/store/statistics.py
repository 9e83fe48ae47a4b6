"""Statistics of a store: triples of each relation, entities of each type, relations of each hub.

A hub is a node with `HUB_DEGREE` edges or more in one direction. Finding its distinct relations in
the store takes 0.4–0.9 µs an edge, and a hub has up to millions. So they are listed once, when the
store is loaded: counted as the lines are read, or, for hubs whose edges are scattered over the
dump, by asking the store. Lines that repeat a statement count each time. It is one SQLite file:

    relation(id, triples)
    type(id, entities)
    hub_relation(node, direction, edges, relation)   each hub's relations, most frequent first

Without it the graph would give the same answers, only slower.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeAlias

import pyoxigraph

from kbqa.kb.graph import Direction
from kbqa.kb.rows import term_from_oxigraph
from kbqa.kb.sqlite_files import SqliteFile
from kbqa.sparql.terms import iri, is_well_formed, resource_id

HUB_DEGREE = 1000
"""Edges in one direction that make a node a hub: below, a search takes less than a millisecond."""

_TABLES = """
    CREATE TABLE relation (id TEXT PRIMARY KEY, triples INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE type (id TEXT PRIMARY KEY, entities INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE hub_relation (
        node TEXT NOT NULL, direction TEXT NOT NULL, edges INTEGER NOT NULL, relation TEXT NOT NULL,
        PRIMARY KEY (node, direction, edges DESC, relation)
    ) WITHOUT ROWID;
"""


HubRow: TypeAlias = tuple[str, str, int, str]
"""A relation of a hub: node, direction, edges, relation."""


class Hub(NamedTuple):
    """A node that many edges leave (`out`) or enter (`in`).

    Attributes:
        node: A resource: an entity, a type, or anything else that is not a literal.
        direction: Which of its edges count.
        degree: How many there are; an estimate will do.
    """

    node: str
    direction: Direction
    degree: int


class Statistics:
    """The statistics of a store, for reading. Any number of threads may use one object."""

    def __init__(self, file: SqliteFile) -> None:
        # Checking that a node is not a hub takes 7 µs, so there is no need to read all hubs here.
        self._file = file

    @classmethod
    def open(cls, path: Path) -> "Statistics":
        """Open a statistics file.

        Raises:
            StoreError: The file is missing, or holds no statistics.
        """
        probe = "SELECT 1 FROM relation, type, hub_relation LIMIT 0"
        return cls(SqliteFile(path, "file of statistics", probe))

    def relation_count(self, relation: str) -> int:
        """Return the number of triples of a relation; 0 if the store does not hold it."""
        rows = self._rows("SELECT triples FROM relation WHERE id = ?", resource_id(relation))
        return int(rows[0]["triples"]) if rows else 0

    def relations(self) -> Mapping[str, int]:
        """Map each relation to the number of its triples."""
        rows = self._rows("SELECT id, triples FROM relation")
        return {row["id"]: row["triples"] for row in rows}

    def types(self) -> Mapping[str, int]:
        """Map each type to the number of its entities."""
        rows = self._rows("SELECT id, entities FROM type")
        return {row["id"]: row["entities"] for row in rows}

    def hub_relations(self, node: str, direction: Direction, limit: int) -> list[str] | None:
        """List a hub's relations, those of the most edges first.

        Returns:
            At most `limit` relations, or None if the node is not a hub in that direction.
        """
        rows = self._rows(
            "SELECT relation FROM hub_relation WHERE node = ? AND direction = ? "
            "ORDER BY edges DESC, relation LIMIT ?",
            resource_id(node),
            direction,
            limit,
        )
        return [row["relation"] for row in rows] or None

    def hub_edges(self, node: str, direction: Direction) -> Mapping[str, int]:
        """Map each relation of a hub to the number of its edges; empty if the node is no hub."""
        rows = self._rows(
            "SELECT relation, edges FROM hub_relation WHERE node = ? AND direction = ?",
            resource_id(node),
            direction,
        )
        return {row["relation"]: row["edges"] for row in rows}

    def close(self) -> None:
        """Close the file; the statistics are not used afterwards."""
        self._file.close()

    def _rows(self, sql: str, *parameters: str | int) -> list[sqlite3.Row]:
        return self._file.rows(sql, *parameters)


def write_statistics(
    path: Path, relations: Mapping[str, int], types: Iterable[tuple[str, int]]
) -> None:
    """Write a new file of statistics, without hubs.

    Args:
        path: The file; replaced if it exists.
        relations: Triples of each relation.
        types: Each type, once, and the number of its entities.
    """
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(_TABLES)
        connection.executemany("INSERT INTO relation VALUES (?, ?)", relations.items())
        connection.executemany("INSERT INTO type VALUES (?, ?)", types)


def add_hub_relations(path: Path, rows: Iterable[HubRow]) -> None:
    """Add relations of hubs to a file of statistics: all, or none if the rows fail.

    Args:
        path: A file that `write_statistics` wrote.
        rows: Each relation of a node and direction once. Nodes that no query can name are left
            out.
    """
    can_be_named = cache(is_well_formed)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executemany(
            "INSERT INTO hub_relation VALUES (?, ?, ?, ?)",
            (row for row in rows if can_be_named(row[0])),
        )


def count_hub_relations(
    store: pyoxigraph.Store, hubs: Iterable[Hub], threads: int
) -> Iterator[HubRow]:
    """Ask a store for the relations of hubs, at 0.4–0.9 µs an edge.

    Looking up every relation instead takes 12–39 µs for each relation of the store, whatever the
    degree. But it counts nothing, and is quicker only for the few hubs with more than 40 edges for
    each relation.

    Args:
        store: Holds the whole graph.
        hubs: Each node and direction once.
        threads: Hubs to count at the same time; the store releases the interpreter meanwhile.

    Returns:
        Rows for `add_hub_relations`.
    """
    queue = [hub for hub in hubs if is_well_formed(hub.node)]
    # The biggest first, so that no thread is left with one at the end.
    queue.sort(key=lambda hub: hub.degree, reverse=True)
    with ThreadPoolExecutor(threads) as pool:
        for rows in pool.map(lambda hub: _count_relations(store, hub), queue):
            yield from rows


def _count_relations(store: pyoxigraph.Store, hub: Hub) -> list[HubRow]:
    hub_iri = iri(hub.node)
    edge = f"{hub_iri} ?relation ?end" if hub.direction == "out" else f"?end ?relation {hub_iri}"
    solutions = store.query(
        f"SELECT ?relation (COUNT(*) AS ?edges) WHERE {{ {edge} }} GROUP BY ?relation"
    )
    assert isinstance(solutions, pyoxigraph.QuerySolutions)
    node = resource_id(hub.node)
    return [
        (node, hub.direction, int(edges.value), str(term_from_oxigraph(relation)))
        for relation, edges in solutions
    ]
