"""Compile a grounded CRP to one SPARQL query, in full IRIs, with the same meaning on every engine.

The query follows the CRP's shape: a chain of triple patterns for the main path, each constraint as
patterns and filters on the node that it hangs on. Nothing that a CRP holds can change the shape:
names never reach the text, ids and literals are checked and escaped.

Source: RouterKGQA §3.4, "Execution with full constraints".
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kbqa.sparql.crp import Crp
from kbqa.sparql.patterns import ANSWER, Clause, PatternWriter, TriplePattern
from kbqa.sparql.terms import Term, is_well_formed, sparql_term
from kbqa.sparql.values import language_filter, order_keys


class EvidenceQuery(NamedTuple):
    """A query whose rows, put into its patterns, are the triples that prove an answer.

    Attributes:
        query: A SELECT of every variable of the patterns.
        patterns: What the query matches; those of optional branches and of alternatives may stay
            unbound.
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
    writer = PatternWriter(crp)
    clauses = _body(crp, writer)
    modifiers = []
    if (order := crp.order) is not None:
        ordering = writer.ordering(order)
        clauses.append(ordering.clause)
        modifiers = [f"ORDER BY {order_keys(ordering.variable, order.descending)}"]
        modifiers.append(f"LIMIT {order.limit}")
        if order.offset:
            modifiers.append(f"OFFSET {order.offset}")
    return "\n".join([f"SELECT DISTINCT {ANSWER} WHERE {{", *_indented(clauses), "}", *modifiers])


def compile_skeleton(crp: Crp) -> str:
    """Write the ASK query that tells whether the main path exists, whatever the constraints.

    Raises:
        UnlinkedName: The topic is not grounded.
        InputError: A relation or id is one that no query can hold.

    Source: RouterKGQA §3.2, "Reachability verification".
    """
    writer = PatternWriter(crp)
    return _ask(writer.skeleton(crp.answer), _answer_tests(crp, writer))


def compile_skeleton_prefixes(crp: Crp) -> tuple[str, ...]:
    """Write the ASK queries that tell where a main path breaks: its first step, its first two, ….

    Unlike `compile_skeleton`, none asks anything of the node that it arrives at.

    Raises:
        UnlinkedName: The topic is not grounded.
        InputError: A relation or id is one that no query can hold.
    """
    return tuple(_ask(PatternWriter(crp).skeleton(length)) for length in range(1, crp.answer + 1))


def compile_evidence(crp: Crp, answers: Sequence[Term]) -> EvidenceQuery:
    """Write the query that finds, for these answers, the triples from the topic to each.

    An answer that no query can hold, such as a blank node, is left out.

    Raises:
        UnlinkedName: An entity of the CRP is not grounded.
        InputError: A relation, id or literal of the CRP is one that no query can hold.
    """
    writer = PatternWriter(crp, shows_alternatives=True)
    terms = " ".join(sparql_term(answer) for answer in answers if is_well_formed(answer))
    clauses = [Clause([f"VALUES {ANSWER} {{ {terms} }}"]), *_body(crp, writer)]
    if crp.order is not None:
        clauses.append(writer.ordering(crp.order).clause)
    triples = [triple for clause in clauses for triple in clause.triples]
    variables = sorted({term for triple in triples for term in triple if term.startswith("?")})
    lines = [f"SELECT DISTINCT {' '.join(variables)} WHERE {{", *_indented(clauses), "}"]
    return EvidenceQuery("\n".join(lines), tuple(triples))


def _body(crp: Crp, writer: PatternWriter) -> list[Clause]:
    """Write everything but the ordering: the main path, what its end must be, the constraints."""
    return [
        writer.main_path(),
        _answer_tests(crp, writer),
        *(writer.constraint(constraint, writer.main_nodes) for constraint in crp.constraints),
    ]


def _answer_tests(crp: Crp, writer: PatternWriter) -> Clause:
    clause = Clause()
    if crp.differs_from is not None:
        clause.tests.append(f"{ANSWER} != {writer.main_nodes[crp.differs_from]}")
    if crp.answer_language is not None:
        clause.tests.append(language_filter(ANSWER, crp.answer_language))
    return clause


def _ask(*clauses: Clause) -> str:
    return "\n".join(["ASK {", *_indented(clauses), "}"])


def _indented(clauses: Iterable[Clause]) -> list[str]:
    return [f"  {line}" for clause in clauses for line in clause.lines()]
