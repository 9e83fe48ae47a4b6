"""Measure scorers of triples: how much of what a question needs is among the first triples?

    python -m tools.retrieval.recall --store DIR --questions FILE [--linked] \
        --scorer cosine --scorer shipped

A scorer is `cosine`, `shipped`, or the JSON file of one that `kbqa train-retriever` wrote. What
follows it says how triples are selected by its scores, as in `shipped+reselect`,
`shipped+reselect+kernel=bfs` (settings of `kbqa methods path-pooling`) or `shipped+twice`: a fact
that a relation and its reverse state counts as two triples. Of each, for 10, 25, 50, 100 and 200
triples and for all that were looked up, which is the ceiling:

- triples: the share of the facts that the gold query matches for its answers (50 at most);
- path: whether all facts of one of its matches are there;
- answers: the share of the answers that are an end of one of the triples.

Then each scorer is compared with the one before it, question by question, with 95 % bootstrap
intervals. Only questions of the tiers with evidence
count, if the set has tiers, and those whose gold query has answers in the graph.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, get_args

import click
from tqdm import tqdm

from kbqa.engine.embedding.embedder import Embedder
from kbqa.engine.evaluation.scores import bootstrap_mean
from kbqa.engine.evaluation.statistics import paired_bootstrap
from kbqa.engine.files import read_rows
from kbqa.engine.linking.linker import Linker, starting_topics
from kbqa.engine.methods.options import read_settings
from kbqa.engine.questions.official import Unconverted, convert_queries
from kbqa.engine.questions.question_sets import Question, read_questions, sample_questions
from kbqa.engine.retrieval.pooling import Mechanism, PoolingSettings, ScoredTriples, select_triples
from kbqa.engine.retrieval.retrieval import TripleScorer, make_scorer, number_facts
from kbqa.engine.retrieval.subgraphs import Caps, Subgraph, extract
from kbqa.kb.graph import Graph
from kbqa.kb.open import open_graph
from kbqa.kb.schema import GraphSchema
from kbqa.sparql.crp import Crp
from kbqa.sparql.errors import InputError
from kbqa.training.data.targets import gold_topics
from kbqa.training.retriever.examples import (
    CUTOFFS,
    NoGold,
    Recalls,
    find_gold,
    label,
    measure_recall,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_TIERS = (None, "independent", "annotated")
_ALL = 1_000_000_000
_COLUMNS = (*CUTOFFS, _ALL)


class Ranking(NamedTuple):
    """A way to order triples."""

    scorer: str  # the name or file of a scorer
    settings: PoolingSettings  # how triples are selected by its scores
    is_once: bool  # whether a fact that two triples state counts once

    def order(
        self, scores: "NDArray[np.float64]", subgraph: Subgraph, schema: GraphSchema, question: str
    ) -> "NDArray[np.float64]":
        """Return the place of each triple, the highest first; those not selected have none."""
        facts = number_facts(subgraph, schema) if self.is_once else None
        scored = ScoredTriples(subgraph.heads, subgraph.tails, scores, range(subgraph.topics))
        selected = select_triples(scored, len(scores), self.settings, question, facts=facts).triples
        places = scores - 2
        places[selected] = range(1, len(selected) + 1)
        return places


def read_ranking(text: str) -> Ranking:
    """Read a scorer with what follows it, such as ``shipped+reselect+pool=max``."""
    scorer, *words = text.split("+")
    given = {"mechanism": "none"}
    for word in words:
        name, equals, value = word.partition("=")
        if word in get_args(Mechanism):
            given["mechanism"] = word
        elif equals:
            given[name] = value
        elif word != "twice":
            raise InputError(
                f"--scorer {text}: {word} is no mechanism, and no setting with a value"
            )
    settings = read_settings(PoolingSettings, given, "path-pooling")
    return Ranking(scorer, settings, "twice" not in words)


def load_triple_scorer(name: str, embedder: Embedder, graph: Graph) -> TripleScorer:
    """Load a scorer by its name or file."""
    if name == "cosine":
        return make_scorer("cosine", embedder)
    file = None if name == "shipped" else Path(name)
    return make_scorer("trained", embedder, file, graph.labels)


@click.command(help=__doc__)
@click.option("--store", type=click.Path(path_type=Path), required=True, metavar="DIR")
@click.option(
    "--questions",
    "file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    required=True,
    metavar="FILE",
)
@click.option(
    "--ids",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Measure only the questions whose ids are in this file of rows, such as those that a "
    "training run held out.",
)
@click.option(
    "--linked", "is_linked", is_flag=True, help="Look around linked entities, not the gold topics."
)
@click.option(
    "--scorer",
    "names",
    multiple=True,
    default=("cosine", "shipped"),
    show_default=True,
    metavar="NAME|FILE[+…]",
)
@click.option("--sample", type=int, metavar="N", help="Draw N questions.")
def main(
    store: Path,
    file: Path,
    ids: Path | None,
    is_linked: bool,
    names: Sequence[str],
    sample: int | None,
) -> None:
    """Run the measurement and print its tables."""
    questions = [each for each in read_questions(file) if each.tier in _TIERS]
    if ids is not None:
        wanted = {str(row["id"]) for _, row in read_rows(ids)}
        questions = [each for each in questions if each.id in wanted]
    if sample is not None:
        questions = sample_questions(questions, sample, seed=0)
    rankings = {name: read_ranking(name) for name in names}
    left_out: Counter[str] = Counter()
    measured = list(_measure(questions, store, is_linked, rankings, left_out))
    topics = "linked" if is_linked else "gold"
    click.echo(f"{len(measured)} questions of {file.name}, {topics} entities.")
    for reason, count in left_out.most_common():
        click.echo(f"Left out {count}: {reason}.")
    _print_recalls(measured, names)
    _print_differences(measured, names)


def _measure(
    questions: Sequence[Question],
    store: Path,
    is_linked: bool,
    rankings: Mapping[str, Ranking],
    left_out: Counter[str],
) -> Iterator[dict[str, Recalls]]:
    """Measure each question by each scorer; count those that are left out."""
    embedder = Embedder.load()
    crps = convert_queries(each.sparql for each in questions if each.sparql)
    with closing(open_graph(store)) as graph:
        schema, linker = GraphSchema(graph), Linker(graph, graph.names())
        names = {each.scorer for each in rankings.values()}
        scorers = {name: load_triple_scorer(name, embedder, graph) for name in sorted(names)}
        for question in tqdm(questions, unit="question", disable=None):
            crp = crps.get(question.sparql or "", Unconverted("no SPARQL"))
            if not isinstance(crp, Crp):
                left_out[crp.reason] += 1
                continue
            try:
                gold = find_gold(graph, crp)
            except NoGold as reason:
                left_out[str(reason)] += 1
                continue
            # Training sets of CWQ state no topics: then they are the entities of the query.
            given = () if is_linked else question.topics or gold_topics({}, crp)
            found = starting_topics(given, () if given else linker.link(question.text))
            topics = [each.mid for each in found if each.mid]
            subgraph = extract(graph, schema, topics, Caps())
            labelled = label(question.text, subgraph, gold, schema)
            scores = {name: score(question.text, subgraph) for name, score in scorers.items()}
            yield {
                name: measure_recall(
                    ranking.order(scores[ranking.scorer], subgraph, schema, question.text),
                    labelled,
                    _COLUMNS,
                )
                for name, ranking in rankings.items()
            }


def _print_recalls(measured: Sequence[Mapping[str, Recalls]], names: Sequence[str]) -> None:
    heads = [*(f"at {each}" for each in CUTOFFS), "all"]
    click.echo(f"\n| scorer | recall of | {' | '.join(heads)} |")
    click.echo(f"|---|---|{'---|' * len(heads)}")
    for name in names:
        for measure in Recalls._fields:
            cells = [
                f"{bootstrap_mean(_values(measured, name, measure, at)):.3f}"
                for at in range(len(_COLUMNS))
            ]
            click.echo(f"| {name} | {measure} | {' | '.join(cells)} |")


def _print_differences(measured: Sequence[Mapping[str, Recalls]], names: Sequence[str]) -> None:
    for first, second in pairwise(names):
        click.echo(f"\n{second} less {first}:\n")
        click.echo(f"| recall of | {' | '.join(f'at {each}' for each in CUTOFFS)} |")
        click.echo(f"|---|{'---|' * len(CUTOFFS)}")
        for measure in Recalls._fields:
            both = [
                (_values(measured, first, measure, at), _values(measured, second, measure, at))
                for at in range(len(CUTOFFS))
            ]
            cells = [f"{paired_bootstrap(*values):+.3f}" for values in both]
            click.echo(f"| {measure} | {' | '.join(cells)} |")


def _values(
    measured: Sequence[Mapping[str, Recalls]], name: str, measure: str, at: int
) -> list[float]:
    return [getattr(each[name], measure)[at] for each in measured]


if __name__ == "__main__":
    main()
