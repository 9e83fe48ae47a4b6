"""The constraint-aware reasoning path (CRP): what the small model writes and everything else reads.

A CRP is a topic entity, a main path of relations that leads from it to the answer, and constraints
on the nodes along that path. This module holds the model alone; text forms, compilation and
relaxation are modules of their own, each a rendering of it.

Nodes of a main path are counted by position: 0 is the topic, ``len(path)`` the answer.

Source: RouterKGQA §3.1–3.2. Beyond the paper: branches that carry branches, relations followed
backwards anywhere, and constraints that a missing value satisfies.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal as Choice
from typing import TypeAlias

from kbqa.sparql.terms import Literal

Operator = Choice["=", "!=", "<", "<=", ">", ">="]
Kind = Choice["entity", "numeric", "string"]


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
class IsEntity:
    """The node is this entity."""

    entity: Entity


@dataclass(frozen=True, slots=True)
class IsNotEntity:
    """The node is any entity but this one."""

    entity: Entity


@dataclass(frozen=True, slots=True)
class Compare:
    """The node is a number or date that stands in this relation to a value.

    Attributes:
        operator: Read with the node on the left: ``node < value``.
        value: As written. Its datatype, where given, tells whether it is a date or a number;
            without one a year such as ``1980`` is compared as the kind that the node has.
    """

    operator: Operator
    value: Literal

    def __post_init__(self) -> None:
        if self.value.language is not None:
            raise ValueError("a number or date has no language")


@dataclass(frozen=True, slots=True)
class TextEquals:
    """The node is a string that reads exactly like this, in any language unless one is given."""

    text: str
    language: str | None = None


Test: TypeAlias = IsEntity | IsNotEntity | Compare | TextEquals


@dataclass(frozen=True, slots=True)
class Constraint:
    """A branch that hangs on a node, and what must be true at its end.

    Attributes:
        at: Position of the node that the branch hangs on.
        hops: The way from that node to the tested one; empty to test the node itself.
        test: What the last node must satisfy; None where it is enough that the branch exists.
        branches: Constraints on the branch's own nodes; their `at` counts from 0, the node that
            this branch hangs on, to ``len(hops)``, its end.
        optional: The constraint also holds where the branch does not exist: the benchmark's
            intervals accept an office without an end date. No further hops hang on such a branch.
    """

    at: int
    hops: tuple[Hop, ...]
    test: Test | None
    branches: tuple["Constraint", ...] = ()
    optional: bool = False

    def __post_init__(self) -> None:
        if self.at < 0:
            raise ValueError(f"no node at position {self.at}")
        if not self.hops and self.test is None:
            raise ValueError("a constraint without hops needs a test")
        if self.optional and not self.hops:
            raise ValueError("a constraint without hops cannot be optional")
        if self.optional and any(branch.hops for branch in self.branches):
            raise ValueError("no further hops can hang on an optional branch")
        _check_positions(self.branches, len(self.hops))

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
            case None if self.branches:
                return self.branches[0].kind
            case _:
                return "entity"


@dataclass(frozen=True, slots=True)
class Order:
    """Keep the answers with the largest or smallest values of a branch's end.

    Attributes:
        at: Position of the node that the branch hangs on.
        hops: The way from that node to the value; empty to order by the node itself.
        descending: Largest first.
        limit: How many answers to keep.
        offset: How many to pass over first.
    """

    at: int
    hops: tuple[Hop, ...]
    descending: bool
    limit: int = 1
    offset: int = 0

    def __post_init__(self) -> None:
        if self.at < 0:
            raise ValueError(f"no node at position {self.at}")
        if self.limit < 1 or self.offset < 0:
            raise ValueError("limit is at least 1 and offset at least 0")


@dataclass(frozen=True, slots=True)
class Crp:
    """A constraint-aware reasoning path.

    Attributes:
        topic: Where the main path starts.
        path: The hops to the answer; at least one.
        constraints: Those on one node in the order in which they were written.
        order: The superlative, if the question has one.
        differs_from: Position of the node that the answer must not be: 0, the topic, in most
            questions; None where the answer may be any node.
    """

    topic: Entity
    path: tuple[Hop, ...]
    constraints: tuple[Constraint, ...] = ()
    order: Order | None = None
    differs_from: int | None = 0

    def __post_init__(self) -> None:
        if not self.path:
            raise ValueError("a CRP needs a main path of at least one hop")
        _check_positions(self.constraints, len(self.path))
        if self.order is not None and self.order.at > len(self.path):
            raise ValueError(f"no node at position {self.order.at}")
        if self.differs_from is not None and not 0 <= self.differs_from < len(self.path):
            raise ValueError(f"the answer cannot differ from position {self.differs_from}")

    @property
    def answer(self) -> int:
        """Position of the answer."""
        return len(self.path)

    def entities(self) -> Iterator[Entity]:
        """Yield the topic and every entity that a constraint names, in reading order."""
        yield self.topic
        yield from _entities(self.constraints)

    def with_entities(self, change: Callable[[Entity], Entity]) -> "Crp":
        """Make a copy in which every entity, the topic included, is changed by a function."""
        return replace(
            self,
            topic=change(self.topic),
            constraints=tuple(_with_entities(c, change) for c in self.constraints),
        )

    def relations(self) -> Iterator[str]:
        """Yield every relation, in reading order, with repetitions."""
        yield from (hop.relation for hop in self.path)
        yield from _relations(self.constraints)
        if self.order is not None:
            yield from (hop.relation for hop in self.order.hops)


def _check_positions(constraints: tuple[Constraint, ...], last: int) -> None:
    for constraint in constraints:
        if constraint.at > last:
            raise ValueError(f"no node at position {constraint.at}")


def _entities(constraints: tuple[Constraint, ...]) -> Iterator[Entity]:
    for constraint in constraints:
        if isinstance(constraint.test, IsEntity | IsNotEntity):
            yield constraint.test.entity
        yield from _entities(constraint.branches)


def _with_entities(constraint: Constraint, change: Callable[[Entity], Entity]) -> Constraint:
    test = constraint.test
    if isinstance(test, IsEntity | IsNotEntity):
        test = replace(test, entity=change(test.entity))
    branches = tuple(_with_entities(branch, change) for branch in constraint.branches)
    return replace(constraint, test=test, branches=branches)


def _relations(constraints: tuple[Constraint, ...]) -> Iterator[str]:
    for constraint in constraints:
        yield from (hop.relation for hop in constraint.hops)
        yield from _relations(constraint.branches)
