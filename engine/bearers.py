"""Rank the entities that a name in a CRP may mean.

Those who bear the name, as their own or as an alias, go in this order:

1. who has the relation that the CRP follows from the name: nobody else can lead to an answer;
2. whose own name is written like that, letter by letter, then but for capitals;
3. whom the question mentions;
4. who is better known (`Names.lookup`).

Where nobody bears it, those follow whose names are like it, in the order of `_near_score`.

The weights and this order were chosen on webqsp.train and cwq.dev. Of 4,063 names there the first
entity is wrong for 100, as against 311 by fame alone; the types that the relation's schema asks for
change nothing (100 to 104, wherever they stand in the order): who has a relation has its type.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from kbqa.engine.linker import LinkedEntity
from kbqa.kb.entity_search import Names
from kbqa.kb.graph import Direction, Graph
from kbqa.kb.name_keys import normalise
from kbqa.sparql.crp import Entity, Hop, Step

LIKE_ENOUGH = 0.8
"""Likeness from which an entity is taken for the one that a name means."""

MAX_WORDS = 30
"""Words of a name that is compared with others where nobody bears it; longer ones are not."""

Basis = Literal["name", "likeness", "mention", "subject", "given"]
"""Why a name may mean an entity: it bears the name, or one that is like it, or the question
mentions it, is surely about it, or was given together with it."""

_IN_BRACKETS = re.compile(r"\s*\(.*\)")
_BEARERS = 20
_NEAR_MISSES = 10
_MENTIONED = 0.15
_HAS_STEP = 0.1


@dataclass(frozen=True, slots=True)
class Bearer:
    """An entity that a name may mean.

    Attributes:
        entity: Grounded, under its own name.
        likeness: How like its names are to the one that was written, 0 to 1; 1 where it bears it.
        has_step: The step that the CRP takes from the name leads somewhere from the entity.
        basis: Why it may be meant.
    """

    entity: Entity
    likeness: float
    has_step: bool
    basis: Basis = "name"


class Bearers:
    """Ranks the bearers of the names in one question's CRPs, each name and step once.

    Args:
        graph: Where steps are looked up.
        names: The graph's names.
        linked: Entities that the question mentions, best first.
    """

    def __init__(self, graph: Graph, names: Names, linked: Sequence[LinkedEntity]) -> None:
        self._graph, self._names, self._linked = graph, names, linked
        self._mentioned = frozenset(entity.mid for entity in linked)
        self._ranked: dict[tuple[str, Step | None], list[Bearer]] = {}

    def rank(self, name: str, step: Step | None) -> list[Bearer]:
        """List the entities that a name may mean, best first.

        Args:
            name: As the CRP has it.
            step: The step that the CRP takes from there, or from where it arrives there, turned
                round; None where it takes none.

        Raises:
            GraphError: The graph does not answer.
        """
        key = (name, step)
        if key not in self._ranked:
            self._ranked[key] = self._bearing(name, step) or self._near(name, step)
        return self._ranked[key]

    def mentioned(self, name: str, step: Step | None) -> list[Bearer]:
        """List the entities that the question mentions, those first whose names are most like it.

        They may stand in for a name that the model made up. Raises as `rank` does.
        """
        bearers = [self._mention(entity, name, step) for entity in self._linked]
        return sorted(bearers, key=lambda bearer: -bearer.likeness)

    def judge(self, entity: Entity, name: str, step: Step | None, basis: Basis) -> Bearer:
        """Tell how well an entity agrees with a name and a step; raises as `rank` does.

        Where that is its own name, this is the basis, and not the one that the caller knows.
        """
        if normalise(name) == normalise(str(entity)):
            basis = "name"
        return Bearer(entity, likeness(name, str(entity)), self._has(entity, step), basis)

    def is_borne(self, name: str, step: Step | None) -> bool:
        """Tell whether anybody bears a name; raises as `rank` does."""
        return any(bearer.basis == "name" for bearer in self.rank(name, step))

    def _bearing(self, name: str, step: Step | None) -> list[Bearer]:
        bearers = [
            Bearer(entity := Entity(match.name, match.mid), match.score, self._has(entity, step))
            for match in self._names.lookup(name, _BEARERS)
        ]
        # A name that hundreds bear is not searched to its end, but the question may point at one.
        known = {bearer.entity.mid for bearer in bearers}
        bearers += (
            replace(self._mention(entity, name, step), basis="name")
            for entity in self._linked
            if entity.mid not in known and normalise(entity.name) == normalise(name)
        )

        def merits(bearer: Bearer) -> tuple[bool, bool, bool, bool]:
            own_name = str(bearer.entity)
            return (
                bearer.has_step,
                own_name == name,
                own_name.casefold() == name.casefold(),
                bearer.entity.mid in self._mentioned,
            )

        return sorted(bearers, key=merits, reverse=True)

    def _near(self, name: str, step: Step | None) -> list[Bearer]:
        words = name.split()
        if len(words) > MAX_WORDS:
            return []
        matches = self._names.search(name, _NEAR_MISSES)
        # What is added in brackets is an abbreviation, or tells namesakes apart.
        for text in dict.fromkeys((name, _IN_BRACKETS.sub("", name))):
            matches += self._names.near(text, _NEAR_MISSES)
        for part in self._names.match_spans(words, limit=_NEAR_MISSES):
            matches += part.matches
        alike = {text: likeness(name, text) for text in {match.matched for match in matches}}
        found = {entity.mid: self._mention(entity, name, step) for entity in self._linked}
        # Of each entity the name that is most alike first, so that its step is looked up once.
        for match in sorted(matches, key=lambda match: -alike[match.matched]):
            score = alike[match.matched]
            if match.mid not in found or found[match.mid].likeness < score:
                entity = Entity(match.name, match.mid)
                found[match.mid] = Bearer(entity, score, self._has(entity, step), "likeness")
        return sorted(found.values(), key=self._near_score, reverse=True)

    def _near_score(self, bearer: Bearer) -> float:
        mentioned = _MENTIONED * (bearer.entity.mid in self._mentioned)
        return bearer.likeness + mentioned + _HAS_STEP * bearer.has_step

    def _mention(self, entity: LinkedEntity, name: str, step: Step | None) -> Bearer:
        named = Entity(entity.name, entity.mid)
        alike = max(likeness(name, entity.name), likeness(name, entity.mention))
        return Bearer(named, alike, self._has(named, step), "mention")

    def _has(self, entity: Entity, step: Step | None) -> bool:
        if step is None:
            return False
        if not isinstance(step, Hop):
            return any(self._has(entity, way.path[0]) for way in step.ways)
        direction: Direction = "in" if step.inverse else "out"
        assert entity.mid is not None
        return bool(self._graph.neighbours(entity.mid, step.relation, direction, limit=1))


def likeness(one: str, other: str) -> float:
    """Tell how like two names are, 0 to 1: by letters, and by the words that they share."""
    from rapidfuzz import fuzz

    one, other = normalise(one), normalise(other)
    return (fuzz.ratio(one, other) + fuzz.token_set_ratio(one, other)) / 200
