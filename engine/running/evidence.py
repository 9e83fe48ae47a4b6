"""Put together the answer of a path: its trace, the triples that prove it, and words left over.

The triples are the way from the topic to the answer, and what the constraints demand.

Of *which landlocked countries are in Africa?* a path may list all countries of Africa.
`WordCoverage` then finds *landlocked*. A content word is accounted for

- by what the question calls an entity of the path, or the entity's own name, or a value;
- by a word of a relation or a class, with the same stem, the same beginning, or a typing error;
- by a relation that it often asks for, by a short list (`_ASKED_WITH`), or as the linking model has
  learned from training questions;
- by a relation, class, entity or value of a similar meaning: a cosine of `_ALIKE` or more.

Numbers as words, units, politeness and the words of operators are left alone: operators have rules
of their own (`kbqa.engine.questions.operators`). What is left over is shown. It is not by itself a
reason for doubt, since people say more than they ask.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, TypeAlias

from kbqa.engine.answer import Answer, AnswerEntity, EvidenceTriple, Trace, WhyNot
from kbqa.engine.asked import Asked
from kbqa.engine.embedding.embedder import Embedder
from kbqa.engine.linking.linker import explain_unlinked, stems
from kbqa.engine.linking.mentions import FUNCTION_WORDS, LinkingModel, stem, tokenise
from kbqa.engine.questions.operators import operator_words
from kbqa.engine.questions.words import SMALL_TALK, unlike_a_question
from kbqa.engine.running.repair import Repair
from kbqa.engine.running.tried import Execution, Tried, describe_found, path_record, with_names
from kbqa.kb.graph import Graph, name_terms
from kbqa.kb.names import Names
from kbqa.sparql.compile import TriplePattern, compile_evidence
from kbqa.sparql.crp import Crp, Part
from kbqa.sparql.english import find_sentence, relation_words
from kbqa.sparql.errors import GraphError
from kbqa.sparql.relax import compared_entities
from kbqa.sparql.terms import LiteralTerm, Term, is_mid, resource_id, term_text

Triple: TypeAlias = tuple[Term, str, Term]
"""Subject, relation and object."""

PROVEN_ANSWERS = 10
"""The first answers, for which evidence is fetched; the same query proves the others."""

_MAX_ROWS = 200


@dataclass(frozen=True, slots=True)
class PathTrace:
    """How the candidates of a question fared, and which of them answers."""

    tried: tuple[Tried, ...]
    """The candidates that were looked at."""
    best: int | None
    """Index of the one that answers; None if none does."""
    repair: Repair | None = None
    """The repair, whatever it found; None if none was needed."""
    calls: int | None = None
    """Decisions that were taken, if there was a limit: the writing, and those of the repair."""

    @property
    def answering(self) -> Tried | None:
        """The candidate that answers."""
        return None if self.best is None else self.tried[self.best]

    @property
    def _written(self) -> list[Tried]:
        return [each for each in self.tried if not each.candidate.is_searched]

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON record."""
        return {
            **path_record(self.answering),
            "beam": self.best,
            "beams": list(self._candidates()),
            "repair": None if self.repair is None else self.repair.to_dict(),
            **({} if self.calls is None else {"calls": self.calls}),
        }

    def _candidates(self) -> Iterator[dict[str, Any]]:
        return (each.to_dict() for each in self.tried)

    def describe(self) -> list[str]:
        """Return the path that answers in English, or how far each candidate came."""
        answering = self.answering
        lines = list(self._failures() if answering is None else self._path(answering))
        repair = self.repair
        if repair is not None and repair.by == "llm" and not _is_repaired(answering):
            lines.append(
                f"A general model was asked for another path, because {repair.reason}; "
                "its choice was not taken."
            )
        if repair is not None and repair.is_cut_short:
            lines.append("The call budget was spent before the search was over.")
        return lines

    def _path(self, tried: Tried) -> Iterator[str]:
        assert tried.relaxation is not None
        yield from describe_found(tried, "Of what the model wrote")
        level, repair = tried.relaxation.level, self.repair
        if not _is_repaired(tried) or repair is None:
            found = "Found by searching the graph, beside what the model wrote"
            if not tried.candidate.is_searched:
                found = f"From path {self._written.index(tried) + 1} of the model"
            yield f"{found}, relaxation: {level}."
            return
        found = "Found by searching the graph"
        if repair.by == "llm":
            found = "Chosen by a general model among paths of the graph"
        yield f"{found}, because {repair.reason}. Relaxation: {level}."
        if repair.lost:
            yield "Lost, because no node of the new path has its relation:"
            yield from (f"  {sentence}" for sentence in repair.lost)

    def _failures(self) -> Iterator[str]:
        yield "Paths that the model wrote:"
        for number, tried in enumerate(self._written, 1):
            lines = filter(None, map(str.strip, tried.candidate.text.splitlines()))
            first = next((line for line in lines if line.lower() != "main path:"), "")
            problem = f" ({tried.problem})" if tried.problem else ""
            yield f"  {number}. {tried.fate}: {first}{problem}"


