"""Convert a SPARQL query to the CRP that means the same, or say by name why there is none.

The triples are a graph of variables and terms. The topic entity is the first entity in the text
that a chain of triples over variables joins to the answer; the first such chain in the text is the
main path. What is left hangs on the main path as a tree of branches and becomes constraints.
Nothing is dropped silently but the benchmarks' language filter, which every compiled query carries
anyway.

Not converted yet: UNION, sub-SELECT, aggregates, comparisons of two variables, and orderings that
share a branch with a constraint.

Source: RouterKGQA, appendix B.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from kbqa.sparql.crp import (
    Compare,
    Crp,
    Entity,
    Hop,
    IsEntity,
    IsNotEntity,
    Operator,
    Order,
    Test,
    TextEquals,
)
from kbqa.sparql.errors import CrpConversionError
from kbqa.sparql.query_tree import (
    Call,
    Comparison,
    Exists,
    Expression,
    Group,
    Node,
    Or,
    SelectTree,
    TriplePart,
    Variable,
    parse_select,
)
from kbqa.sparql.terms import Literal, is_mid
from kbqa.sparql.tree import BranchNode
from kbqa.sparql.values import is_date, is_number

_OPERATORS: dict[str, tuple[Operator, Operator]] = {  # as written, and with the sides swapped
    "=": ("=", "="),
    "!=": ("!=", "!="),
    "<": ("<", ">"),
    "<=": ("<=", ">="),
    ">": (">", "<"),
    ">=": (">=", "<="),
}
_CASTS = frozenset(("dateTime", "date", "integer", "int", "float", "double", "decimal"))
_MAX_TRIPLES = 100  # The benchmarks' queries have some twenty at most.


def crp_from_sparql(query: str) -> Crp:
    """Convert a query; its entities come back as mids without names.

    >>> crp_from_sparql("SELECT ?x WHERE { ns:m.019rg5 ns:location.country.capital ?x }").path
    (Hop(relation='location.country.capital', inverse=False),)

    Raises:
        QuerySyntaxError: The query does not parse.
        CrpConversionError: No CRP says the same; `reason` names why.
    """
    tree = parse_select(query)
    if len(tree.group.triples) > _MAX_TRIPLES:
        raise CrpConversionError("too large", f"more than {_MAX_TRIPLES} triples")
    topic, walk = _main_path(tree)
    return _Converter(tree, topic, walk).convert()


@dataclass(frozen=True, slots=True)
class _Step:
    """A triple as it is walked: where it leads, and by which hop."""

    triple: TriplePart
    hop: Hop
    node: Node


def _main_path(tree: SelectTree) -> tuple[str, list[_Step]]:
    """Choose the topic entity and the walk from it to the answer."""
    triples = tree.group.triples
    entities = dict.fromkeys(
        node
        for triple in triples
        for node in (triple.subject, triple.object)
        if isinstance(node, str) and is_mid(node)
    )
    for entity in entities:
        if (walk := _first_walk(entity, tree.answer, triples)) is not None:
            return entity, walk
    raise CrpConversionError("no topic entity", "no entity leads to the answer")


def _first_walk(start: Node, goal: Variable, triples: tuple[TriplePart, ...]) -> list[_Step] | None:
    """Search depth first through variables, taking triples in the order of the text.

    Where there are several ways, that is the one which the published CRPs take.
    """
    walks: list[tuple[Node, list[_Step]]] = [(start, [])]
    seen: set[Node] = set()
    while walks:
        node, walk = walks.pop()
        if node == goal:
            return walk
        if node in seen:
            continue
        seen.add(node)
        steps = [step for step in _steps_from(node, triples) if isinstance(step.node, Variable)]
        walks += [(step.node, [*walk, step]) for step in reversed(steps)]
    return None


def _steps_from(node: Node, triples: tuple[TriplePart, ...]) -> Iterator[_Step]:
    for triple in triples:
        if triple.subject == node:
            yield _Step(triple, Hop(triple.relation), triple.object)
        elif triple.object == node:
            yield _Step(triple, Hop(triple.relation, inverse=True), triple.subject)


@dataclass(slots=True)
class _Converter:
    """Hangs what is not on the main path on its nodes, and cuts the result into a CRP."""

    tree: SelectTree
    topic: str
    walk: list[_Step]
    _nodes: dict[Node, BranchNode] = field(default_factory=dict)
    _ways: dict[Node, tuple[Node, Hop]] = field(default_factory=dict)

    def convert(self) -> Crp:
        main: list[Node] = [self.topic, *(step.node for step in self.walk)]
        positions = {node: at for at, node in enumerate(main)}
        self._nodes = {node: BranchNode() for node in main}
        used = {step.triple for step in self.walk}
        self._grow([t for t in dict.fromkeys(self.tree.group.triples) if t not in used])
        differs_from = self._read_filters(positions)
        order = self._take_order(positions)
        constraints = tuple(
            constraint
            for at, node in enumerate(main)
            for constraint in self._nodes[node].constraints(at)
        )
        return Crp(
            topic=Entity(mid=self.topic),
            path=tuple(step.hop for step in self.walk),
            constraints=constraints,
            order=order,
            differs_from=differs_from,
        )

    def _grow(self, triples: list[TriplePart]) -> None:
        """Hang each triple on a node that is already there, until none is left."""
        while triples:
            # One that holds the topic hangs on its other end if that can be reached in any way:
            # the topic is then what that branch must lead to.
            triple = next(filter(self._hang, triples), None) or next(
                filter(self._hang_on_topic, triples), None
            )
            if triple is None:
                raise CrpConversionError("disconnected", triples[0].relation)
            triples = [other for other in triples if other is not triple]

    def _hang(self, triple: TriplePart) -> bool:
        subject, relation, object_ = triple
        if subject in self._nodes and isinstance(subject, Variable):
            self._branch(subject, Hop(relation), object_)
        elif object_ in self._nodes and isinstance(object_, Variable):
            self._branch(object_, Hop(relation, inverse=True), subject)
        else:
            return False
        return True

    def _hang_on_topic(self, triple: TriplePart) -> bool:
        if triple.subject == self.topic:
            self._branch(self.topic, Hop(triple.relation), triple.object)
        elif triple.object == self.topic:
            self._branch(self.topic, Hop(triple.relation, inverse=True), triple.subject)
        else:
            return False
        return True

    def _branch(self, parent: Node, hop: Hop, child: Node) -> None:
        node = BranchNode()
        if not isinstance(child, Variable):
            node.tests.append(_equality(child))
        elif child in self._nodes:
            raise CrpConversionError("cycle", f"?{child.name} is reached in two ways")
        else:
            self._nodes[child] = node
            self._ways[child] = (parent, hop)
        self._nodes[parent].edges.append((hop, node))

    def _read_filters(self, positions: dict[Node, int]) -> int | None:
        """Turn each filter into a test; return the position that the answer must differ from."""
        differs_from: int | None = None
        language_filter = _language_filter(self.tree.answer)
        for expression in self.tree.group.filters:
            position = self._excluded_position(expression, positions)
            if position is not None and differs_from is None:
                differs_from = position
            elif expression != language_filter:
                self._read_filter(expression)
        return differs_from

    def _excluded_position(self, expression: Expression, positions: dict[Node, int]) -> int | None:
        """Return the position of the main path's node that a filter tells the answer from."""
        match expression:
            case Comparison(self.tree.answer, "!=", (Variable() | str()) as other):
                pass
            case Comparison((Variable() | str()) as other, "!=", self.tree.answer):
                pass
            case _:
                return None
        return None if other == self.tree.answer else positions.get(other)

    def _read_filter(self, expression: Expression) -> None:
        outer = dict(self._nodes)
        match expression:
            case Or((Exists(absent, True), Exists(present, False))):
                self._hang_optional(absent, present)
            case Exists(group, False):
                self._grow(list(group.triples))
                for inner in group.filters:
                    self._add_test(inner)
            case _:
                self._add_test(expression)
        self._nodes = outer  # the variables of EXISTS are its own

    def _hang_optional(self, absent: Group, present: Group) -> None:
        """Read the interval idiom: no such triple, or one whose object passes the filter."""
        match absent, present:
            case (
                Group((TriplePart(subject, relation, Variable() as nothing),), ()),
                Group((TriplePart(same_subject, same_relation, Variable() as value),), (test,)),
            ) if (
                (subject, relation) == (same_subject, same_relation)
                and nothing not in self._nodes
                and value not in self._nodes
            ):
                self._grow(list(present.triples))
                self._nodes[value].optional = True
                self._add_test(test)
            case _:
                raise CrpConversionError("unsupported filter", "NOT EXISTS || EXISTS")

    def _add_test(self, expression: Expression) -> None:
        variable, test = _test(expression)
        node = self._nodes.get(variable)
        if node is None:
            raise CrpConversionError("unbound variable", f"?{variable.name}")
        node.tests.append(test)

    def _take_order(self, positions: dict[Node, int]) -> Order | None:
        """Turn ORDER BY, LIMIT and OFFSET into the superlative, and cut its branch off the tree."""
        limit, offset = self.tree.limit, self.tree.offset
        if limit is None and offset == 0:
            return None  # answers are a set: their order says nothing
        if self.tree.order_by is None or not limit:
            raise CrpConversionError("unsupported order", f"LIMIT {limit}, OFFSET {offset}")
        variable = _strip_casts(self.tree.order_by)
        if not isinstance(variable, Variable) or variable not in self._nodes:
            raise CrpConversionError("unsupported order", "ORDER BY is no variable of the query")
        hops: list[Hop] = []
        node: Node = variable
        while node not in positions:
            if self._nodes[node].tests or self._nodes[node].edges:
                raise CrpConversionError("order shares a branch with a constraint")
            parent, hop = self._ways[node]
            hops.insert(0, hop)
            edges = self._nodes[parent].edges
            edges[:] = [edge for edge in edges if edge[1] is not self._nodes[node]]
            node = parent
        return Order(positions[node], tuple(hops), self.tree.descending, limit, offset)


