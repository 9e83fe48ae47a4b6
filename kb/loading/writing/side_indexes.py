"""Build the files beside a store from the runs of a load: names, schema, statistics."""

from collections.abc import Sequence
from typing import NamedTuple

import polars as pl
from pyoxigraph import Store

from kbqa.kb.loading.checkpoint import Checkpoint
from kbqa.kb.loading.reading.filter_block import ALIAS
from kbqa.kb.loading.reading.literals import literal_parts, unescape
from kbqa.kb.loading.rules import FilterRules
from kbqa.kb.loading.writing.side_runs import NodeRange, merge_runs
from kbqa.kb.names.build import NameIndexBuilder
from kbqa.kb.schema.properties import SchemaBuilder
from kbqa.kb.store.layout import StoreLayout
from kbqa.kb.store.statistics import (
    HUB_DEGREE,
    Hub,
    add_hub_relations,
    count_hub_relations,
    write_statistics,
)
from kbqa.sparql.queries.templates import NAME
from kbqa.sparql.terms import resource_id

_INDEXED_WITHOUT_CHOICE = ("en",)
_MID = r"^[mg]\."
_TEXT = r'^"(?P<text>(?s:.*))"(?:@(?P<tag>[A-Za-z0-9-]+))?$'


class IndexedRuns(NamedTuple):
    """What `index_runs` found in the runs.

    Attributes:
        entities: Distinct machine ids among the triples, mediators included.
        names: Names and aliases in the index.
        properties: Properties of the schema.
        hubs: Nodes with many edges, counted once in each direction.
        scattered: Hubs whose relations are left to `index_hubs`.
    """

    entities: int
    names: int
    properties: int
    hubs: int
    scattered: list[Hub]


def index_languages(rules: FilterRules) -> tuple[str, ...]:
    """Return the languages of the name index: those that are kept, or English if all are."""
    return rules.languages or _INDEXED_WITHOUT_CHOICE


def index_runs(work: StoreLayout, state: Checkpoint, rules: FilterRules) -> IndexedRuns:
    """Write the name index, the schema and the statistics; replace those that are there.

    Args:
        work: The folder in which a load works; the runs of all shards are there.
        state: The state of the load.
        rules: The rules that it filtered by.

    Raises:
        OSError, sqlite3.Error: A file cannot be written.
    """
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
    """Ask the complete store for the relations of hubs, and add them to the statistics.

    Args:
        work: The folder in which a load works.
        hubs: The hubs that `index_runs` left.
        threads: Hubs that are looked up at the same time.

    Raises:
        OSError, sqlite3.Error: A file cannot be read or written.
    """
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
    texts = [unescape(text) if "\\" in text else text for text in chosen["text"]]
    return chosen.select(
        pl.col("subject").alias("mid"),
        "popularity",
        pl.Series("text", texts, pl.String),
        "is_alias",
    ).filter(pl.col("text").str.strip_chars() != "")


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
