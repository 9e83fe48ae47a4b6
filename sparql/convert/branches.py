"""Choose the topic and the main path of a query, and cut the rest into constraints on its nodes.

The main path is the first walk from an entity to the answer, through triples in either direction,
depth first in the order of the text; the published CRPs take it too. A class is the topic only if
no entity leads to the answer. A union whose alternatives all lead from one node to another is one
step of the walk, and becomes a fork.

The other triples grow into branches. If a triple comes back to an existing node, or a filter
compares two nodes, one refers to the other by position or label. A union beside the main path, and
a filter with ``||``, become alternatives on a node.

Source: RouterKGQA, appendix B.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

from kbqa.sparql.convert.query_tree import (
    And,
    Call,
    Exists,
    Expression,
    Group,
    Node,
    NodeComparison,
    NodeTest,
    Or,
    TriplePart,
    Union,
    Variable,
    as_group,
    equality,
    mentioned_variables,
    read_comparison,
    read_interval,
    strip_casts,
)
from kbqa.sparql.convert.select import Ranking, SelectTree
from kbqa.sparql.crp import (
    MAX_ROWS,
    BranchNode,
    Constraint,
    Entity,
    Fork,
    Hop,
    IsNode,
    NodeRef,
    Order,
    Step,
    Way,
)
from kbqa.sparql.errors import CrpConversionError
from kbqa.sparql.terms import is_mid


@dataclass(frozen=True, slots=True)
class TripleStep:
    """A step of a walk through a triple."""

    part: TriplePart
    hop: Hop
    node: Node  # where it leads


@dataclass(frozen=True, slots=True)
class UnionStep:
    """A step of a walk through a union."""

    part: Union
    walks: tuple["QueryWalk", ...]  # through each of its alternatives
    node: Node  # where all lead


WalkStep: TypeAlias = TripleStep | UnionStep


@dataclass(frozen=True, slots=True)
class QueryWalk:
    """A way from one node of a query to another."""

    start: Node
    steps: tuple[WalkStep, ...]

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes on the way, both ends included."""
        return (self.start, *(step.node for step in self.steps))


def find_main_path(tree: SelectTree) -> QueryWalk:
    """Choose the topic entity and the walk from it to the answer."""
    entities = dict.fromkeys(
        node
        for triple in tree.group.all_triples()
        for node in (triple.subject, triple.object)
        if isinstance(node, str)
    )
    for entity in sorted(entities, key=is_mid, reverse=True):
        if (walk := _first_walk(entity, tree.answer, tree.group.parts)) is not None:
            return walk
    if tree.group.unions:
        raise CrpConversionError("union", "no entity leads to the answer in all alternatives")
    raise CrpConversionError("no topic entity", "no entity leads to the answer")


def _first_walk(start: Node, goal: Node, parts: Sequence[TriplePart | Union]) -> QueryWalk | None:
    walks: list[QueryWalk] = [QueryWalk(start, ())]
    seen: set[Node] = set()
    while walks:
        walk = walks.pop()
        node = walk.nodes[-1]
        if node == goal:
            return walk if walk.steps else None
        if node in seen:
            continue
        seen.add(node)
        steps = list(_steps_from(node, goal, parts))
        walks += [QueryWalk(start, (*walk.steps, step)) for step in reversed(steps)]
    return None


def _steps_from(node: Node, goal: Node, parts: Sequence[TriplePart | Union]) -> Iterator[WalkStep]:
    for part in parts:
        if isinstance(part, Union):
            others = (mentioned_variables(other) for other in parts if other is not part)
            yield from _union_steps(node, part, {goal, *chain.from_iterable(others)})
        elif part.subject == node and isinstance(part.object, Variable):
            yield TripleStep(part, Hop(part.relation), part.object)
        elif part.object == node and isinstance(part.subject, Variable):
            yield TripleStep(part, Hop(part.relation, inverse=True), part.subject)


def _union_steps(node: Node, union: Union, around: Collection[Node]) -> Iterator[UnionStep]:
    """Yield the steps to each node that all alternatives lead to and that is known around them."""
    ends = dict.fromkeys(
        end
        for triple in union.alternatives[0].all_triples()
        for end in (triple.subject, triple.object)
        if isinstance(end, Variable) and end != node and end in around
    )
    for end in ends:
        walks = [_first_walk(node, end, each.parts) for each in union.alternatives]
        found = tuple(walk for walk in walks if walk is not None)
        if len(found) == len(walks):
            yield UnionStep(union, found, end)


