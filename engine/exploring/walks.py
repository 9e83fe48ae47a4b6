"""Walks: chains of real triples from a topic, each with the direction in which it was walked.

Arrows are only drawn, for prompts and people; nothing is ever read back from them.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from kbqa.sparql.crp import Entity, Hop
from kbqa.sparql.terms import LiteralTerm, Term


@dataclass(frozen=True, slots=True)
class WalkStep:
    """A triple of the graph, walked from its subject or, if `inverse`, from its object."""

    subject: Term
    relation: str
    object: Term
    inverse: bool = False

    @classmethod
    def taken(cls, node: Term, hop: Hop, reached: Term) -> "WalkStep":
        """Return the step that takes a hop from a node to another."""
        ends = (reached, node) if hop.inverse else (node, reached)
        return cls(ends[0], hop.relation, ends[1], hop.inverse)

    @property
    def hop(self) -> Hop:
        """The relation with its direction."""
        return Hop(self.relation, self.inverse)

    @property
    def left(self) -> Term:
        """The node that the step leaves."""
        return self.object if self.inverse else self.subject

    @property
    def reached(self) -> Term:
        """The node that the step leads to."""
        return self.subject if self.inverse else self.object


@dataclass(frozen=True, slots=True)
class Walk:
    """A topic, with its mid, and steps from there: each leaves the node that the last reached."""

    topic: Entity
    steps: tuple[WalkStep, ...] = ()

    @property
    def end(self) -> Term:
        """The node that the walk has reached."""
        if self.steps:
            return self.steps[-1].reached
        assert self.topic.mid is not None
        return self.topic.mid

    @property
    def hops(self) -> tuple[Hop, ...]:
        """The relations walked."""
        return tuple(step.hop for step in self.steps)

    @property
    def nodes(self) -> tuple[Term, ...]:
        """The topic and every node that was reached, in order."""
        assert self.topic.mid is not None
        return (self.topic.mid, *(step.reached for step in self.steps))

    @property
    def beginnings(self) -> tuple["Walk", ...]:
        """The walk after each of its steps, from the first to the last."""
        return tuple(Walk(self.topic, self.steps[:at]) for at in range(1, len(self.steps) + 1))

    def then(self, hop: Hop, reached: Term) -> "Walk":
        """Append a step from the walk's end."""
        return Walk(self.topic, (*self.steps, WalkStep.taken(self.end, hop, reached)))

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON record: the topic's mid, and subject, relation, object, inverse a step."""
        return {
            "topic": self.topic.mid,
            "steps": [
                [_text(step.subject), step.relation, _text(step.object), step.inverse]
                for step in self.steps
            ],
        }


def drawn_walk(walk: Walk, name: Callable[[Term], str]) -> str:
    """Draw a walk in a line: `->` follows a relation forwards, `<-` backwards.

    >>> walk = Walk(Entity("Kenya", "m.k")).then(Hop("a.b"), "m.1").then(Hop("c.d", True), "m.2")
    >>> drawn_walk(walk, {"m.k": "Kenya", "m.1": "Nairobi", "m.2": "Eve"}.__getitem__)
    'Kenya -> a.b -> Nairobi <- c.d <- Eve'
    """
    return name(walk.nodes[0]) + "".join(
        f" {arrow(step.hop)} {step.relation} {arrow(step.hop)} {name(step.reached)}"
        for step in walk.steps
    )


def drawn_step(step: WalkStep, name: Callable[[Term], str]) -> str:
    """Draw a step in the direction in which it was walked: ``Kenya -> a.b -> Nairobi``."""
    way = f" {arrow(step.hop)} "
    return f"{name(step.left)}{way}{step.relation}{way}{name(step.reached)}"


def arrow(hop: Hop) -> str:
    """Return the arrow of a hop."""
    return "<-" if hop.inverse else "->"


def drawn_triple(step: WalkStep, name: Callable[[Term], str]) -> str:
    """Draw a step as the triple that the graph holds: ``(subject, relation, object)``."""
    return f"({name(step.subject)}, {step.relation}, {name(step.object)})"


def triples_of(walks: Iterable[Walk]) -> Iterator[WalkStep]:
    """Yield the triples of walks, each once whichever way it was walked."""
    seen = set()
    for walk in walks:
        for step in walk.steps:
            triple = (step.subject, step.relation, step.object)
            if triple not in seen:
                seen.add(triple)
                yield step


def _text(term: Term) -> str:
    return term.text if isinstance(term, LiteralTerm) else term
