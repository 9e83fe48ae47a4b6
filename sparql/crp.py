"""The constraint-aware reasoning path (CRP), which the small model writes and all else reads.

A CRP is a topic entity, a main path of relations from it to the answer, and constraints on the
nodes of that path. These are numbered: 0 is the topic, ``len(path)`` the answer. The end of a
branch can have a label, to which other constraints and the ordering refer.

Only the text forms, the compiler and the converter tell the kinds of tests apart. All others read
a constraint's `operator`, `operand` and `alternatives`, build a test with `compare_with`, and use
`Crp.all_constraints` and `Crp.with_constraints`.

Source: RouterKGQA §3.1–3.2. Beyond the paper: counts and yes/no questions, classes as topics,
branches with further branches, relations followed backwards anywhere, alternatives, constraints
that accept or demand a missing value, comparisons between nodes, rankings with ties or by number,
sums, averages and differences.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, NamedTuple, TypeAlias, TypeVar, get_args

from kbqa.sparql.terms import LiteralTerm

Operator = Literal["=", "!=", "<", "<=", ">", ">="]
Kind = Literal["entity", "numeric", "string"]
# A CRP returns its answers; how many there are; whether there is any; or what the numbers at a node
# come to: their sum, their average, or how far the largest is from the smallest. For these, each
# answer has one number, its largest. With *bindings*, each way in which its nodes can be bound
# together counts, as in SPARQL's COUNT, SUM and AVG without DISTINCT.
Aggregate = Literal["sum", "sum bindings", "average", "average bindings", "difference"]
Form = Literal["select", "count", "count bindings", "ask"] | Aggregate

MAX_DEPTH = 32  # of nested forks, branches and alternatives; functions that recurse rely on it
MAX_ROWS = 2**31 - 1  # as a limit or an offset: some engines count rows in 32 bits

_LABEL = re.compile(r"[a-z][a-z0-9_]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Entity:
    """An entity by name, by Freebase id, or both."""

    name: str | None = None  # what a text calls it
    mid: str | None = None  # known once the entity is grounded; may also be the id of a class

    def __post_init__(self) -> None:
        if not self.name and not self.mid:
            raise ValueError("an entity needs a name or a mid")

    @property
    def is_grounded(self) -> bool:
        """Whether the entity's id is known."""
        return self.mid is not None

    def __str__(self) -> str:
        return self.name or self.mid or ""


@dataclass(frozen=True, slots=True)
class Hop:
    """One relation, followed forwards, or backwards if `inverse`."""

    relation: str
    inverse: bool = False

    def __post_init__(self) -> None:
        if not self.relation:
            raise ValueError("a hop needs a relation")

    @property
    def back(self) -> "Hop":
        """The same relation, followed the other way."""
        return Hop(self.relation, not self.inverse)


@dataclass(frozen=True, slots=True)
class Way:
    """One of the alternatives of a fork: a path from the fork's start to its end.

    Its nodes are numbered from 0, the fork's start. They and the nodes outside cannot refer to each
    other.
    """

    path: tuple["Step", ...]
    constraints: tuple["Constraint", ...] = ()

    def __post_init__(self) -> None:
        if not self.path:
            raise ValueError("a way needs at least one step")
        _check_positions(self.constraints, len(self.path))


@dataclass(frozen=True, slots=True)
class Fork:
    """A step of a path with several alternatives (UNION)."""

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
    """The node is the same as another node: two branches meet."""

    other: NodeRef


@dataclass(frozen=True, slots=True)
class IsNotNode:
    """The node differs from another node."""

    other: NodeRef


@dataclass(frozen=True, slots=True)
class Compare:
    """A comparison of the node, on the left, with a number or date, or with another node's.

    A literal without a datatype, such as ``1980``, may be a date and a number. It is compared as
    the kind that the node is.
    """

    operator: Operator
    value: LiteralTerm | NodeRef

    def __post_init__(self) -> None:
        if isinstance(self.value, LiteralTerm) and self.value.language is not None:
            raise ValueError("a number or date has no language")


