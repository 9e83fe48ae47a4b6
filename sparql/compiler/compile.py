"""Compile a grounded CRP to one SPARQL query, in full IRIs, with the same meaning on every engine.

The query follows the CRP's shape: a chain of triple patterns for the main path, each constraint as
patterns and filters on its node. Nothing in a CRP can change the shape: names never reach the text,
ids and literals are checked and escaped.

Source: RouterKGQA §3.4, "Execution with full constraints".
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from kbqa.sparql.compiler.patterns import ANSWER, Clause, PatternWriter, TriplePattern, check_value
from kbqa.sparql.compiler.values import language_filter, order_keys
from kbqa.sparql.crp import Constraint, Crp
from kbqa.sparql.terms import LiteralTerm, Term, is_well_formed, sparql_term


class EvidenceQuery(NamedTuple):
    """A query whose rows, put into its patterns, are the triples that prove an answer.

    Attributes:
        query: A SELECT of every variable of the patterns.
        patterns: What the query matches; those of optional branches and of alternatives may stay
            unbound.
    """

    query: str
    patterns: tuple[TriplePattern, ...]


def compile_crp(crp: Crp, start: Constraint | None = None) -> str:
    """Write the query whose rows are the CRP's answers, as ``?x``.

    Args:
        crp: Grounded.
        start: One of the CRP's constraints that demands an entity, if that entity has fewer
            neighbours than the topic. Engines without statistics then begin there; the answers are
            the same.

    Raises:
        UnlinkedName: An entity of the CRP is not grounded.
        InputError: A relation, id or literal cannot be written in a query, or there are too many
            ways through the forks.

    >>> from kbqa.sparql.crp import Crp, Entity, Hop
    >>> print(compile_crp(Crp(Entity(mid="m.019rg5"), (Hop("a.b.capital"),))))
    SELECT DISTINCT ?x WHERE {
      <http://rdf.freebase.com/ns/m.019rg5> <http://rdf.freebase.com/ns/a.b.capital> ?x .
      FILTER (?x != <http://rdf.freebase.com/ns/m.019rg5>)
      FILTER (!ISLITERAL(?x) || LANG(?x) = "" || LANGMATCHES(LANG(?x), "en"))
    }
    """
    writer = PatternWriter(crp)
    first = [writer.constraint(start, writer.main_nodes)] if start is not None else []
    rest = [_answer_tests(crp, writer), *_constraints(crp, writer, start)]
    head, modifiers = f"SELECT DISTINCT {ANSWER}", []
    if (order := crp.order) is not None:
        ordering = writer.ordering(order)
        rest.append(ordering.clause)
        keys = order_keys(ordering.variable, order.descending)
        # Each answer once, ranked by its best value; equal ones by id, so that engines agree.
        head = f"SELECT {ANSWER}"
        modifiers = [
            f"GROUP BY {ANSWER}",
            f"ORDER BY {keys} ASC(STR({ANSWER}))",
            f"LIMIT {order.limit}",
        ]
        if order.offset:
            modifiers.append(f"OFFSET {order.offset}")
    paths = writer.main_paths(from_topic=start is None)
    body = _union([*first, path, *rest] for path in paths)
    return "\n".join([f"{head} WHERE {{", *body, "}", *modifiers])


def compile_skeleton(crp: Crp) -> str:
    """Write the ASK query for whether the main path exists, without its constraints.

    Raises:
        UnlinkedName: The topic is not grounded.
        InputError: A relation or id cannot be written in a query, or there are too many ways
            through the forks.

    Source: RouterKGQA §3.2, "Reachability verification".
    """
    writer = PatternWriter(crp)
    tests = _answer_tests(crp, writer)
    return _ask([path, tests] for path in writer.skeletons(crp.answer))


def compile_skeleton_prefixes(crp: Crp) -> Iterator[str]:
    """Write the ASK queries that find where a main path breaks: its first step, its first two, ….

    They are written lazily. Unlike `compile_skeleton`, none tests the last node.

    Raises:
        UnlinkedName: The topic is not grounded.
        InputError: A relation or id cannot be written in a query.
    """
    writer = PatternWriter(crp)
    for length in range(1, crp.answer + 1):
        yield _ask([path] for path in writer.skeletons(length))


def compile_evidence(crp: Crp, answers: Sequence[Term]) -> EvidenceQuery:
    """Write the query that finds, for these answers, the triples from the topic to each.

    An answer that cannot be written in a query, such as a blank node, is left out.

    Raises:
        UnlinkedName: An entity of the CRP is not grounded.
        InputError: A relation, id or literal of the CRP cannot be written in a query.
    """
    writer = PatternWriter(crp, shows_alternatives=True)
    terms = " ".join(sparql_term(answer) for answer in answers if is_well_formed(answer))
    values = Clause([f"VALUES {ANSWER} {{ {terms} }}"])
    rest = [_answer_tests(crp, writer), *_constraints(crp, writer)]
    if crp.order is not None:
        rest.append(writer.ordering(crp.order).clause)
    paths = writer.main_paths()
    triples = tuple(triple for clause in (*paths, *rest) for triple in clause.triples)
    variables = sorted({term for triple in triples for term in triple if term.startswith("?")})
    body = _union([values, path, *rest] for path in paths)
    query = "\n".join([f"SELECT DISTINCT {' '.join(variables)} WHERE {{", *body, "}"])
    return EvidenceQuery(query, triples)


def _constraints(
    crp: Crp, writer: PatternWriter, start: Constraint | None = None
) -> Iterator[Clause]:
    for constraint in crp.constraints:
        if constraint is not start:
            yield writer.constraint(constraint, writer.main_nodes)


def _answer_tests(crp: Crp, writer: PatternWriter) -> Clause:
    clause = Clause()
    if crp.differs_from is not None:
        clause.tests.append(f"{ANSWER} != {writer.main_nodes[crp.differs_from]}")
    if crp.answer_language is not None:
        check_value(LiteralTerm(crp.answer_language))
        clause.tests.append(language_filter(ANSWER, crp.answer_language))
    return clause


def _ask(bodies: Iterable[Iterable[Clause]]) -> str:
    return "\n".join(["ASK {", *_union(bodies), "}"])


def _union(bodies: Iterable[Iterable[Clause]]) -> list[str]:
    """Write bodies as alternatives, each with everything that it must satisfy.

    Patterns beside a union would be joined to it late: Oxigraph lists all of the union first.
    """
    first, *others = (
        [f"  {line}" for clause in body for line in clause.lines()] for body in bodies
    )
    if not others:
        return first
    lines = ["  {", *(f"  {line}" for line in first)]
    for other in others:
        lines += ["  } UNION {", *(f"  {line}" for line in other)]
    return [*lines, "  }"]
