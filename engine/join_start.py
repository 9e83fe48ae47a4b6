"""Choose where a query's execution begins, by looking at how many neighbours its entities have.

Oxigraph keeps no statistics: of two patterns that each name an entity it begins with the one that
is written first, though a type may have a million bearers and a film director twenty films. So a
CRP whose topic is a hub begins at the constraint whose entity has the fewest neighbours.
"""

from kbqa.kb.graph import Direction, Graph
from kbqa.sparql.crp import Constraint, Crp, Entity, Hop, IsEntity

_HUB = 200
"""Neighbours from which on it pays to look for a better start."""

_GAIN = 4
"""How many times fewer neighbours the better start must have."""


def choose_start(graph: Graph, crp: Crp) -> Constraint | None:
    """Choose the constraint at which to begin; None where the topic will do.

    Args:
        graph: Asked for up to 200 neighbours of each entity at the end of a constraint, where the
            topic has as many.
        crp: Grounded.

    Raises:
        GraphError: The graph does not answer.
    """
    first = crp.path[0]
    if not isinstance(first, Hop) or _neighbours(graph, crp.topic, first) < _HUB:
        return None
    sizes = [
        (_neighbours(graph, constraint.test.entity, _back(constraint.hops[-1])), at)
        for at, constraint in enumerate(crp.constraints)
        if isinstance(constraint.test, IsEntity)
        and constraint.hops
        and not (constraint.optional or constraint.negated)
    ]
    size, at = min(sizes, default=(_HUB, 0))
    return crp.constraints[at] if size * _GAIN <= _HUB else None


def _neighbours(graph: Graph, entity: Entity, hop: Hop) -> int:
    direction: Direction = "in" if hop.inverse else "out"
    assert entity.mid is not None
    return len(graph.neighbours(entity.mid, hop.relation, direction, limit=_HUB))


def _back(hop: Hop) -> Hop:
    return Hop(hop.relation, not hop.inverse)