@dataclass(frozen=True, slots=True)
class TextEquals:
    """The node is a string with exactly this text."""

    text: str
    language: str | None = None  # "" if it must have none, None if any will do


@dataclass(frozen=True, slots=True)
class AnyOf:
    """The node satisfies all constraints of at least one alternative."""

    alternatives: tuple[tuple["Constraint", ...], ...]  # `at` the position of the tested node

    def __post_init__(self) -> None:
        if len(self.alternatives) < 2 or not all(self.alternatives):
            raise ValueError("there must be two or more alternatives, and none may be empty")

    def entities(self) -> tuple[Entity, ...]:
        """Return the alternatives as entities; empty if any of them says something else."""
        found = []
        for alternative in self.alternatives:
            match alternative:
                case (Constraint(hops=(), test=IsEntity(entity)),):
                    found.append(entity)
                case _:
                    return ()
        return tuple(found)


Test: TypeAlias = IsEntity | IsNotEntity | IsNode | IsNotNode | Compare | TextEquals | AnyOf
Operand: TypeAlias = Entity | NodeRef | LiteralTerm | str  # a str is a text


def compare_with(operator: Operator, operand: Operand) -> Test:
    """Return the test that compares a node with an entity, another node's value, a value or a text.

    A text may be in any language. Entities have no order, and texts are only tested for equality.
    """
    match operator, operand:
        case "=", Entity() as entity:
            return IsEntity(entity)
        case "!=", Entity() as entity:
            return IsNotEntity(entity)
        case "=", str() as text:
            return TextEquals(text)
        case _, LiteralTerm() | NodeRef() as value:
            return Compare(operator, value)
    raise ValueError(f"nothing can be tested to be {operator} {str(operand)!r}")


