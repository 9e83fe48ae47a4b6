"""Write the parts of a CRP as SPARQL patterns and filters, for `compile_crp` to join.

Every node has its own variable: ``?x`` the answer, ``?n1``, ``?n2``, … the main path's inner
nodes, ``?v_a`` the node labelled ``a``, ``?b1``, ``?b2``, … all others.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kbqa.sparql.compiler.values import (
    compare_variables,
    comparison,
    equal_literals,
    text_literals,
    text_test,
    values_block,
)
from kbqa.sparql.crp import (
    AnyOf,
    Compare,
    Constraint,
    Crp,
    Entity,
    Hop,
    IsEntity,
    IsNode,
    IsNotEntity,
    IsNotNode,
    NodeRef,
    Order,
    Step,
    Test,
    TextEquals,
    Way,
)
from kbqa.sparql.errors import InputError, UnlinkedName
from kbqa.sparql.terms import LiteralTerm, iri, is_well_formed

ANSWER = "?x"
"""The variable of the answers."""

_TOPIC = "?t"
_MAX_PATHS = 64


class TriplePattern(NamedTuple):
    """A triple pattern: variables with a question mark, or IRIs in full."""

    subject: str
    predicate: str
    object: str

    def __str__(self) -> str:
        return f"{self.subject} {self.predicate} {self.object} ."


@dataclass(slots=True)
class Clause:
    """What a part of a CRP adds to a query.

    Attributes:
        patterns: What must match, as text.
        tests: Expressions that must be true.
        triples: The triple patterns that bind variables of the query, forbidden ones left out.
    """

    patterns: list[str] = field(default_factory=list)
    tests: list[str] = field(default_factory=list)
    triples: list[TriplePattern] = field(default_factory=list)

    def __add__(self, other: "Clause") -> "Clause":
        """Join two clauses: both must hold."""
        return Clause(
            self.patterns + other.patterns, self.tests + other.tests, self.triples + other.triples
        )

    def lines(self) -> list[str]:
        """Write the clause as lines of a group graph pattern."""
        return [*self.patterns, *(f"FILTER ({test})" for test in self.tests)]

    def group(self) -> str:
        """Write the clause as a group, on one line."""
        return f"{{ {' '.join(self.lines())} }}"

    def condition(self) -> str:
        """Write the clause as an expression that is true if the clause can be met."""
        return f"EXISTS {self.group()}" if self.patterns else _all(self.tests)


class Ordering(NamedTuple):
    """The patterns that lead to the value to order by, and its variable."""

    clause: Clause
    variable: str


@dataclass(slots=True)
class PatternWriter:
    """Writes the parts of one CRP and assigns variables as it goes.

    Attributes:
        crp: The CRP; its entities must be grounded.
        shows_alternatives: Also bind the triples that meet an alternative, not only test for them.
    """

    crp: Crp
    shows_alternatives: bool = False
    main_nodes: Sequence[str] = field(init=False)
    _fresh: int = 0

    def __post_init__(self) -> None:
        inner = (f"?n{position}" for position in range(1, self.crp.answer))
        self.main_nodes = (_entity(self.crp.topic), *inner, ANSWER)

    def main_paths(self, *, from_topic: bool = True) -> list[Clause]:
        """Write the main path with the constraints of its forks; once for each way to take it.

        Args:
            from_topic: Let engines begin at the topic. Otherwise, if that keeps them from beginning
                there, the topic is written as a condition on the path's first node.
        """
        topic, *others = self.main_nodes
        if from_topic or not _is_forward(self.crp.path[0]):
            return self._paths(self.crp.path, self.main_nodes)
        condition = Clause(tests=[f"{_TOPIC} = {topic}"])
        return [path + condition for path in self._paths(self.crp.path, [_TOPIC, *others])]

    def skeletons(self, length: int) -> list[Clause]:
        """Write the first steps of the main path without any constraint, once for each way."""
        return self._paths(self.crp.path[:length], self.main_nodes, constrained=False)

    def ordering(self, order: Order) -> Ordering:
        """Write the branch that leads to what the answers are ordered by."""
        nodes = self._branch_nodes(self._node(order.at), order.hops)
        return Ordering(_chain(order.hops, nodes), nodes[-1])

    def constraint(
        self, constraint: Constraint, nodes: Sequence[str], *, filters_only: bool = False
    ) -> Clause:
        """Write a constraint on one of these nodes.

        What an OPTIONAL holds decides whether it matches, not whether the constraint is met: there,
        a test may never become part of a pattern (`filters_only`).
        """
        test, hops = constraint.test, constraint.hops
        filters_only = filters_only or constraint.optional
        at = constraint.at
        start = nodes[at] if isinstance(at, int) else _entity(at)
        branch = self._branch_nodes(start, hops)
        if constraint.label is not None:
            branch[-1] = self._node(constraint.label)
        elif hops and not filters_only and (end := self._required_end(test)) is not None:
            branch[-1], test = end, None
        clause = _chain(hops, branch)
        clause += self._test(test, branch, filters_only)
        for inner in constraint.branches:
            clause += self.constraint(inner, branch, filters_only=filters_only)
        if constraint.negated:
            return Clause(tests=[f"NOT EXISTS {clause.group()}"])
        return _optional(clause, branch[1]) if constraint.optional else clause

    def _paths(
        self, path: Sequence[Step], nodes: Sequence[str], *, constrained: bool = True
    ) -> list[Clause]:
        """Write a path once for each combination of the ways that its forks can be taken."""
        paths = [Clause()]
        for start, step, end in zip(nodes, path, nodes[1:], strict=False):
            if isinstance(step, Hop):
                steps = [_chain([step], [start, end])]
            else:
                steps = [
                    taken for way in step.ways for taken in self._way(way, start, end, constrained)
                ]
            paths = [before + after for before in paths for after in steps]
            if len(paths) > _MAX_PATHS:
                raise InputError(f"the forks of the path combine to more than {_MAX_PATHS} ways")
        return paths

    def _way(self, way: Way, start: str, end: str, constrained: bool) -> list[Clause]:
        nodes = [start, *(self._variable() for _ in way.path[1:]), end]
        held = Clause()
        for constraint in way.constraints if constrained else ():
            held += self.constraint(constraint, nodes)
        return [taken + held for taken in self._paths(way.path, nodes, constrained=constrained)]

    def _required_end(self, test: Test | None) -> str | None:
        """Return the node that a branch must end in; None if its test allows several."""
        match test:
            case IsEntity(entity):
                return _entity(entity)
            case IsNode(other):
                return self._node(other.node)
            case _:
                return None

    def _test(self, test: Test | None, branch: Sequence[str], filters_only: bool) -> Clause:
        """Write what must be true of a branch's last node."""
        node = branch[-1]
        binds = node.startswith("?") and not filters_only
        match test:
            case IsEntity(entity):
                return Clause(tests=[f"{node} = {_entity(entity)}"])
            case IsNotEntity(entity):
                return Clause(tests=[f"{node} != {_entity(entity)}"])
            case IsNode(other):
                return Clause(tests=[f"{node} = {self._node(other.node)}"])
            case IsNotNode(other):
                return Clause(tests=[f"{node} != {self._node(other.node)}"])
            case Compare(operator, NodeRef(other_node)):
                return Clause(tests=[compare_variables(node, operator, self._node(other_node))])
            case Compare("=", LiteralTerm() as value) if binds:
                return Clause([values_block(node, equal_literals(check_value(value)))])
            case Compare(operator, LiteralTerm() as value):
                return Clause(tests=[comparison(node, operator, check_value(value))])
            case TextEquals(text, language):
                check_value(LiteralTerm(text, language=language or None))
                literals = text_literals(text, language) if binds else None
                if literals is not None:
                    return Clause([values_block(node, literals)])
                return Clause(tests=[text_test(node, text, language)])
            case AnyOf(alternatives):
                if binds and (entities := test.entities()):
                    return Clause([f"VALUES {node} {{ {' '.join(map(_entity, entities))} }}"])
                return self._any_of(alternatives, branch)
            case _:
                return Clause()

    def _any_of(
        self, alternatives: tuple[tuple[Constraint, ...], ...], branch: Sequence[str]
    ) -> Clause:
        conditions = [
            self._alternative(constraints, branch).condition() for constraints in alternatives
        ]
        clause = Clause(tests=[_any(conditions)])
        if self.shows_alternatives:
            for constraints in alternatives:
                shown = self._alternative(constraints, branch)
                if shown.patterns:
                    optional = f"OPTIONAL {shown.group()}"
                    clause += Clause([optional], triples=shown.triples)
        return clause

    def _alternative(self, constraints: Iterable[Constraint], branch: Sequence[str]) -> Clause:
        clause = Clause()
        for constraint in constraints:
            # Without hops it is a condition on the node: a pattern would have to bind it first.
            clause += self.constraint(constraint, branch, filters_only=not constraint.hops)
        return clause

    def _node(self, node: int | str) -> str:
        return self.main_nodes[node] if isinstance(node, int) else f"?v_{node}"

    def _branch_nodes(self, start: str, hops: Sequence[Hop]) -> list[str]:
        return [start, *(self._variable() for _ in hops)]

    def _variable(self) -> str:
        self._fresh += 1
        return f"?b{self._fresh}"