class Branches:
    """The branches on the nodes of one walk: the main path, or one way of a fork.

    A way shares the labels of the main path; its nodes cannot be referred to.
    """

    def __init__(self, group: Group, walk: QueryWalk, labels: Iterator[str] | None = None) -> None:
        self._group, self._walk = group, walk
        self._positions = {node: at for at, node in enumerate(walk.nodes)}
        self._is_way = labels is not None
        self._labels = labels or _letters()
        self._nodes: dict[Node, BranchNode] = {node: BranchNode() for node in walk.nodes}
        # Visible from an alternative or a negation, which cannot attach anything to them.
        self._around: dict[Node, BranchNode] = {}
        self._anchors: dict[str, BranchNode] | None = {}  # None where none may be made
        self._parents: dict[BranchNode, tuple[BranchNode, Hop]] = {}
        self._ways: dict[WalkStep, tuple[Way, ...]] = {}

    def grow(self, filters: Sequence[Expression], elsewhere: Collection[Variable] = ()) -> None:
        """Attach the triples and unions that the walk does not use, and these filters.

        `elsewhere` has the variables that are used outside of the group.
        """
        used = {step.part for step in self._walk.steps}
        rest = [part for part in self._group.parts if part not in used]
        known = {*elsewhere, *chain.from_iterable(map(mentioned_variables, filters))}
        for start, step in zip(self._walk.nodes, self._walk.steps, strict=False):
            if not isinstance(step, TripleStep):
                _check_privacy(self._group, step.part, {start, step.node}, known)
                self._ways[step] = tuple(
                    self._way(alternative, walk)
                    for alternative, walk in zip(step.part.alternatives, step.walks, strict=True)
                )
        self._attach_parts(self._group, rest, known)
        for expression in filters:
            self._read_filter(expression)

    def path(self) -> tuple[Step, ...]:
        """Return the walk as steps, with the constraints in its forks."""
        return tuple(
            step.hop if isinstance(step, TripleStep) else Fork(self._ways[step])
            for step in self._walk.steps
        )

    def constraints(self) -> tuple[Constraint, ...]:
        """Return the constraints that have grown on the walk's nodes."""
        on_path = (
            constraint
            for at, node in enumerate(self._walk.nodes)
            for constraint in self._nodes[node].constraints(at)
        )
        anchored = (
            constraint
            for entity, node in (self._anchors or {}).items()
            for constraint in node.constraints(Entity(mid=entity))
        )
        return (*on_path, *anchored)

    def take_order(self, ranking: Ranking) -> Order:
        """Build the order, and cut off the branch that only leads to its value."""
        if max(ranking.limit, ranking.offset) > MAX_ROWS:
            raise CrpConversionError("unsupported order", f"more than {MAX_ROWS} rows")
        variable = strip_casts(ranking.value)
        if ranking.value == Call("str", (variable,)):
            raise CrpConversionError("unsupported order", "ORDER BY letters")
        if not isinstance(variable, Variable) or variable not in self._nodes:
            raise CrpConversionError("unsupported order", "ORDER BY is not a variable of the query")
        at, hops = self._cut_branch(self._nodes[variable])
        return Order(
            at,
            hops,
            ranking.descending,
            ranking.limit,
            ranking.offset,
            ranking.ties,
            ranking.counted,
        )

    def _cut_branch(self, node: BranchNode) -> tuple[int | str, tuple[Hop, ...]]:
        """Cut off a branch that only leads to a node; return its start and its hops."""
        hops: tuple[Hop, ...] = ()
        on_path = {self._nodes[each]: at for each, at in self._positions.items()}
        while node not in on_path:
            parent, hop = self._parents[node]
            if not node.is_bare or parent in (self._anchors or {}).values():
                return self._label(node), hops
            parent.edges.remove((hop, node))
            hops = (hop, *hops)
            node = parent
        return on_path[node], hops

    def _way(self, alternative: Group, walk: QueryWalk) -> Way:
        branches = Branches(alternative, walk, self._labels)
        _check_filters_see(alternative)
        branches.grow(alternative.filters)
        return Way(branches.path(), branches.constraints())

    def _attach_triples(self, triples: Sequence[TriplePart]) -> None:
        """Attach each triple to a node that is already there, until none is left."""
        while triples:
            # A triple with an entity is attached by its other end if that can be reached: then the
            # branch must lead to the entity.
            triple = next(filter(self._attach, triples), None) or next(
                filter(self._attach_to_entity, triples), None
            )
            if triple is None:
                raise CrpConversionError("disconnected", triples[0].relation)
            triples = [other for other in triples if other is not triple]

    def _attach(self, triple: TriplePart) -> bool:
        subject, relation, object_ = triple
        if isinstance(subject, Variable) and subject in self._nodes:
            self._branch(self._nodes[subject], Hop(relation), object_)
        elif isinstance(object_, Variable) and object_ in self._nodes:
            self._branch(self._nodes[object_], Hop(relation, inverse=True), subject)
        else:
            return False
        return True

    def _attach_to_entity(self, triple: TriplePart) -> bool:
        subject, relation, object_ = triple
        for entity, hop, other in (
            (subject, Hop(relation), object_),
            (object_, Hop(relation, inverse=True), subject),
        ):
            if isinstance(entity, str) and (root := self._root(entity)) is not None:
                self._branch(root, hop, other)
                return True
        return False

    def _root(self, entity: str) -> BranchNode | None:
        if entity in self._nodes or self._anchors is None:
            return self._nodes.get(entity)
        return self._anchors.setdefault(entity, BranchNode())

    def _branch(self, parent: BranchNode, hop: Hop, child: Node) -> None:
        node = BranchNode()
        if not isinstance(child, Variable):
            node.tests.append(equality(child))
        elif child in self._nodes or child in self._around:
            node.tests.append(IsNode(self._reference(child)))
        else:
            self._nodes[child] = node
            self._parents[node] = (parent, hop)
        parent.edges.append((hop, node))

    def reference(self, variable: Variable) -> int | str:
        """Return what refers to a variable of the group: its position or a label."""
        if variable not in self._nodes:
            raise CrpConversionError("aggregate", "of no variable of the patterns")
        return self._reference(variable).node

    def _reference(self, node: Node) -> NodeRef:
        at = self._positions.get(node)
        if at is None:
            return NodeRef(self._label(self._around.get(node) or self._nodes[node]))
        if self._is_way:
            raise CrpConversionError("union", "an alternative refers to a node on its own way")
        return NodeRef(at)

    def _label(self, node: BranchNode) -> str:
        if node.optional:
            raise CrpConversionError("unsupported filter", "what need not exist, with itself")
        node.label = node.label or next(self._labels)
        return node.label

    def _read_filter(self, expression: Expression) -> None:
        match expression:
            case Or((Exists(absent, True), Exists(present, False))) if (
                interval := read_interval(absent, present, {*self._nodes, *self._around})
            ) is not None:
                self._attach_optional(*interval)
            case Or(alternatives):
                self._attach_alternatives(tuple(map(as_group, alternatives)), in_filter=True)
            case And(parts):
                for part in parts:
                    self._read_filter(part)
            case Exists(group, False):
                outer = dict(self._nodes)
                self._grow_inside(group)
                self._nodes = outer  # the variables of EXISTS are its own
            case Exists(group, True):
                self._attach_negated(group)
            case _:
                self._add_test(expression)

    def _grow_inside(self, group: Group) -> None:
        """Attach all of a group to the nodes that are there."""
        filtered = set(chain.from_iterable(map(mentioned_variables, group.filters)))
        self._attach_parts(group, group.parts, filtered)
        for expression in group.filters:
            self._read_filter(expression)

    def _attach_parts(
        self, group: Group, parts: Sequence[TriplePart | Union], elsewhere: Collection[Variable]
    ) -> None:
        """Attach parts of a group, each once; `elsewhere` has variables used outside of it."""
        once = dict.fromkeys(parts)
        self._attach_triples([part for part in once if isinstance(part, TriplePart)])
        for part in once:
            if isinstance(part, Union):
                _check_privacy(group, part, {*self._nodes, *self._around}, elsewhere)
                self._attach_alternatives(part.alternatives)

    def _attach_optional(self, triple: TriplePart, test: Expression) -> None:
        """Attach one half of an interval: no such triple, or one whose object passes the test."""
        outer = dict(self._nodes)
        self._attach_triples([triple])
        self._nodes[triple.object].optional = True
        self._add_test(test)
        self._nodes = outer

    def _attach_negated(self, group: Group) -> None:
        anchor = next((each for each in _in_order(group) if each in self._nodes), None)
        if anchor is None:
            raise CrpConversionError("unsupported filter", "NOT EXISTS of no node around it")
        root = self._separate_tree(anchor, group)
        if len(root.edges) != 1 or root.tests or root.any_of:
            raise CrpConversionError("unsupported filter", "NOT EXISTS of more than one branch")
        [(_, branch)] = root.edges
        if branch.label is not None:
            raise CrpConversionError("unsupported filter", "NOT EXISTS that comes back to itself")
        branch.negated = True
        self._nodes[anchor].edges += root.edges

    def _attach_alternatives(self, groups: Sequence[Group], *, in_filter: bool = False) -> None:
        anchor = self._anchor(*groups)
        roots = []
        for group in groups:
            if not in_filter:
                _check_filters_see(group, {*self._nodes, *self._around})
            root = self._separate_tree(anchor, group)
            if root.is_bare:
                raise CrpConversionError("union", "one of its alternatives always holds")
            roots.append(root)
        self._nodes[anchor].any_of.append(tuple(roots))

    def _anchor(self, *groups: Group) -> Variable:
        """Choose the node that all of these groups mention."""
        first, *others = ([*dict.fromkeys(_in_order(group))] for group in groups)
        for variable in first:
            if variable in self._nodes and all(variable in other for other in others):
                return variable
        raise CrpConversionError("union", "its alternatives have no node in common")

    def _separate_tree(self, anchor: Variable, group: Group) -> BranchNode:
        """Grow a tree of its own from a group; existing nodes can only be referred to."""
        outer = self._nodes, self._around, self._anchors
        root = BranchNode()
        self._around = {**self._nodes, **self._around}
        self._nodes, self._anchors = {anchor: root}, None
        self._grow_inside(group)
        self._nodes, self._around, self._anchors = outer
        return root

    def _add_test(self, expression: Expression) -> None:
        match read_comparison(expression):
            case NodeTest(variable, test):
                self._node(variable).tests.append(test)
            case NodeComparison() as comparison:
                left, right = map(self._nodes.get, (comparison.left, comparison.right))
                if left is None or (right is not None and right.optional):
                    comparison = comparison.swapped()  # a node that may be missing has no label
                if comparison.right not in self._nodes and comparison.right not in self._around:
                    raise CrpConversionError("unbound variable", f"?{comparison.right.name}")
                node = self._node(comparison.left)
                node.tests.append(comparison.test(self._reference(comparison.right)))

    def _node(self, variable: Variable) -> BranchNode:
        node = self._nodes.get(variable)
        if node is None:
            raise CrpConversionError("unbound variable", f"?{variable.name}")
        return node


