"""Move the constraints of a failed path to the path that replaces it.

A constraint's position means nothing on another path: the node that it means is the one that has
its relation. So a constraint goes where the graph has its first relation, if possible as far from
the answer as before. A constraint whose relation fits no node of the new path is dropped and
reported.

Source: RouterKGQA §3.3 replaces only the main path; its code keeps the constraints as they are,
whatever their variables then mean.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from kbqa.engine.exploring.frontiers import Frontiers, RelationPath
from kbqa.sparql.crp import (
    Compare,
    Constraint,
    Crp,
    Hop,
    IsNode,
    IsNotNode,
    NodeRef,
    Order,
    changed_constraints,
)


@dataclass(frozen=True, slots=True)
class Carried:
    """A repaired CRP.

    Attributes:
        crp: The new path, with the constraints that could be carried over. A yes/no question whose
            tests could not be carried becomes a list.
        lost: Constraints that could not, as the failed CRP had them.
    """

    crp: Crp
    lost: tuple[Constraint | Order, ...]


def carry_constraints(failed: Crp, path: RelationPath, frontiers: Frontiers) -> Carried:
    """Put the constraints of a grounded CRP on another path.

    Args:
        failed: The CRP whose main path is replaced; constraints within its forks go with these.
        path: A path that exists in the graph.
        frontiers: Of that graph.

    Raises:
        GraphError: The graph does not answer.
    """
    places = _Places(failed, path, frontiers)
    carried: dict[Constraint, Constraint] = {}
    for constraint in failed.constraints:
        if (moved := places.move(constraint)) is not None:
            carried[constraint] = moved
    order = failed.order and places.move_order(failed.order)
    # What refers to a lost branch is lost with it, and so is a branch with a label that nothing
    # refers to any more; and so on, until what is left needs nothing that is lost.
    while True:
        labels = _labels(carried.values())
        if order is not None and isinstance(order.at, str) and order.at not in labels:
            order = None
        used = {label for new in carried.values() for label in _references(new)}
        used |= {order.at} if order is not None and isinstance(order.at, str) else set()
        kept = {
            old: new
            for old, new in carried.items()
            if _references(new) <= labels and _labels([new]) <= used
        }
        if len(kept) == len(carried):
            break
        carried = kept
    # Without what it asks, a yes/no question would only ask whether the path exists.
    is_whole = all(each in carried for each in failed.asked)
    crp = Crp(
        path.topic,
        path.hops,
        tuple(carried.values()),
        order,
        None if failed.differs_from is None else 0,
        failed.answer_language,
        failed.form if is_whole else "select",
    )
    lost: list[Constraint | Order] = [each for each in failed.constraints if each not in carried]
    if failed.order is not None and order is None:
        lost.append(failed.order)
    return Carried(crp, tuple(lost))


class _Places:
    """Finds the node of the new path that a node of the failed one meant."""

    def __init__(self, failed: Crp, path: RelationPath, frontiers: Frontiers) -> None:
        self._failed, self._path, self._frontiers = failed, path, frontiers

    def move(self, constraint: Constraint) -> Constraint | None:
        """Copy a constraint to where it belongs, if anywhere."""
        at = constraint.at
        if isinstance(at, int):
            place = self._place(at, constraint.hops)
            if place is None:
                return None
            at = place
        [moved] = changed_constraints((replace(constraint, at=at),), self._with_reference)
        return moved

    def move_order(self, order: Order) -> Order | None:
        """Copy an ordering to where it belongs, if anywhere."""
        if isinstance(order.at, str):
            return order
        place = self._place(order.at, order.hops)
        return None if place is None else replace(order, at=place)

    def _place(self, position: int, hops: Sequence[Hop]) -> int | None:
        likely = self._likely(position)
        if not hops:
            return likely[0]
        return next((place for place in likely if self._has(place, hops[0])), None)

    def _likely(self, position: int) -> list[int]:
        """List the new path's positions, the likeliest first."""
        last = len(self._path.hops)
        if position == 0:
            return list(range(last + 1))
        meant = last - (self._failed.answer - position)
        return sorted(range(last, -1, -1), key=lambda place: abs(place - meant))

    def _has(self, place: int, hop: Hop) -> bool:
        before = RelationPath(self._path.topic, self._path.hops[:place])
        return bool(self._frontiers.nodes(before)) and self._frontiers.exists(before.then(hop))

    def _with_reference(self, constraint: Constraint) -> Constraint:
        """Point a comparison with a node to that node's new position."""
        test = constraint.test
        if isinstance(test, Compare) and isinstance(test.value, NodeRef):
            test = replace(test, value=self._moved(test.value))
        elif isinstance(test, IsNode | IsNotNode):
            test = replace(test, other=self._moved(test.other))
        return replace(constraint, test=test)

    def _moved(self, reference: NodeRef) -> NodeRef:
        if isinstance(reference.node, str):
            return reference
        return NodeRef(self._likely(reference.node)[0])


def _labels(constraints: Iterable[Constraint]) -> set[str]:
    return {label for constraint in constraints for label in constraint.labels()}


def _references(constraint: Constraint) -> set[str]:
    return {node for node in constraint.references() if isinstance(node, str)}
