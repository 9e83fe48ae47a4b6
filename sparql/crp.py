"""The constraint-aware reasoning path (CRP): what the small model writes and everything else reads.

A CRP is a topic entity, a main path of relations that leads from it to the answer, and constraints
on the nodes along that path. This module holds the model alone; text forms, compilation and
relaxation are modules of their own, each a rendering of it.

Nodes of a main path are counted by position: 0 is the topic, ``len(path)`` the answer. The end of a
branch can bear a label, by which other constraints and the ordering refer to it.

Source: RouterKGQA §3.1–3.2. Beyond the paper: branches that carry branches, relations followed
backwards anywhere, alternatives, constraints that a missing value satisfies or that forbid one, and
comparisons between nodes.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from kbqa.sparql.constraints import (
    AnyOf,
    Compare,
    Constraint,
    Entity,
    Fork,
    Hop,
    IsEntity,
    IsNode,
    IsNotEntity,
    IsNotNode,
    Kind,
    NodeRef,
    Operator,
    Step,
    Test,
    TextEquals,
    Way,
    changed_constraints,
    changed_step,
    check_depth,
    check_positions,
    nested_constraints,
    path_relations,
    step_constraints,
)

__all__ = [
    "AnyOf",
    "Compare",
    "Constraint",
    "Crp",
    "Entity",
    "Fork",
    "Hop",
    "IsEntity",
    "IsNode",
    "IsNotEntity",
    "IsNotNode",
    "Kind",
    "NodeRef",
    "Operator",
    "Order",
    "Step",
    "Test",
    "TextEquals",
    "Way",
    "nested_constraints",
    "path_relations",
]


MAX_ROWS = 2**31 - 1
"""The largest limit and offset: some engines count rows in 32 bits."""


@dataclass(frozen=True, slots=True)
class Order:
    """Keep the answers with the largest or smallest values of a branch's end.

    Attributes:
        at: The node that the branch hangs on: its position, or the label of a constraint's end.
        hops: The way from that node to the value; empty to order by the node itself.
        descending: Largest first.
        limit: How many answers to keep.
        offset: How many to pass over first.
    """

    at: int | str
    hops: tuple[Hop, ...]
    descending: bool
    limit: int = 1
    offset: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.at, int) and self.at < 0:
            raise ValueError(f"no node at position {self.at}")
        if not (1 <= self.limit <= MAX_ROWS and 0 <= self.offset <= MAX_ROWS):
            raise ValueError(f"limit is 1 to {MAX_ROWS}, and offset 0 to {MAX_ROWS}")


@dataclass(frozen=True, slots=True)
class Crp:
    """A constraint-aware reasoning path.

    Attributes:
        topic: Where the main path starts.
        path: The steps to the answer; at least one.
        constraints: Those on one node in the order in which they were written.
        order: The superlative, if the question has one.
        differs_from: Position of the node that the answer must not be: 0, the topic, in most
            questions; None where the answer may be any node.
        answer_language: Answers that are texts in another language do not count; None where all do.
    """

    topic: Entity
    path: tuple[Step, ...]
    constraints: tuple[Constraint, ...] = ()
    order: Order | None = None
    differs_from: int | None = 0
    answer_language: str | None = "en"

    def __post_init__(self) -> None:
        if not self.path:
            raise ValueError("a CRP needs a main path of at least one hop")
        check_depth(self.path, self.constraints)
        check_positions(self.constraints, len(self.path))
        if self.differs_from is not None and not 0 <= self.differs_from < len(self.path):
            raise ValueError(f"the answer cannot differ from position {self.differs_from}")
        _check_labels(self)

    @property
    def answer(self) -> int:
        """Position of the answer."""
        return len(self.path)

    def entities(self) -> Iterator[Entity]:
        """Yield the topic and every entity that a constraint names, in reading order."""
        yield self.topic
        for constraint in self.all_constraints():
            if isinstance(constraint.at, Entity):
                yield constraint.at
            if isinstance(constraint.test, IsEntity | IsNotEntity):
                yield constraint.test.entity

    def with_entities(self, change: Callable[[Entity], Entity]) -> "Crp":
        """Make a copy in which every entity, the topic included, is changed by a function."""

        def changed(constraint: Constraint) -> Constraint:
            test = constraint.test
            if isinstance(test, IsEntity | IsNotEntity):
                test = replace(test, entity=change(test.entity))
            at = constraint.at
            return replace(constraint, at=change(at) if isinstance(at, Entity) else at, test=test)

        return replace(self, topic=change(self.topic)).with_constraints(changed)

    def with_constraints(self, change: Callable[[Constraint], Constraint]) -> "Crp":
        """Make a copy in which a function has changed every constraint, the innermost first."""
        return replace(
            self,
            path=tuple(changed_step(step, change) for step in self.path),
            constraints=changed_constraints(self.constraints, change),
        )

    def all_constraints(self) -> Iterator[Constraint]:
        """Yield every constraint at any depth, each before what hangs on it, the path's first."""
        for step in self.path:
            yield from step_constraints(step)
        yield from nested_constraints(self.constraints)

    def relations(self) -> Iterator[str]:
        """Yield every relation, in reading order, with repetitions."""
        yield from path_relations(self.path)
        for constraint in self.all_constraints():
            yield from (hop.relation for hop in constraint.hops)
        if self.order is not None:
            yield from (hop.relation for hop in self.order.hops)


def _check_labels(crp: Crp) -> None:
    """See that every label is borne once and used, and every reference seen from where it stands.

    A label is seen in its own way, alternative or negated branch, and in all that those hold. Ways
    see nothing of what lies around them.
    """
    labels = [c.label for c in crp.all_constraints() if c.label is not None]
    if len(set(labels)) < len(labels):
        raise ValueError("two branches bear the same label")
    used: set[int | str] = set()
    for step in crp.path:
        _check_step(step, used)
    visible = set(range(len(crp.path) + 1)) | set(_labels(crp.constraints))
    _check_references(crp.constraints, visible, used)
    if crp.order is not None:
        _use(crp.order.at, visible, used)
    if unused := sorted(set(labels) - used, key=str):
        raise ValueError(f"nothing refers to the label {unused[0]}")


def _check_step(step: Step, used: set[int | str]) -> None:
    if isinstance(step, Fork):
        for way in step.ways:
            for inner in way.path:
                _check_step(inner, used)
            _check_references(way.constraints, set(_labels(way.constraints)), used)


def _labels(constraints: tuple[Constraint, ...]) -> Iterator[int | str]:
    """Yield the labels that these constraints show to the outside."""
    for constraint in constraints:
        if not constraint.negated:
            if constraint.label is not None:
                yield constraint.label
            yield from _labels(constraint.branches)


def _check_references(
    constraints: tuple[Constraint, ...], visible: set[int | str], used: set[int | str]
) -> None:
    for constraint in constraints:
        match constraint.test:
            case IsNode(other) | IsNotNode(other) | Compare(_, NodeRef() as other):
                _use(other.node, visible, used)
            case AnyOf(alternatives):
                for inner in alternatives:
                    _check_references(inner, visible | set(_labels(inner)), used)
        shown = set(_labels(constraint.branches)) if constraint.negated else set()
        _check_references(constraint.branches, visible | shown, used)


def _use(node: int | str, visible: set[int | str], used: set[int | str]) -> None:
    if node not in visible:
        raise ValueError(f"no node {node} is to be seen here")
    used.add(node)
