"""How much of what is right comes early in a ranking of triples."""

from typing import TYPE_CHECKING, NamedTuple

from kbqa.training.retriever.labelled import Labelled

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

CUTOFFS = (10, 25, 50, 100, 200)
"""How many triples are read."""


class Recalls(NamedTuple):
    """Measures of one question, for each number of triples read; all in [0, 1].

    Attributes:
        triples: The share of gold facts that these triples state.
        path: 1 if they state all facts of one way in which the gold query matches, else 0.
        answers: The share of answers that are an end of one of them.
    """

    triples: tuple[float, ...]
    path: tuple[float, ...]
    answers: tuple[float, ...]


def measure_recall(
    scores: "NDArray[np.float64]", labelled: Labelled, cutoffs: tuple[int, ...] = CUTOFFS
) -> Recalls:
    """Measure a ranking; of equal scores, the triple that comes first in the subgraph is first.

    Args:
        scores: Of each triple; the highest is read first.
        labelled: What is right.
        cutoffs: How many triples are read.
    """
    import numpy as np

    rank = np.empty(len(scores))
    rank[np.argsort(-scores, kind="stable")] = np.arange(len(scores))
    # One more place, which -1 finds: the padding of `matches`, and answers out of sight.
    of_fact = np.full(labelled.facts + 1, np.inf)
    is_gold = labelled.stated >= 0
    np.minimum.at(of_fact, labelled.stated[is_gold], rank[is_gold])
    of_fact[-1] = -1
    of_match = of_fact[labelled.matches].max(axis=1)
    of_node = np.full(labelled.nodes + 1, np.inf)
    np.minimum.at(of_node, labelled.heads, rank)
    np.minimum.at(of_node, labelled.tails, rank)
    of_answer = of_node[labelled.answers]
    return Recalls(
        tuple(float((of_fact[:-1] < cutoff).mean()) for cutoff in cutoffs),
        tuple(float(of_match.min() < cutoff) for cutoff in cutoffs),
        tuple(float((of_answer < cutoff).mean()) for cutoff in cutoffs),
    )
