"""The triples around a question's topics, as arrays."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kbqa.sparql.terms import Term

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Cut:
    """What was left out of a subgraph because it was too much, in numbers.

    Attributes:
        relations: Relations of an expanded entity, counted for each direction, of which not all
            edges were read.
        hubs: Entities that were within reach but not expanded, because of their many edges.
        entities: Other entities that were within reach but not expanded.
        triples: Triples that were read and then left out.
    """

    relations: int = 0
    hubs: int = 0
    entities: int = 0
    triples: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Subgraph:
    """Triples of a graph. Triple `i` is ``nodes[heads[i]], relations[links[i]], nodes[tails[i]]``.

    Attributes:
        nodes: Each once, the topics first: entities by id, literals as terms.
        relations: Each once, sorted.
        heads: The subject of each triple, as a place in `nodes`; int32, of shape (triples,).
        links: The relation of each triple, as a place in `relations`; like `heads`.
        tails: The object of each triple, as a place in `nodes`; like `heads`.
        topics: How many of the first nodes are topics.
        cut: What was left out.
    """

    nodes: tuple[Term, ...]
    relations: tuple[str, ...]
    heads: "NDArray[np.int32]"
    links: "NDArray[np.int32]"
    tails: "NDArray[np.int32]"
    topics: int
    cut: Cut = Cut()
