"""Fill shards with the filtered lines of dumps, and build the files beside a store from their runs.

Several threads filter blocks (polars does not hold the interpreter lock). The blocks are put
together in the order of the dumps, so that the shards do not depend on the number of threads.

Each shard leaves three runs, small sorted files: the number of triples with each node, the
relations of these triples, and the triples for names and schema. All are sorted by a hash of the
node's IRI, so that memory holds one range of hashes, whatever the size of the dump.

The hash is polars' own, and stable within one version of polars; a load resumes only with the same
version. Two of 100 million nodes share a hash with probability 3 in 10,000; they would count as
one.

The memory of the name index does not grow with the number of names either: they are staged in a
second file, SQLite sorts them on disk, and each table is then written from its beginning to its
end.
"""

import os
import sqlite3
from collections import Counter, deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import polars as pl
from pyoxigraph import Store

from kbqa.kb.layout import NO_LINES, RUN_KINDS, LineCounts, StoreLayout
from kbqa.kb.loading.checkpoint import Checkpoint, Position, ReadDump
from kbqa.kb.loading.dump import Block, DumpReader, literal_parts
from kbqa.kb.loading.filter_block import BlockFilter, BlockTables, FilteredBlock, RejectsFile
from kbqa.kb.loading.rules import FilterRules
from kbqa.kb.names import (
    POPULARITY_MASK,
    deletion_forms,
    is_spelled,
    name_weight,
    normalise,
    word_errors,
)
from kbqa.kb.schema import SchemaBuilder
from kbqa.kb.store import (
    HUB_DEGREE,
    Hub,
    add_hub_relations,
    count_hub_relations,
    write_statistics,
)
from kbqa.sparql.errors import DumpError
from kbqa.sparql.terms import ALIAS, NAME, resource_id

_FEW_EDGES = 8  # with fewer in a shard, a node is hardly a hub: its relations are not written

_RANGE_ROWS = 1_000_000
_GROUP_ROWS = 65_536
_HASHES = 1 << 64

_INDEXED_WITHOUT_CHOICE = ("en",)
_MID = r"^[mg]\."
_TEXT = r'^"(?P<text>(?s:.*))"(?:@(?P<tag>[A-Za-z0-9-]+))?$'


_CACHE_KIB = 64 << 10
# Fits the cache of a core. With the default of FTS5, 1 MB, inserting words takes 1.7 times as long;
# with 16 MB, 3.5 times.
_HASH_BYTES = 256 << 10

# No journal: the file is thrown away with the whole unfinished store if the machine stops.
_TABLES = f"""
    PRAGMA page_size = 8192;
    PRAGMA auto_vacuum = INCREMENTAL;
    PRAGMA journal_mode = OFF;
    PRAGMA synchronous = OFF;
    PRAGMA cache_size = -{_CACHE_KIB};
    PRAGMA temp_store = FILE;
    CREATE TABLE name (
        key TEXT NOT NULL, weight INTEGER NOT NULL, mid TEXT NOT NULL,
        text TEXT NOT NULL, own_name TEXT,
        PRIMARY KEY (key, weight DESC, mid)
    ) WITHOUT ROWID;
    CREATE TABLE key (id INTEGER PRIMARY KEY, key TEXT NOT NULL, popularity INTEGER NOT NULL);
    CREATE TABLE word (id INTEGER PRIMARY KEY, word TEXT NOT NULL);
"""

# Words are the texts between spaces. They are collected in hashes, which are merged at the end.
_WORD_INDEX = f"""
    CREATE VIRTUAL TABLE {{name}} USING fts5(
        {{column}}, content='', columnsize=0, detail=none,
        tokenize="unicode61 remove_diacritics 0 categories 'L* M* N* P* S* C*'"
    );
    INSERT INTO {{name}} ({{name}}, rank) VALUES ('hashsize', {_HASH_BYTES});
    INSERT INTO {{name}} ({{name}}, rank) VALUES ('automerge', 0);
    INSERT INTO {{name}} ({{name}}, rank) VALUES ('crisismerge', 1000);
"""