def _language_filter(answer: Variable) -> Expression:
    """Build the benchmarks' filter on the language of answers."""
    is_entity = Call("not", (Call("isliteral", (answer,)),))
    language = Call("lang", (answer,))
    is_english = Call("langmatches", (language, Literal("en")))
    return Or((is_entity, Comparison(language, "=", Literal("")), is_english))


def _equality(term: str | Literal) -> Test:
    """Say that a node is this term."""
    if isinstance(term, str):
        return IsEntity(Entity(mid=term))
    return Compare("=", term) if _is_value(term) else TextEquals(term.text, term.language)


def _test(expression: Expression) -> tuple[Variable, Test]:
    match expression:
        case Comparison(left, operator, right) if operator in _OPERATORS:
            as_written, swapped = _OPERATORS[operator]
        case _:
            raise CrpConversionError("unsupported filter", type(expression).__name__)
    match _strip_casts(left), _strip_casts(right):
        case Variable(), Variable():
            raise CrpConversionError("comparison of two variables")
        case (Variable() as variable, str() as mid) | (str() as mid, Variable() as variable) if (
            operator in ("=", "!=")
        ):
            return variable, (IsEntity if operator == "=" else IsNotEntity)(Entity(mid=mid))
        case Variable() as variable, Literal() as value:
            return variable, _value_test(as_written, value, left)
        case Literal() as value, Variable() as variable:
            return variable, _value_test(swapped, value, right)
        case _:
            raise CrpConversionError("unsupported filter", operator)


def _value_test(operator: Operator, value: Literal, compared: Expression) -> Test:
    is_text = isinstance(compared, Call) and compared.function == "str"
    if not is_text and _is_value(value):
        return Compare(operator, value)
    if operator != "=":
        raise CrpConversionError("unsupported filter", f"string {operator}")
    return TextEquals(value.text, None if is_text else value.language)


def _is_value(literal: Literal) -> bool:
    return literal.language is None and (is_date(literal) or is_number(literal))


def _strip_casts(expression: Expression) -> Expression:
    match expression:
        case Call(function, (argument,)) if function in _CASTS or function == "str":
            return _strip_casts(argument)
        case _:
            return expression
