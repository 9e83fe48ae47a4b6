"""From retrieved triples to paths that are run as queries: a reader without a language model.

The kernels are the shortest paths between a topic and the nodes of the triples, whichever way these
point. Kernels by the same relations are one path in the graph. Its score is that of the best: the
mean of its triples. Where a kernel from another topic ends at a node of a path, it becomes a
constraint of the path: that node has a way back to the other topic.

This reader is ours: in Path Pooling, a language model reads the triples. On 232 held-out training
questions (180 of webqsp.train, 52 of cwq.dev, gold entities) the F1 of the first path is 0.76 and
0.29, without constraints 0.76 and 0.20, and of the best of five paths 0.90 and 0.68. Ranked by the
lowest score of a path's triples it is 0.76 and 0.12, without constraints.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from kbqa.engine.retrieval.kernels import find_kernels
from kbqa.engine.retrieval.pooling_settings import PoolingSettings
from kbqa.engine.retrieval.retrieval import Retrieved
from kbqa.engine.writing.generate import Candidate
from kbqa.kb.schema.graph_schema import GraphSchema
from kbqa.sparql.crp import Constraint, Crp, Entity, Hop, IsEntity
from kbqa.sparql.forms import render_crp
from kbqa.sparql.terms import Term


class Kernel(NamedTuple):
    """A path between a topic and a node of retrieved triples.

    Attributes:
        nodes: The topic first.
        hops: From each node to the next.
        score: Of its triples, on average.
    """

    nodes: tuple[Term, ...]
    hops: tuple[Hop, ...]
    score: float

    @property
    def triples(self) -> list[tuple[Term, str, Term]]:
        """Its triples, as the graph holds them, in the order of the path."""
        steps = zip(self.nodes, self.hops, self.nodes[1:], strict=False)
        return [
            (end, hop.relation, start) if hop.inverse else (start, hop.relation, end)
            for start, hop, end in steps
        ]

    @property
    def way_back(self) -> tuple[Hop, ...]:
        """The hops from its end to the topic."""
        return tuple(Hop(hop.relation, not hop.inverse) for hop in reversed(self.hops))


def read_kernels(retrieved: Retrieved) -> list[Kernel]:
    """Find a shortest path from each topic to each node of the selected triples."""
    graph, selected = retrieved.subgraph, retrieved.selected.triples
    # A triple is followed either way, but nothing goes on from a literal.
    turned = [at for at in selected.tolist() if isinstance(graph.nodes[graph.tails[at]], str)]
    ahead = len(selected)
    arcs = np.concatenate([selected, np.array(turned, dtype=selected.dtype)])
    heads, tails = graph.heads[arcs], graph.tails[arcs]
    heads[ahead:], tails[ahead:] = tails[ahead:].copy(), heads[ahead:].copy()
    scores = retrieved.scores[arcs]
    kernels: dict[Kernel, None] = {}
    found = find_kernels(heads, tails, scores, range(graph.topics), PoolingSettings())
    for path in (path for same in found for path in same.tolist()):
        if (
            heads[path[0]] < graph.topics
        ):  # others lead to a topic, and are there the other way, too
            nodes = [graph.nodes[heads[path[0]]], *(graph.nodes[tails[arc]] for arc in path)]
            hops = [Hop(graph.relations[graph.links[arcs[arc]]], arc >= ahead) for arc in path]
            kernels[Kernel(tuple(nodes), tuple(hops), float(scores[path].mean()))] = None
    return list(kernels)


def write_candidates(
    kernels: Sequence[Kernel], topics: Sequence[Entity], schema: GraphSchema, most: int
) -> list[Candidate]:
    """Write the best paths as candidates, best first.

    Args:
        kernels: Of the question.
        topics: Its topics, with their mids.
        schema: Of the graph.
        most: Candidates, at most.

    Raises:
        GraphError: The graph does not answer.
    """
    paths: dict[tuple[Term, tuple[Hop, ...]], list[Kernel]] = {}
    for kernel in kernels:
        if not schema.leads_to_mediator(kernel.hops[-1]):
            paths.setdefault((kernel.nodes[0], schema.canonical(kernel.hops)), []).append(kernel)
    for alike in paths.values():
        alike.sort(key=lambda kernel: -kernel.score)
    ranked = sorted(paths.values(), key=lambda alike: -alike[0].score)[:most]
    entities: dict[Term, Entity] = {topic.mid: topic for topic in topics if topic.mid}
    return [_written(alike, kernels, entities) for alike in ranked]


def _written(
    alike: Sequence[Kernel], kernels: Sequence[Kernel], topics: dict[Term, Entity]
) -> Candidate:
    """Write the path of kernels by the same relations, the best first."""
    best = alike[0]
    topic = topics[best.nodes[0]]
    crp = Crp(topic, best.hops, tuple(_constraints(alike, kernels, topics)))
    assert topic.mid is not None
    return Candidate(render_crp(crp), math.log(best.score), tokens=1, topics=(topic.mid,))


def _constraints(
    alike: Sequence[Kernel], kernels: Sequence[Kernel], topics: dict[Term, Entity]
) -> Iterator[Constraint]:
    """Yield a constraint for each other topic that has a kernel to a node of a path."""
    start = alike[0].nodes[0]
    for mid, other in topics.items():
        if mid == start:
            continue
        ways = [each for each in kernels if each.nodes[0] == mid and start not in each.nodes]
        meeting = [
            (way.score, -len(way.hops), position, way)
            for position in range(1, len(alike[0].nodes))
            for way in ways
            if way.nodes[-1] in {kernel.nodes[position] for kernel in alike}
        ]
        if meeting:
            *_, position, way = max(meeting, key=lambda each: each[:3])
            yield Constraint(position, way.way_back, IsEntity(other))