@dataclass(frozen=True, slots=True)
class Constraint:
    """A branch that starts at a node, and what must be true at its end.

    A branch without a test only has to exist, or its end has a label or further branches. An
    optional one also holds if it does not exist: the benchmark's intervals accept an office without
    an end date.
    """

    at: int | Entity  # an entity if only a comparison connects the branch to the question
    hops: tuple[Hop, ...]  # to the tested node; empty to test the node itself
    test: Test | None
    branches: tuple["Constraint", ...] = ()  # on the branch's end; their `at` is `len(hops)`
    optional: bool = False  # no further hops are behind it
    negated: bool = False  # it holds if no such branch exists
    label: str | None = None  # of the branch's end, so that others can refer to it

    def __post_init__(self) -> None:
        if isinstance(self.at, int) and self.at < 0:
            raise ValueError(f"there is no node at position {self.at}")
        if not self.hops and self.test is None:
            raise ValueError("a constraint without hops needs a test")
        if self.test is not None and (self.branches or self.label is not None):
            raise ValueError("a branch cannot have both a test and a label or further branches")
        if (self.optional or self.negated) and not self.hops:
            raise ValueError("a constraint without hops can be neither optional nor negated")
        if self.optional and self.negated:
            raise ValueError("a constraint cannot be both optional and negated")
        if self.label is not None and (self.optional or self.negated):
            raise ValueError("the end of an optional or negated branch cannot have a label")
        if self.label is not None and _LABEL.fullmatch(self.label) is None:
            raise ValueError(
                "a label is a lower-case letter followed by lower-case letters, digits and "
                f"underscores, not {self.label!r}"
            )
        if any(inner.at != len(self.hops) for inner in self._inner()):
            raise ValueError(f"constraints on this branch's end must be at {len(self.hops)}")
        if self.optional and any(nested.hops for nested in nested_constraints(self._inner())):
            raise ValueError("an optional branch cannot have further hops behind it")

    @property
    def kind(self) -> Kind:
        """The paper's class of the constraint, which decides when relaxation drops it."""
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

    @property
    def operator(self) -> Operator | None:
        """The comparison of the branch's end with the operand; None if there is none."""
        match self.test:
            case Compare(operator):
                return operator
            case IsNotEntity() | IsNotNode():
                return "!="
            case IsEntity() | IsNode() | TextEquals():
                return "="
            case _:
                return None

    @property
    def operand(self) -> Operand | None:
        """The right side of the comparison, if there is one."""
        match self.test:
            case IsEntity(entity) | IsNotEntity(entity):
                return entity
            case IsNode(other) | IsNotNode(other):
                return other
            case Compare(_, value):
                return value
            case TextEquals(text):
                return text
            case _:
                return None

    @property
    def entity(self) -> Entity | None:
        """The entity that the branch's end must be, if any."""
        return self.test.entity if isinstance(self.test, IsEntity) else None

    @property
    def alternatives(self) -> tuple[tuple["Constraint", ...], ...]:
        """The alternatives of an `AnyOf`; empty for other tests."""
        return self.test.alternatives if isinstance(self.test, AnyOf) else ()

    def with_entities(self, change: Callable[[Entity], Entity]) -> "Constraint":
        """Return a copy in which a function has changed its own entities, the start first."""
        at = change(self.at) if isinstance(self.at, Entity) else self.at
        test = self.test
        if isinstance(test, IsEntity | IsNotEntity):
            test = replace(test, entity=change(test.entity))
        return replace(self, at=at, test=test)

    def with_reference(self, change: Callable[[NodeRef], NodeRef]) -> "Constraint":
        """Return a copy in which a function has changed the node that its own test refers to."""
        match self.test:
            case IsNode(other) | IsNotNode(other) as test:
                return replace(self, test=type(test)(change(other)))
            case Compare(operator, NodeRef() as other):
                return replace(self, test=Compare(operator, change(other)))
            case _:
                return self

    def entities(self) -> Iterator[Entity]:
        """Yield the entities that the constraint, or anything nested in it, names."""
        for constraint in nested_constraints((self,)):
            if isinstance(constraint.at, Entity):
                yield constraint.at
            if isinstance(constraint.operand, Entity):
                yield constraint.operand

    def labels(self) -> Iterator[str]:
        """Yield the labels of the constraint and of everything nested in it."""
        for constraint in nested_constraints((self,)):
            if constraint.label is not None:
                yield constraint.label

    def references(self) -> Iterator[int | str]:
        """Yield the nodes that the constraint, or anything nested in it, refers to."""
        for constraint in nested_constraints((self,)):
            if isinstance(constraint.operand, NodeRef):
                yield constraint.operand.node

    def _inner(self) -> Iterator["Constraint"]:
        """Yield the constraints on the branch's end."""
        for alternative in self.alternatives:
            yield from alternative
        yield from self.branches


@dataclass(frozen=True, slots=True)
class Order:
    """The order by which only answers with the largest or smallest values are kept.

    The values are at a branch's end; an answer with several counts by its best one. With `ties`,
    equal answers share a place, and `limit` and `offset` count places; else ids decide.
    """

    kind: ClassVar[Kind] = "numeric"

    at: int | str  # where the branch starts: a position, or the label of a constraint's end
    hops: tuple[Hop, ...]  # to the value; empty to order by the node itself
    descending: bool
    limit: int = 1
    offset: int = 0
    ties: bool = False
    counted: bool = False  # by how many values there are: "the most counties"

    def __post_init__(self) -> None:
        if isinstance(self.at, int) and self.at < 0:
            raise ValueError(f"there is no node at position {self.at}")
        if not (1 <= self.limit <= MAX_ROWS and 0 <= self.offset <= MAX_ROWS):
            raise ValueError(f"the limit must be 1 to {MAX_ROWS}, the offset 0 to {MAX_ROWS}")
        if self.counted and not self.hops:
            raise ValueError("only the ends of a branch can be counted, not the node itself")

    def references(self) -> Iterator[int | str]:
        """Yield the node that the ordering refers to, as a constraint does."""
        yield self.at


Part: TypeAlias = Constraint | Order  # of a CRP, besides its main path
AnyPart = TypeVar("AnyPart", Constraint, Order)


