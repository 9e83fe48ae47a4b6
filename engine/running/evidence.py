"""Find the triples that prove answers: the way from the topic, and what the constraints demand."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from kbqa.engine.answer import (
    Answer,
    AnswerEntity,
    EvidenceTriple,
    Reason,
    Trace,
    WhyNot,
    term_text,
)
from kbqa.engine.asked import Asked
from kbqa.engine.running.confidence import Tried
from kbqa.kb.graph import Graph
from kbqa.kb.names.search import name_terms
from kbqa.sparql.compile import TriplePattern, compile_evidence
from kbqa.sparql.crp import Crp, Part
from kbqa.sparql.english import find_sentence
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


def prove(
    graph: Graph, crp: Crp, answers: Sequence[Term], timeout_s: float, described: Crp | None = None
) -> Proof:
    """Fetch names and evidence for answers, as `find_evidence` does, and report what fails.

    Raises:
        DeadlineExceeded: The question's deadline has passed.
    """
    names: Mapping[Term, str] = {}
    evidence: tuple[EvidenceTriple, ...] = ()
    problem = None
    try:
        names = name_terms(graph, answers)
        evidence = find_evidence(graph, crp, answers, timeout_s, described)
    except GraphError as error:
        problem = f"the proof could not be fetched: {error}"
    named = tuple(AnswerEntity(term, names.get(term, term_text(term))) for term in answers)
    return Proof(named, evidence, problem)


def prove_answer(
    asked: Asked, graph: Graph, found: Tried, trace: Trace, stage: str, timeout_s: float
) -> Answer:
    """Fetch the proof of what a candidate found, and put the answer together.

    Args:
        asked: The question.
        graph: As the question sees it.
        found: The candidate that answers.
        trace: How the method came to it.
        stage: Which stage of the method found it.
        timeout_s: Seconds for each query.

    Raises:
        DeadlineExceeded: The question's deadline has passed.
    """
    assert found.proven is not None
    assert found.table is not None
    # What shows yes or no is evidence, and not an answer.
    is_list = found.boolean is None
    with asked.clock.stage("prove"):
        terms = found.terms if is_list else found.terms[:PROVEN_ANSWERS]
        proof = prove(graph, found.proven, terms, timeout_s, found.crp)
    sure = found.answer_confidences
    answers = tuple(replace(each, confidence=sure.get(each.term)) for each in proof.answers)
    return Answer(
        question=asked.question,
        answers=answers if is_list else (),
        trace=trace,
        linked=asked.linked,
        confidence=found.confidence,
        sparql=found.sparql,
        evidence=proof.evidence,
        stage=stage,
        problem=proof.problem,
        truncated=is_list and found.table.truncated,
        usage=asked.usage,
        seconds=asked.clock.seconds,
        boolean=found.boolean,
        count=found.count,
        not_understood=found.not_understood,
    )


def no_answer(asked: Asked, trace: Trace, why: WhyNot) -> Answer:
    """Return the answer to a question for which none was found."""
    return Answer(
        question=asked.question,
        answers=(),
        trace=trace,
        linked=asked.linked,
        problem=why.problem,
        reason=why.reason,
        usage=asked.usage,
        seconds=asked.clock.seconds,
    )


def find_evidence(
    graph: Graph, crp: Crp, answers: Sequence[Term], timeout_s: float, described: Crp | None = None
) -> tuple[EvidenceTriple, ...]:
    """Find the triples that a CRP matched for its first answers, without repetitions.

    If the CRP compares entities that it names, those that are not the answer are shown as well.

    Args:
        graph: Where the answers come from.
        crp: As executed, grounded.
        answers: In order.
        timeout_s: Seconds until the query is stopped.
        described: The CRP before it was relaxed, in whose sentences the parts that the triples
            prove are counted; by default `crp`.

    Raises:
        GraphError: The graph does not answer.
    """
    compared = (entity.mid for entity in compared_entities(crp) if entity.mid is not None)
    shown = list(dict.fromkeys((*answers[:PROVEN_ANSWERS], *compared)))
    found: dict[Triple, set[Part | None]] = {}
    for match in _matches(graph, crp, shown, timeout_s, _MAX_ROWS):
        for triple, part in match:
            found.setdefault(triple, set()).add(part)
    sentences = {
        part: find_sentence(described or crp, part) for parts in found.values() for part in parts
    }
    names = name_terms(graph, {term for triple in found for term in (triple[0], triple[2])})
    return tuple(
        EvidenceTriple(
            subject,
            relation,
            object_,
            names[subject],
            names[object_],
            min((at for part in parts if (at := sentences[part]) is not None), default=None),
        )
        for (subject, relation, object_), parts in found.items()
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
    matches = _matches(graph, crp, answers, timeout_s, limit)
    return [tuple(triple for triple, _ in match) for match in matches]


def _matches(
    graph: Graph, crp: Crp, answers: Sequence[Term], timeout_s: float, limit: int
) -> Iterator[list[tuple[Triple, Part | None]]]:
    """Yield the ways in which a CRP matched, each as its triples and the parts that they prove."""
    if not answers:
        return
    query = compile_evidence(crp, answers)
    table = graph.select(query.query, timeout_s=timeout_s, limit=limit)
    for row in table.rows:
        bound = dict(zip(table.variables, row, strict=True))
        triples = (_triple(pattern, bound) for pattern in query.patterns)
        pairs = zip(triples, query.parts, strict=True)
        yield [(triple, part) for triple, part in pairs if triple is not None]


def _triple(pattern: TriplePattern, bound: Mapping[str, Term | None]) -> Triple | None:
    """Put values into a pattern; None if a variable is not bound."""
    subject, object_ = _value(pattern.subject, bound), _value(pattern.object, bound)
    if subject is None or object_ is None:
        return None
    return subject, resource_id(pattern.predicate[1:-1]), object_


def _value(text: str, bound: Mapping[str, Term | None]) -> Term | None:
    return bound[text[1:]] if text.startswith("?") else resource_id(text[1:-1])
