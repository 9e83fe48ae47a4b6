"""Rank the entities that a name in a CRP may mean.

Entities that have the name, as their own or as an alias, are sorted by:

1. whether they have the relation that the CRP follows from the name: others lead to no answer;
2. whether their own name is written exactly so, then whether only the case differs;
3. whether the question mentions them;
4. how well known they are (`Names.lookup`).

If no entity has the name, those with similar names follow, in the order of `_near_score`.

The weights and this order were chosen on webqsp.train and cwq.dev. Of 4,063 names there the first
entity is wrong for 100, compared with 311 by popularity alone. The types that the relation's schema
asks for change nothing (100 to 104, at any place in the order), since an entity that has a relation
has its type.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from kbqa.engine.linking.linker import LinkedEntity
from kbqa.kb.graph import Direction, Graph
from kbqa.kb.names.keys import normalise
from kbqa.kb.names.search import Names
from kbqa.sparql.crp import Entity, Fork, Hop, Step
from kbqa.sparql.terms import is_well_formed

MIN_SIMILARITY = 0.8
"""Minimum similarity to accept an entity for a name."""

MAX_WORDS = 30
"""Longest name, in words, that is compared with similar ones."""

Basis = Literal["name", "similarity", "mention", "subject", "given"]
"""Why a name may mean an entity: the entity has that name or a similar one, the question mentions
it or is very likely about it, or it was given with the question."""

_IN_BRACKETS = re.compile(r"\s*\(.*\)")
_EXACT_MATCHES = 20
_NEAR_MATCHES = 10
_MENTIONED = 0.15
_HAS_STEP = 0.1


@dataclass(frozen=True, slots=True)
class EntityMatch:
    """An entity that a name may mean.

    Attributes:
        entity: Grounded, with its own name.
        similarity: Of its names to the written one, 0 to 1; 1 if it has that name.
        has_step: The CRP's step from the name leads somewhere from the entity.
        basis: Why the name may mean it.
    """

    entity: Entity
    similarity: float
    has_step: bool
    basis: Basis = "name"


class EntityMatcher:
    """Matches the names in one question's CRPs to entities, each name and step once.

    Args:
        graph: Where steps are looked up.
        names: The graph's names.
        linked: Entities that the question mentions, best first.
    """

    def __init__(self, graph: Graph, names: Names, linked: Sequence[LinkedEntity]) -> None:
        self._graph, self._names, self._linked = graph, names, linked
        self._mentioned = frozenset(entity.mid for entity in linked)
        self._ranked: dict[tuple[str, Step | None], list[EntityMatch]] = {}
        self._have: dict[tuple[str, Hop], bool] = {}

    def rank(self, name: str, step: Step | None) -> list[EntityMatch]:
        """List the entities that a name may mean, best first.

        Args:
            name: As written in the CRP.
            step: The CRP's step from the name, or the inverse of its step to the name; None if it
                has neither.

        Raises:
            GraphError: The graph does not answer.
        """
        key = (name, step)
        if key not in self._ranked:
            self._ranked[key] = self._exact(name, step) or self._near(name, step)
        return self._ranked[key]

    def mentioned(self, name: str, step: Step | None) -> list[EntityMatch]:
        """List the entities that the question mentions, by the similarity of their names.

        They may stand in for a name that the model made up.

        Raises:
            GraphError: The graph does not answer.
        """
        self._fetch_steps(self._mentioned, step)
        matches = [self._mention(entity, name, step) for entity in self._linked]
        return sorted(matches, key=lambda match: -match.similarity)

    def match(self, entity: Entity, name: str, step: Step | None, basis: Basis) -> EntityMatch:
        """Compare one entity with a name and a step.

        If the name is the entity's own, that is the basis instead of the given one.

        Raises:
            GraphError: The graph does not answer.
        """
        if normalise(name) == normalise(str(entity)):
            basis = "name"
        similarity = name_similarity(name, str(entity))
        return EntityMatch(entity, similarity, self._has(entity, step), basis)

    def has_exact(self, name: str, step: Step | None) -> bool:
        """Return whether an entity has exactly this name.

        Raises:
            GraphError: The graph does not answer.
        """
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
        """Look up which entities have a step, all at once."""
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
