"""Measure the search of repair without a general model: is the right path among those it would see?

    python -m tools.score.search_recall --store DIR --questions FILE [--beams BEAMS.jsonl]

For each question with evidence in the slice, the candidates with the gold main path are removed, so
every question needs repair. Depth, topic and constraints come from the candidates that are left. If
the embedder alone chooses the paths of each step, is the gold relation path among the candidates
(y = 10) that a general model is shown in the end, and is it the first? Two names of one edge count
as one. Without --beams, depth and topic are the gold path's.

Prints shares with 95 % bootstrap intervals, and for each repair the searches of the graph and the
time without the embedder's. Questions whose gold query is not a chain of relations are left out and
counted.
"""

import statistics
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import click
from tqdm import tqdm

from kbqa.engine.asked import Asked
from kbqa.engine.embedding.embedder import Embedder
from kbqa.engine.evaluation.scores import bootstrap_mean
from kbqa.engine.graph_walk import RelationPath, relation_path
from kbqa.engine.linking.ground import name_topics
from kbqa.engine.linking.linker import Linker
from kbqa.engine.linking.mentions import LinkingModel
from kbqa.engine.methods.repair import RepairSettings
from kbqa.engine.methods.router import Routing
from kbqa.engine.questions.official import convert_queries
from kbqa.engine.questions.question_sets import Question, read_questions
from kbqa.engine.running.repair import Repairer
from kbqa.engine.running.run import Runner
from kbqa.engine.running.search import SearchWidths
from kbqa.engine.writing.generate import Candidate, read_beams
from kbqa.kb.graph import Graph
from kbqa.kb.names.search import Names, open_names
from kbqa.kb.open import open_graph
from kbqa.kb.schema import GraphSchema
from kbqa.sparql.crp import Crp, Entity, Hop
from kbqa.sparql.errors import CrpSyntaxError, InputError
from kbqa.sparql.forms import read_crp, render_crp

_TIERS = ("independent", "annotated")


class TimedEmbedder(Embedder):
    """An embedder that adds up its own time."""

    seconds = 0.0

    def similarity(self, question: str, texts: Sequence[str]) -> list[float]:
        """Score texts; see `Embedder.similarity`."""
        started = time.perf_counter()
        try:
            return super().similarity(question, texts)
        finally:
            self.seconds += time.perf_counter() - started

    def sum_similarity(self, question: str, groups: Sequence[Sequence[str]]) -> list[float]:
        """Score groups of texts; see `Embedder.sum_similarity`."""
        started = time.perf_counter()
        try:
            return super().sum_similarity(question, groups)
        finally:
            self.seconds += time.perf_counter() - started


@dataclass(frozen=True, slots=True)
class Searched:
    """The outcome of one question.

    Attributes:
        depth: Hops of the gold path.
        is_shown: Whether the gold path is among the candidates.
        is_first: Whether it is the first of them.
        queries: Searches of the graph.
        seconds: Time without the embedder's.
    """

    depth: int
    is_shown: bool
    is_first: bool
    queries: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Trial:
    """What all questions share."""

    graph: Graph
    names: Names
    linker: Linker
    schema: GraphSchema
    embedder: TimedEmbedder
    routing: Routing
    gold_entities: bool

    def search(
        self, question: Question, gold: RelationPath, written: Sequence[Candidate]
    ) -> Searched:
        """Remove the gold path from the candidates, and search for it."""
        edges = self.schema.canonical(gold.hops)
        withheld = [each for each in written if self.schema.canonical(_hops(each)) != edges]
        given = name_topics(self.graph, question.topics) if self.gold_entities else []
        linked = self.linker.link(question.text)
        asked = Asked(question.text, tuple(given), tuple(linked))
        execution = Runner(asked, self.graph, self.names, 30.0).run_first(withheld)
        before, started = self.embedder.seconds, time.perf_counter()
        repair = self.routing.repair(asked, "withheld", execution)
        seconds = time.perf_counter() - started - (self.embedder.seconds - before)
        shown = [
            each.path.topic.mid == gold.topic.mid and self.schema.canonical(each.path.hops) == edges
            for each in (repair.candidates if repair else ())
        ]
        queries = repair.queries if repair else 0
        return Searched(len(edges), any(shown), shown[:1] == [True], queries, seconds)


