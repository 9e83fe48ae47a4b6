"""Ground the names in a CRP: find the entities that they mean.

`EntityMatcher` ranks the entities that each name may mean, and `Grounder` chooses one for each
name: a reading. The readings are tried, best first, and execution decides between them.

Entities that have the name, as their own or as an alias, are ranked by whether they have the
relation that the CRP follows from the name (others lead to no answer), whether their own name is
written exactly so or only the case differs, whether the question mentions them, and how well known
they are. If no entity has the name, those with similar names follow. Of 4,063 names of webqsp.train
and cwq.dev, the first entity is wrong for 100, compared with 311 by popularity alone. The types
that the relation's schema asks for change nothing.

A constraint entity with no match in the graph stays ungrounded; only relaxation can remove that
constraint. If the topic has no match with the path's first relation, the entities that the question
mentions are tried instead; if it does not mention the topic, first the linker's most likely one.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import islice
from typing import Literal, NamedTuple

from kbqa.engine.linking.linker import LinkedEntity
from kbqa.engine.linking.mentions import FUNCTION_WORDS, tokenise
from kbqa.kb.graph import Direction, Graph, name_terms
from kbqa.kb.names import Names, normalise
from kbqa.sparql.crp import Constraint, Crp, Entity, Fork, Hop, Part, Step
from kbqa.sparql.terms import Term, is_well_formed

MIN_SIMILARITY = 0.8  # to accept an entity for a name
MAX_WORDS = 30  # of a name that is compared with similar ones

# Why a name may mean an entity: it has that name or a similar one, the question mentions it or is
# very likely about it, or it was given with the question.
Basis = Literal["name", "similarity", "mention", "subject", "given"]

MAX_READINGS = 12  # of a CRP; the limits below are for each name alone

# Minimum probability, by the linker, that the question is about an entity; 0.5 costs 0.6 F1 on
# webqsp.train and cwq.dev, where the names are right.
_SURE = 0.8

_IN_BRACKETS = re.compile(r"\s*\(.*\)")
_EXACT_MATCHES = 20
_NEAR_MATCHES = 10
_MENTIONED = 0.15
_HAS_STEP = 0.1
_TOPICS = 5
_CONSTRAINED = 3

_BECAUSE: Mapping[Basis, str] = {
    "similarity": "which is spelled like it",
    "mention": "which the question mentions",
    "subject": "which the question is about",
    "given": "which was given with the question",
}


@dataclass(frozen=True, slots=True)
class EntityMatch:
    """An entity that a name may mean."""

    entity: Entity  # grounded, with its own name
    similarity: float  # of its names to the written one, 0 to 1
    has_step: bool  # the CRP's step from the name leads somewhere from the entity
    basis: Basis = "name"


class EntityMatcher:
    """Matches the names in one question's CRPs to entities, each name and step once.

    The step is the CRP's from the name, or its step to the name the other way.
    """

    def __init__(self, graph: Graph, names: Names, linked: Sequence[LinkedEntity]) -> None:
        self._graph, self._names, self._linked = graph, names, linked
        self._mentioned = frozenset(entity.mid for entity in linked)
        self._ranked: dict[tuple[str, Step | None], list[EntityMatch]] = {}
        self._have: dict[tuple[str, Hop], bool] = {}

    def rank(self, name: str, step: Step | None) -> list[EntityMatch]:
        """List the entities that a name may mean, best first."""
        key = (name, step)
        if key not in self._ranked:
            self._ranked[key] = self._exact(name, step) or self._near(name, step)
        return self._ranked[key]

    def mentioned(self, name: str, step: Step | None) -> list[EntityMatch]:
        """List the entities that the question mentions, in place of a made-up name."""
        self._fetch_steps(self._mentioned, step)
        matches = [self._mention(entity, name, step) for entity in self._linked]
        return sorted(matches, key=lambda match: -match.similarity)

    def match(self, entity: Entity, name: str, step: Step | None, basis: Basis) -> EntityMatch:
        """Compare one entity with a name and a step; its own name is a better basis."""
        if normalise(name) == normalise(str(entity)):
            basis = "name"
        similarity = name_similarity(name, str(entity))
        return EntityMatch(entity, similarity, self._has(entity, step), basis)

    def has_exact(self, name: str, step: Step | None) -> bool:
        """Return whether an entity has exactly this name."""
        return any(match.basis == "name" for match in self.rank(name, step))

    def _exact(self, name: str, step: Step | None) -> list[EntityMatch]:
        exact = self._names.lookup(name, _EXACT_MATCHES)
        self._fetch_steps([found.mid for found in exact], step)
        matches = [
            EntityMatch(
                entity := Entity(found.name, found.mid), found.score, self._has(entity, step)
            )
            for found in exact
        ]
        # The lookup may not reach every entity of a common name, but the question may mention one.
        known = {match.entity.mid for match in matches}
        matches += (
            replace(self._mention(entity, name, step), basis="name")
            for entity in self._linked
            if entity.mid not in known and normalise(entity.name) == normalise(name)
        )

        def merits(match: EntityMatch) -> tuple[bool, bool, bool, bool]:
            own_name = str(match.entity)
            return (
                match.has_step,
                own_name == name,
                own_name.casefold() == name.casefold(),
                match.entity.mid in self._mentioned,
            )

        return sorted(matches, key=merits, reverse=True)

    def _near(self, name: str, step: Step | None) -> list[EntityMatch]:
        words = name.split()
        if len(words) > MAX_WORDS:
            return []
        found = self._names.search(name, _NEAR_MATCHES)
        # Text in brackets is an abbreviation, or distinguishes entities of one name.
        for text in dict.fromkeys((name, _IN_BRACKETS.sub("", name))):
            found += self._names.near(text, _NEAR_MATCHES)
        for span in self._names.match_spans(words, limit=_NEAR_MATCHES):
            found += span.matches
        similarity = {text: name_similarity(name, text) for text in {one.matched for one in found}}
        self._fetch_steps({*self._mentioned, *(one.mid for one in found)}, step)
        best = {entity.mid: self._mention(entity, name, step) for entity in self._linked}
        # The most similar name of each entity first, so that it is compared once.
        for one in sorted(found, key=lambda one: -similarity[one.matched]):
            score = similarity[one.matched]
            if one.mid not in best or best[one.mid].similarity < score:
                entity = Entity(one.name, one.mid)
                best[one.mid] = EntityMatch(entity, score, self._has(entity, step), "similarity")
        return sorted(best.values(), key=self._near_score, reverse=True)

    def _near_score(self, match: EntityMatch) -> float:
        mentioned = _MENTIONED * (match.entity.mid in self._mentioned)
        return match.similarity + mentioned + _HAS_STEP * match.has_step

    def _mention(self, entity: LinkedEntity, name: str, step: Step | None) -> EntityMatch:
        named = Entity(entity.name, entity.mid)
        similarity = max(name_similarity(name, entity.name), name_similarity(name, entity.mention))
        return EntityMatch(named, similarity, self._has(named, step), "mention")

    def _has(self, entity: Entity, step: Step | None) -> bool:
        if step is None:
            return False
        if not isinstance(step, Hop):
            return any(self._has(entity, way.path[0]) for way in step.ways)
        if not is_well_formed(step.relation):  # no graph has it, and none can be asked for it
            return False
        assert entity.mid is not None
        self._fetch_steps([entity.mid], step)
        return self._have[entity.mid, step]

    def _fetch_steps(self, mids: Collection[str], step: Step | None) -> None:
        """Look up all at once whether entities have a step."""
        if isinstance(step, Fork):
            for way in step.ways:
                self._fetch_steps(mids, way.path[0])
        elif step is not None and is_well_formed(step.relation):
            new = sorted({mid for mid in mids if (mid, step) not in self._have})
            direction: Direction = "in" if step.inverse else "out"
            starts = [(mid, step.relation) for mid in new]
            found = self._graph.neighbours_of_each(starts, direction, 1)
            self._have.update(((mid, step), bool(ends)) for (mid, _), ends in found.items())


def name_similarity(one: str, other: str) -> float:
    """Return the similarity of two names, 0 to 1, by their letters and the words they share."""
    from rapidfuzz import fuzz

    one, other = normalise(one), normalise(other)
    return (fuzz.ratio(one, other) + fuzz.token_set_ratio(one, other)) / 200


@dataclass(frozen=True, slots=True)
class Grounding:
    """One reading of a CRP."""

    crp: Crp  # grounded, except `unlinked`
    unlinked: tuple[str, ...]  # names of constraint entities with no match in the graph
    similarity: Mapping[Entity, float]  # of names to those written for constraints
    stands_in: bool = False  # the topic has another name than was written; the question mentions it
    replaced: tuple[str, ...] = ()  # a sentence for each name taken for an entity of another name

    def trust(self, part: Part) -> float:
        """Return the similarity of the least similar name in a part of the CRP."""
        entities = part.entities() if isinstance(part, Constraint) else ()
        return min((self.similarity.get(entity, 1.0) for entity in entities), default=1.0)


class Grounder:
    """Grounds the CRPs of one question.

    `linked` has the entities that the question mentions, best first; `given` those given with it,
    to which names are matched first.
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
        self._scores = {entity.mid: entity.score for entity in linked}
        self._mentions = {entity.mid: entity.mention for entity in linked}
        self._names = {entity.mid: normalise(entity.name) for entity in linked}
        sure = filter(_is_sure, linked)
        self._subject = next((Entity(entity.name, entity.mid) for entity in sure), None)

    def has_one_name(self, mid: str | None, other: Term | None) -> bool:
        """Return whether two linked entities are called the same, or are one."""
        names = {self._names.get(mid or ""), self._names.get(str(other))}
        return mid == other or (len(names) == 1 and None not in names)

    def ground(self, crp: Crp, topic_mids: Sequence[str] = ()) -> Iterator[Grounding]:
        """Yield the readings of a CRP, best first, at most `MAX_READINGS`; none without a topic.

        Other matches of the constraints are tried before other topics, and entities that only the
        question mentions come last. With `topic_mids`, best first, the name of an ungrounded topic
        is not looked up.
        """
        return islice(self._readings(crp, topic_mids), MAX_READINGS)

    def topic_score(self, topic: Entity) -> float:
        """Return the probability that the question is about an entity: 1 if it was given."""
        if any(topic.mid == given.mid for given in self.given):
            return 1.0
        return self._scores.get(topic.mid or "", 0.0)

    def count_mentioned(self, crp: Crp) -> int:
        """Count the entities of the constraints that the question mentions."""
        entities = {entity for each in crp.constraints for entity in each.entities()}
        return sum(entity.mid in self._scores for entity in entities)

    def mentions(self, crp: Crp) -> dict[str, str]:
        """Return the parts of the question that mention entities of a grounded CRP, by mid."""
        mids = (entity.mid for entity in crp.entities())
        return {mid: self._mentions[mid] for mid in mids if mid in self._mentions}

    def _readings(self, crp: Crp, topic_mids: Sequence[str]) -> Iterator[Grounding]:
        start = _Slot(crp.topic, crp.path[0])
        slots = dict.fromkeys(slot for each in crp.all_constraints() for slot in _slots(each))
        choices = {slot: self._constrained(slot) for slot in slots}
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
        if slot.step is None and (namesakes := [e for e in matches if e.basis == "name"]):
            return namesakes[:_TOPICS]
        reached = [match for match in matches if match.has_step]
        return reached[:_CONSTRAINED] or matches[:1] or [EntityMatch(slot.name, 0.0, False)]

    def _given(self, name: str, step: Step | None) -> list[EntityMatch]:
        return [self._matcher.match(entity, name, step, "given") for entity in self.given]

    def _explain(self, slot: "_Slot", match: EntityMatch) -> str | None:
        """Explain why a name was matched to an entity of another name, if it was."""
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
    """Look up the names of topics that were given as mids."""
    names = name_terms(graph, [t.mid for t in topics if not t.name and t.mid is not None])
    return [
        topic if topic.name or topic.mid is None else replace(topic, name=names[topic.mid])
        for topic in topics
    ]


def _is_sure(entity: LinkedEntity) -> bool:
    """Return whether the question is very likely about an entity, whatever the model writes."""
    # The linker's probability is also high if the question mentions nothing that it is about. So
    # the mention must look like a name: it has two words that are not function words, or one and is
    # the entity's own name, which "died" is not for Death. Of 829 questions of webqsp.test-half
    # without the words for their topic, 254 have another entity this probable, and 127 a sure one.
    content = [w for w in tokenise(entity.mention) if w.text.lower() not in FUNCTION_WORDS]
    is_own_name = normalise(entity.mention) == normalise(entity.name)
    return entity.score >= _SURE and (len(content) > 1 or (len(content) == 1 and is_own_name))


def _similar_enough(matches: Iterable[EntityMatch]) -> list[EntityMatch]:
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
    if isinstance(constraint.operand, Entity):
        yield _Slot(constraint.operand, hops[-1].back if hops else None)


def _bind(
    crp: Crp, topic: EntityMatch, chosen: Mapping[_Slot, EntityMatch], replaced: tuple[str, ...]
) -> Grounding:
    def bound(constraint: Constraint) -> Constraint:
        entities = (chosen[slot].entity for slot in _slots(constraint))
        return constraint.with_entities(lambda _: next(entities))

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
