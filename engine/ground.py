"""Ground a CRP's names: find the entities that it means.

`kbqa.engine.bearers` ranks the entities that each name may mean. A reading takes one of them for
each name; readings come best first, a few at most, and execution decides between them. An entity
that the CRP's relation does not lead to gives no answer, so it is not tried beside one that has it.

A constraint's name that nobody bears stays as it is, and what hangs on it can only be relaxed away.
For a topic that nobody bears, or that leads nowhere, what the question mentions may stand in; and
before a topic that the question does not mention goes what the linker is sure that it is about.
Where a reading takes a name for somebody who does not bear it, it tells so.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import islice
from typing import NamedTuple

from kbqa.engine.bearers import LIKE_ENOUGH, Basis, Bearer, Bearers
from kbqa.engine.evidence import name_terms
from kbqa.engine.linker import LinkedEntity
from kbqa.engine.question_mentions import FUNCTION_WORDS, tokenise
from kbqa.kb.entity_search import Names
from kbqa.kb.graph import Graph
from kbqa.kb.name_keys import normalise
from kbqa.sparql.crp import (
    Constraint,
    Crp,
    Entity,
    Hop,
    IsEntity,
    IsNotEntity,
    Order,
    Step,
    nested_constraints,
)

MAX_READINGS = 12
"""Readings of a CRP at most; its names together may have more, as those below bound each alone."""

_SURE = 0.8
"""The linker's probability from which a question may surely be about an entity; see `_is_sure`.

