"""A round of methods that walk from node to node, and their final answer.

In each round relations are offered at the end of each walk, then the nodes that the chosen ones
lead to.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple, Unpack

from kbqa.engine.answer import Answer
from kbqa.engine.chat.model import Message, ReplySampling
from kbqa.engine.deciding.choosing import Choice, numbered, written_prompt
from kbqa.engine.deciding.reading import Picked
from kbqa.engine.deciding.session import Session, Step, Stop
from kbqa.engine.graph_walk import Directions, Walk, drawn_hop
from kbqa.engine.methods.direct import answer_directly
from kbqa.sparql.crp import Hop
from kbqa.sparql.english import relation_words
from kbqa.sparql.terms import Term


@dataclass(frozen=True, slots=True)
class Offer:
    """How a method offers relations at the end of a walk, or the nodes that one leads to.

    The prompt shows the question, the entity at the end, and the relations, or the relation and the
    entities.
    """

    prompt: str  # a template
    read: Callable[[str, Sequence[str]], Picked]  # reads the reply, by the options
    most: int | None = None  # how many may be chosen, the `width` of the prompt; None for any
    shown: int | None = None  # how many relations are offered; None for all
    directions: Directions = "both"  # in which relations are followed
    more: Callable[[Walk], Mapping[str, object]] = lambda _: {}  # that the prompt shows
    sampling: ReplySampling = field(default_factory=ReplySampling)

    def relations(self, session: Session, hop: int, walk: Walk, hops: Sequence[Hop]) -> Choice:
        """Offer relations."""
        shown = hops[: self.shown]
        options = tuple(drawn_hop(each, self.directions) for each in shown)
        meanings = tuple(relation_words(each.relation) for each in shown)
        hidden = len(hops) - len(shown)
        return self._choice(session, "relations", hop, walk, options, hidden, meanings)

    def nodes(self, session: Session, hop: int, followed: "Followed") -> Choice:
        """Offer nodes."""
        options = tuple(map(session.neighbourhood.name, followed.nodes))
        walk, via, hidden = followed.walk, followed.hop, followed.hidden
        return self._choice(session, "entities", hop, walk, options, hidden, via=via)

    def _choice(
        self,
        session: Session,
        kind: str,
        hop: int,
        walk: Walk,
        options: tuple[str, ...],
        hidden: int,
        meanings: tuple[str, ...] = (),
        via: Hop | None = None,
    ) -> Choice:
        return Choice(
            kind=kind,
            hop=hop,
            at=session.drawn(walk, via),
            options=options,
            most=len(options) if self.most is None else self.most,
            prompt=written_prompt(
                self.prompt,
                question=session.question,
                entity=session.neighbourhood.name(walk.end),
                relation=via and drawn_hop(via, self.directions),
                width=self.most,
                **{kind: numbered(options)},
                **self.more(walk),
            ),
            read=self.read,
            meanings=meanings,
            hidden=hidden,
            sampling=self.sampling,
        )


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
    relations: Offer,
    lead: Callable[[Sequence[Followed]], Sequence[Followed]],
    nodes: Offer,
) -> list[tuple[Walk, float]]:
    """Continue walks by a hop; return the longer ones, each with the score of its last triple.

    `lead` adds the nodes of relations, whose `tails` are looked up already. The scores of relation
    and node are multiplied.
    """
    around = session.neighbourhood
    offered = around.hops_onward(walks)
    chosen = list(chain(*choose_relations(session, walks, hop, offered, relations)))
    around.fetch_tails((each.walk.end, each.hop) for each in chosen)
    followed = lead(chosen)
    for each in followed:
        if each.taken is not None:
            names = tuple(map(around.name, each.nodes))
            at, scores = session.drawn(each.walk, each.hop), each.taken.scores
            session.steps.append(
                Step("entities", hop, at, names, each.hidden, names, scores, is_decision=False)
            )
    choices = [nodes.nodes(session, hop, each) for each in followed if each.taken is None]
    picked = iter(session.choose_all(choices))
    longer = []
    for each in followed:
        taken = next(picked, Picked(())) if each.taken is None else each.taken
        longer += [
            (each.walk.then(each.hop, each.nodes[at]), each.score * score)
            for at, score in taken.scored
        ]
    return longer


def choose_relations(
    session: Session,
    walks: Sequence[Walk],
    hop: int,
    offered: Sequence[Sequence[Hop]],
    offer: Offer,
    *,
    is_random: bool = False,
) -> list[list[Followed]]:
    """Have relations chosen at the end of each walk; none where the calls are spent."""
    session.neighbourhood.names(node for walk in walks for node in walk.nodes)
    ends = zip(walks, offered, strict=True)
    choices = [offer.relations(session, hop, *each) for each in ends]
    picked = session.choose_all(choices, is_random=is_random)
    followed = [
        [Followed(walk, hops[at], score) for at, score in each.scored]
        for walk, hops, each in zip(walks, offered, picked, strict=False)
    ]
    return followed + [[]] * (len(walks) - len(followed))


def answer_from(
    session: Session,
    walks: Sequence[Walk],
    stop: Stop,
    said: Sequence[str],
    prompt: Sequence[Message],
    details: Mapping[str, Any] | None = None,
    **sampling: Unpack[ReplySampling],
) -> Answer:
    """Answer with the names that were said, if any; else ask for the answers with a prompt.

    After the deepest hop, or without walks, the question is asked without them (CoT).
    """
    if said or (walks and stop != "depth"):
        names = said or session.ask_names(prompt, session.names_on(walks), **sampling)
        return session.finish(walks, stop, names, details=details)
    names = answer_directly(session, reason=True, **sampling)
    stage = "fallback" if session.has_language_model else "explored"
    return session.finish(walks, stop, names, stage=stage, details=details)
