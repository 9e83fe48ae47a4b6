"""A round of methods that walk from node to node, and their final answer.

In each round relations are offered at the end of each walk, then the nodes that the chosen ones
lead to.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from kbqa.engine.answer import Answer
from kbqa.engine.chat.model import Message
from kbqa.engine.deciding.choosing import Choice
from kbqa.engine.deciding.reading import Picked
from kbqa.engine.deciding.session import Session, Step, Stop
from kbqa.engine.graph_walk import Walk
from kbqa.engine.methods.direct import answer_directly
from kbqa.sparql.crp import Hop
from kbqa.sparql.terms import Term


class Followed(NamedTuple):
    """A relation that is followed from the end of a walk, and the nodes that it leads to."""

    walk: Walk
    hop: Hop
    score: float = 1.0
    nodes: tuple[Term, ...] = ()
    hidden: int = 0  # other nodes, which are neither offered nor taken
    taken: Picked | None = None  # of the nodes, without a decision; None if they are offered


def walk_on(
    session: Session,
    walks: Sequence[Walk],
    hop: int,
    ask_relations: Callable[[int, Walk, Sequence[Hop]], Choice],
    lead: Callable[[Sequence[Followed]], Sequence[Followed]],
    ask_nodes: Callable[[int, Followed], Choice],
) -> list[tuple[Walk, float]]:
    """Continue walks by a hop; return the longer ones, each with the score of its last triple.

    `lead` adds the nodes of relations, whose `tails` are looked up already.
    """
    around = session.neighbourhood
    offers = around.hops_onward(walks)
    followed = list(chain(*choose_relations(session, walks, hop, offers, ask_relations)))
    around.fetch_tails((each.walk.end, each.hop) for each in followed)
    return _choose_nodes(session, lead(followed), hop, ask_nodes)


def choose_relations(
    session: Session,
    walks: Sequence[Walk],
    hop: int,
    offers: Sequence[Sequence[Hop]],
    ask: Callable[[int, Walk, Sequence[Hop]], Choice],
    *,
    is_random: bool = False,
) -> list[list[Followed]]:
    """Have relations chosen at the end of each walk; none where the calls are spent."""
    session.neighbourhood.names(node for walk in walks for node in walk.nodes)
    choices = [ask(hop, *each) for each in zip(walks, offers, strict=True)]
    picked = session.choose_all(choices, is_random=is_random)
    followed = [
        [Followed(walk, hops[at], score) for at, score in each.scored]
        for walk, hops, each in zip(walks, offers, picked, strict=False)
    ]
    return followed + [[]] * (len(walks) - len(followed))


def _choose_nodes(
    session: Session,
    followed: Sequence[Followed],
    hop: int,
    ask: Callable[[int, Followed], Choice],
) -> list[tuple[Walk, float]]:
    """Have nodes chosen where they are offered; scores of relation and node are multiplied."""
    for each in followed:
        if each.taken is not None:
            names = tuple(map(session.neighbourhood.name, each.nodes))
            at, scores = session.drawn(each.walk, each.hop), each.taken.scores
            session.steps.append(
                Step("entities", hop, at, names, each.hidden, names, scores, is_decision=False)
            )
    choices = [ask(hop, each) for each in followed if each.taken is None]
    picked = iter(session.choose_all(choices))
    longer = []
    for each in followed:
        chosen = next(picked, Picked(())) if each.taken is None else each.taken
        longer += [
            (each.walk.then(each.hop, each.nodes[at]), each.score * score)
            for at, score in chosen.scored
        ]
    return longer


def answer_from(
    session: Session,
    walks: Sequence[Walk],
    stop: Stop,
    said: Sequence[str],
    prompt: Sequence[Message],
    max_tokens: int,
    temperature: float = 0.0,
    details: Mapping[str, Any] | None = None,
) -> Answer:
    """Answer with the names that were said, if any; else ask for the answers with a prompt.

    After the deepest hop, or without walks, the question is asked without them (CoT).
    """
    if said or (walks and stop != "depth"):
        names = said or session.ask_names(
            prompt, session.names_on(walks), max_tokens=max_tokens, temperature=temperature
        )
        return session.finish(walks, stop, names, details=details)
    names = answer_directly(session, reason=True, max_tokens=max_tokens, temperature=temperature)
    stage = "fallback" if session.has_language_model else "explored"
    return session.finish(walks, stop, names, stage=stage, details=details)