_STAGING = """
    PRAGMA staging.page_size = 8192;
    PRAGMA staging.journal_mode = OFF;
    PRAGMA staging.synchronous = OFF;
    CREATE TABLE staging.unsorted (key TEXT, weight INTEGER, mid TEXT, text TEXT, own_name TEXT);
    BEGIN;
"""

_FINISH = (
    "INSERT INTO name SELECT * FROM unsorted ORDER BY key, weight DESC, mid",
    f"INSERT INTO key (key, popularity) SELECT key, max(weight & {POPULARITY_MASK}) AS popularity "
    "FROM name GROUP BY key ORDER BY popularity DESC, key",
    "INSERT INTO key_word (rowid, key) SELECT id, key FROM key",
    "INSERT INTO key_word (key_word) VALUES ('optimize')",
    "CREATE VIRTUAL TABLE vocabulary USING fts5vocab(key_word, row)",
    "INSERT INTO word (word) SELECT term FROM vocabulary WHERE is_spelled(term) "
    "ORDER BY doc DESC, term",
    "DROP TABLE vocabulary",
    "INSERT INTO word_form (rowid, form) SELECT id, forms(word) FROM word",
    "INSERT INTO word_form (word_form) VALUES ('optimize')",
    "COMMIT",
)

_POLL_S = 0.1

# Names in which normalisation changes only the case and the words of `_TREATED_WORD`.
_PLAIN_NAME = "^[A-Za-z0-9]{2,}(?: [A-Za-z0-9]{2,})*$"
_TREATED_WORD = r"^the |\bst "


@dataclass(frozen=True, slots=True)
class NodeRange:
    """All nodes in a range of hashes."""

    nodes: pl.DataFrame  # key, node (id), out and in (triples that leave and enter it)
    # key, subject and predicate (ids), object (as in the dump): in its order for each subject
    noted: pl.DataFrame
    hubs: pl.DataFrame  # node, direction, degree: many edges in one direction
    # node, direction, edges, relation (id): of those hubs whose edges are all in the runs
    hub_relations: pl.DataFrame


def write_run(work: StoreLayout, shard: int, tables: Sequence[BlockTables]) -> int:
    """Write the runs of a shard, and return the number of distinct nodes."""
    counted = pl.concat([block.nodes for block in tables], how="diagonal").lazy()
    nodes = _run_sum(counted).sort("key").collect()
    _write(nodes, work.run(shard, "nodes"))
    _write(_edges(tables, nodes), work.run(shard, "edges"))
    noted = pl.concat([block.noted for block in tables]).sort("key", maintain_order=True)
    _write(noted, work.run(shard, "noted"))
    return nodes.height


def merge_runs(directory: Path, rows: int, hub_degree: int) -> Iterator[NodeRange]:
    """Merge the runs of all shards, with `rows` node counts; raises `DumpError`."""
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
        summed = _run_sum(nodes).collect()
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


def _run_sum(nodes: pl.LazyFrame) -> pl.LazyFrame:
    return nodes.group_by("key").agg(pl.col("node").first(), pl.col("out", "in").sum())


def _write(table: pl.DataFrame, path: Path) -> None:
    with path.open("wb") as file:
        try:
            table.write_parquet(file, compression="lz4", row_group_size=_GROUP_ROWS)
        except pl.exceptions.ComputeError as error:
            raise OSError(str(error)) from error  # polars raises this if the disk is full.
        file.flush()
        os.fsync(file.fileno())


class TakenShard(NamedTuple):
    """A shard that the sink has taken."""

    path: Path  # as it was submitted
    refused: dict[int, str]  # lines that the sink left out, by line number, 1-based