@dataclass(frozen=True, slots=True)
class Crp:
    """A constraint-aware reasoning path."""

    topic: Entity
    path: tuple[Step, ...]
    constraints: tuple[Constraint, ...] = ()  # those on one node as they were written
    order: Order | None = None
    differs_from: int | None = 0  # the answer must not be the node at this position
    answer_language: str | None = "en"  # of answers that are texts; None if any will do
    form: Form = "select"
    value: int | str | None = None  # where the numbers of an aggregate are: a position or label

    def __post_init__(self) -> None:
        if not self.path:
            raise ValueError("a CRP needs a main path of at least one hop")
        check_depth(self.path, self.constraints)
        _check_positions(self.constraints, len(self.path))
        if self.differs_from is not None and not 0 <= self.differs_from < len(self.path):
            raise ValueError(f"the answer cannot differ from the node at {self.differs_from}")
        if (self.value is not None) != (self.form in get_args(Aggregate)):
            raise ValueError("a sum, average or difference, and no other form, is of a node")
        if self.order is not None and self.form not in ("select", "ask"):
            raise ValueError("a CRP that counts or adds up its answers cannot order them as well")
        if self.order is not None and any(tuple(each.references()) for each in self.asked):
            raise ValueError("what a yes/no question asks of ordered answers names no other node")
        _check_labels(self)

    @property
    def hops(self) -> tuple[Hop, ...]:
        """The hops of the main path, without its forks."""
        return tuple(step for step in self.path if isinstance(step, Hop))

    @property
    def answer(self) -> int:
        """The position of the answer."""
        return len(self.path)

    @property
    def asked(self) -> tuple[Constraint, ...]:
        """The tests of the answer itself in a yes/no question; empty in other forms.

        All else is presupposed: "is Lima the capital of Kenya" presupposes that Kenya has a
        capital. An order comes before these tests: "is Lima the largest city of Peru".
        """
        if self.form != "ask":
            return ()
        return tuple(c for c in self.constraints if c.at == self.answer and not c.hops)

    def presupposed(self) -> "Crp":
        """Return the CRP of the answers that are counted, added up or asked about."""
        asked = self.asked
        kept = tuple(c for c in self.constraints if c not in asked)
        drop = unused_labels_dropped(references((*kept, self.order)))
        kept = changed_constraints(kept, drop)
        return replace(self, constraints=kept, form="select", value=None)

    def hops_to(self, node: int | str) -> tuple[Hop, ...]:
        """Return the hops that lead to a node, from the topic or from where its branch starts."""
        if isinstance(node, int):
            return tuple(step for step in self.path[:node] if isinstance(step, Hop))
        return next((each.hops for each in self.all_constraints() if each.label == node), ())

    def ordered_by(self, at: int, hops: tuple[Hop, ...], *, descending: bool) -> "Crp":
        """Return a copy that keeps the answer with the largest or smallest value."""
        return replace(self, order=Order(at, hops, descending))

    def without_answers(self, entities: Iterable[Entity]) -> "Crp":
        """Return a copy whose answers are none of some entities."""
        others = (Constraint(self.answer, (), compare_with("!=", each)) for each in entities)
        return replace(self, constraints=(*self.constraints, *others))

    def entities(self) -> Iterator[Entity]:
        """Yield the topic and every entity that a constraint names, in reading order."""
        yield self.topic
        for constraint in self.top_constraints():
            yield from constraint.entities()

    def with_entities(self, change: Callable[[Entity], Entity]) -> "Crp":
        """Return a copy in which a function has changed every entity, the topic included."""
        changed = replace(self, topic=change(self.topic))
        return changed.with_constraints(lambda constraint: constraint.with_entities(change))

    def with_constraints(self, change: Callable[[Constraint], Constraint]) -> "Crp":
        """Return a copy in which a function has changed every constraint, the innermost first."""
        return replace(
            self,
            path=tuple(changed_step(step, change) for step in self.path),
            constraints=changed_constraints(self.constraints, change),
        )

    def top_constraints(self) -> Iterator[Constraint]:
        """Yield the constraints of the path's ways and those of the CRP, without nested ones."""
        for way in nested_ways(self.path):
            yield from way.constraints
        yield from self.constraints

    def all_constraints(self) -> Iterator[Constraint]:
        """Yield every constraint, nested ones after those that hold them, the path's first."""
        yield from nested_constraints(self.top_constraints())

    def relations(self) -> Iterator[str]:
        """Yield every relation, in reading order, with repetitions."""
        yield from path_relations(self.path)
        for constraint in self.all_constraints():
            yield from (hop.relation for hop in constraint.hops)
        if self.order is not None:
            yield from (hop.relation for hop in self.order.hops)


