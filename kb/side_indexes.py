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
from kbqa.kb.literals import literal_parts, unescape
from kbqa.kb.rejects import REFUSED
from kbqa.kb.rules import Rules
from kbqa.kb.schema import SchemaBuilder
from kbqa.kb.side_runs import NodeRange, merge_hubs, merge_runs
from kbqa.kb.statistics import (
    HUB_DEGREE,
    Hub,
    add_hub_relations,
    count_hub_relations,
    write_statistics,
)
from kbqa.sparql.templates import NAME
from kbqa.sparql.terms import resource_id

_INDEXED_WITHOUT_CHOICE = ("en",)
_MID = r"^[mg]\."
_TEXT = r'^"(?P<text>(?s:.*))"(?:@(?P<tag>[A-Za-z0-9-]+))?$'


@dataclass(frozen=True, slots=True)
class RunCounts:
    """What the runs of a load say.

    Attributes:
        entities: Distinct machine ids among the triples, mediators included.
        names: Names and aliases in the index.
        properties: Properties of the schema.
    """

    entities: int
    names: int
    properties: int


def index_languages(rules: Rules) -> tuple[str, ...]:
    """Return the languages of the name index: those kept; English where all are."""
    return rules.languages or _INDEXED_WITHOUT_CHOICE


def index_runs(work: StoreLayout, rows: int, rules: Rules) -> RunCounts:
    """Write the name index and the schema, in place of what is there.

    Args:
        work: The folder in which a load works; all shards have left their runs.
        rows: Rows of the shards' node counts.
        rules: The rules that the load filtered by.

    Raises:
        OSError, sqlite3.Error: A file cannot be written.
    """
    languages = frozenset(index_languages(rules))
    names = NameIndexBuilder(work.names)
    schema = SchemaBuilder()
    entities = 0
    try:
        for part in merge_runs(work.runs, rows):
            names.add(_named_entities(part, languages))
            _note_schema(schema, part, languages)
            entities += part.nodes.filter(pl.col("node").str.contains(_MID)).height
        names_count = names.finish()
    finally:
        names.close()
    built = schema.build()
    built.save(work.schema)
    return RunCounts(entities, names_count, len(built.properties))


def index_store(work: StoreLayout, rows: int, counts: Counts, threads: int) -> int:
    """Write the statistics, in place of what is there.

    Args:
        work: The folder in which a load works; its store is complete.
        rows: Rows of the shards' node counts.
        counts: What the load counted.
        threads: Hubs that are looked up at the same time.

    Returns:
        The number of hubs, counted once in each direction.

    Raises:
        OSError, sqlite3.Error: A file cannot be written.
    """
    write_statistics(work.statistics, counts.relations, counts.types.items())
    # Lines that the store has refused are among the edges that the shards noted.
    is_exact = REFUSED not in counts.rejected
    hubs = 0
    uncounted: list[Hub] = []
    for part in merge_hubs(work.runs, rows, HUB_DEGREE):
        hubs += part.degrees.height
        counted = part.relations.filter(is_exact)
        add_hub_relations(work.statistics, counted.iter_rows())
        rest = part.degrees.join(counted, on=["node", "direction"], how="anti")
        uncounted += [Hub(*row) for row in rest.iter_rows()]
    store = Store.read_only(str(work.graph))
    add_hub_relations(work.statistics, count_hub_relations(store, uncounted, threads))
    return hubs


def _named_entities(part: NodeRange, languages: frozenset[str]) -> Iterator[NamedEntity]:
    is_name = pl.col("predicate").is_in([NAME, ALIAS])
    popularity = part.nodes.select("key", popularity=pl.col("out") + pl.col("in"))
    parts = pl.col("object").str.extract_groups(_TEXT).struct
    named = (
        part.noted.filter(is_name & pl.col("subject").str.contains(_MID))
        .join(popularity, on="key", how="left", maintain_order="left")
        .with_columns(
            parts.field("text"), parts.field("tag"), is_alias=pl.col("predicate") == ALIAS
        )
    )
    foreign = [tag for tag in named["tag"].unique() if tag and not _is_chosen(tag, languages)]
    rows = (
        named.filter(pl.col("text").is_not_null() & ~pl.col("tag").is_in(foreign).fill_null(False))
        .select("subject", "popularity", "text", "is_alias")
        .iter_rows()
    )
    for (mid, count), stated in groupby(rows, key=itemgetter(0, 1)):
        names = [
            (unescape(text) if "\\" in text else text, is_alias) for _, _, text, is_alias in stated
        ]
        if names := [name for name in names if name[0].strip()]:
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


def _is_chosen(language: str | None, languages: frozenset[str]) -> bool:
    return language is None or language.lower().partition("-")[0] in languages
