"""Ground a CRP's names: find the entities that it means.

A name is looked up in the graph's names and among the entities that the question mentions. Of
several bearers, those come first that the CRP's own relation reaches, then the better known. The
topic is grounded to several candidates, between which reachability decides; a constraint's entity
to one. A name that nobody bears stays as it is, and what hangs on it can only be relaxed away.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from kbqa.engine.linker import LinkedEntity
from kbqa.kb.entity_search import Names
from kbqa.kb.graph import Direction, Graph
from kbqa.kb.names import normalise
from kbqa.sparql.crp import Constraint, Crp, Entity, Hop, IsEntity, IsNotEntity

_BEARERS = 20
_TOPICS = 5
_MIN_SIMILARITY = 0.8


@dataclass(frozen=True, slots=True)
class Grounding:
    """One reading of a CRP.

    Attributes:
        crp: With entities grounded, but for those in `unlinked`.
        unlinked: Names of constraint entities that nobody bears.
    """

    crp: Crp
    unlinked: tuple[str, ...]


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
        constraints = tuple(self._constraint(constraint) for constraint in crp.constraints)
        unlinked = tuple(
            str(entity) for constraint in constraints for entity in _ungrounded(constraint)
        )
        return [
            Grounding(replace(crp, topic=topic, constraints=constraints), unlinked)
            for topic in self._topics(crp)
        ]

    def _topics(self, crp: Crp) -> list[Entity]:
        if crp.topic.is_grounded:
            return [crp.topic]
        name = str(crp.topic)
        if self.gold:
            return sorted(self.gold, key=lambda entity: -_similarity(name, str(entity)))
        candidates = _distinct(self._bearers(name))
        starts = [entity for entity in candidates if self._has(entity, crp.path[0])]
        # Where nobody can start the path, the likeliest one stands for all: it is unreachable.
        return starts[:_TOPICS] or candidates[:1]

    def _bearers(self, name: str) -> Iterator[Entity]:
        """Yield whom a name may mean: its bearers, the question's mentions, its near misses."""
        mentioned = {entity.mid for entity in self.linked}
        exact = self.names.lookup(name, _BEARERS)
        yield from (Entity(m.name, m.mid) for m in exact if m.mid in mentioned)
        yield from (Entity(m.name, m.mid) for m in exact)
        by_likeness = sorted(self.linked, key=lambda e: -_similarity(name, e.name))
        yield from (Entity(e.name, e.mid) for e in by_likeness)
        if not exact:
            yield from self._near_misses(name)

    def _constraint(self, constraint: Constraint) -> Constraint:
        branches = tuple(self._constraint(branch) for branch in constraint.branches)
        test = constraint.test
        if isinstance(test, IsEntity | IsNotEntity) and not test.entity.is_grounded:
            last = constraint.hops[-1] if constraint.hops else None
            test = replace(test, entity=self._constraint_entity(test.entity, last))
        return replace(constraint, test=test, branches=branches)

    def _constraint_entity(self, entity: Entity, hop: Hop | None) -> Entity:
        """Choose the bearer that the last hop leads to; the best known where none is led to."""
        name = str(entity)
        near = [gold for gold in self.gold if _similarity(name, str(gold)) >= _MIN_SIMILARITY]
        bearers = [Entity(m.name, m.mid) for m in self.names.lookup(name, _BEARERS)]
        if not bearers:
            bearers = self._near_misses(name)
        candidates = _distinct((*near, *bearers))
        if hop is not None:
            backwards = Hop(hop.relation, not hop.inverse)
            candidates.sort(key=lambda candidate: not self._has(candidate, backwards))
        return candidates[0] if candidates else entity

    def _near_misses(self, name: str) -> list[Entity]:
        matches = self.names.search(name, 3)
        return [Entity(m.name, m.mid) for m in matches if m.score >= _MIN_SIMILARITY]

    def _has(self, entity: Entity, hop: Hop) -> bool:
        direction: Direction = "in" if hop.inverse else "out"
        assert entity.mid is not None
        return bool(self.graph.neighbours(entity.mid, hop.relation, direction, limit=1))


def ungrounded_entities(crp: Crp) -> list[Entity]:
    """List the entities of a CRP that are not grounded."""
    return [entity for entity in crp.entities() if not entity.is_grounded]


def _ungrounded(constraint: Constraint) -> Iterator[Entity]:
    if isinstance(constraint.test, IsEntity | IsNotEntity) and not (
        constraint.test.entity.is_grounded
    ):
        yield constraint.test.entity
    for branch in constraint.branches:
        yield from _ungrounded(branch)


def _distinct(entities: Iterable[Entity]) -> list[Entity]:
    first: dict[str | None, Entity] = {}
    for entity in entities:
        first.setdefault(entity.mid, entity)
    return list(first.values())


def _similarity(one: str, other: str) -> float:
    from rapidfuzz import fuzz

    return fuzz.ratio(normalise(one), normalise(other)) / 100