class CrpReading(NamedTuple):
    """Everything that could be read of a CRP's text, and a line for each part that could not."""

    crp: Crp
    problems: tuple[str, ...]


def nested_constraints(constraints: Iterable[Constraint]) -> Iterator[Constraint]:
    """Yield constraints and everything nested in them, each before what it holds."""
    for constraint in constraints:
        yield constraint
        yield from nested_constraints(constraint._inner())


def path_relations(path: tuple[Step, ...]) -> Iterator[str]:
    """Yield the relations of a path, through all ways of its forks."""
    for step in path:
        if isinstance(step, Hop):
            yield step.relation
        else:
            for way in step.ways:
                yield from path_relations(way.path)


def changed_step(step: Step, change: Callable[[Constraint], Constraint]) -> Step:
    """Return a copy of a step with the constraints of its ways changed, the innermost first."""
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
    """Return a copy of constraints with everything in them changed, the innermost first."""
    changed = []
    for constraint in constraints:
        test = constraint.test
        if isinstance(test, AnyOf):
            test = AnyOf(tuple(changed_constraints(inner, change) for inner in test.alternatives))
        branches = changed_constraints(constraint.branches, change)
        changed.append(change(replace(constraint, test=test, branches=branches)))
    return tuple(changed)


def references(parts: Iterable["Part | None"]) -> set[int | str]:
    """Collect the nodes that parts of a CRP refer to."""
    return {node for part in parts if part is not None for node in part.references()}


def unused_labels_dropped(used: Collection[int | str]) -> Callable[[Constraint], Constraint]:
    """Return a change, for `changed_constraints`, that drops the labels that are not used."""

    def change(constraint: Constraint) -> Constraint:
        return constraint if constraint.label in used else replace(constraint, label=None)

    return change


def check_depth(path: tuple[Step, ...], constraints: tuple[Constraint, ...]) -> None:
    """Raise ValueError if anything is nested deeper than `MAX_DEPTH`; itself without recursion."""
    parts: list[tuple[int, Step | Constraint]] = [(0, part) for part in (*path, *constraints)]
    while parts:
        depth, part = parts.pop()
        if depth > MAX_DEPTH:
            raise ValueError(f"the path is nested deeper than {MAX_DEPTH} levels")
        match part:
            case Fork(ways):
                parts += [(depth + 1, step) for way in ways for step in way.path]
                parts += [(depth + 2, inner) for way in ways for inner in way.constraints]
            case Constraint():
                parts += [(depth + 1, inner) for inner in part._inner()]


def nested_ways(path: tuple[Step, ...]) -> Iterator[Way]:
    """Yield the ways of a path's forks, each after those nested in it."""
    for step in path:
        for way in step.ways if isinstance(step, Fork) else ():
            yield from nested_ways(way.path)
            yield way


def _check_positions(constraints: tuple[Constraint, ...], last: int) -> None:
    for constraint in constraints:
        if isinstance(constraint.at, int) and constraint.at > last:
            raise ValueError(f"there is no node at position {constraint.at}")


def _check_labels(crp: Crp) -> None:
    """Check that each label is used and given only once, and that each reference is in scope."""
    # A label can be seen within its own way, alternative or negated branch, and in everything
    # nested there. Ways see nothing of what surrounds them.
    everything = tuple(crp.all_constraints())
    labels = [constraint.label for constraint in everything if constraint.label]
    if len(set(labels)) < len(labels):
        raise ValueError("two branches have the same label")
    operands = (constraint.operand for constraint in everything)
    used = {operand.node for operand in operands if isinstance(operand, NodeRef)}
    used |= _of_all_answers(crp)
    if used:
        _check_references(crp)
    if unused := sorted(set(labels) - used):
        raise ValueError(f"nothing refers to the label {unused[0]}")