def _is_repaired(tried: Tried | None) -> bool:
    return tried is not None and tried.candidate.source == "repair"


def path_answer(
    asked: Asked,
    execution: Execution,
    repair: Repair | None,
    *,
    graph: Graph,
    names: Names,
    timeout_s: float,
) -> Answer:
    """Put together the answer of the candidate that answers, or say why none does.

    Args:
        asked: The question.
        execution: Its candidates.
        repair: The repair, if there was one.
        graph: Proves the answer.
        names: Of the graph.
        timeout_s: Seconds for each query.

    Raises:
        DeadlineExceeded: The question's deadline has passed.
    """
    calls = None if asked.budget.limit is None else asked.budget.spent
    if (found := execution.answering) is None:
        trace = PathTrace(execution.tried, None, repair, calls)
        return no_answer(asked, trace, _why_not(asked, execution.tried, names))
    execution = with_names(graph, execution)
    trace = PathTrace(execution.tried, execution.best, repair, calls)
    # RouterKGQA's stages: the small model or, in stage 2, the general one.
    stage = "general" if _is_repaired(found) else "specialised"
    return prove_answer(asked, graph, found, trace, stage, timeout_s)


def _why_not(asked: Asked, tried: Sequence[Tried], names: Names) -> WhyNot:
    """Say why a question has no answer, by its words or the candidate that came furthest."""
    fates = [each.fate for each in tried]  # of searched paths, too: they exist
    if "failed" in fates:
        failed = "the graph did not answer in time, or gave a malformed result; see the paths below"
        return WhyNot("graph", failed)
    if (why := unlike_a_question(asked.question)) is not None:
        return WhyNot("no-question", why)
    if not fates:
        return WhyNot("none-written", "no path was written, and none was found in the graph")
    lacking = (e.problem for e in tried if e.fate == "reachable" and e.crp and e.crp.value)
    if (problem := next(filter(None, lacking), None)) is not None:
        return WhyNot("empty", f"there is nothing to compute with: {problem}")
    if "unfit" in fates:
        unfit = next(each for each in tried if each.fate == "unfit")
        return WhyNot("unfit", f"no path that was found fits the question: {unfit.problem}")
    if "reachable" in fates:
        reached = next(each for each in tried if each.fate == "reachable")
        why = f": {reached.problem}" if reached.problem else ""
        return WhyNot("empty", f"the path exists, but nothing on it leads to an answer{why}")
    if "unreachable" in fates:
        return WhyNot("unreachable", "none of the model's paths exists in the graph")
    if "unlinked" in fates:
        hint = "" if asked.linked else f"; {explain_unlinked(names)}"
        return WhyNot("unlinked", f"no entity was found for the model's topics{hint}")
    return WhyNot("unreadable", "the model wrote nothing that can be read as a path")


