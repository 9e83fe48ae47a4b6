"""Measure what walking costs the graph: lookups and their time a question, for each method.

    python -m tools.bench.walks STORE [--questions FILE] [--count 100] [--seed 1]

Chance decides, so that no model's time is in the figures. Without a question set the walks start
from entities drawn from the store, and once more from hubs, the entities with the most edges of one
relation. *Besides the graph* is the time of a question less that of its lookups. Ratios are against
`bpc` in the same run.
"""

import sqlite3
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from random import Random
from typing import NamedTuple

import click
import pyoxigraph

from kbqa.engine.deciding.session import WalkTrace
from kbqa.engine.engine import Engine
from kbqa.engine.methods.options import make_method
from kbqa.engine.questions.question_sets import read_questions
from kbqa.engine.resources import Resources
from kbqa.kb.graph import Graph
from kbqa.kb.layout import StoreLayout
from kbqa.kb.open import open_graph
from kbqa.sparql.crp import Entity
from tools.bench.measured_run import machine
from tools.bench.query import draw_entities

METHODS = ("bpc", "knowpath", "trace", "tog", "pog")
_HUBS = 20
_MADE = "what does it lead to?"


class Asked(NamedTuple):
    """A question and its topics."""

    text: str
    topics: Sequence[Entity]


class Cost(NamedTuple):
    """What a question took."""

    lookups: int
    graph_ms: float
    rest_ms: float


@click.command(help=__doc__)
@click.argument("store", type=click.Path(exists=True, path_type=Path))
@click.option("--questions", type=click.Path(exists=True, path_type=Path), metavar="FILE")
@click.option("--count", default=100, show_default=True, type=click.IntRange(min=1))
@click.option("--seed", default=1, show_default=True)
def main(store: Path, questions: Path | None, count: int, seed: int) -> None:
    """Print a table for each kind of start."""
    click.echo(f"{machine()}\n")
    with closing(open_graph(store)) as graph:
        if questions is not None:
            asked = [Asked(each.text, each.topics) for each in read_questions(questions)]
            drawn = Random(seed).sample(asked, min(count, len(asked)))
            _table(graph, "questions", drawn)
            return
        opened = pyoxigraph.Store.read_only(str(StoreLayout(store).graph))
        entities = draw_entities(opened, Random(seed), count)
        _table(graph, "entities", [Asked(_MADE, [Entity(mid=mid)]) for mid in entities])
        _table(graph, "hubs", [Asked(_MADE, [Entity(mid=mid)]) for mid in _hubs(store)])


def _hubs(store: Path) -> list[str]:
    with closing(sqlite3.connect(StoreLayout(store).statistics)) as statistics_:
        rows = statistics_.execute(
            "SELECT node FROM hub_relation GROUP BY node ORDER BY max(edges) DESC, node LIMIT ?",
            (_HUBS,),
        )
        return [node for (node,) in rows]


def _table(graph: Graph, starts: str, asked: Sequence[Asked]) -> None:
    click.echo(f"{len(asked)} {starts}; median, 95th percentile\n")
    click.echo("| method | lookups | graph, ms | besides the graph, ms | graph against bpc |")
    click.echo("|---|---|---|---|---|")
    baseline = 0.0
    for name in METHODS:
        costs = _costs(graph, name, asked)
        median = statistics.median(cost.graph_ms for cost in costs)
        baseline = baseline or median
        cells = (
            _spread(costs, lambda cost: cost.lookups, "{:.0f}"),
            _spread(costs, lambda cost: cost.graph_ms, "{:.1f}"),
            _spread(costs, lambda cost: cost.rest_ms, "{:.1f}"),
            f"{median / baseline:.2f}",
        )
        click.echo(f"| {name} | {' | '.join(cells)} |")
    click.echo()


def _costs(graph: Graph, method: str, asked: Sequence[Asked]) -> list[Cost]:
    resources = Resources(graph, chooser="random")
    costs = []
    with Engine.over(resources, make_method(resources, method, {})) as engine:
        for each in asked:
            prepared = engine.prepare(each.text, each.topics)
            started = time.perf_counter()
            answer = engine.answer(prepared)
            spent_ms = 1000 * (time.perf_counter() - started)
            assert isinstance(answer.trace, WalkTrace)
            graph_ms = 1000 * answer.seconds.get("explore", 0.0)
            costs.append(Cost(answer.trace.queries, graph_ms, spent_ms - graph_ms))
    return costs


def _spread(costs: Sequence[Cost], of: Callable[[Cost], float], form: str) -> str:
    values = sorted(map(of, costs))
    high = values[min(len(values) - 1, round(0.95 * len(values)))]
    return f"{form.format(statistics.median(values))}, {form.format(high)}"


if __name__ == "__main__":
    main()
