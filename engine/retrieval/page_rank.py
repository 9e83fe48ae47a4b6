"""Personalised PageRank: how near nodes are to the topics, over all paths.

Source: the preprocessing of NSM (He et al. 2021, *Improving multi-hop knowledge base question
answering by learning intermediate supervision signals*), with its restart probability and rounds.
"""

import numpy as np
from numpy.typing import NDArray

RESTART = 0.8
"""The probability of a walk to go back to a topic at each step."""

ROUNDS = 20


def page_rank(
    heads: NDArray[np.int32], tails: NDArray[np.int32], size: int, topics: int
) -> NDArray[np.float64]:
    """Compute the probability of each node for walks along edges, either way, from the topics.

    Args:
        heads: One end of each edge, as the number of a node; of shape (edges,).
        tails: The other end of each edge.
        size: How many nodes there are.
        topics: How many of the first nodes are topics; one at least.

    Returns:
        A probability for each node, of shape (size,).
    """
    start = np.zeros(size)
    start[:topics] = 1 / topics
    here, there = np.concatenate([heads, tails]), np.concatenate([tails, heads])
    edges = np.maximum(np.bincount(there, minlength=size), 1)
    reached = start
    for _ in range(ROUNDS):
        walked = np.bincount(here, (reached / edges)[there], size)
        reached = RESTART * start + (1 - RESTART) * walked
    return reached
