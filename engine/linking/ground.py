"""Ground the names in a CRP: find the entities that they mean.

`kbqa.engine.linking.matches` ranks the entities that each name may mean. A reading chooses one of
them for each name. At most `MAX_READINGS` are tried, best first, and execution decides between
them. If some entities of a name have the CRP's relation, those without it are not tried.

A constraint entity with no match in the graph stays ungrounded; only relaxation can remove that
constraint. If the topic has no match, or no match that has the path's first relation, the entities
that the question mentions are tried instead. If the question does not mention the topic, the
linker's most likely entity is tried first. A reading reports each name that it takes for an entity
of another name.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import islice
from typing import NamedTuple

from kbqa.engine.linking.linker import LinkedEntity
from kbqa.engine.linking.matches import MIN_SIMILARITY, Basis, EntityMatch, EntityMatcher
from kbqa.engine.linking.words import FUNCTION_WORDS, tokenise
from kbqa.kb.graph import Graph
from kbqa.kb.names.keys import normalise
from kbqa.kb.names.search import Names, name_terms
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
"""Maximum number of readings of a CRP. The limits below are for each name alone."""

_SURE = 0.8
"""Minimum probability, by the linker, that the question is about an entity; see `_is_sure`.

On webqsp.train and cwq.dev, where the names are right, this changes nothing; 0.5 costs 0.6 F1.
"""

_TOPICS = 5
_CONSTRAINED = 3

_BECAUSE: Mapping[Basis, str] = {
    "similarity": "which is spelled like it",
    "mention": "which the question mentions",
    "subject": "which the question is about",
    "given": "which was given with the question",
}


@dataclass(frozen=True, slots=True)
class Grounding:
    """One reading of a CRP.

    Attributes:
        crp: With its entities grounded, except those in `unlinked`.
        unlinked: Names of constraint entities with no match in the graph.
        similarity: Of the names of constraint entities to the written names, 0 to 1; without
            entities that were written as mids.
        stands_in: The topic has another name than was written; the question mentions it.
        replaced: A sentence for each name that was taken for an entity of another name, with the
            reason.
    """

    crp: Crp
    unlinked: tuple[str, ...]
    similarity: Mapping[Entity, float]
    stands_in: bool = False
    replaced: tuple[str, ...] = ()

    def trust(self, part: Constraint | Order) -> float:
        """Return how likely a part of the CRP means what was written: its least similar name."""
        if isinstance(part, Order):
            return 1.0
        return min((self.similarity.get(entity, 1.0) for entity in _entities(part)), default=1.0)


class Grounder:
    """Grounds the CRPs of one question.

    Args:
        graph: Where relations are looked up.
        names: The graph's names.
        linked: Entities that the question mentions, best first.
        given: The entities given with the question, which names are matched to first.
    """

    def __init__(
        self,
        graph: Graph,
        names: Names,
        linked: Sequence[LinkedEntity],
        given: Sequence[Entity] = (),
    ) -> None:
        self._matcher = EntityMatcher(graph, names, linked)
        self.given = given
        """Entities given with the question."""
        self._scores = {entity.mid: entity.score for entity in linked}
        self._mentions = {entity.mid: entity.mention for entity in linked}
        sure = filter(_is_sure, linked)
        self._subject = next((Entity(entity.name, entity.mid) for entity in sure), None)

    def ground(self, crp: Crp, topic_mids: Sequence[str] = ()) -> Iterator[Grounding]:
        """Yield the readings of a CRP, best first, at most `MAX_READINGS`.

        Other matches of the constraints are tried before other topics, and entities that only the
        question mentions come last. There is no reading if no topic can be found.

        Args:
            crp: The CRP.
            topic_mids: The entities that an ungrounded topic means, best first, if they are known;
                its name is not looked up then.

        Raises:
            GraphError: The graph does not answer.
        """
        return islice(self._readings(crp, topic_mids), MAX_READINGS)

    def topic_score(self, topic: Entity) -> float:
        """Return the probability that the question is about an entity: 1 if it was given."""
        if any(topic.mid == given.mid for given in self.given):
            return 1.0
        return self._scores.get(topic.mid or "", 0.0)

    def count_mentioned(self, crp: Crp) -> int:
        """Count the entities of the constraints that the question mentions."""
        of_constraints = {entity for c in crp.constraints for entity in _entities(c)}
        return sum(entity.mid in self._scores for entity in of_constraints)

    def mentions(self, crp: Crp) -> dict[str, str]:
        """Return the parts of the question that mention entities of a grounded CRP, by mid."""
        mids = (entity.mid for entity in crp.entities())
        return {mid: self._mentions[mid] for mid in mids if mid in self._mentions}

    def proposals(self, crp: Crp) -> list[tuple[Entity, list[EntityMatch]]]:
        """List the names of a CRP, the topic first, each with all its matches, best first.

        `ground` uses only those that can lead to an answer.

        Raises:
            GraphError: The graph does not answer.
        """
        slots = [_Slot(crp.topic, crp.path[0])]
        slots += (slot for c in crp.all_constraints() for slot in _slots(c))
        return [(name, self._matcher.rank(str(name), step)) for name, step in slots]

    def _readings(self, crp: Crp, topic_mids: Sequence[str]) -> Iterator[Grounding]:
        start = _Slot(crp.topic, crp.path[0])
        slots = [slot for c in crp.all_constraints() for slot in _slots(c)]
        choices = {slot: self._constrained(slot) for slot in dict.fromkeys(slots)}
        for topics in self._topics(crp, topic_mids):
            for topic, *numbers in _best_first([len(topics), *map(len, choices.values())]):
                chosen = (matches[n] for matches, n in zip(choices.values(), numbers, strict=True))
                bound = dict(zip(choices, chosen, strict=True))
                pairs = [(start, topics[topic]), *bound.items()]
                sentences = filter(None, (self._explain(slot, match) for slot, match in pairs))
                replaced = tuple(dict.fromkeys(sentences))
                yield _bind(crp, topics[topic], bound, replaced)

    def _topics(self, crp: Crp, topic_mids: Sequence[str]) -> Iterator[list[EntityMatch]]:
        """Yield the entities that the path may start from, in groups, best first."""
        if crp.topic.is_grounded:
            yield [EntityMatch(crp.topic, 1.0, has_step=True)]
            return
        if topic_mids:
            topics = (replace(crp.topic, mid=mid) for mid in topic_mids)
            yield [EntityMatch(topic, 1.0, has_step=True) for topic in topics]
            return
        name, step = str(crp.topic), crp.path[0]
        if self.given:
            yield sorted(self._given(name, step), key=lambda match: -match.similarity)
            return
        named = _similar_enough(self._matcher.rank(name, step))
        starts = [match for match in named if match.has_step]
        known = {match.entity.mid for match in named}
        is_mentioned = any(match.entity.mid in self._scores for match in starts)
        if self._subject is not None and not is_mentioned:
            # The model wrote a name that it knows in place of one that it does not know.
            subject = self._matcher.match(self._subject, name, step, "subject")
            if subject.has_step:
                known.add(subject.entity.mid)
                yield [subject]
        yield starts[:_TOPICS]
        mentioned = self._matcher.mentioned(name, step)
        stand_ins = [m for m in mentioned if m.has_step and m.entity.mid not in known]
        yield stand_ins[:_TOPICS]
        # If no entity can start the path, the best match shows that it is unreachable.
        if not starts and not any(match.has_step for match in mentioned):
            yield [*named, *mentioned][:1]

    def _constrained(self, slot: "_Slot") -> list[EntityMatch]:
        """Return the entities that a constraint's name may mean, best first: at least one."""
        if slot.name.is_grounded:
            return [EntityMatch(slot.name, 1.0, has_step=True)]
        name = str(slot.name)
        ranked = [*self._given(name, slot.step), *self._matcher.rank(name, slot.step)]
        matches = _similar_enough(ranked)
        reached = [match for match in matches if match.has_step]
        return reached[:_CONSTRAINED] or matches[:1] or [EntityMatch(slot.name, 0.0, False)]

    def _given(self, name: str, step: Step | None) -> list[EntityMatch]:
        return [self._matcher.match(entity, name, step, "given") for entity in self.given]

    def _explain(self, slot: "_Slot", match: EntityMatch) -> str | None:
        """Explain why a name was matched to an entity of another name, or return None."""
        if match.basis == "name":
            return None
        name, step = str(slot.name), slot.step
        taken = f"took {match.entity}, {_BECAUSE[match.basis]}"
        # If the topics are given, the name is not looked up.
        if match.basis == "given" or self._matcher.has_exact(name, step):
            return f"{taken}, for {name!r}"
        return f"no entity is called {name!r}; {taken}"


