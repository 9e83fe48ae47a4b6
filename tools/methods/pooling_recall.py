"""Measure how much of what a question needs is among its first triples, and what pooling changes.

    python -m tools.methods.pooling_recall --store DIR --questions FILE [--sample N]

The share of the facts that the gold query matches, of all facts of one match (path), and of the
answers; then the paired differences that reselection makes, with 95 % bootstrap intervals.
"""

from contextlib import closing, suppress
from itertools import product
from pathlib import Path
from typing import get_args

import click
import numpy as np

from kbqa.engine.embedding.embedder import Embedder
from kbqa.engine.evaluation.scores import bootstrap_mean
from kbqa.engine.evaluation.statistics import paired_bootstrap
from kbqa.engine.questions.question_sets import convert_queries, read_questions, sample_questions
from kbqa.engine.retrieval.retrieval import PoolingSettings, make_scorer, retrieve
from kbqa.engine.retrieval.retriever import ScorerName
from kbqa.kb.open import open_graph
from kbqa.kb.schema import GraphSchema
from kbqa.sparql.crp import Crp
from kbqa.training.retriever.examples import NoGold, Recalls, find_gold, label, measure_recall
from tools.options import QUESTIONS, STORE

FULL, HALF = PoolingSettings(smoothing="full"), PoolingSettings(smoothing="half")
POOLINGS = {"none": PoolingSettings("none"), "full": FULL, "half": HALF}


@click.command(help=__doc__)
@STORE
@QUESTIONS
@click.option("--sample", type=click.IntRange(1), default=200, show_default=True)
def main(store: Path, question_file: Path, sample: int) -> None:
    """Print a table."""
    questions, found = sample_questions(read_questions(question_file), sample, seed=42), []
    crps = convert_queries(each.sparql for each in questions if each.sparql)
    with closing(open_graph(store)) as graph:
        embedder, schema = Embedder.load(), GraphSchema(graph)
        scorers = {n: make_scorer(n, embedder, None, graph.labels) for n in get_args(ScorerName)}
        for question in questions:
            topics = [each.mid for each in question.topics if each.mid]
            if not isinstance(crp := crps.get(question.sparql or ""), Crp) or not topics:
                continue
            with suppress(NoGold):
                gold, recalls = find_gold(graph, crp), {}
                for (scorer, score), name in product(scorers.items(), POOLINGS):
                    pooling = POOLINGS[name]
                    got = retrieve(graph, schema, score, question.text, topics, 100, pooling)
                    places = np.full(got.seen, -1.0)  # of those selected the best is the last
                    places[got.selected.triples] = np.arange(len(got.selected.triples))
                    labelled = label(question.text, got.subgraph, gold, schema)
                    recalls[scorer, name] = measure_recall(places, labelled, (10, 25, 50, 100))
                found.append(recalls)
    click.echo(f"{len(found)} questions\n\n| scorer, pooling | recall | at 10 | 25 | 50 | 100 |")
    ways = [(way, of) for recalls in found[:1] for way in recalls for of in Recalls._fields]
    for (scorer, name), of in ways:
        both = [[getattr(each[scorer, one], of) for each in found] for one in ("none", name)]
        first, second = (list(zip(*each, strict=True)) for each in both)
        paired = zip(first, second, strict=True)
        cells = [f"{bootstrap_mean(two[1]):.3f} {paired_bootstrap(*two):+.3f}" for two in paired]
        click.echo(f"| {scorer}, {name} | {of} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
