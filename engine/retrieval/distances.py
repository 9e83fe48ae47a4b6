"""Directional distance encoding: how far a node is from the topics, by each direction of edges.

It has no weights: the mark of being a topic is averaged over incoming edges, round by round, and
again over outgoing edges.

Source: SubgraphRAG §4.1, "Directional Distance Encoding"; of its code, the mean over neighbours
where parallel edges count each.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ROUNDS = 2


def encode_distances(
    heads: "NDArray[np.int32]",
    tails: "NDArray[np.int32]",
    nodes: int,
    topics: int,
    rounds: int = ROUNDS,
) -> "NDArray[np.float32]":
    """Encode the distances of a subgraph's nodes from its topics.

    Args:
        heads: The subject of each triple.
        tails: The object of each triple.
        nodes: How many nodes there are.
        topics: How many of the first nodes are topics.
        rounds: Of averaging, in each direction; with 0, nothing is encoded, not even which nodes
            are topics.

    Returns:
        For each node two columns that say whether it is a topic, as 1 in the second or else in the
        first, and two for the average of each round: first those along the edges, then those
        against them. A node without neighbours in a direction has zeros there. Shape (nodes,
        2 + 4 · rounds), or (nodes, 0).
    """
    import numpy as np

    if not rounds:
        return np.zeros((nodes, 0), dtype=np.float32)
    marks = np.zeros((nodes, 2))
    marks[:topics, 1] = 1
    marks[topics:, 0] = 1
    columns = [marks]
    for sources, ends in ((heads, tails), (tails, heads)):
        degrees = np.maximum(np.bincount(ends, minlength=nodes), 1)
        averages = marks
        for _ in range(rounds):  # Parallel edges count each.
            sums = [np.bincount(ends, column[sources], nodes) for column in averages.T]
            averages = np.stack(sums, axis=1) / degrees[:, None]
            columns.append(averages)
    return np.concatenate(columns, axis=1, dtype=np.float32)
