"""What a path goes through and what it demands of its nodes: the parts that a CRP is made of.

`kbqa.sparql.crp` puts them together and says what they are for.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal as Choice
from typing import TypeAlias

from kbqa.sparql.terms import Literal

Operator = Choice["=", "!=", "<", "<=", ">", ">="]
Kind = Choice["entity", "numeric", "string"]

MAX_DEPTH = 32
"""How deep forks, branches and alternatives may hang in each other.

That is further than anything that was ever asked; whatever recurses into a CRP can rely on it.
"""

_LABEL = re.compile(r"[a-z][a-z0-9_]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Entity:
    """An entity by name, by Freebase id, or both.

    Attributes:
        name: What a text calls it; None where only the id is known.
        mid: Its Freebase id, once grounded. Schema ids (``award.hall_of_fame``) are ids as well.
    """

    name: str | None = None
    mid: str | None = None

    def __post_init__(self) -> None:
        if not self.name and not self.mid:
            raise ValueError("an entity needs a name or a mid")

    @property
    def is_grounded(self) -> bool:
        """Tell whether the entity is known by its id."""
        return self.mid is not None

    def __str__(self) -> str:
        return self.name or self.mid or ""


@dataclass(frozen=True, slots=True)
class Hop:
    """One relation, followed forwards, or backwards where `inverse`."""

    relation: str
    inverse: bool = False

    def __post_init__(self) -> None:
        if not self.relation:
            raise ValueError("a hop needs a relation")


@dataclass(frozen=True, slots=True)
class Way:
    """One of the alternatives of a fork.

    Attributes:
        path: The steps from the fork's start to its end; at least one.
        constraints: Constraints on the way's nodes: 0 is the fork's start, ``len(path)`` its end.
            They refer to no node outside of the way, nor does anything outside refer into it.
    """

    path: tuple["Step", ...]
    constraints: tuple["Constraint", ...] = ()

    def __post_init__(self) -> None:
        if not self.path:
            raise ValueError("a way needs at least one step")
        check_positions(self.constraints, len(self.path))


@dataclass(frozen=True, slots=True)
class Fork:
    """A step of a path that can be taken in several ways (UNION)."""

    ways: tuple[Way, ...]

    def __post_init__(self) -> None:
        if len(self.ways) < 2:
            raise ValueError("a fork needs at least two ways")


Step: TypeAlias = Hop | Fork


@dataclass(frozen=True, slots=True)
class NodeRef:
    """Another node of the same CRP: its position on the main path, or its label."""

    node: int | str


@dataclass(frozen=True, slots=True)
class IsEntity:
    """The node is this entity."""

    entity: Entity


@dataclass(frozen=True, slots=True)
class IsNotEntity:
    """The node is any entity but this one."""

    entity: Entity


@dataclass(frozen=True, slots=True)
class IsNode:
    """The node is that other node: two branches meet."""

    other: NodeRef


@dataclass(frozen=True, slots=True)
class IsNotNode:
    """The node is any but that other node."""

    other: NodeRef


@dataclass(frozen=True, slots=True)
class Compare:
    """The node is a number or date that stands in this relation to a value.

    Attributes:
        operator: Read with the node on the left: ``node < value``.
        value: As written, or another node. A literal's datatype, where given, tells whether it is a
            date or a number; without one a year such as ``1980`` is compared as the kind that the
            node has.
    """

    operator: Operator
    value: Literal | NodeRef

    def __post_init__(self) -> None:
        if isinstance(self.value, Literal) and self.value.language is not None:
            raise ValueError("a number or date has no language")


@dataclass(frozen=True, slots=True)
class TextEquals:
    """The node is a string that reads exactly like this.

    Attributes:
        text: What it reads.
        language: Its language tag; ``""`` where it must have none, None where any will do.
    """

    text: str
    language: str | None = None


@dataclass(frozen=True, slots=True)
class AnyOf:
    """The node satisfies all constraints of at least one alternative.

    Attributes:
        alternatives: Constraints that hang on the tested node, so with its position as their `at`.
    """

    alternatives: tuple[tuple["Constraint", ...], ...]

    def __post_init__(self) -> None:
        if len(self.alternatives) < 2 or not all(self.alternatives):
            raise ValueError("alternatives are at least two, of at least one constraint each")


Test: TypeAlias = IsEntity | IsNotEntity | IsNode | IsNotNode | Compare | TextEquals | AnyOf


@dataclass(frozen=True, slots=True)
class Constraint:
    """A branch that hangs on a node, and what must be true at its end.

    Attributes:
        at: Position of the node that the branch hangs on; or an entity of its own, where the branch
            belongs to the question only through a comparison.
        hops: The way from that node to the tested one; empty to test the node itself.
        test: What the last node must satisfy; None where it is enough that the branch exists, or
            where its end bears a label or further branches.
        branches: Constraints that hang on the branch's end; their `at` is ``len(hops)``.
        optional: The constraint also holds where the branch does not exist: the benchmark's
            intervals accept an office without an end date. No further hops hang on such a branch.
        negated: The constraint holds where no such branch exists.
        label: Names the branch's end, for others to refer to.
    """

    at: int | Entity
    hops: tuple[Hop, ...]
    test: Test | None
    branches: tuple["Constraint", ...] = ()
    optional: bool = False
    negated: bool = False
    label: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.at, int) and self.at < 0:
            raise ValueError(f"no node at position {self.at}")
        if not self.hops and self.test is None:
            raise ValueError("a constraint without hops needs a test")
        if self.test is not None and (self.branches or self.label is not None):
            raise ValueError("a branch ends in a test, or in a label and further branches")
        if (self.optional or self.negated) and not self.hops:
            raise ValueError("a constraint without hops can be neither optional nor negated")
        if self.optional and self.negated:
            raise ValueError("a constraint cannot be both optional and negated")
        if self.label is not None and (self.optional or self.negated):
            raise ValueError("the end of an optional or negated branch cannot bear a label")
        if self.label is not None and _LABEL.fullmatch(self.label) is None:
            raise ValueError(f"a label is made of small letters and digits, not {self.label!r}")
        hanging = self.branches
        if isinstance(self.test, AnyOf):
            hanging = tuple(c for alternative in self.test.alternatives for c in alternative)
        if any(branch.at != len(self.hops) for branch in hanging):
            raise ValueError(f"what hangs on this branch's end is at position {len(self.hops)}")
        if self.optional and any(inner.hops for inner in nested_constraints(hanging)):
            raise ValueError("no further hops can hang on an optional branch")

    @property
    def kind(self) -> Kind:
        """The paper's class of the constraint, which decides when relaxation drops it.

        A branch without a test of its own takes the kind of what hangs on it; `entity` otherwise.
        """
        match self.test:
            case Compare():
                return "numeric"
            case TextEquals():
                return "string"
            case AnyOf(alternatives):
                return alternatives[0][0].kind
            case None if self.branches:
                return self.branches[0].kind
            case _:
                return "entity"


def nested_constraints(constraints: tuple[Constraint, ...]) -> Iterator[Constraint]:
    """Yield constraints and all that hang on them, each before what hangs on it."""
    for constraint in constraints:
        yield constraint
        if isinstance(constraint.test, AnyOf):
            for alternative in constraint.test.alternatives:
                yield from nested_constraints(alternative)
        yield from nested_constraints(constraint.branches)


def path_relations(path: tuple[Step, ...]) -> Iterator[str]:
    """Yield the relations of a path, through all ways of its forks."""
    for step in path:
        if isinstance(step, Hop):
            yield step.relation
        else:
            for way in step.ways:
                yield from path_relations(way.path)


def step_constraints(step: Step) -> Iterator[Constraint]:
    """Yield the constraints on the ways of a fork, at any depth."""
    if isinstance(step, Fork):
        for way in step.ways:
            for inner in way.path:
                yield from step_constraints(inner)
            yield from nested_constraints(way.constraints)


def changed_step(step: Step, change: Callable[[Constraint], Constraint]) -> Step:
    """Copy a step with its ways' constraints changed, the innermost first."""
    if isinstance(step, Hop):
        return step
    ways = (
        Way(
            tuple(changed_step(inner, change) for inner in way.path),
            changed_constraints(way.constraints, change),
        )
        for way in step.ways
    )
    return Fork(tuple(ways))