class ShardSink(Protocol):
    """Takes complete shards, files of N-Triples, and leaves the files as they are."""

    @property
    def pending(self) -> int:
        """Number of shards that were submitted and not yet returned by `take`."""

    def submit(self, shard: Path) -> None:
        """Queue a shard."""

    def take(self, *, wait: bool) -> TakenShard | None:
        """Return a shard that was taken; None if there is none (yet, unless `wait` is set)."""


@dataclass(frozen=True, slots=True)
class Shard:
    """A complete shard, written to disk with its runs."""

    path: Path
    size_bytes: int
    counts: LineCounts  # of the lines that it was filled from
    relations: Counter[str]  # its triples of each relation
    types: Counter[str]  # its statements that an entity has a type, by type
    node_rows: int  # distinct nodes in it
    position: Position  # how far the dumps were read for it
    dumps: list[ReadDump]  # those that were read to their end for it
    rejects_bytes: int  # size of the file of rejected lines up to there


class FilledBlock(NamedTuple):
    """The progress by one more filtered block."""

    bytes_read: int  # of all dumps, as they are on disk
    shard: Shard | None = None  # the one that the block completes, if it does
    dumps: list[ReadDump] | None = None  # with the last step, when no line is left: all dumps


def fill_shards(
    dumps: Sequence[str],
    work: StoreLayout,
    start: Checkpoint,
    block_filter: BlockFilter,
    shard_triples: int,
    threads: int,
) -> Generator[FilledBlock]:
    """Read the rest of the dumps, after `start`, into shards of at least `shard_triples`."""
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
                    yield FilledBlock(bytes_read)
                    continue
                # The reader is some blocks ahead, and may have ended this dump already.
                yield FilledBlock(
                    bytes_read, shard.finish(position, read_dumps[: position.dump], rejects)
                )
                number += 1
                shard = _OpenShard(work, number)
        last = shard.finish(position, read_dumps, rejects) if shard.counts.read else None
        yield FilledBlock(bytes_read, last, read_dumps)
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
        """Write the rest to the disk, with the runs."""
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


def _filtered(
    dumps: Sequence[str],
    start: Position,
    read_dumps: list[ReadDump],
    block_filter: BlockFilter,
    threads: int,
) -> Generator[_Filtered]:
    """Filter blocks in threads, a few at a time, and yield them in order.

    Each dump is added to `read_dumps` when it is read to its end.
    """
    waiting: deque[Future[_Filtered]] = deque()
    pool = ThreadPoolExecutor(threads)
    try:
        for position, bytes_read, block in _blocks(dumps, start, read_dumps):
            waiting.append(pool.submit(_filter, block_filter, position, bytes_read, block))
            if len(waiting) > threads + 1:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _filter(filter_: BlockFilter, before: Position, bytes_read: int, block: Block) -> _Filtered:
    filtered = filter_(block)
    lines = before.lines + filtered.counts.read
    return _Filtered(before._replace(lines=lines), bytes_read, filtered)


def _blocks(
    dumps: Sequence[str], start: Position, read_dumps: list[ReadDump]
) -> Iterator[tuple[Position, int, Block]]:
    """Read the dumps; the position of a block does not count its own lines yet."""
    before = sum(dump.size_bytes for dump in read_dumps)
    for index in range(len(read_dumps), len(dumps)):
        skip = start if index == start.dump else Position(index)
        with closing(DumpReader(dumps[index])) as reader:
            for block in reader.blocks(skip_bytes=skip.end, skip_lines=skip.lines):
                position = Position(index, block.end, block.first_line - 1)
                yield position, before + block.bytes_read, block
            read_dumps.append(ReadDump(reader.sha256, reader.size_bytes))
        before += read_dumps[-1].size_bytes


def _sum(counted: Iterable[pl.DataFrame]) -> Counter[str]:
    summed = pl.concat(counted).group_by("id").agg(pl.col("count").sum())
    return Counter(dict(summed.iter_rows()))