class _Slot(NamedTuple):
    """A name in a CRP, and the step that leads away from it."""

    name: Entity
    step: Step | None


def ungrounded_entities(crp: Crp) -> list[Entity]:
    """List the entities of a CRP that are not grounded."""
    return [entity for entity in crp.entities() if not entity.is_grounded]


def name_topics(graph: Graph, topics: Sequence[Entity]) -> list[Entity]:
    """Look up the names of topics that were given as mids; names in CRPs are compared with them.

    Raises:
        GraphError: The graph does not answer.
    """
    names = name_terms(graph, [t.mid for t in topics if not t.name and t.mid is not None])
    return [
        topic if topic.name or topic.mid is None else replace(topic, name=names[topic.mid])
        for topic in topics
    ]


def _is_sure(entity: LinkedEntity) -> bool:
    """Return whether the question is very likely about an entity, whatever the model writes.

    The linker's probability is relative to the other mentions, so it is also high if the question
    mentions nothing that it is about. The mention must therefore look like a name: it has two words
    that are not function words, or one and is the entity's own name, which "died" is not for Death.

    Of 829 questions of webqsp.test-half without the words for their topic, another entity is this
    probable in 254 and sure in 127; with them the topic is probable in 668 and sure in 628.
    """
    content = [w for w in tokenise(entity.mention) if w.text.lower() not in FUNCTION_WORDS]
    is_own_name = normalise(entity.mention) == normalise(entity.name)
    return entity.score >= _SURE and (len(content) > 1 or (len(content) == 1 and is_own_name))


