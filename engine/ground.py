"""Ground a CRP's names: find the entities that it means.

A name is looked up in the graph's names and among the entities that the question mentions. Of
several bearers, those come first that the CRP's own relation reaches, then the better known. The
topic is grounded to several candidates, between which reachability decides; a constraint's entity
to one. A name that nobody bears stays as it is, and what hangs on it can only be relaxed away.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from kbqa.engine.evidence import name_terms
from kbqa.engine.linker import LinkedEntity
from kbqa.kb.entity_search import Names
from kbqa.kb.graph import Direction, Graph
from kbqa.kb.names import normalise
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

_BEARERS = 20
_TOPICS = 5
_MIN_SIMILARITY = 0.8


@dataclass(frozen=True, slots=True)
class Grounding:
    """One reading of a CRP.

    Attributes:
        crp: With entities grounded, but for those in `unlinked`.
        unlinked: Names of constraint entities that nobody bears.
        likeness: How like the names of constraint entities are to those that were written, 0 to 1;
            what came as a mid is absent.
    """

    crp: Crp
    unlinked: tuple[str, ...]
    likeness: Mapping[Entity, float]

    def trust(self, part: Constraint | Order) -> float:
        """Tell how surely a part of the CRP means what was written: its least likely entity."""
        if isinstance(part, Order):
            return 1.0
        return min((self.likeness.get(entity, 1.0) for entity in _entities(part)), default=1.0)


@dataclass(frozen=True, slots=True)
class Grounder:
    """Grounds the CRPs of one question.

    Attributes:
        graph: Where relations are looked up.
        names: The graph's names.
        linked: Entities that the question mentions, best first.
        gold: The entities given with the question, to which names are bound first; only in
            evaluation with gold entities.
    """

    graph: Graph
    names: Names
    linked: Sequence[LinkedEntity]
    gold: Sequence[Entity] = ()

    def ground(self, crp: Crp) -> list[Grounding]:
        """List the readings of a CRP, best topic first; empty where no topic can be found."""
        likeness: dict[Entity, float] = {}

        def bind(entity: Entity, hop: Hop | None) -> Entity:
            if entity.is_grounded:
                return entity
            bearer = self._bearer(entity, hop)
            likeness[bearer.entity] = max(bearer.likeness, likeness.get(bearer.entity, 0.0))
            return bearer.entity

        def ground(constraint: Constraint) -> Constraint:
            at, test, hops = constraint.at, constraint.test, constraint.hops
            if isinstance(at, Entity):
                at = bind(at, hops[0] if hops else None)
            if isinstance(test, IsEntity | IsNotEntity):
                backwards = Hop(hops[-1].relation, not hops[-1].inverse) if hops else None
                test = replace(test, entity=bind(test.entity, backwards))
            return replace(constraint, at=at, test=test)

        grounded = crp.with_constraints(ground)
        unlinked = tuple(str(entity) for entity in likeness if not entity.is_grounded)
        return [
            Grounding(replace(grounded, topic=topic), unlinked, likeness)
            for topic in self._topics(crp)
        ]

    def _topics(self, crp: Crp) -> list[Entity]:
        if crp.topic.is_grounded:
            return [crp.topic]
        name = str(crp.topic)
        if self.gold:
            return sorted(self.gold, key=lambda entity: -_similarity(name, str(entity)))
        candidates = _distinct(self._meant_by(name))
        starts = [entity for entity in candidates if self._can_start(entity, crp.path[0])]
        # Where nobody can start the path, the likeliest one stands for all: it is unreachable.
        return starts[:_TOPICS] or candidates[:1]

    def _meant_by(self, name: str) -> Iterator[Entity]:
        """Yield whom a name may mean: its bearers, the question's mentions, its near misses."""
        mentioned = {entity.mid for entity in self.linked}
        exact = self.names.lookup(name, _BEARERS)
        yield from (Entity(m.name, m.mid) for m in exact if m.mid in mentioned)
        yield from (Entity(m.name, m.mid) for m in exact)
        by_likeness = sorted(self.linked, key=lambda e: -_similarity(name, e.name))
        yield from (Entity(e.name, e.mid) for e in by_likeness)
        if not exact:
            yield from (bearer.entity for bearer in self._near_misses(name))

    def _bearer(self, entity: Entity, hop: Hop | None) -> "_Bearer":
        """Choose the bearer of a name that has a hop; the best known where none has it."""
        name = str(entity)
        near = (_Bearer(gold, _similarity(name, str(gold))) for gold in self.gold)
        bearers = [bearer for bearer in near if bearer.likeness >= _MIN_SIMILARITY]
        exact = [_Bearer(Entity(m.name, m.mid), 1.0) for m in self.names.lookup(name, _BEARERS)]
        bearers += exact or self._near_misses(name)
        if hop is not None:
            bearers.sort(key=lambda bearer: not self._has(bearer.entity, hop))
        return bearers[0] if bearers else _Bearer(entity, 0.0)

    def _near_misses(self, name: str) -> list["_Bearer"]:
        matches = self.names.search(name, 3)
        return [
            _Bearer(Entity(m.name, m.mid), m.score) for m in matches if m.score >= _MIN_SIMILARITY
        ]

    def _can_start(self, entity: Entity, step: Step) -> bool:
        if isinstance(step, Hop):
            return self._has(entity, step)
        return any(self._can_start(entity, way.path[0]) for way in step.ways)

    def _has(self, entity: Entity, hop: Hop) -> bool:
        direction: Direction = "in" if hop.inverse else "out"
        assert entity.mid is not None
        return bool(self.graph.neighbours(entity.mid, hop.relation, direction, limit=1))


class _Bearer(NamedTuple):
    """Whom a name may mean, and how like its own name is to it, 0 to 1."""

    entity: Entity
    likeness: float


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


def _entities(constraint: Constraint) -> Iterator[Entity]:
    for nested in nested_constraints((constraint,)):
        if isinstance(nested.at, Entity):
            yield nested.at
        if isinstance(nested.test, IsEntity | IsNotEntity):
            yield nested.test.entity


def _distinct(entities: Iterable[Entity]) -> list[Entity]:
    first: dict[str | None, Entity] = {}
    for entity in entities:
        first.setdefault(entity.mid, entity)
    return list(first.values())


def _similarity(one: str, other: str) -> float:
    from rapidfuzz import fuzz

    return fuzz.ratio(normalise(one), normalise(other)) / 100
