"""Compile a grounded CRP to one SPARQL query with the same meaning on every engine.

The main path becomes a chain of triple patterns, each constraint patterns and filters on its node.
Nothing in a CRP can change that shape: names never reach the text, ids and literals are checked and
escaped. Each node has a variable: ``?x`` the answer, ``?n1``, … the main path's inner nodes,
``?v_a`` the node labelled ``a``, ``?b1``, … all others.

Source: RouterKGQA §3.4, "Execution with full constraints".
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

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
    Part,
    Step,
    Test,
    TextEquals,
    Way,
)
from kbqa.sparql.errors import InputError, UnlinkedName
from kbqa.sparql.terms import LiteralTerm, Term, iri, is_well_formed, sparql_term
from kbqa.sparql.values import (
    compare_variables,
    comparison,
    equal_literals,
    language_filter,
    number_of,
    order_keys,
    rank_values,
    text_test,
    values_block,
)

ANSWER = "?x"
_VALUE = "?value"

_HEADS = {
    "select": f"SELECT DISTINCT {ANSWER} WHERE",
    "count": f"SELECT (COUNT(DISTINCT {ANSWER}) AS ?count) WHERE",
    "count bindings": f"SELECT (COUNT({ANSWER}) AS ?count) WHERE",
    "ask": "ASK",
    "sum": f"SELECT (SUM({_VALUE}) AS ?sum) WHERE",
    "sum bindings": f"SELECT (SUM({_VALUE}) AS ?sum) WHERE",
    "average": f"SELECT (AVG({_VALUE}) AS ?average) WHERE",
    "average bindings": f"SELECT (AVG({_VALUE}) AS ?average) WHERE",
    "difference": f"SELECT (MAX({_VALUE}) - MIN({_VALUE}) AS ?difference) WHERE",
}
_TOPIC = "?t"
_MAX_PATHS = 64


class TriplePattern(NamedTuple):
    """A triple pattern: variables with a question mark, or IRIs in full."""

    subject: str
    predicate: str
    object: str

    def __str__(self) -> str:
        return f"{self.subject} {self.predicate} {self.object} ."


class EvidenceQuery(NamedTuple):
    """A query whose rows, put into its patterns, are the triples that prove an answer."""

    query: str
    patterns: tuple[TriplePattern, ...]  # variables of what is optional may stay unbound
    parts: tuple[Part | None, ...]  # where each pattern comes from; None is the main path


def compile_crp(crp: Crp, start: Constraint | None = None) -> str:
    """Write the query of a CRP: for its answers, as ``?x``, a number, or whether there is one.

    Engines without statistics begin at the constraint `start`. Use it for one that demands an
    entity with fewer neighbours than the topic; the answers are the same.

    >>> print(compile_crp(Crp(Entity(mid="m.019rg5"), (Hop("a.b.capital"),))))
    SELECT DISTINCT ?x WHERE {
      <http://rdf.freebase.com/ns/m.019rg5> <http://rdf.freebase.com/ns/a.b.capital> ?x .
      FILTER (?x != <http://rdf.freebase.com/ns/m.019rg5>)
      FILTER (!ISLITERAL(?x) || LANG(?x) = "" || LANGMATCHES(LANG(?x), "en"))
    }

    Raises:
        UnlinkedName: An entity of the CRP is not grounded.
        InputError: A part cannot be written in a query, or there are too many ways through forks.
    """
    writer = _PatternWriter(crp)
    if crp.value is not None:
        is_each = not crp.form.endswith(" bindings")
        body = _block(_valued(crp, crp.value, writer, start, is_each=is_each))
    elif crp.order is None:
        body, _ = _body(crp, writer, start)
    elif crp.form == "select":
        return "\n".join(_ranked(crp, crp.order, writer, start))
    else:
        ranked = _ranked(crp.presupposed(), crp.order, writer, start)
        asked = (writer.constraint(each, writer.main_nodes) for each in crp.asked)
        body = [*_block(ranked), *(f"  {line}" for clause in asked for line in clause.lines())]
    return "\n".join([f"{_HEADS[crp.form]} {{", *body, "}"])


def compile_numbers(crp: Crp, start: Constraint | None = None) -> str:
    """Write the query for the answers whose numbers a CRP adds up, the largest number first."""
    assert crp.value is not None
    lines = _valued(crp, crp.value, _PatternWriter(crp), start, is_each=True)
    return "\n".join([*lines, f"ORDER BY DESC({_VALUE}) ASC(STR({ANSWER}))"])


def compile_skeleton(crp: Crp) -> str:
    """Write the ASK query for whether the main path exists, without its constraints.

    Source: RouterKGQA §3.2, "Reachability verification".
    """
    writer = _PatternWriter(crp)
    tests = writer.answer_tests()
    return _ask([path, tests] for path in writer.skeletons(crp.answer))


def compile_skeleton_prefixes(crp: Crp) -> Iterator[str]:
    """Write the ASK queries that find where a main path breaks: its first step, its first two, ….

    They are written lazily. Unlike `compile_skeleton`, none tests the last node.
    """
    writer = _PatternWriter(crp)
    for length in range(1, crp.answer + 1):
        yield _ask([path] for path in writer.skeletons(length))


def compile_evidence(crp: Crp, answers: Sequence[Term]) -> EvidenceQuery:
    """Write the query for the triples from the topic to each of these answers.

    An answer that cannot be written in a query, such as a blank node, is left out.
    """
    writer = _PatternWriter(crp, shows_alternatives=True)
    terms = " ".join(sparql_term(answer) for answer in answers if is_well_formed(answer))
    values = _Clause([f"VALUES {ANSWER} {{ {terms} }}"])
    tests = writer.answer_tests()
    rest: list[tuple[Part | None, _Clause]] = [
        (constraint, writer.constraint(constraint, writer.main_nodes))
        for constraint in crp.constraints
    ]
    if crp.order is not None:
        rest.append((crp.order, writer.ordering(crp.order)[0]))
    paths = writer.main_paths()
    clauses = [*((None, path) for path in paths), *rest]
    found = [(triple, part) for part, clause in clauses for triple in clause.triples]
    variables = sorted({term for triple, _ in found for term in triple if term.startswith("?")})
    body = _union([values, path, tests, *(clause for _, clause in rest)] for path in paths)
    query = "\n".join([f"SELECT DISTINCT {' '.join(variables)} WHERE {{", *body, "}"])
    return EvidenceQuery(
        query, tuple(triple for triple, _ in found), tuple(part for _, part in found)
    )


def starts_query(hops: Sequence[Hop], end: str, limit: int) -> str:
    """Write the query for the nodes from which hops lead to an entity; one may come repeatedly."""
    nodes = ["?entity", *(f"?n{at}" for at in range(1, len(hops))), iri(end)]
    patterns = " ".join(reversed(_chain(hops, nodes).patterns))
    return f"SELECT ?entity WHERE {{ {patterns} }} LIMIT {limit}"


def _ranked(
    crp: Crp, order: Order, writer: "_PatternWriter", start: Constraint | None
) -> list[str]:
    """Write the query for the answers of the first places."""
    body, value = _body(crp, writer, start)
    places = [f"LIMIT {order.limit}", *([f"OFFSET {order.offset}"] if order.offset else [])]
    if not order.ties:
        # Each answer once, ranked by its best value; equal ones by id, so that engines agree.
        keys = order_keys(value, order.descending, counted=order.counted)
        grouped = [f"SELECT {ANSWER} WHERE {{", *body, "}", f"GROUP BY {ANSWER}"]
        return [*grouped, f"ORDER BY {keys} ASC(STR({ANSWER}))", *places]
    ranks = {
        f"?rank{number}": rank
        for number, rank in enumerate(
            rank_values(value, order.descending, counted=order.counted), start=1
        )
    }
    columns = " ".join(f"({rank} AS {name})" for name, rank in ranks.items())
    ranked = [f"SELECT {ANSWER} {columns} WHERE {{", *body, "}", f"GROUP BY {ANSWER}"]
    direction = "DESC" if order.descending else "ASC"
    keys = " ".join(f"{direction}({name})" for name in ranks)
    best = [f"SELECT DISTINCT {' '.join(ranks)} WHERE {{", *_block(ranked), "}"]
    best += [f"ORDER BY {keys}", *places]
    return [f"SELECT DISTINCT {ANSWER} WHERE {{", *_block(ranked), *_block(best), "}"]


def _valued(
    crp: Crp,
    value: int | str,
    writer: "_PatternWriter",
    start: Constraint | None,
    *,
    is_each: bool,
) -> list[str]:
    """Write the query for the numbers that are added up: the largest of each answer, or all."""
    body, _ = _body(crp, writer, start)
    node = writer.node(value)
    is_number, number = number_of(node)
    body.append(f"  FILTER ({is_number})")
    if not is_each:
        return [f"SELECT {ANSWER} ({number} AS {_VALUE}) WHERE {{", *body, "}"]
    head = f"SELECT {ANSWER} (MAX({number}) AS {_VALUE}) WHERE {{"
    return [head, *body, "}", f"GROUP BY {ANSWER}"]


def _body(crp: Crp, writer: "_PatternWriter", start: Constraint | None) -> tuple[list[str], str]:
    """Write all patterns and filters of a CRP; return also the variable that orders it."""
    first = [writer.constraint(start, writer.main_nodes)] if start is not None else []
    others = (each for each in crp.constraints if each is not start)
    rest = [writer.answer_tests()]
    rest += [writer.constraint(each, writer.main_nodes) for each in others]
    value = ANSWER
    if crp.order is not None:
        clause, value = writer.ordering(crp.order)
        rest.append(clause)
    paths = writer.main_paths(from_topic=start is None)
    return _union([*first, path, *rest] for path in paths), value


def _block(lines: Sequence[str]) -> list[str]:
    return ["  {", *(f"    {line}" for line in lines), "  }"]


def _ask(bodies: Iterable[Iterable["_Clause"]]) -> str:
    return "\n".join(["ASK {", *_union(bodies), "}"])


def _union(bodies: Iterable[Iterable["_Clause"]]) -> list[str]:
    """Write bodies as alternatives, each with everything that it must satisfy."""
    # Patterns outside a union would be joined to it late: Oxigraph lists all of the union first.
    first, *others = (
        [f"  {line}" for clause in body for line in clause.lines()] for body in bodies
    )
    if not others:
        return first
    lines = ["  {", *(f"  {line}" for line in first)]
    for other in others:
        lines += ["  } UNION {", *(f"  {line}" for line in other)]
    return [*lines, "  }"]


@dataclass(slots=True)
class _Clause:
    """A part of a query: patterns that must match, and tests that must be true."""

    patterns: list[str] = field(default_factory=list)
    tests: list[str] = field(default_factory=list)
    triples: list[TriplePattern] = field(default_factory=list)  # those that bind variables

    def __add__(self, other: "_Clause") -> "_Clause":
        return _Clause(
            self.patterns + other.patterns, self.tests + other.tests, self.triples + other.triples
        )

    def lines(self) -> list[str]:
        return [*self.patterns, *(f"FILTER ({test})" for test in self.tests)]

    def group(self) -> str:
        return f"{{ {' '.join(self.lines())} }}"

    def condition(self) -> str:
        """Write the clause as an expression that is true if the clause can be met."""
        return f"EXISTS {self.group()}" if self.patterns else _all(self.tests)


@dataclass(slots=True)
class _PatternWriter:
    """Writes the parts of one grounded CRP, and assigns variables as it goes."""

    crp: Crp
    shows_alternatives: bool = False  # also bind the triples that meet one, not only test for them
    main_nodes: Sequence[str] = field(init=False)
    _fresh: int = 0

    def __post_init__(self) -> None:
        inner = (f"?n{position}" for position in range(1, self.crp.answer))
        self.main_nodes = (_entity(self.crp.topic), *inner, ANSWER)

    def main_paths(self, *, from_topic: bool = True) -> list[_Clause]:
        """Write the main path with the constraints of its forks; once for each way to take it."""
        # A topic that is a condition on the first node keeps engines from beginning at it.
        topic, *others = self.main_nodes
        first = self.crp.path[0]
        if from_topic or not isinstance(first, Hop) or first.inverse:
            return self._paths(self.crp.path, self.main_nodes)
        condition = _Clause(tests=[f"{_TOPIC} = {topic}"])
        return [path + condition for path in self._paths(self.crp.path, [_TOPIC, *others])]

    def skeletons(self, length: int) -> list[_Clause]:
        """Write the first steps of the main path without any constraint, once for each way."""
        return self._paths(self.crp.path[:length], self.main_nodes, constrained=False)

    def ordering(self, order: Order) -> tuple[_Clause, str]:
        """Write the branch that leads to what the answers are ordered by, and its variable."""
        nodes = self._branch_nodes(self.node(order.at), order.hops)
        return _chain(order.hops, nodes), nodes[-1]

    def answer_tests(self) -> _Clause:
        """Write the tests for the node that the answer must differ from, and for its language."""
        clause = _Clause()
        if self.crp.differs_from is not None:
            clause.tests.append(f"{ANSWER} != {self.main_nodes[self.crp.differs_from]}")
        if self.crp.answer_language is not None:
            _checked(LiteralTerm(self.crp.answer_language))
            clause.tests.append(language_filter(ANSWER, self.crp.answer_language))
        return clause

    def constraint(
        self, constraint: Constraint, nodes: Sequence[str], *, filters_only: bool = False
    ) -> _Clause:
        """Write a constraint on one of these nodes; with `filters_only`, no test as a pattern."""
        # The patterns in an OPTIONAL decide whether it matches, not whether the constraint is met.
        test, hops = constraint.test, constraint.hops
        filters_only = filters_only or constraint.optional
        at = constraint.at
        start = nodes[at] if isinstance(at, int) else _entity(at)
        branch = self._branch_nodes(start, hops)
        if constraint.label is not None:
            branch[-1] = self.node(constraint.label)
        elif hops and not filters_only and (end := self._required_end(test)) is not None:
            branch[-1], test = end, None
        clause = _chain(hops, branch)
        clause += self._test(test, branch, filters_only)
        for inner in constraint.branches:
            clause += self.constraint(inner, branch, filters_only=filters_only)
        if constraint.negated:
            return _Clause(tests=[f"NOT EXISTS {clause.group()}"])
        return _optional(clause, branch[1]) if constraint.optional else clause

    def _paths(
        self, path: Sequence[Step], nodes: Sequence[str], *, constrained: bool = True
    ) -> list[_Clause]:
        """Write a path once for each combination of the ways that its forks can be taken."""
        paths = [_Clause()]
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

    def _way(self, way: Way, start: str, end: str, constrained: bool) -> list[_Clause]:
        nodes = [start, *(self._variable() for _ in way.path[1:]), end]
        held = _Clause()
        for constraint in way.constraints if constrained else ():
            held += self.constraint(constraint, nodes)
        return [taken + held for taken in self._paths(way.path, nodes, constrained=constrained)]

    def _required_end(self, test: Test | None) -> str | None:
        """Return the node that a branch must end in; None if its test allows several."""
        match test:
            case IsEntity(entity):
                return _entity(entity)
            case IsNode(other):
                return self.node(other.node)
            case _:
                return None

    def _test(self, test: Test | None, branch: Sequence[str], filters_only: bool) -> _Clause:
        node = branch[-1]
        binds = node.startswith("?") and not filters_only
        match test:
            case IsEntity(entity):
                return _Clause(tests=[f"{node} = {_entity(entity)}"])
            case IsNotEntity(entity):
                return _Clause(tests=[f"{node} != {_entity(entity)}"])
            case IsNode(other):
                return _Clause(tests=[f"{node} = {self.node(other.node)}"])
            case IsNotNode(other):
                return _Clause(tests=[f"{node} != {self.node(other.node)}"])
            case Compare(operator, NodeRef(other_node)):
                return _Clause(tests=[compare_variables(node, operator, self.node(other_node))])
            case Compare("=", LiteralTerm() as value) if binds:
                return _Clause([values_block(node, equal_literals(_checked(value)))])
            case Compare(operator, LiteralTerm() as value):
                return _Clause(tests=[comparison(node, operator, _checked(value))])
            case TextEquals(text, language):
                literal = _checked(LiteralTerm(text, language=language or None))
                if binds and language is not None:
                    return _Clause([values_block(node, (literal,))])
                return _Clause(tests=[text_test(node, text, language)])
            case AnyOf(alternatives):
                if binds and (entities := test.entities()):
                    return _Clause([f"VALUES {node} {{ {' '.join(map(_entity, entities))} }}"])
                return self._any_of(alternatives, branch)
            case _:
                return _Clause()

    def _any_of(
        self, alternatives: tuple[tuple[Constraint, ...], ...], branch: Sequence[str]
    ) -> _Clause:
        conditions = [
            self._alternative(constraints, branch).condition() for constraints in alternatives
        ]
        clause = _Clause(tests=[_any(conditions)])
        if self.shows_alternatives:
            for constraints in alternatives:
                shown = self._alternative(constraints, branch)
                if shown.patterns:
                    optional = f"OPTIONAL {shown.group()}"
                    clause += _Clause([optional], triples=shown.triples)
        return clause

    def _alternative(self, constraints: Iterable[Constraint], branch: Sequence[str]) -> _Clause:
        clause = _Clause()
        for constraint in constraints:
            # Without hops it is a condition on the node: a pattern would have to bind it first.
            clause += self.constraint(constraint, branch, filters_only=not constraint.hops)
        return clause

    def node(self, node: int | str) -> str:
        """Return the term or variable of a node that a CRP refers to."""
        return self.main_nodes[node] if isinstance(node, int) else f"?v_{node}"

    def _branch_nodes(self, start: str, hops: Sequence[Hop]) -> list[str]:
        return [start, *(self._variable() for _ in hops)]

    def _variable(self) -> str:
        self._fresh += 1
        return f"?b{self._fresh}"


def _checked(value: LiteralTerm) -> LiteralTerm:
    """Return a literal, unless it cannot be written in a query."""
    if not is_well_formed(value):
        raise InputError(f"{value!r} cannot be written in a query")
    return value


def _optional(clause: _Clause, variable: str) -> _Clause:
    """Accept a branch that does not exist, as the benchmarks' interval filters do."""
    # Each row has the branch's values or none; it is kept if it has none, or if one passes.
    condition = _all(clause.tests) if clause.tests else "true"
    return _Clause(
        [f"OPTIONAL {{ {' '.join(clause.patterns)} }}"],
        [f"!BOUND({variable}) || ({condition})"],
        clause.triples,
    )


def _all(tests: Sequence[str]) -> str:
    return tests[0] if len(tests) == 1 else " && ".join(f"({test})" for test in tests)


def _any(tests: Sequence[str]) -> str:
    return " || ".join(test if test.startswith("EXISTS") else f"({test})" for test in tests)


def _chain(hops: Sequence[Hop], nodes: Sequence[str]) -> _Clause:
    triples = [_triple(*ends) for ends in zip(nodes, hops, nodes[1:], strict=False)]
    return _Clause(list(map(str, triples)), triples=triples)


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