def _check_references(crp: Crp) -> None:
    positions = range(len(crp.path) + 1)
    unseen = [node for way in nested_ways(crp.path) for node in outer_references(way.constraints)]
    unseen += (node for node in outer_references(crp.constraints) if node not in positions)
    unseen += _of_all_answers(crp) - {*positions, *visible_labels(crp.constraints)}
    if unseen:
        raise ValueError(f"?{unseen[0]} is not defined here")


def _of_all_answers(crp: Crp) -> set[int | str]:
    """Return the nodes by which all answers together are ordered or added up."""
    nodes = (crp.value, None if crp.order is None else crp.order.at)
    return {node for node in nodes if node is not None}


def visible_labels(constraints: Iterable[Constraint]) -> Iterator[int | str]:
    """Yield the labels of these constraints that can be seen from outside."""
    for constraint in constraints:
        if not constraint.negated:
            if constraint.label is not None:
                yield constraint.label
            yield from visible_labels(constraint.branches)


def outer_references(constraints: Sequence[Constraint]) -> Iterator[int | str]:
    """Yield the nodes outside of some constraints that they refer to."""
    own = set(visible_labels(constraints))
    for constraint in constraints:
        operand = constraint.operand
        found = [operand.node] if isinstance(operand, NodeRef) else []
        for inner in (*constraint.alternatives, constraint.branches):
            if inner:
                found += outer_references(inner)
        yield from (node for node in found if node not in own)


@dataclass(slots=True, eq=False)
class BranchNode:
    """A node of the tree from which constraints are built.

    The readers of RouterKGQA's text and of SPARQL meet the parts of a constraint in any order, and
    attach them to such nodes. If one is optional or negated, so is the way to it.
    """

    edges: list[tuple[Hop, "BranchNode"]] = field(default_factory=list)
    tests: list[Test] = field(default_factory=list)
    any_of: list[tuple["BranchNode", ...]] = field(default_factory=list)  # separate trees
    optional: bool = False  # ignored if the node has edges or a label, or is negated
    negated: bool = False
    label: str | None = None

    @property
    def is_bare(self) -> bool:
        """Whether the node has no edges, tests or label."""
        return not (self.edges or self.tests or self.any_of) and self.label is None

    def constraints(self, at: int | Entity) -> Iterator[Constraint]:
        """Yield the constraints on this node, which is at this position."""
        for test in self.tests:
            yield Constraint(at, (), test)
        for alternatives in self.any_of:
            yield Constraint(at, (), _any_of(alternatives, 0))
        for hop, child in self.edges:
            yield child._branch(at, (hop,))

    @property
    def _is_optional(self) -> bool:
        return self.optional and not (self.edges or self.negated) and self.label is None

    def _branch(self, at: int | Entity, hops: tuple[Hop, ...]) -> Constraint:
        """Build the constraint of these hops and everything behind them."""
        optional, negated, last = self._is_optional, self.negated, len(hops)
        if self.label is None:
            match self.tests, self.any_of, self.edges:
                case [test], [], []:
                    return Constraint(at, hops, test, optional=optional, negated=negated)
                case [], [alternatives], []:
                    test = _any_of(alternatives, last)
                    return Constraint(at, hops, test, optional=optional, negated=negated)
                # An optional hop after a required one stays apart: only its own lack is forgiven.
                case [], [], [(hop, child)] if not (child._is_optional or child.negated):
                    branch = child._branch(at, (*hops, hop))
                    if not negated:
                        return branch
                    if branch.label is None:  # else the label is inside of the negation
                        return replace(branch, negated=True)
        branches = tuple(self.constraints(last))
        return Constraint(at, hops, None, branches, optional, negated, self.label)


def _any_of(alternatives: tuple[BranchNode, ...], at: int) -> AnyOf:
    return AnyOf(tuple(tuple(alternative.constraints(at)) for alternative in alternatives))
