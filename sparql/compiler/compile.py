"""Compile a grounded CRP to one SPARQL query, in full IRIs, with the same meaning on every engine.

The query follows the CRP's shape: a chain of triple patterns for the main path, each constraint as
patterns and filters on its node. Nothing in a CRP can change the shape: names never reach the text,
ids and literals are checked and escaped.

Source: RouterKGQA §3.4, "Execution with full constraints".
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from kbqa.sparql.compiler.patterns import ANSWER, Clause, PatternWriter, TriplePattern, check_value
from kbqa.sparql.compiler.values import language_filter, order_keys, rank_values
from kbqa.sparql.crp import Constraint, Crp, Order
from kbqa.sparql.terms import LiteralTerm, Term, is_well_formed, sparql_term

COUNT = "?count"
"""The variable of a count."""

_HEADS = {
    "select": f"SELECT DISTINCT {ANSWER} WHERE",
    "count": f"SELECT (COUNT(DISTINCT {ANSWER}) AS {COUNT}) WHERE",
    "count bindings": f"SELECT (COUNT({ANSWER}) AS {COUNT}) WHERE",
    "ask": "ASK",
}


class EvidenceQuery(NamedTuple):
    """A query whose rows, put into its patterns, are the triples that prove an answer.

    Attributes:
        query: A SELECT of every variable of the patterns.
        patterns: What the query matches; those of optional branches and of alternatives may stay
            unbound.
        parts: For each pattern, the constraint or ordering of the CRP that it comes from; None for
            the main path.
    """

    query: str
    patterns: tuple[TriplePattern, ...]
    parts: tuple[Constraint | Order | None, ...]


def compile_crp(crp: Crp, start: Constraint | None = None) -> str:
    """Write the query of a CRP: for its answers, as ``?x``, their number, or whether there is one.

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
    if crp.order is None:
        body, _ = _body(crp, writer, start)
    elif crp.form == "select":
        return "\n".join(_ranked(crp, crp.order, writer, start))
    else:
        ranked = _ranked(crp.presupposed(), crp.order, writer, start)
        asked = (writer.constraint(each, writer.main_nodes) for each in crp.asked)
        body = [*_block(ranked), *(f"  {line}" for clause in asked for line in clause.lines())]
    return "\n".join([f"{_HEADS[crp.form]} {{", *body, "}"])


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
    tests = _answer_tests(crp, writer)
    rest: list[tuple[Constraint | Order | None, Clause]] = [
        (constraint, writer.constraint(constraint, writer.main_nodes))
        for constraint in crp.constraints
    ]
    if crp.order is not None:
        rest.append((crp.order, writer.ordering(crp.order).clause))
    paths = writer.main_paths()
    clauses = [*((None, path) for path in paths), *rest]
    found = [(triple, part) for part, clause in clauses for triple in clause.triples]
    variables = sorted({term for triple, _ in found for term in triple if term.startswith("?")})
    body = _union([values, path, tests, *(clause for _, clause in rest)] for path in paths)
    query = "\n".join([f"SELECT DISTINCT {' '.join(variables)} WHERE {{", *body, "}"])
    return EvidenceQuery(
        query, tuple(triple for triple, _ in found), tuple(part for _, part in found)
    )


def _ranked(crp: Crp, order: Order, writer: PatternWriter, start: Constraint | None) -> list[str]:
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


def _body(crp: Crp, writer: PatternWriter, start: Constraint | None) -> tuple[list[str], str]:
    """Write all patterns and filters of a CRP; return the variable of what orders it as well."""
    first = [writer.constraint(start, writer.main_nodes)] if start is not None else []
    rest = [_answer_tests(crp, writer), *_constraints(crp, writer, start)]
    value = ANSWER
    if crp.order is not None:
        clause, value = writer.ordering(crp.order)
        rest.append(clause)
    paths = writer.main_paths(from_topic=start is None)
    return _union([*first, path, *rest] for path in paths), value


def _block(lines: Sequence[str]) -> list[str]:
    """Write a sub-query within braces."""
    return ["  {", *(f"    {line}" for line in lines), "  }"]


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
