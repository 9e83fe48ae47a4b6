"""Compile a grounded CRP to one SPARQL query, in full IRIs, with the same meaning on every engine.

The query follows the CRP's shape: a chain of triple patterns for the main path, each constraint as
patterns and filters on the node that it hangs on. Nothing that a CRP holds can change the shape:
names never reach the text, ids and literals are checked and escaped.

Source: RouterKGQA §3.4, "Execution with full constraints".
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kbqa.sparql.crp import Compare, Constraint, Crp, Entity, Hop, IsEntity, IsNotEntity, TextEquals
from kbqa.sparql.errors import InputError, UnlinkedName
from kbqa.sparql.terms import Literal, Term, iri, is_well_formed, quote, sparql_term
from kbqa.sparql.values import comparison, equal_literals, order_keys, values_block

ANSWER = "?x"
# The benchmarks' own clause: answers are entities, plain literals, or English ones.
_LANGUAGE = (
    f'FILTER (!ISLITERAL({ANSWER}) || LANG({ANSWER}) = "" || LANGMATCHES(LANG({ANSWER}), "en"))'
)


class TriplePattern(NamedTuple):
    """A triple pattern: variables with a question mark, or IRIs in full."""

    subject: str
    predicate: str
    object: str

    def __str__(self) -> str:
        return f"{self.subject} {self.predicate} {self.object} ."


class EvidenceQuery(NamedTuple):
    """A query whose rows, put into its patterns, are the triples that prove an answer.

    Attributes:
        query: A SELECT of every variable of the patterns.
        patterns: What the query matches; those of optional branches may stay unbound.
    """

    query: str
    patterns: tuple[TriplePattern, ...]


def compile_crp(crp: Crp) -> str:
    """Write the query whose rows are the CRP's answers, as ``?x``.

    Raises:
        UnlinkedName: An entity of the CRP is not grounded.
        InputError: A relation, id or literal is one that no query can hold.

    >>> from kbqa.sparql.crp import Crp, Entity, Hop
    >>> print(compile_crp(Crp(Entity(mid="m.019rg5"), (Hop("a.b.capital"),))))
    SELECT DISTINCT ?x WHERE {
      <http://rdf.freebase.com/ns/m.019rg5> <http://rdf.freebase.com/ns/a.b.capital> ?x .
      FILTER (?x != <http://rdf.freebase.com/ns/m.019rg5>)
      FILTER (!ISLITERAL(?x) || LANG(?x) = "" || LANGMATCHES(LANG(?x), "en"))
    }
    """
    body = _Body(crp)
    body.add_main_path()
    body.add_constraints()
    lines = [f"SELECT DISTINCT {ANSWER} WHERE {{", *body.indented(), "}"]
    if crp.order is not None:
        lines.append(f"ORDER BY {order_keys(body.order_variable, crp.order.descending)}")
        lines.append(f"LIMIT {crp.order.limit}")
        if crp.order.offset:
            lines.append(f"OFFSET {crp.order.offset}")
    return "\n".join(lines)


def compile_skeleton(crp: Crp) -> str:
    """Write the ASK query that tells whether the main path exists.

    Raises:
        UnlinkedName: The topic is not grounded.
        InputError: A relation or id is one that no query can hold.

    Source: RouterKGQA §3.2, "Reachability verification".
    """
    body = _Body(crp)
    body.add_main_path()
    return "\n".join(["ASK {", *body.indented(), "}"])


def compile_evidence(crp: Crp, answers: Sequence[Term]) -> EvidenceQuery:
    """Write the query that finds, for these answers, the triples from the topic to each.

    An answer that no query can hold, such as a blank node, is left out.

    Raises:
        UnlinkedName: An entity of the CRP is not grounded.
        InputError: A relation, id or literal of the CRP is one that no query can hold.
    """
    body = _Body(crp)
    terms = " ".join(sparql_term(answer) for answer in answers if is_well_formed(answer))
    body.lines.append(f"VALUES {ANSWER} {{ {terms} }}")
    body.add_main_path()
    body.add_constraints()
    variables = sorted(
        {term for pattern in body.patterns for term in pattern if term.startswith("?")}
    )
    query = "\n".join([f"SELECT DISTINCT {' '.join(variables)} WHERE {{", *body.indented(), "}"])
    return EvidenceQuery(query, tuple(body.patterns))


@dataclass(slots=True)
class _Clause:
    """What one constraint adds to a query: patterns to match and expressions that must be true."""

    patterns: list[str]
    tests: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        return [*self.patterns, *(f"FILTER ({test})" for test in self.tests)]

    def optional(self, variable: str) -> "_Clause":
        """Accept a branch that does not exist, as the benchmarks' interval filters do.

        With the patterns alone inside OPTIONAL and the tests outside of it, each row has its
        values or none: it stays where it has none, or where one of them passes.
        """
        condition = " && ".join(f"({test})" for test in self.tests) or "true"
        return _Clause(
            [f"OPTIONAL {{ {' '.join(self.patterns)} }}"],
            [f"!BOUND({variable}) || ({condition})"],
        )


@dataclass(slots=True)
class _Body:
    """The group graph pattern of one query, as it grows."""

    crp: Crp
    lines: list[str] = field(default_factory=list)
    patterns: list[TriplePattern] = field(default_factory=list)
    order_variable: str = ANSWER
    _fresh: int = 0

    def indented(self) -> list[str]:
        return [f"  {line}" for line in self.lines]

    @property
    def main_nodes(self) -> list[str]:
        inner = [f"?n{position}" for position in range(1, self.crp.answer)]
        return [_entity(self.crp.topic), *inner, ANSWER]

    def add_main_path(self) -> None:
        nodes = self.main_nodes
        for subject, hop, object_ in zip(nodes, self.crp.path, nodes[1:], strict=False):
            self.lines.append(str(self._pattern(subject, hop, object_)))
        if self.crp.differs_from is not None:
            self.lines.append(f"FILTER ({ANSWER} != {nodes[self.crp.differs_from]})")
        self.lines.append(_LANGUAGE)

    def add_constraints(self) -> None:
        for constraint in self.crp.constraints:
            self.lines += self._constraint(constraint, self.main_nodes).lines()
        order = self.crp.order
        if order is not None:
            nodes = self._branch_nodes(self.main_nodes[order.at], order.hops, None)
            self.lines += self._branch(nodes, order.hops)
            self.order_variable = nodes[-1]

    def _constraint(
        self, constraint: Constraint, nodes: Sequence[str], *, within_optional: bool = False
    ) -> _Clause:
        """Compile a constraint that hangs on one of these nodes.

        What an OPTIONAL holds decides whether it matches, not whether the constraint is met: there,
        a test may never become part of a pattern.
        """
        test, hops = constraint.test, constraint.hops
        filters_only = within_optional or constraint.optional
        end = None
        if isinstance(test, IsEntity) and hops and not filters_only:
            end = _entity(test.entity)
        branch_nodes = self._branch_nodes(nodes[constraint.at], hops, end)
        clause = _Clause(self._branch(branch_nodes, hops))
        node = branch_nodes[-1]
        match test:
            case IsEntity(entity) if end is None:
                clause.tests.append(f"{node} = {_entity(entity)}")
            case IsNotEntity(entity):
                clause.tests.append(f"{node} != {_entity(entity)}")
            case Compare("=", value) if node.startswith("?") and not filters_only:
                clause.patterns.insert(0, values_block(node, equal_literals(_checked(value))))
            case Compare(operator, value):
                clause.tests.append(comparison(node, operator, _checked(value)))
            case TextEquals(text, language):
                clause.tests.append(f"STR({node}) = {_quoted(text)}")
                if language is not None:
                    clause.tests.append(f"LCASE(LANG({node})) = {_quoted(language.lower())}")
        for branch in constraint.branches:
            inner = self._constraint(branch, branch_nodes, within_optional=filters_only)
            clause.patterns += inner.patterns
            clause.tests += inner.tests
        return clause.optional(branch_nodes[1]) if constraint.optional else clause

    def _branch(self, nodes: Sequence[str], hops: Sequence[Hop]) -> list[str]:
        return [
            str(self._pattern(subject, hop, object_))
            for subject, hop, object_ in zip(nodes, hops, nodes[1:], strict=False)
        ]

    def _branch_nodes(self, start: str, hops: Sequence[Hop], end: str | None) -> list[str]:
        nodes = [start]
        for _ in hops:
            self._fresh += 1
            nodes.append(f"?b{self._fresh}")
        if end is not None:
            nodes[-1] = end
        return nodes

    def _pattern(self, subject: str, hop: Hop, object_: str) -> TriplePattern:
        if not is_well_formed(hop.relation):
            raise InputError(f"no relation can be called {hop.relation!r}")
        if hop.inverse:
            subject, object_ = object_, subject
        pattern = TriplePattern(subject, iri(hop.relation), object_)
        self.patterns.append(pattern)
        return pattern


def _entity(entity: Entity) -> str:
    if entity.mid is None:
        raise UnlinkedName(str(entity), f"{str(entity)!r} is not grounded to an entity")
    if not is_well_formed(entity.mid):
        raise InputError(f"no entity has the id {entity.mid!r}")
    return iri(entity.mid)


def _checked(value: Literal) -> Literal:
    if not is_well_formed(value):
        raise InputError(f"no query can hold the literal {value!r}")
    return value


def _quoted(text: str) -> str:
    return quote(_checked(Literal(text)).text)