On webqsp.train and cwq.dev, where the names are right, this changes nothing; 0.5 costs 0.6 F1.
"""

_TOPICS = 5
_CONSTRAINED = 3

_BECAUSE: Mapping[Basis, str] = {
    "likeness": "which is spelled like it",
    "mention": "which the question mentions",
    "subject": "which the question is about",
    "given": "which was given with the question",
}


@dataclass(frozen=True, slots=True)
class Grounding:
    """One reading of a CRP.

    Attributes:
        crp: With entities grounded, but for those in `unlinked`.
        unlinked: Names of constraint entities that nobody bears.
        likeness: How like the names of constraint entities are to those that were written, 0 to 1;
            the topic is absent, and so is what came as a mid.
        stands_in: The topic is not called as was written; it is what the question mentions.
        replaced: Sentences that tell which names are taken for somebody who does not bear them,
            and why.
    """

    crp: Crp
    unlinked: tuple[str, ...]
    likeness: Mapping[Entity, float]
    stands_in: bool = False
    replaced: tuple[str, ...] = ()

    def trust(self, part: Constraint | Order) -> float:
        """Tell how surely a part of the CRP means what was written: its least likely entity."""
        if isinstance(part, Order):
            return 1.0
        return min((self.likeness.get(entity, 1.0) for entity in _entities(part)), default=1.0)


class Grounder:
    """Grounds the CRPs of one question.

    Args:
        graph: Where relations are looked up.
        names: The graph's names.
        linked: Entities that the question mentions, best first.
        gold: The entities given with the question, to which names are bound first; only in
            evaluation with gold entities.
    """

    def __init__(
        self,
        graph: Graph,
        names: Names,
        linked: Sequence[LinkedEntity],
        gold: Sequence[Entity] = (),
    ) -> None:
        self._bearers = Bearers(graph, names, linked)
        self._gold = gold
        self._scores = {entity.mid: entity.score for entity in linked}
        sure = filter(_is_sure, linked)
        self._subject = next((Entity(entity.name, entity.mid) for entity in sure), None)

    def ground(self, crp: Crp) -> Iterator[Grounding]:
        """Yield the readings of a CRP, best first, `MAX_READINGS` at most.

        The topic's best bearer is kept the longest; what else the question mentions comes last.
        None comes where no topic can be found.

        Raises:
            GraphError: The graph does not answer.
        """
        return islice(self._readings(crp), MAX_READINGS)

    def topic_score(self, topic: Entity) -> float:
        """Tell how likely the question is about an entity: 1 where that was given with it."""
        if any(topic.mid == given.mid for given in self._gold):
            return 1.0
        return self._scores.get(topic.mid or "", 0.0)

    def count_mentioned(self, crp: Crp) -> int:
        """Count the entities of its constraints that the question mentions."""
        of_constraints = {entity for c in crp.constraints for entity in _entities(c)}
        return sum(entity.mid in self._scores for entity in of_constraints)

    def proposals(self, crp: Crp) -> list[tuple[Entity, list[Bearer]]]:
        """List the names of a CRP, the topic first, each with those whom it may mean, best first.

        These are all that are known, while `ground` takes those that can lead to an answer.

        Raises:
            GraphError: The graph does not answer.
        """
        slots = [_Slot(crp.topic, crp.path[0])]
        slots += (slot for c in crp.all_constraints() for slot in _slots(c))
        return [(name, self._bearers.rank(str(name), step)) for name, step in slots]

    def _readings(self, crp: Crp) -> Iterator[Grounding]:
        start = _Slot(crp.topic, crp.path[0])
        slots = [slot for c in crp.all_constraints() for slot in _slots(c)]
        choices = {slot: self._constrained(slot) for slot in dict.fromkeys(slots)}
        for topics in self._topics(crp):
            for topic, *numbers in _best_first([len(topics), *map(len, choices.values())]):
                chosen = (bearers[n] for bearers, n in zip(choices.values(), numbers, strict=True))
                bound = dict(zip(choices, chosen, strict=True))
                taken = [(start, topics[topic]), *bound.items()]
                told = filter(None, (self._tell(slot, bearer) for slot, bearer in taken))
                yield _bind(crp, topics[topic], bound, replaced=tuple(dict.fromkeys(told)))

    def _topics(self, crp: Crp) -> Iterator[list[Bearer]]:
        """Yield what the path may start from, best first: those called so, then those mentioned."""
        if crp.topic.is_grounded:
            yield [Bearer(crp.topic, 1.0, has_step=True)]
            return
        name, step = str(crp.topic), crp.path[0]
        if self._gold:
            yield sorted(self._given(name, step), key=lambda bearer: -bearer.likeness)
            return
        called = _like_enough(self._bearers.rank(name, step))
        starts = [bearer for bearer in called if bearer.has_step]
        known = {bearer.entity.mid for bearer in called}
        is_mentioned = any(bearer.entity.mid in self._scores for bearer in starts)
        if self._subject is not None and not is_mentioned:
            # The model has put a name that it knows in the place of one that it does not.
            subject = self._bearers.judge(self._subject, name, step, "subject")
            if subject.has_step:
                known.add(subject.entity.mid)
                yield [subject]
        yield starts[:_TOPICS]
        mentioned = self._bearers.mentioned(name, step)
        stand_ins = [b for b in mentioned if b.has_step and b.entity.mid not in known]
        yield stand_ins[:_TOPICS]
        # Where nobody can start the path, the likeliest one stands for all: it is unreachable.
        if not starts and not any(bearer.has_step for bearer in mentioned):
            yield [*called, *mentioned][:1]

    def _constrained(self, slot: "_Slot") -> list[Bearer]:
        """Choose the entities that a constraint may mean, best first: at least one."""
        if slot.name.is_grounded:
            return [Bearer(slot.name, 1.0, has_step=True)]
        name = str(slot.name)
        ranked = [*self._given(name, slot.step), *self._bearers.rank(name, slot.step)]
        bearers = _like_enough(ranked)
        led_to = [bearer for bearer in bearers if bearer.has_step]
        return led_to[:_CONSTRAINED] or bearers[:1] or [Bearer(slot.name, 0.0, has_step=False)]

    def _given(self, name: str, step: Step | None) -> list[Bearer]:
        return [self._bearers.judge(entity, name, step, "given") for entity in self._gold]

    def _tell(self, slot: "_Slot", bearer: Bearer) -> str | None:
        """Tell that a name is taken for somebody who does not bear it; None where it is not."""
        if bearer.basis == "name":
            return None
        name, step = str(slot.name), slot.step
        taken = f"took {bearer.entity}, {_BECAUSE[bearer.basis]}"
        # Who bears the name is not asked where the topics are given.
        if bearer.basis == "given" or self._bearers.is_borne(name, step):
            return f"{taken}, for {name!r}"
        return f"nobody is called {name!r}; {taken}"


class _Slot(NamedTuple):
    """A name in a CRP, and the step that leads away from it."""

    name: Entity
    step: Step | None


def ungrounded_entities(crp: Crp) -> list[Entity]:
    """List the entities of a CRP that are not grounded."""
    return [entity for entity in crp.entities() if not entity.is_grounded]


def name_topics(graph: Graph, topics: Sequence[Entity]) -> list[Entity]:
    """Name the given topics that came as bare mids: names in CRPs are bound to them by likeness.

    Raises:
        GraphError: The graph does not answer.
    """
    names = name_terms(graph, [t.mid for t in topics if not t.name and t.mid is not None])
    return [
        topic if topic.name or topic.mid is None else replace(topic, name=names[topic.mid])
        for topic in topics
    ]


def _is_sure(entity: LinkedEntity) -> bool:
    """Tell whether a question is surely about an entity, whatever the model calls it.

    The linker's probability is among those whom the question mentions, and is high too where it
    mentions only what it is not about. So the mention must also look like a name: two of its words
    tell something, or one does and it is the entity's own name, as "died" is not that of Death.

    Of 829 questions of webqsp.test-half without the words for their topic, something else is this
    probable in 254 and sure in 127; with them the topic is probable in 668 and sure in 628.
    """
    telling = [w for w in tokenise(entity.mention) if w.text.lower() not in FUNCTION_WORDS]
    is_own_name = normalise(entity.mention) == normalise(entity.name)
    return entity.score >= _SURE and (len(telling) > 1 or (len(telling) == 1 and is_own_name))


def _like_enough(bearers: Iterable[Bearer]) -> list[Bearer]:
    """Keep those who may be meant by a name, each once."""
    first: dict[str | None, Bearer] = {}
    for bearer in bearers:
        if bearer.likeness >= LIKE_ENOUGH:
            first.setdefault(bearer.entity.mid, bearer)
    return list(first.values())


def _slots(constraint: Constraint) -> Iterator[_Slot]:
    """Yield the names that a constraint itself holds, in reading order."""
    hops = constraint.hops
    if isinstance(constraint.at, Entity):
        yield _Slot(constraint.at, hops[0] if hops else None)
    if isinstance(constraint.test, IsEntity | IsNotEntity):
        back = Hop(hops[-1].relation, not hops[-1].inverse) if hops else None
        yield _Slot(constraint.test.entity, back)


def _bind(
    crp: Crp, topic: Bearer, chosen: Mapping[_Slot, Bearer], replaced: tuple[str, ...]
) -> Grounding:
    def bound(constraint: Constraint) -> Constraint:
        entities = [chosen[slot].entity for slot in _slots(constraint)]
        if isinstance(constraint.test, IsEntity | IsNotEntity):
            constraint = replace(constraint, test=replace(constraint.test, entity=entities.pop()))
        return replace(constraint, at=entities[0]) if entities else constraint

    likeness: dict[Entity, float] = {}
    for slot, bearer in chosen.items():
        if not slot.name.is_grounded:
            likeness[bearer.entity] = max(bearer.likeness, likeness.get(bearer.entity, 0.0))
    return Grounding(
        crp=replace(crp.with_constraints(bound), topic=topic.entity),
        unlinked=tuple(str(entity) for entity in likeness if not entity.is_grounded),
        likeness=likeness,
        stands_in=topic.likeness < LIKE_ENOUGH,
        replaced=replaced,
    )


def _best_first(sizes: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield choices of one number below each size, the smallest sums first.

    >>> list(_best_first([2, 2]))
    [(0, 0), (0, 1), (1, 0), (1, 1)]
    """
    if not all(sizes):
        return
    start = (0,) * len(sizes)
    heap, seen = [(0, start)], {start}
    while heap:
        total, numbers = heappop(heap)
        yield numbers
        for place, size in enumerate(sizes):
            following = (*numbers[:place], numbers[place] + 1, *numbers[place + 1 :])
            if following[place] < size and following not in seen:
                seen.add(following)
                heappush(heap, (total + 1, following))


def _entities(constraint: Constraint) -> Iterator[Entity]:
    for nested in nested_constraints((constraint,)):
        if isinstance(nested.at, Entity):
            yield nested.at
        if isinstance(nested.test, IsEntity | IsNotEntity):
            yield nested.test.entity