def check_value(value: LiteralTerm) -> LiteralTerm:
    """Return a literal that can be written in a query.

    Raises:
        InputError: It cannot.
    """
    if not is_well_formed(value):
        raise InputError(f"{value!r} cannot be written in a query")
    return value


def _is_forward(step: Step) -> bool:
    return isinstance(step, Hop) and not step.inverse


def _optional(clause: Clause, variable: str) -> Clause:
    """Accept a branch that does not exist, as the benchmarks' interval filters do.

    The patterns are inside OPTIONAL and the tests outside, so each row has the branch's values or
    none. It is kept if it has none, or if one of them passes.
    """
    condition = _all(clause.tests) if clause.tests else "true"
    return Clause(
        [f"OPTIONAL {{ {' '.join(clause.patterns)} }}"],
        [f"!BOUND({variable}) || ({condition})"],
        clause.triples,
    )


def _all(tests: Sequence[str]) -> str:
    return tests[0] if len(tests) == 1 else " && ".join(f"({test})" for test in tests)


def _any(tests: Sequence[str]) -> str:
    return " || ".join(test if test.startswith("EXISTS") else f"({test})" for test in tests)


def _chain(hops: Sequence[Hop], nodes: Sequence[str]) -> Clause:
    triples = [_triple(*ends) for ends in zip(nodes, hops, nodes[1:], strict=False)]
    return Clause(list(map(str, triples)), triples=triples)


def _triple(subject: str, hop: Hop, object_: str) -> TriplePattern:
    if not is_well_formed(hop.relation):
        raise InputError(f"{hop.relation!r} is not a relation id")
    if hop.inverse:
        subject, object_ = object_, subject
    return TriplePattern(subject, iri(hop.relation), object_)


def _entity(entity: Entity) -> str:
    if entity.mid is None:
        raise UnlinkedName(
            str(entity), f"{str(entity)!r} is a name without an id; look up its id first"
        )
    if not is_well_formed(entity.mid):
        raise InputError(f"{entity.mid!r} is not an entity id")
    return iri(entity.mid)