def prove_answer(
    asked: Asked, graph: Graph, found: Tried, trace: Trace, stage: str, timeout_s: float
) -> Answer:
    """Fetch the names and the evidence of what a candidate found, and put the answer together."""
    assert found.proven is not None
    assert found.table is not None
    # What shows yes or no is evidence, and not an answer.
    is_list = found.boolean is None
    terms = found.terms if is_list else found.terms[:PROVEN_ANSWERS]
    names: Mapping[Term, str] = {}
    evidence: tuple[EvidenceTriple, ...] = ()
    problem = None if found.value is None else found.value.lack
    with asked.clock.stage("prove"):
        try:
            names = name_terms(graph, terms)
            evidence = find_evidence(graph, found.proven, terms, timeout_s, found.crp)
        except GraphError as error:
            failed = f"the proof could not be fetched: {error}"
            problem = failed if problem is None else f"{problem}; {failed}"
    sure = found.answer_confidences
    answers = tuple(
        AnswerEntity(term, names.get(term, term_text(term)), confidence=sure.get(term))
        for term in terms
    )
    return Answer(
        question=asked.question,
        answers=answers if is_list else (),
        trace=trace,
        linked=asked.linked,
        confidence=found.confidence,
        sparql=found.sparql,
        evidence=evidence,
        stage=stage,
        problem=problem,
        truncated=is_list and found.table.truncated,
        usage=asked.usage,
        seconds=asked.clock.seconds,
        boolean=found.boolean,
        count=found.count,
        value=found.value,
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

    If the CRP compares entities that it names, those that are not the answer are shown as well. The
    parts that triples prove are counted in the sentences of `described`, the CRP before it was
    relaxed.
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
    """Find the ways, at most `limit`, in which a CRP matched for answers, each as its triples."""
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


_ALIKE = 0.45
"""Chosen on everyday.dev and on conditions left out of paths of cwq.dev: docs/model.md."""

_ASKS = 0.7
"""The natural logarithm of how much likelier a word is in questions for a relation: twice."""

_SAYS_LITTLE = FUNCTION_WORDS | frozenset(
    """actually ask asked called calling come comes currently different dollars ever
    everything find found gave get gets getting give given go goes going got had have having held
    here hi hold homework include included includes including just kind kinds know known list
    located look looking main major make makes many need now number numbers one ones other others
    please pls quickly really said say says see show sort still take taken takes tell thanks there
    thing things today took type types use used uses using various want wanted whose wonder
    wondering
    one two three four five six seven eight nine ten eleven twelve hundred thousand million billion
    celsius centimetres cubic degree degrees fahrenheit feet foot hours inches kelvin kg kilograms
    kilometers kilometres km km2 m meter meters metres mile miles minutes month months percent
    pounds sq square year years""".split()  # noqa: SIM905 – a list of words reads better as text
)

_ASKED_WITH = {
    "population": "people live living inhabitants residents populous big large",
    "adjoin": "border borders bordering neighbour neighbours neighbor neighbors next",
    "spouse": "wife husband married marry",
    "currency": "money pay buy",
    "language": "speak speaks spoken say written",
    "discover": "found find",
    "area": "big large size",
    "melting_point": "temperature melt",
    "boiling_point": "temperature boil",
}
"""Words that ask for relations whose names do not say them."""

_POSSESSIVE = re.compile(r"['’]s$")
_SHORTEST_BEGINNING = 4
_SHORTEST_MISSPELT = 5
_MISSPELT = 0.86


class WordCoverage:
    """Compares questions with paths; threads may share one."""

    def __init__(self, embedder: Embedder, asking: LinkingModel) -> None:
        self._embedder, self._asking = embedder, asking

    def left_over(self, question: str, crp: Crp, mentions: Mapping[str, str]) -> tuple[str, ...]:
        """Return the words that nothing in a path accounts for, in their order.

        Args:
            question: In English; of other languages nothing is known, and nothing left over.
            crp: As it was run, with the names of its entities.
            mentions: What the question calls entities, by mid.
        """
        if unlike_a_question(question) is not None:
            return ()
        said = set(self._said(crp, mentions))
        known = frozenset().union(*map(stems, said))
        relations = set(crp.relations())
        names = " ".join(relations)
        asked = {w for name, words in _ASKED_WITH.items() if name in names for w in words.split()}
        small = _SAYS_LITTLE | SMALL_TALK | operator_words(question) | asked
        left = []
        for token in tokenise(question):
            word = _POSSESSIVE.sub("", token.text.lower())
            if word in small or self._is_known(stem(word), known, relations):
                continue
            left.append(word)
        vectors = self._embedder.recall([*left, *said])
        alike = vectors[: len(left)] @ vectors[len(left) :].T
        return tuple(
            dict.fromkeys(w for w, row in zip(left, alike, strict=True) if max(row) < _ALIKE)
        )

    def _said(self, crp: Crp, mentions: Mapping[str, str]) -> Iterator[str]:
        """Yield what a path says, in words."""
        for entity in crp.entities():
            yield mentions.get(entity.mid or "", str(entity))
            is_class = entity.mid is not None and not is_mid(entity.mid)
            yield relation_words(str(entity.mid)) if is_class else str(entity)
        for constraint in crp.all_constraints():
            match constraint.operand:
                case str(text) | LiteralTerm(text):
                    yield text
        for relation in crp.relations():
            yield relation_words(relation)

    def _is_known(self, word: str, known: frozenset[str], relations: set[str]) -> bool:
        """Return whether a stem is among those of the path, or asks for one of its relations."""
        asks_for = self._asking.asking.get(word, {})
        return (
            word in known
            or any(asks_for.get(each, 0.0) >= _ASKS for each in relations)
            or any(_begin_alike(word, each) or _is_misspelt(word, each) for each in known)
        )


def _begin_alike(word: str, other: str) -> bool:
    shorter, longer = sorted((word, other), key=len)
    return len(shorter) >= _SHORTEST_BEGINNING and longer.startswith(shorter)


def _is_misspelt(word: str, other: str) -> bool:
    is_near = len(word) >= _SHORTEST_MISSPELT and abs(len(word) - len(other)) <= 1
    same_letters = sorted(word) == sorted(other)
    return is_near and (same_letters or SequenceMatcher(None, word, other).ratio() > _MISSPELT)
