"""Time path pooling of 25 to 500 triples with each kernel, beside networkx and the paper's times.

    python -m tools.methods.time_pooling

The triples are made up: most lead on from the topics, many of them from few nodes, and the others
lie apart. The baseline is Algorithm 1 of the paper, written with networkx, on the same triples in
the same run; both take turns. Times are CPU times, which others on the machine hardly change. The
paper's are from another machine.

Source: Path Pooling, Algorithm 1 and Table 2.
"""

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from random import Random
from statistics import median
from typing import get_args

import click
import networkx
import numpy as np

from kbqa.engine.retrieval.retrieval import (
    LONGEST,
    WALKS,
    KernelName,
    PoolingSettings,
    ScoredTriples,
    pool,
    position_bonus,
)
from tools.bench.measured_run import machine

PAPER_MS: dict[KernelName, dict[int, float]] = {
    "dijkstra": {25: 1.6, 50: 2.1, 100: 3.2, 200: 6.3, 500: 18.1},
    "bfs": {25: 1.9, 50: 3.1, 100: 7.4, 200: 29.4, 500: 232.2},
    "walk": {25: 3.1, 50: 3.6, 100: 4.5, 200: 5.7, 500: 9.1},
}
_APART = 0.2  # the share of triples that lie apart from the topics


def made_triples(count: int, topics: int, chance: Random) -> ScoredTriples:
    """Make up the triples of a question, without parallel ones."""
    joined = list(range(topics))
    pairs: set[tuple[int, int]] = set()
    nodes = topics
    while len(pairs) < count:
        if chance.random() < _APART:
            pair = (nodes, nodes + 1)
            nodes += 2
        else:
            # A node is in `joined` once for each of its triples, so that some become hubs.
            near = chance.choice(joined)
            far = chance.choice(joined) if chance.random() < 0.3 else nodes
            nodes += far == nodes
            pair = (near, far) if chance.random() < 0.7 else (far, near)
            if pair[0] == pair[1] or pair in pairs:
                continue
            joined += pair
        pairs.add(pair)
    rows = sorted(pairs)
    scores = [chance.uniform(0.001, 0.999) for _ in rows]
    heads, tails = np.array(rows, dtype=np.intp).T
    return ScoredTriples(heads, tails, np.array(scores), range(topics))


def pool_with_networkx(triples: ScoredTriples, settings: PoolingSettings) -> list[float]:
    """Pool by the mean as Algorithm 1 says, with our bonus: for each path, each of its triples."""
    graph = networkx.DiGraph()
    scores = triples.scores.tolist()
    pairs = zip(triples.heads.tolist(), triples.tails.tolist(), scores, strict=True)
    for triple, (head, tail, score) in enumerate(pairs):
        lengths = {"unit": 1.0, "one-minus": 1 - score, "neg-log": -math.log(score)}
        graph.add_edge(head, tail, triple=triple, length=lengths[settings.weight])
    bonus = position_bonus(triples.scores)
    pooled = [0.0] * len(scores)
    for path in _paths(graph, triples.topics, settings.kernel):
        mean = sum(scores[triple] for triple in path) / len(path)
        for place, triple in enumerate(path, start=1):
            pooled[triple] = max(pooled[triple], mean + bonus / (place * settings.position))
    alone = [score + bonus / settings.position for score in scores]
    return [score or own for score, own in zip(pooled, alone, strict=True)]


def _paths(graph: networkx.DiGraph, topics: Sequence[int], kernel: str) -> Iterator[list[int]]:
    chance = Random(0)
    known = [topic for topic in topics if topic in graph]
    found: Iterable[list[int]]
    for way, reverse in ((graph, False), (graph.reverse(), True)):
        for topic in known:
            if kernel == "dijkstra":
                found = networkx.single_source_dijkstra_path(way, topic, weight="length").values()
            elif kernel == "bfs":
                others = set(way) - {topic}
                found = networkx.all_simple_paths(way, topic, others, cutoff=LONGEST)
            else:
                found = _walks(way, topic, WALKS // (2 * len(known)), chance)
            for nodes in found:
                if path := [way.edges[pair]["triple"] for pair in pairwise(nodes)]:
                    yield path[::-1] if reverse else path


def _walks(graph: networkx.DiGraph, start: int, count: int, chance: Random) -> Iterator[list[int]]:
    for _ in range(count):
        nodes = [start]
        while len(nodes) <= LONGEST and (onward := list(graph.successors(nodes[-1]))):
            nodes.append(chance.choice(onward))
            yield nodes


def _times_ms(made: ScoredTriples, settings: PoolingSettings, rounds: int) -> tuple[float, float]:
    """Return the shortest times of kbqa and of networkx."""
    begun, times = time.thread_time(), []
    for _ in range(rounds):
        for run in (pool, pool_with_networkx):
            run(made, settings)
            begun, last = time.thread_time(), begun
            times.append(1000 * (begun - last))
    return min(times[::2]), min(times[1::2])


@click.command(help=__doc__)
@click.option("--questions", type=click.IntRange(1), default=20, show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True)
def main(questions: int, rounds: int) -> None:
    """Print the table."""
    click.echo(
        f"{machine()}\n\n"
        f"{questions} questions, 2 topics; for each the shortest time of {rounds} rounds.\n"
        "Median over the questions, and the highest\n\n"
        "| kernel | triples | kbqa, ms | networkx, ms | kbqa against networkx | the paper, ms |\n"
        "|---|---|---|---|---|---|"
    )
    for kernel in get_args(KernelName):
        for count, paper_ms in PAPER_MS[kernel].items():
            chance, settings = Random(1), PoolingSettings(kernel=kernel, smoothing="full")
            made = [made_triples(count, 2, chance) for _ in range(questions)]
            times = [_times_ms(each, settings, rounds) for each in made]
            ours, baseline = ([each[who] for each in times] for who in (0, 1))
            ratio = median(mine / other for mine, other in times)
            click.echo(
                f"| {kernel} | {count} | {median(ours):.2f}, {max(ours):.2f} "
                f"| {median(baseline):.2f}, {max(baseline):.2f} | {ratio:.3f} | {paper_ms} |"
            )


if __name__ == "__main__":
    main()