@click.command(help=__doc__)
@click.option("--store", type=click.Path(path_type=Path), required=True, metavar="DIR")
@click.option(
    "--questions",
    "question_file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    required=True,
    metavar="FILE",
)
@click.option(
    "--beams",
    "beams_file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
)
@click.option("--gold-entities", is_flag=True, help="Start from the questions' topics.")
@click.option("--limit", type=click.IntRange(1), help="Use only the first N that count.")
@click.option("--relations", default=4, show_default=True, help="x of the paper.")
@click.option("--candidates", default=10, show_default=True, help="y of the paper.")
@click.option("--beam", default=3, show_default=True, help="w of the paper.")
@click.option(
    "--words/--no-words",
    default=True,
    show_default=True,
    help="Count what the words asked for in training.",
)
def main(
    store: Path,
    question_file: Path,
    beams_file: Path | None,
    gold_entities: bool,
    limit: int | None,
    relations: int,
    candidates: int,
    beam: int,
    words: bool,
) -> None:
    """Search, and print the table."""
    beams = None if beams_file is None else read_beams(beams_file)
    asked = [each for each in read_questions(question_file) if each.tier in (None, *_TIERS)]
    crps = convert_queries(each.sparql for each in asked if each.sparql is not None)
    golds = [
        (each, path)
        for each in asked
        if isinstance(gold := crps.get(each.sparql or ""), Crp)
        and (path := relation_path(gold)) is not None
    ]
    embedder = TimedEmbedder.load()
    assert isinstance(embedder, TimedEmbedder)
    settings = RepairSettings(SearchWidths(relations, candidates, beam))
    with closing(open_graph(store)) as graph, closing(open_names(graph)) as names:
        linker, schema = Linker(graph, names), GraphSchema(graph)
        asking = LinkingModel.load() if words else None
        routing = Routing(Repairer(graph, embedder, settings, asking))
        trial = Trial(graph, names, linker, schema, embedder, routing, gold_entities)
        searched = []
        for question, gold in tqdm(golds[:limit], unit="question", disable=None):
            written = [_stand_in(gold)] if beams is None else beams.get(question.id)
            if written is None:
                raise InputError(f"{beams_file} lacks question {question.id}")
            searched.append(trial.search(question, gold, written))
    click.echo(f"{len(asked) - len(golds)} of {len(asked)} questions have no gold chain\n")
    _print_table(searched, candidates)


def _print_table(searched: Sequence[Searched], candidates: int) -> None:
    click.echo(
        f"| hops | n | among {candidates} | first | queries, median | p95 | ms, median | p95 |"
    )
    click.echo("|" + "---|" * 8)
    depths = sorted({each.depth for each in searched})
    for depth in (None, *depths):
        rows = [each for each in searched if depth in (None, each.depth)]
        queries = sorted(each.queries for each in rows)
        ms = sorted(1000 * each.seconds for each in rows)
        shown = bootstrap_mean([float(each.is_shown) for each in rows])
        first = bootstrap_mean([float(each.is_first) for each in rows])
        click.echo(
            f"| {depth or 'all'} | {len(rows)} "
            f"| {shown} "
            f"| {first} "
            f"| {statistics.median(queries):.0f} | {_p95(queries):.0f} "
            f"| {statistics.median(ms):.0f} | {_p95(ms):.0f} |"
        )


def _p95(values: Sequence[float]) -> float:
    return values[round(0.95 * (len(values) - 1))]


def _hops(candidate: Candidate) -> tuple[Hop, ...]:
    try:
        path = relation_path(read_crp(candidate.text).crp)
    except CrpSyntaxError:
        path = None
    return () if path is None else path.hops


def _stand_in(gold: RelationPath) -> Candidate:
    """Write a path that leads nowhere from the gold topic, of the gold depth."""
    hops = (Hop("kbqa.no.relation"),) * len(gold.hops)
    return Candidate(render_crp(Crp(Entity(mid=gold.topic.mid), hops)), -1.0, 1)


if __name__ == "__main__":
    main()