class IndexedRuns(NamedTuple):
    """The results of `index_runs`."""

    entities: int  # distinct machine ids among the triples, mediators included
    names: int  # names and aliases in the index
    properties: int
    hubs: int  # nodes with many edges, counted once in each direction
    scattered: list[Hub]  # those whose relations are left to `index_hubs`


def index_languages(rules: FilterRules) -> tuple[str, ...]:
    """Return the languages of the name index: those kept, or English if all are."""
    return rules.languages or _INDEXED_WITHOUT_CHOICE


def index_runs(work: StoreLayout, state: Checkpoint, rules: FilterRules) -> IndexedRuns:
    """Write the name index, the schema and the statistics, and replace existing ones."""
    languages = frozenset(index_languages(rules))
    write_statistics(work.statistics, state.relations, state.types.items())
    names = NameIndexBuilder(work.names)
    schema = SchemaBuilder()
    entities = hubs = 0
    scattered: list[Hub] = []
    try:
        for part in merge_runs(work.runs, state.node_rows, HUB_DEGREE):
            names.add(_names(part, languages))
            _note_schema(schema, part, languages)
            entities += part.nodes.filter(pl.col("node").str.contains(_MID)).height
            hubs += part.hubs.height
            add_hub_relations(work.statistics, part.hub_relations.iter_rows())
            rest = part.hubs.join(part.hub_relations, on=["node", "direction"], how="anti")
            scattered += [Hub(*row) for row in rest.iter_rows()]
        names_count = names.finish()
    finally:
        names.close()
    built = schema.build()
    built.save(work.schema)
    return IndexedRuns(entities, names_count, len(built.properties), hubs, scattered)


def index_hubs(work: StoreLayout, hubs: Sequence[Hub], threads: int) -> None:
    """Ask the complete store for the relations of hubs, and add them to the statistics."""
    store = Store.read_only(str(work.graph))
    add_hub_relations(work.statistics, count_hub_relations(store, hubs, threads))


def _names(part: NodeRange, languages: frozenset[str]) -> pl.DataFrame:
    """Select the names and aliases, as `NameIndexBuilder.add` takes them."""
    is_name = pl.col("predicate").is_in([NAME, ALIAS])
    popularity = part.nodes.select("key", popularity=pl.col("out") + pl.col("in"))
    parts = pl.col("object").str.extract_groups(_TEXT).struct
    named = part.noted.filter(is_name & pl.col("subject").str.contains(_MID)).with_columns(
        parts.field("text"), parts.field("tag"), is_alias=pl.col("predicate") == ALIAS
    )
    foreign = [tag for tag in named["tag"].unique() if tag and not _is_chosen(tag, languages)]
    chosen = named.filter(
        pl.col("text").is_not_null() & ~pl.col("tag").is_in(foreign).fill_null(False)
    ).join(popularity, on="key", maintain_order="left")
    texts = [_unescaped(text) if "\\" in text else text for text in chosen["text"]]
    return chosen.select(
        pl.col("subject").alias("mid"),
        "popularity",
        pl.Series("text", texts, pl.String),
        "is_alias",
    ).filter(pl.col("text").str.strip_chars() != "")


def _unescaped(text: str) -> str:
    parts = literal_parts(f'"{text}"'.encode())
    assert parts is not None
    return parts.text


def _note_schema(schema: SchemaBuilder, part: NodeRange, languages: frozenset[str]) -> None:
    is_schema = (pl.col("predicate") != ALIAS) & ~pl.col("subject").str.contains(_MID)
    rows = part.noted.filter(is_schema).select("subject", "predicate", "object").iter_rows()
    for subject, predicate, term in rows:
        literal = literal_parts(term.encode())
        if literal is None:
            schema.add(subject, predicate, resource_id(term[1:-1]))
        elif _is_chosen(literal.language, languages):
            schema.add(subject, predicate, literal.text)


def _is_chosen(language: str | None, languages: frozenset[str]) -> bool:
    return language is None or language.lower().partition("-")[0] in languages


