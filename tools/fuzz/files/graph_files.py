"""The files of a store and of a load."""

from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from kbqa.kb.graph import Schema
from kbqa.kb.layout import LineCounts, StoreLayout, check_manifest, read_manifest
from kbqa.kb.loading.checkpoint import Checkpoint, Plan, Position, ReadDump, read_checkpoint
from kbqa.kb.loading.rules import profile, read_rules
from kbqa.kb.names.index import NameIndex
from kbqa.kb.store import Statistics
from tools.fuzz.files.format import Format
from tools.fuzz.seeds import small_store


@contextmanager
def graph_files(folder: Path) -> Iterator[list[Format]]:
    """Files of a store, the state of a load, and rules."""
    layout = StoreLayout(small_store(folder))
    state, rules = folder / "checkpoint.json", folder / "rules.toml"
    Checkpoint(
        Plan("store", (("/data/a.gz", "1"), ("/data/b.gz", "2")), "languages = []", (("a", "1"),)),
        500,
        Position(1, 200, 10),
        LineCounts(900, 800, {"language": 100}, {}, {"escape": 1}),
        Counter({"a.b": 3}),
        Counter({"t.u": 1}),
        shards=2,
        unloaded={1: 300},
        triples_loaded=500,
        dumps=[ReadDump("ab" * 32, 10)],
    ).save(state)
    rules.write_text(profile("qa").to_toml(), encoding="utf-8")
    yield [
        Format("manifest of a store", layout.manifest, lambda: _manifest(layout.directory)),
        Format("schema", layout.schema, lambda: _schema(layout.schema)),
        Format("names", layout.names, lambda: _names(layout.names), is_text=False),
        Format("statistics", layout.statistics, lambda: _counts(layout.statistics), is_text=False),
        Format("state of a load", state, lambda: read_checkpoint(state)),
        Format("rules", rules, lambda: _rules(rules)),
    ]


def _rules(path: Path) -> None:
    """Read rules; most beginnings of TOML are TOML, too, so there is nothing to compare."""
    read_rules(path)


def _manifest(directory: Path) -> object:
    return check_manifest(directory), read_manifest(directory)


def _schema(path: Path) -> object:
    schema = Schema.open(path)
    return dict(schema.properties), schema.mediators


def _names(path: Path) -> object:
    with closing(NameIndex.open(path)) as names:
        return (
            names.lookup("Jamaica"),
            names.near("jamaicca"),
            names.containing("bieber"),
            names.search("ja"),
            names.match_spans(("money", "of", "jamaica")),
        )


def _counts(path: Path) -> object:
    with closing(Statistics.open(path)) as statistics:
        return (
            dict(statistics.relations()),
            dict(statistics.types()),
            statistics.relation_count("location.country.capital"),
            statistics.hub_relations("m.0hub", "out", 9),
        )
