"""The round that methods share which walk from node to node.

Relations are offered at the end of each walk; then the nodes that the chosen ones lead to. A method
says how it asks, and what of the nodes it offers.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from kbqa.engine.deciding.choosing import Choice
from kbqa.engine.deciding.reading import Picked
from kbqa.engine.deciding.session import Session, Step
from kbqa.engine.graph_walk import Walk
from kbqa.sparql.crp import Hop
from kbqa.sparql.terms import Term


class Followed(NamedTuple):
    """A relation that is followed from the end of a walk, with its score.

    Attributes:
        nodes: What it leads to, as far as it is offered or taken.
        hidden: How many nodes there are besides.
        taken: Which nodes are taken without a decision; None if they are chosen from.
    """

    walk: Walk
    hop: Hop
    score: float = 1.0
    nodes: tuple[Term, ...] = ()
    hidden: int = 0
    taken: Picked | None = None


def choose_relations(
    session: Session,
    walks: Sequence[Walk],
    offers: Sequence[Sequence[Hop]],
    ask: Callable[[Walk, Sequence[Hop]], Choice],
    *,
    is_random: bool = False,
) -> list[list[Followed]]:
    """Have some of the relations chosen that are offered at the end of each walk.

    Returns:
        For each walk the relations that are followed; none if no call was left for it.
    """
    session.neighbourhood.names(node for walk in walks for node in walk.nodes)
    picked = session.choose_all(list(map(ask, walks, offers)), is_random=is_random)
    followed = [
        [Followed(walk, hops[at], score) for at, score in each.scored]
        for walk, hops, each in zip(walks, offers, picked, strict=False)
    ]
    return followed + [[]] * (len(walks) - len(followed))


def choose_nodes(
    session: Session, followed: Sequence[Followed], ask: Callable[[Followed], Choice], hop: int
) -> list[tuple[Walk, float]]:
    """Have nodes chosen wherever there is something to decide.

    Returns:
        The longer walks, each with the product of its relation's and its node's score.
    """
    for each in followed:
        if each.taken is not None:
            names = tuple(map(session.neighbourhood.name, each.nodes))
            at, scores = session.drawn(each.walk, each.hop), each.taken.scores
            session.steps.append(
                Step("entities", hop, at, names, each.hidden, names, scores, is_decision=False)
            )
    offered = [each for each in followed if each.taken is None]
    picked = iter(session.choose_all(list(map(ask, offered))))
    longer = []
    for each in followed:
        chosen = next(picked, Picked(())) if each.taken is None else each.taken
        longer += [
            (each.walk.then(each.hop, each.nodes[at]), each.score * score)
            for at, score in chosen.scored
        ]
    return longer
