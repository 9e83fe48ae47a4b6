"""Which entities a search of the graph starts from."""

from collections.abc import Sequence

from kbqa.engine.linking.linker import LinkedEntity
from kbqa.sparql.crp import Entity

MAX_STARTS = 2
"""Linked entities that a search starts from: the first may be wrong, and each costs lookups."""

_LIKELY = 0.1
"""The linker's probability from which an entity that is not its first choice is started from."""


def starting_topics(given: Sequence[Entity], linked: Sequence[LinkedEntity]) -> tuple[Entity, ...]:
    """Return the given entities, or else the likeliest linked ones, best first."""
    if given:
        return tuple(dict.fromkeys(given))
    likely = [each for at, each in enumerate(linked) if at == 0 or each.score >= _LIKELY]
    return tuple(Entity(each.name, each.mid) for each in likely[:MAX_STARTS])