class NameIndexBuilder:
    """Collects entities with their names, then writes the index, in some 150 MB of memory.

    It first deletes the files that a killed build left.
    """

    def __init__(self, path: Path) -> None:
        self._staging = path.with_name(f"{path.name}.staging")
        path.unlink(missing_ok=True)
        self._staging.unlink(missing_ok=True)
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._connection.create_function("is_spelled", 1, is_spelled)
        self._connection.create_function("forms", 1, _forms)
        self._connection.executescript(_TABLES)
        self._connection.executescript(_WORD_INDEX.format(name="key_word", column="key"))
        self._connection.executescript(_WORD_INDEX.format(name="word_form", column="form"))
        self._connection.execute("ATTACH ? AS staging", (str(self._staging),))
        self._connection.executescript(_STAGING)
        self._count = 0

    def add(self, names: pl.DataFrame) -> None:
        """Add names and aliases, all those of an entity at once.

        The columns are ``mid``, ``popularity`` (triples that hold the entity), ``text`` (as in the
        graph) and ``is_alias``. An entity is shown by its first own name.
        """
        weights = names.select("popularity", "is_alias").unique()
        weight = pl.Series([name_weight(*row) for row in weights.iter_rows()], dtype=pl.Int64)
        own_names = names.filter(~pl.col("is_alias")).unique("mid", keep="first")
        rows = (
            names.with_columns(_keys(names["text"]).alias("key"))
            # Own names first: an alias that normalises to the same adds nothing.
            .sort("is_alias", maintain_order=True)
            .unique(["mid", "key"], keep="first")
            .join(weights.with_columns(weight=weight), on=["popularity", "is_alias"])
            .join(own_names.select("mid", own_name="text"), on="mid", how="left")
            .with_columns(own_name=pl.when(pl.col("own_name") != pl.col("text")).then("own_name"))
            .select("key", "weight", "mid", "text", "own_name")
        )
        self._connection.executemany(
            "INSERT INTO unsorted VALUES (?, ?, ?, ?, ?)", rows.iter_rows()
        )
        self._count += rows.height

    def finish(self) -> int:
        """Write the index, close the file, and return the number of names and aliases in it.

        Those of one entity that normalise to the same key count once.
        """
        # In a thread, which gets no signals: Ctrl-C in a function that SQLite calls would become an
        # error of SQLite's, and elsewhere it would wait for the end of a statement.
        with ThreadPoolExecutor(1) as pool:
            finishing = pool.submit(self._finish)
            try:
                finishing.result()
            except BaseException:
                while not finishing.done():  # between two statements there is nothing to interrupt
                    self._connection.interrupt()
                    wait([finishing], _POLL_S)
                raise
        self.close()
        return self._count

    def _finish(self) -> None:
        # SQLite would sort in /tmp, which may be small, or memory.
        directory = str(self._staging.parent.resolve()).replace("'", "''")
        self._connection.execute(f"PRAGMA temp_store_directory = '{directory}'")
        try:
            for statement in _FINISH:
                self._connection.execute(statement)
            # Merging has freed a tenth of the file. A script, because each page is one step.
            self._connection.executescript("PRAGMA incremental_vacuum")
        finally:
            self._connection.execute("PRAGMA temp_store_directory = ''")

    def close(self) -> None:
        """Close the file, finished or not."""
        self._connection.close()
        self._staging.unlink(missing_ok=True)


def _keys(names: pl.Series) -> pl.Series:
    """Normalise names: the plain ones all together, which takes a tenth of the time."""
    lower = names.str.to_lowercase()
    is_plain = names.str.contains(_PLAIN_NAME) & ~lower.str.contains(_TREATED_WORD)
    others = (~is_plain).arg_true()
    return lower.scatter(others, [normalise(name) for name in names.gather(others)])


def _forms(word: str) -> str:
    return " ".join(deletion_forms(word, word_errors(word)))
