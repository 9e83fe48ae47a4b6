"""Say which triples of a subgraph are right: those of the gold query, or those on shortest paths.

Gold labels also cover constraints. Shortest paths need answers only, and are the paper's.

Source: SubgraphRAG §4.1, "Training". Its graph keeps one relation between two nodes, the last; here
all relations of a hop are right.
"""

from collections.abc import Collection, Sequence
from itertools import product
from typing import TYPE_CHECKING, Literal, TypeAlias

from kbqa.engine.retrieval.subgraph import Subgraph
from kbqa.engine.running.evidence import Triple
from kbqa.kb.schema.graph_schema import GraphSchema
from kbqa.sparql.crp import Hop
from kbqa.sparql.terms import Term

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LabelKind: TypeAlias = Literal["gold", "shortest"]


def canonical_triples(triples: Sequence[Triple], schema: GraphSchema) -> list[Triple]:
    """Write each triple with its relation or that relation's reverse, always with the same one.

    The graph holds both, and they state the same fact.

    Raises:
        GraphError: The graph does not answer.
    """
    hops = schema.canonical([Hop(relation) for _, relation, _ in triples])
    return [
        (object_, hop.relation, subject) if hop.inverse else (subject, hop.relation, object_)
        for (subject, _, object_), hop in zip(triples, hops, strict=True)
    ]


def find_facts(
    subgraph: Subgraph, facts: Sequence[Triple], schema: GraphSchema
) -> "NDArray[np.int32]":
    """Find the triples of a subgraph that state one of some facts.

    Args:
        subgraph: The subgraph.
        facts: As `canonical_triples` writes them, each once.
        schema: Of the graph.

    Returns:
        For each triple the place of the fact that it states, or -1.

    Raises:
        GraphError: The graph does not answer.
    """
    import numpy as np

    places = {node: at for at, node in enumerate(subgraph.nodes)}
    wanted = {
        (places[subject], relation, places[object_]): at
        for at, (subject, relation, object_) in enumerate(facts)
        if subject in places and object_ in places
    }
    ends = {end for subject, _, object_ in wanted for end in (subject, object_)}
    is_end = np.zeros(len(subgraph.nodes), dtype=bool)
    is_end[list(ends)] = True
    hops = schema.canonical([Hop(relation) for relation in subgraph.relations])
    found = np.full(len(subgraph.heads), -1, dtype=np.int32)
    for at in np.flatnonzero(is_end[subgraph.heads] & is_end[subgraph.tails]):
        head, tail = int(subgraph.heads[at]), int(subgraph.tails[at])
        hop = hops[subgraph.links[at]]
        fact = (tail, hop.relation, head) if hop.inverse else (head, hop.relation, tail)
        found[at] = wanted.get(fact, -1)
    return found


def on_shortest_paths(subgraph: Subgraph, answers: Collection[Term]) -> "NDArray[np.bool_]":
    """Find the triples on a shortest path between a topic and an answer.

    Paths are directed, from the topic to the answer or from the answer to the topic; the longer
    ones of the two do not count.

    Returns:
        For each triple whether it is on such a path.
    """
    import numpy as np

    wanted = set(answers)
    answer_places = [at for at, node in enumerate(subgraph.nodes) if node in wanted]
    topics = list(range(subgraph.topics))
    starts = list(dict.fromkeys([*topics, *answer_places]))
    row = {start: at for at, start in enumerate(starts)}
    size = len(subgraph.nodes)
    away = _steps(subgraph.heads, subgraph.tails, starts, size)
    towards = _steps(subgraph.tails, subgraph.heads, starts, size)
    found = np.zeros(len(subgraph.heads), dtype=bool)
    for topic, answer in product(topics, answer_places):
        there, back = away[row[topic], answer], away[row[answer], topic]
        length = min(there, back)
        if not 0 < length < np.inf:
            continue
        for start, end, steps in ((topic, answer, there), (answer, topic, back)):
            if steps == length:
                before = away[row[start]][subgraph.heads]
                after = towards[row[end]][subgraph.tails]
                found |= before + 1 + after == length
    return found


def _steps(
    heads: "NDArray[np.int32]", tails: "NDArray[np.int32]", starts: Sequence[int], nodes: int
) -> "NDArray[np.float64]":
    """Count the steps from each start to every node; infinitely many to one out of reach."""
    import numpy as np
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import dijkstra

    edges = csr_array((np.ones(len(heads)), (heads, tails)), shape=(nodes, nodes))
    steps: NDArray[np.float64] = dijkstra(edges, indices=starts, unweighted=True)
    return steps
