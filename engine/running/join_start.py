"""Choose where a query's execution begins, by how many neighbours its entities have.

Oxigraph keeps no statistics. Of two patterns that each name an entity it begins with the first one
written, though a type may have a million entities and a film director twenty films. It follows a
constraint of several hops away from the answers, though a country contains more places than an
airline has airports. So a CRP whose topic is a hub, or that has such constraints, begins at the
constraint that the fewest nodes can satisfy.
"""

from kbqa.kb.graph import Direction, Graph
from kbqa.sparql.crp import Constraint, Crp, Entity, Hop, IsEntity
from kbqa.sparql.errors import QueryTimeout
from kbqa.sparql.queries.templates import starts_query

_HUB = 200
"""From this many neighbours it pays to look for a better start than the topic."""

_FEW = 50
"""A constraint that at most this many nodes can satisfy is a good start."""

_TIMEOUT_S = 1.0
"""Seconds to look at a constraint of several hops; more is not worth it."""


def choose_start(graph: Graph, crp: Crp) -> Constraint | None:
    """Choose the constraint at which to begin; None if the topic will do.

    Args:
        graph: Asked for up to 200 nodes: those next to the topic and to entities of constraints,
            and those from which constraints of several hops can be satisfied.
        crp: Grounded.

    Raises:
        GraphError: The graph does not answer.
    """
    first = crp.path[0]
    if not isinstance(first, Hop):
        return None
    candidates = [constraint for constraint in crp.constraints if _is_required(constraint)]
    is_hub = bool(candidates) and _neighbours(graph, crp.topic, first) == _HUB
    sizes = [
        (_starts(graph, constraint), at)
        for at, constraint in enumerate(candidates)
        if is_hub or len(constraint.hops) > 1
    ]
    size, at = min(sizes, default=(_HUB, 0))
    return candidates[at] if size <= _FEW else None


def _is_required(constraint: Constraint) -> bool:
    return (
        isinstance(constraint.test, IsEntity)
        and bool(constraint.hops)
        and isinstance(constraint.at, int)
        and not (constraint.optional or constraint.negated)
    )


def _starts(graph: Graph, constraint: Constraint) -> int:
    """Count the nodes that satisfy a constraint, up to `_HUB`."""
    assert isinstance(constraint.test, IsEntity)
    entity, hops = constraint.test.entity, constraint.hops
    if len(hops) == 1:
        return _neighbours(graph, entity, Hop(hops[0].relation, not hops[0].inverse))
    assert entity.mid is not None
    query = starts_query(hops, entity.mid, _HUB)
    try:
        return len(graph.select(query, timeout_s=_TIMEOUT_S).rows)
    except QueryTimeout:
        return _HUB


def _neighbours(graph: Graph, entity: Entity, hop: Hop) -> int:
    direction: Direction = "in" if hop.inverse else "out"
    assert entity.mid is not None
    return len(graph.neighbours(entity.mid, hop.relation, direction, limit=_HUB))
