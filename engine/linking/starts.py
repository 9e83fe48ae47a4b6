"""Which entities a search of the graph, or a written path, starts from."""

from collections.abc import Sequence

from kbqa.engine.linking.linker import LinkedEntity
from kbqa.sparql.crp import Entity

MAX_STARTS = 2
"""Linked entities that a search starts from: the first may be wrong, and each costs lookups."""

_LIKELY = 0.1
"""The linker's probability from which an entity that is not its first choice is started from."""

_UNLIKELY = 0.001
"""Of the likeliest entity's probability: entities below it start no written path. On samples of
webqsp.train and cwq.dev this leaves 4.0 and 3.4 of the ten entities that the linker lists, and the
gold one, if it is among these, in 100 % and 98.5 % of the questions (n = 691 and 649)."""


def starting_topics(given: Sequence[Entity], linked: Sequence[LinkedEntity]) -> tuple[Entity, ...]:
    """Return the given entities, or else the likeliest linked ones, best first."""
    if given:
        return tuple(dict.fromkeys(given))
    likely = [each for at, each in enumerate(linked) if at == 0 or each.score >= _LIKELY]
    return tuple(Entity(each.name, each.mid) for each in likely[:MAX_STARTS])


def likely_topics(linked: Sequence[LinkedEntity]) -> tuple[Entity, ...]:
    """Return the linked entities that are likely enough to start a written path, best first."""
    least = _UNLIKELY * linked[0].score if linked else 0.0
    return tuple(Entity(entity.name, entity.mid) for entity in linked if entity.score >= least)