def _similar_enough(matches: Iterable[EntityMatch]) -> list[EntityMatch]:
    """Return the matches that a name may mean, each entity once."""
    first: dict[str | None, EntityMatch] = {}
    for match in matches:
        if match.similarity >= MIN_SIMILARITY:
            first.setdefault(match.entity.mid, match)
    return list(first.values())


def _slots(constraint: Constraint) -> Iterator[_Slot]:
    """Yield the names of a constraint itself, in reading order."""
    hops = constraint.hops
    if isinstance(constraint.at, Entity):
        yield _Slot(constraint.at, hops[0] if hops else None)
    if isinstance(constraint.test, IsEntity | IsNotEntity):
        back = Hop(hops[-1].relation, not hops[-1].inverse) if hops else None
        yield _Slot(constraint.test.entity, back)


def _bind(
    crp: Crp, topic: EntityMatch, chosen: Mapping[_Slot, EntityMatch], replaced: tuple[str, ...]
) -> Grounding:
    def bound(constraint: Constraint) -> Constraint:
        entities = [chosen[slot].entity for slot in _slots(constraint)]
        if isinstance(constraint.test, IsEntity | IsNotEntity):
            constraint = replace(constraint, test=replace(constraint.test, entity=entities.pop()))
        return replace(constraint, at=entities[0]) if entities else constraint

    similarity: dict[Entity, float] = {}
    for slot, match in chosen.items():
        if not slot.name.is_grounded:
            similarity[match.entity] = max(match.similarity, similarity.get(match.entity, 0.0))
    return Grounding(
        crp=replace(crp.with_constraints(bound), topic=topic.entity),
        unlinked=tuple(str(entity) for entity in similarity if not entity.is_grounded),
        similarity=similarity,
        stands_in=topic.similarity < MIN_SIMILARITY,
        replaced=replaced,
    )


def _best_first(sizes: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield tuples of one number below each size, smallest sums first.

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
