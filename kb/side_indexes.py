"""Build what stands beside a store from the runs of a load: names, schema, statistics."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

import polars as pl
from pyoxigraph import Store

from kbqa.kb.build_names import NamedEntity, NameIndexBuilder
from kbqa.kb.checkpoint import Counts
from kbqa.kb.filter_block import ALIAS
from kbqa.kb.layout import StoreLayout
from kbqa.kb.rules import Rules
from kbqa.kb.schema import SchemaBuilder
from kbqa.kb.side_runs import NodeRange, merge_runs
from kbqa.kb.statistics import HUB_DEGREE, Hub, index_hubs, write_statistics
from kbqa.kb.triples import literal_parts
from kbqa.sparql.templates import NAME
from kbqa.sparql.terms import resource_id

_INDEXED_WITHOUT_CHOICE = ("en",)
_MID = r"^[mg]\."


@dataclass(frozen=True, slots=True)
class IndexCounts:
    """What the side indexes hold.

    Attributes:
        entities: Distinct machine ids among the triples, mediators included.
        names: Names and aliases.
        properties: Properties of the schema.
        hubs: Nodes, counted once in each direction, whose relations are listed.
    """

    entities: int
    names: int
    properties: int
    hubs: int


def index_languages(rules: Rules) -> tuple[str, ...]:
    """Return the languages of the name index: those kept; English where all are."""
    return rules.languages or _INDEXED_WITHOUT_CHOICE


def build_side_indexes(
    work: StoreLayout, rows: int, counts: Counts, rules: Rules, threads: int
) -> IndexCounts:
    """Write the name index, the schema and the statistics, in place of what is there.

    Args:
        work: The folder in which a load works; its store is complete.
        rows: Rows of the shards' node counts.
        counts: What the load counted.
        rules: The rules that it filtered by.
        threads: Hubs that are looked up at the same time.

    Raises:
        OSError, sqlite3.Error: A file cannot be written.
    """
    for path in (work.names, work.schema, work.statistics):
        path.unlink(missing_ok=True)
    languages = frozenset(index_languages(rules))
    names = NameIndexBuilder(work.names)
    schema = SchemaBuilder()
    hubs: list[Hub] = []
    entities = 0
    try:
        for part in merge_runs(work.runs, rows):
            names.add(_named_entities(part, languages))
            _note_schema(schema, part, languages)
            hubs += _hubs(part)
            entities += part.nodes.filter(pl.col("node").str.contains(_MID)).height
        names_count = names.finish()
    finally:
        names.close()
    built = schema.build()
    built.save(work.schema)
    write_statistics(work.statistics, counts.relations, counts.types.items())
    index_hubs(Store.read_only(str(work.graph)), work.statistics, hubs, threads)
    return IndexCounts(entities, names_count, len(built.properties), len(hubs))


def _named_entities(part: NodeRange, languages: frozenset[str]) -> Iterator[NamedEntity]:
    is_name = pl.col("predicate").is_in([NAME, ALIAS])
    named = part.noted.filter(is_name & pl.col("subject").str.contains(_MID))
    popularity = part.nodes.select("key", popularity=pl.col("out") + pl.col("in"))
    rows = (
        named.join(popularity, on="key", how="left", maintain_order="left")
        .select("subject", "popularity", "predicate", "object")
        .iter_rows()
    )
    for (mid, count), stated in groupby(rows, key=itemgetter(0, 1)):
        names = []
        for _, _, predicate, term in stated:
            literal = literal_parts(term.encode())
            if literal is None or not _is_chosen(literal.language, languages):
                continue
            if literal.text.strip():
                names.append((literal.text, predicate == ALIAS))
        if names:
            yield NamedEntity(mid, count, names)


def _note_schema(schema: SchemaBuilder, part: NodeRange, languages: frozenset[str]) -> None:
    is_schema = (pl.col("predicate") != ALIAS) & ~pl.col("subject").str.contains(_MID)
    rows = part.noted.filter(is_schema).select("subject", "predicate", "object").iter_rows()
    for subject, predicate, term in rows:
        literal = literal_parts(term.encode())
        if literal is None:
            schema.add(subject, predicate, resource_id(term[1:-1]))
        elif _is_chosen(literal.language, languages):
            schema.add(subject, predicate, literal.text)


def _hubs(part: NodeRange) -> Iterator[Hub]:
    for direction in ("out", "in"):
        large = part.nodes.filter(pl.col(direction) >= HUB_DEGREE)
        for node, degree in large.select("node", direction).iter_rows():
            yield Hub(node, direction, degree)


def _is_chosen(language: str | None, languages: frozenset[str]) -> bool:
    return language is None or language.lower().partition("-")[0] in languages
