"""Find the triples that prove answers: the way from the topic, and what the constraints demand."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from kbqa.engine.answer import AnswerEntity, EvidenceTriple, Reason, WhyNot, term_text
from kbqa.kb.graph import Graph
from kbqa.kb.names.search import name_terms
from kbqa.sparql.compiler.compile import compile_evidence
from kbqa.sparql.compiler.patterns import TriplePattern
from kbqa.sparql.crp import Crp
from kbqa.sparql.errors import GraphError
from kbqa.sparql.relax import compared_entities
from kbqa.sparql.terms import Term, resource_id

Triple: TypeAlias = tuple[Term, str, Term]
"""Subject, relation and object."""

PROVEN_ANSWERS = 10
"""The first answers, for which evidence is fetched; the same query proves the others."""

_MAX_ROWS = 200


class Proof(NamedTuple):
    """The answers that a path led to, with their names, and the triples that prove them.

    Attributes:
        answers: In order.
        evidence: For the first of them.
        problem: Why answers, names or evidence are missing; None if they are not.
        reason: Why there are no answers.
    """

    answers: tuple[AnswerEntity, ...]
    evidence: tuple[EvidenceTriple, ...] = ()
    problem: str | None = None
    reason: Reason | None = None

    @classmethod
    def missing(cls, why: WhyNot) -> "Proof":
        """Return the proof of a question without answers."""
        return cls((), (), why.problem, why.reason)


def prove(graph: Graph, crp: Crp, answers: Sequence[Term], timeout_s: float) -> Proof:
    """Fetch names and evidence for answers, as `find_evidence` does, and report what fails.

    Raises:
        DeadlineExceeded: The question's deadline has passed.
    """
    names: Mapping[Term, str] = {}
    evidence: tuple[EvidenceTriple, ...] = ()
    problem = None
    try:
        names = name_terms(graph, answers)
        evidence = find_evidence(graph, crp, answers, timeout_s)
    except GraphError as error:
        problem = f"the proof could not be fetched: {error}"
    named = tuple(AnswerEntity(term, names.get(term, term_text(term))) for term in answers)
    return Proof(named, evidence, problem)


def find_evidence(
    graph: Graph, crp: Crp, answers: Sequence[Term], timeout_s: float
) -> tuple[EvidenceTriple, ...]:
    """Find the triples that a CRP matched for its first answers, without repetitions.

    If the CRP compares entities that it names, those that are not the answer are shown as well.

    Args:
        graph: Where the answers come from.
        crp: As executed, grounded.
        answers: In order.
        timeout_s: Seconds until the query is stopped.

    Raises:
        GraphError: The graph does not answer.
    """
    compared = (entity.mid for entity in compared_entities(crp) if entity.mid is not None)
    shown = list(dict.fromkeys((*answers[:PROVEN_ANSWERS], *compared)))
    matches = find_matches(graph, crp, shown, timeout_s, _MAX_ROWS)
    triples = list(dict.fromkeys(triple for match in matches for triple in match))
    ends = {term for triple in triples for term in (triple[0], triple[2])}
    names = name_terms(graph, ends)
    return tuple(
        EvidenceTriple(subject, relation, object_, names[subject], names[object_])
        for subject, relation, object_ in triples
    )


def find_matches(
    graph: Graph, crp: Crp, answers: Sequence[Term], timeout_s: float, limit: int
) -> list[tuple[Triple, ...]]:
    """Find the ways in which a CRP matched for answers, each as its triples.

    Args:
        graph: Where the answers come from.
        crp: As executed, grounded.
        answers: All of them are asked for.
        timeout_s: Seconds until the query is stopped.
        limit: The most ways to find.

    Raises:
        GraphError: The graph does not answer.
    """
    if not answers:
        return []
    query, patterns = compile_evidence(crp, answers)
    table = graph.select(query, timeout_s=timeout_s, limit=limit)
    return [tuple(_triples(table.variables, row, patterns)) for row in table.rows]


def _triples(
    variables: Sequence[str], row: Sequence[Term | None], patterns: Sequence[TriplePattern]
) -> Iterator[Triple]:
    bound = dict(zip(variables, row, strict=True))
    for pattern in patterns:
        subject, object_ = _value(pattern.subject, bound), _value(pattern.object, bound)
        if subject is not None and object_ is not None:
            yield subject, resource_id(pattern.predicate[1:-1]), object_


def _value(text: str, bound: Mapping[str, Term | None]) -> Term | None:
    return bound[text[1:]] if text.startswith("?") else resource_id(text[1:-1])
