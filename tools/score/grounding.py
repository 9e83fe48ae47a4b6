"""Measure how well the names in published CRP texts are grounded, without gold entities.

    python -m tools.score.grounding cwq.test-half.jsonl.gz --store DIR --misses misses.jsonl

The tool links each row's question and reads its `crp_routerkgqa`. For every name in it, topic or
constraint, it compares the entities that the grounder proposes with the gold one: the mid in the
row's SPARQL with this name, in the row or in the graph. If two mids have the name, both are right.

The table has rows for all names, by role and by tier of evidence; a name without a known gold
entity counts as wrong. Other rows are for groundable names only: the graph has a name and a triple
of their gold entity. The last columns are a baseline, the best known entities of the same name.

The slice has few distractors near the gold paths of the annotated tier, so an entity that has the
relation is right more often there than it would be in Freebase.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, TextIO

import click
from tqdm import tqdm

from kbqa.engine.files import read_rows
from kbqa.engine.linking.ground import EntityMatch, Grounder
from kbqa.engine.linking.linker import Linker
from kbqa.kb.graph import Graph
from kbqa.kb.names.keys import normalise
from kbqa.kb.names.search import Names, open_names
from kbqa.kb.open import open_graph
from kbqa.sparql.convert.from_sparql import crp_from_sparql
from kbqa.sparql.crp import Crp, Entity
from kbqa.sparql.errors import CrpSyntaxError, InputError
from kbqa.sparql.forms import read_crp
from kbqa.sparql.templates import query_mentions
from tools.score.shared.shares import share_with_interval

_WITHIN = 3


class Name(NamedTuple):
    """A name in a CRP, with the right entities and those proposed.

    Attributes:
        is_topic: It is the topic, not a constraint's entity.
        tier: The question's tier of evidence in the slice, if its set has tiers.
        text: As written.
        gold: The right entities; empty if they are unknown.
        is_groundable: The graph has a name and a triple of one of them.
        proposed: What the grounder proposes, best first.
        known: The best known entities with exactly this name.
    """

    is_topic: bool
    tier: str | None
    text: str
    gold: frozenset[str]
    is_groundable: bool
    proposed: tuple[str, ...]
    known: tuple[str, ...]


@click.command(help=__doc__)
@click.argument(
    "files", type=click.Path(path_type=Path, exists=True, dir_okay=False), nargs=-1, required=True
)
@click.option("--store", type=click.Path(path_type=Path), metavar="DIR", required=True)
@click.option(
    "--converted",
    is_flag=True,
    help="Take the CRPs from the SPARQL, with the rows' names, instead of the published texts.",
)
@click.option(
    "--misses",
    type=click.File("w", encoding="utf-8", lazy=False),
    metavar="OUT.jsonl",
    help="Where to list the names whose first proposal is wrong.",
)
def main(files: Sequence[Path], store: Path, converted: bool, misses: TextIO | None) -> None:
    """Ground the names of every file and print the tables."""
    with closing(open_graph(store)) as graph, closing(open_names(graph)) as names:
        linker = Linker(graph, names)
        everything: list[Name] = []
        for file in files:
            bench = _Bench(graph, names, linker)
            rows = [row for _, row in read_rows(file) if _is_used(row, converted)]
            found: list[Name] = []
            unread = 0
            for row in tqdm(rows, unit="question", disable=None):
                try:
                    crp = _converted(row) if converted else read_crp(row["crp_routerkgqa"]).crp
                except (CrpSyntaxError, InputError):
                    unread += 1
                    continue
                for name in bench.ground(row, crp):
                    found.append(name)
                    if misses is not None and not name.gold.intersection(name.proposed[:1]):
                        misses.write(json.dumps(_miss(row, name), ensure_ascii=False) + "\n")
            click.echo(f"{file.name}: {len(rows)} CRPs, {unread} of them cannot be read")
            _print_table(found)
            click.echo(f"the best reading of a CRP takes {1000 * median(bench.seconds):.2f} ms\n")
            everything += found
        if len(files) > 1:
            click.echo("all files together")
            _print_table(everything)


def _is_used(row: Mapping[str, Any], converted: bool) -> bool:
    # A row marked `test_parent` was made from a test question, or a test question from it.
    return not row.get("test_parent") if converted else bool(row.get("crp_routerkgqa"))


class _Bench:
    """Grounds the names of rows on one graph."""

    def __init__(self, graph: Graph, names: Names, linker: Linker) -> None:
        self._graph, self._names, self._linker = graph, names, linker
        self.seconds: list[float] = []

    def ground(self, row: Mapping[str, Any], crp: Crp) -> Iterator[Name]:
        """Yield each name of a row's CRP with its proposals; skip mids."""
        grounder = Grounder(self._graph, self._names, self._linker.link(row["question"]))
        started = time.perf_counter()
        next(grounder.ground(crp), None)
        self.seconds.append(time.perf_counter() - started)
        called = self._called(row)
        for number, (entity, matches) in enumerate(grounder.proposals(crp)):
            if entity.is_grounded:
                continue
            text = str(entity)
            gold = frozenset(mid for mid, names in called.items() if text in names)
            gold = gold or frozenset(
                mid for mid, names in called.items() if normalise(text) in map(normalise, names)
            )
            yield Name(
                is_topic=number == 0,
                tier=row.get("evidence"),
                text=text,
                gold=gold,
                is_groundable=any(map(self._is_known, gold)),
                proposed=_mids(matches),
                known=tuple(match.mid for match in self._names.lookup(text, _WITHIN)),
            )

    def _called(self, row: Mapping[str, Any]) -> dict[str, set[str]]:
        """Collect the names of the mids in a row's SPARQL, as the row and the graph have them."""
        queries = [row["sparql"], *(parse["Sparql"] for parse in row.get("parses", ()))]
        called: dict[str, set[str]] = {}
        for query in queries:
            try:
                called |= {mid: set() for mid in query_mentions(query).entities}
            except InputError:
                continue
        for mid, name in [*_row_names(row), *self._graph.labels(sorted(called)).items()]:
            if mid in called and name:
                called[mid].add(name)
        return called

    def _is_known(self, mid: str) -> bool:
        has_triple = self._graph.relations(mid, "out", 1) or self._graph.relations(mid, "in", 1)
        return bool(has_triple) and mid in self._graph.labels([mid])