def _letters() -> Iterator[str]:
    alphabet = "abcdefghijklmnopqrstuvw"  # x is the answer
    yield from alphabet
    for number in range(2, 1000):
        yield from (f"{letter}{number}" for letter in alphabet)


def _in_order(group: Group) -> Iterator[Variable]:
    """Yield the variables that a group mentions, triples first, in reading order."""
    for part in (*group.parts, *group.filters):
        yield from sorted(mentioned_variables(part), key=lambda variable: variable.name)


def _check_privacy(
    group: Group, union: Union, shared: Collection[Node], elsewhere: Collection[Variable]
) -> None:
    """Refuse a union that shares more than these nodes with the rest of its group and query."""
    around = set(elsewhere)
    for part in group.parts:
        if part != union:
            around |= mentioned_variables(part)
    if private := (mentioned_variables(union) & around) - set(shared):
        name = min(variable.name for variable in private)
        raise CrpConversionError("union", f"?{name} is used inside and outside of it")


def _check_filters_see(group: Group, around: Collection[Node] = ()) -> None:
    """Refuse a filter on variables that only exist around its group, where SPARQL sees none."""
    # A variable inside EXISTS that does not exist around it either belongs to the EXISTS.
    bound = {variable for part in group.parts for variable in mentioned_variables(part)}
    for expression in group.filters:
        own = mentioned_variables(expression, into_groups=False)
        if unseen := (own | (mentioned_variables(expression) & set(around))) - bound:
            name = min(variable.name for variable in unseen)
            raise CrpConversionError("unbound variable", f"?{name}")