def changed_constraints(
    constraints: tuple[Constraint, ...], change: Callable[[Constraint], Constraint]
) -> tuple[Constraint, ...]:
    """Copy constraints with all that hang on them changed, the innermost first."""
    changed = []
    for constraint in constraints:
        test = constraint.test
        if isinstance(test, AnyOf):
            test = AnyOf(tuple(changed_constraints(inner, change) for inner in test.alternatives))
        branches = changed_constraints(constraint.branches, change)
        changed.append(change(replace(constraint, test=test, branches=branches)))
    return tuple(changed)


def check_positions(constraints: tuple[Constraint, ...], last: int) -> None:
    """See that constraints hang on nodes up to this position.

    Raises:
        ValueError: One hangs on no node.
    """
    for constraint in constraints:
        if isinstance(constraint.at, int) and constraint.at > last:
            raise ValueError(f"no node at position {constraint.at}")


def check_depth(path: tuple[Step, ...], constraints: tuple[Constraint, ...]) -> None:
    """See that nothing hangs deeper than `MAX_DEPTH`; this alone does not recurse.

    Raises:
        ValueError: Something does.
    """
    parts: list[tuple[int, Step | Constraint]] = [(0, part) for part in (*path, *constraints)]
    while parts:
        depth, part = parts.pop()
        if depth > MAX_DEPTH:
            raise ValueError(f"it is nested deeper than {MAX_DEPTH}")
        match part:
            case Fork(ways):
                parts += [(depth + 1, step) for way in ways for step in way.path]
                parts += [(depth + 2, inner) for way in ways for inner in way.constraints]
            case Constraint(test=AnyOf(alternatives)):
                parts += [(depth + 1, inner) for held in alternatives for inner in held]
            case Constraint(branches=branches):
                parts += [(depth + 1, inner) for inner in branches]