def _row_names(row: Mapping[str, Any]) -> Iterator[tuple[str, str | None]]:
    for field in ("topic_entities", "entities_in_sparql"):
        yield from ((entity["mid"], entity["name"]) for entity in row.get(field) or ())
    for parse in row.get("parses", ()):
        yield parse["TopicEntityMid"], parse["TopicEntityName"]
        for constraint in parse["Constraints"]:
            if constraint["ArgumentType"] == "Entity":
                yield constraint["Argument"], constraint["EntityName"]


def _converted(row: Mapping[str, Any]) -> Crp:
    """Convert a row's SPARQL to a CRP, with the row's names in place of mids."""
    names = {mid: name for mid, name in _row_names(row) if name}

    def named(entity: Entity) -> Entity:
        return Entity(names[entity.mid]) if entity.mid in names else entity

    return crp_from_sparql(row["sparql"]).with_entities(named)


def _mids(matches: Sequence[EntityMatch]) -> tuple[str, ...]:
    return tuple(match.entity.mid for match in matches[:_WITHIN] if match.entity.mid)


def _print_table(names: Sequence[Name]) -> None:
    groundable = [name for name in names if name.is_groundable]
    unknown = sum(not name.gold for name in names)
    absent = len(names) - len(groundable) - unknown
    click.echo(
        f"{len(names)} names: {unknown} without a known gold entity, "
        f"{absent} that the graph cannot ground"
    )
    click.echo("| names | n | first | within three | best known first | within three |")
    click.echo("|---|---|---|---|---|---|")
    parts = {
        "all": names,
        "topics": [name for name in names if name.is_topic],
        "constraints": [name for name in names if not name.is_topic],
    }
    for tier in sorted({name.tier for name in names if name.tier}):
        parts[f"tier {tier}"] = [name for name in names if name.tier == tier]
    parts["groundable"] = groundable
    parts["groundable topics"] = [name for name in groundable if name.is_topic]
    parts["groundable constraints"] = [name for name in groundable if not name.is_topic]
    for part, members in parts.items():
        if members:
            click.echo(f"| {part} | {len(members)} | {' | '.join(_shares(members))} |")


def _shares(names: Sequence[Name]) -> Iterator[str]:
    for ranks in ([n.proposed for n in names], [n.known for n in names]):
        for within in (1, _WITHIN):
            right = sum(
                not name.gold.isdisjoint(mids[:within])
                for name, mids in zip(names, ranks, strict=True)
            )
            yield share_with_interval(right, len(names))


def _miss(row: Mapping[str, Any], name: Name) -> dict[str, object]:
    return {
        "id": row["id"],
        "question": row["question"],
        "name": name.text,
        "is_topic": name.is_topic,
        "gold": sorted(name.gold),
        "is_groundable": name.is_groundable,
        "proposed": name.proposed,
        "crp": row.get("crp_routerkgqa"),
        "sparql": row["sparql"],
    }


if __name__ == "__main__":
    main()
