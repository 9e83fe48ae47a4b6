"""Relax a CRP's constraints step by step, while the main path stays as it is.

The steps: nothing dropped; then without string constraints; then without numeric ones as well; then
without one, two, … of the entity constraints; last the main path alone.

Source: RouterKGQA §3.4, "Constraint relaxation", and Table 9.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations, islice
from typing import Literal as Choice

from kbqa.sparql.crp import Constraint, Crp, Order

Level = Choice["full", "string", "numeric", "entity", "main_path"]

# Subsets of entity constraints grow as 2**n; no benchmark query has more than six.
_MAX_SUBSETS = 64


@dataclass(frozen=True, slots=True)
class Relaxation:
    """One step of relaxation.

    Attributes:
        level: The last class of constraints that was dropped from; ``full`` where none was.
        crp: The CRP without what was dropped.
        dropped: What was dropped, in the CRP's order.
    """

    level: Level
    crp: Crp
    dropped: tuple[Constraint | Order, ...]


def relaxations(crp: Crp) -> Iterator[Relaxation]:
    """Yield the CRP itself, then every relaxed form of it; no form comes twice.

    >>> from kbqa.sparql.crp import Constraint, Crp, Entity, Hop, IsEntity, TextEquals
    >>> crp = Crp(Entity("Kenya"), (Hop("location.location.contains"),), (
    ...     Constraint(1, (Hop("type.object.type"),), IsEntity(Entity("City"))),
    ...     Constraint(1, (Hop("type.object.name"),), TextEquals("Nairobi"))))
    >>> [step.level for step in relaxations(crp)]
    ['full', 'string', 'main_path']
    """
    seen = set()
    for step in _steps(crp):
        if step.crp not in seen:
            seen.add(step.crp)
            yield step


def _steps(crp: Crp) -> Iterator[Relaxation]:
    """Yield every step; one that finds nothing to drop repeats the step before."""
    entity = tuple(c for c in crp.constraints if c.kind == "entity")
    numeric = tuple(c for c in crp.constraints if c.kind == "numeric")
    yield Relaxation("full", crp, ())
    if entity or numeric or crp.order is not None:
        yield _keep("string", crp, (*entity, *numeric), crp.order)
    if entity:
        yield _keep("numeric", crp, entity, None)
    kept_sets = (
        kept for size in range(len(entity) - 1, 0, -1) for kept in combinations(entity, size)
    )
    for kept in islice(kept_sets, _MAX_SUBSETS):
        yield _keep("entity", crp, kept, None)
    yield _keep("main_path", crp, (), None)


def _keep(
    level: Level, crp: Crp, constraints: tuple[Constraint, ...], order: Order | None
) -> Relaxation:
    kept = tuple(c for c in crp.constraints if c in constraints)
    dropped: tuple[Constraint | Order, ...] = tuple(c for c in crp.constraints if c not in kept)
    if crp.order is not None and order is None:
        dropped = (*dropped, crp.order)
    return Relaxation(level, replace(crp, constraints=kept, order=order), dropped)
