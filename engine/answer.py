"""The answer to a question with its proof: its one JSON record, and its lines for people.

Every method returns an `Answer`. Rows, the server, MCP, the page and notebooks take their fields
from `Answer.to_dict`. In lines, numbers, dates and units of answers are written for reading;
evidence shows them as in the graph, and the kind of each unnamed node.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from kbqa.engine.chat.model import Usage
from kbqa.engine.display.notebook import ORIGIN_NOTES, as_html, in_one_line
from kbqa.kb.graph import Graph
from kbqa.kb.schema import LiteralForms, read_literal_forms
from kbqa.sparql.crp import Form
from kbqa.sparql.dialect import prefix_query
from kbqa.sparql.errors import GraphError
from kbqa.sparql.terms import LiteralTerm, Term, is_mid
from kbqa.sparql.terms import term_text as term_text

if TYPE_CHECKING:
    import polars

    from kbqa.engine.linking.linker import LinkedEntity

logger = logging.getLogger(__name__)

Origin = Literal["graph", "named", "text"]
"""Where an answer comes from: a query or walk of the graph found it; a language model named it and
the graph has an entity of that name; or a language model wrote it and nothing else is known."""

Reason = Literal[
    "no-question",  # the words are not a question in English
    "unlinked",  # no entity was found to start from
    "none-written",  # there is no path
    "unreadable",  # no text of the model is a path
    "unreachable",  # the graph has no such path
    "unfit",  # what was found answers another question
    "empty",  # the graph has the path, but nothing on it satisfies what is asked
    "graph",  # the graph did not answer, or not in time
    "calls",  # the call budget was spent
    "unnamed",  # the language model named no answer
]
"""Why a question has no answer."""

Status = Literal["answered", "unsure", "none"]
"""``unsure``: a guess, of less confidence than is asked for. ``none``: no answer."""

UNSURE_BELOW = 0.56
"""The confidence below which an answer is a guess, unless the user asks for another. It keeps 95 %
of held-out training questions that the graph can answer (n = 254; docs/results.md)."""

MAX_ANSWERS = 10_000
"""The most answers that are listed. Counts go on beyond it."""


@dataclass(frozen=True, slots=True)
class AnswerEntity:
    """One answer: an entity with its name, or a literal, whose name is its text."""

    term: Term
    name: str
    origin: Origin = "graph"
    # In [0, 1]: at least that of its list, higher if other lists have it too; None if not known.
    confidence: float | None = field(default=None, repr=False)

    def to_dict(self) -> dict[str, str | float]:
        """Return a JSON record; ``confidence`` is there only if it is known."""
        key = "value" if isinstance(self.term, LiteralTerm) else "mid"
        sure = {} if self.confidence is None else {"confidence": round(self.confidence, 4)}
        return {key: term_text(self.term), "name": self.name, "origin": self.origin, **sure}


class Computed(NamedTuple):
    """What the numbers of the answers come to."""

    form: Form
    number: float
    of: int  # answers with a number, as far as they were fetched
    lacking: int = 0  # answers that have none in the graph
    relation: str | None = None  # which leads to the numbers, and says their unit

    @property
    def lack(self) -> str | None:
        """Say how many answers have no number; None if all have one."""
        if not self.lacking:
            return None
        have = "has" if self.lacking == 1 else "have"
        number = self.relation or "number"
        return f"{self.lacking:,} of {self.of + self.lacking:,} {have} no {number} in the graph"

    def describe(self, forms: LiteralForms, names: Sequence[str]) -> str:
        """Say it for people; the first of these names has the largest number."""
        places = max(0, _DIGITS - len(str(abs(int(self.number)))))
        number = forms.write(LiteralTerm(f"{round(self.number, places):.15g}"), self.relation)
        match self.form:
            case "difference" if self.number and len(names) == self.of == 2:
                return f"{number}: {names[0]} has more than {names[1]}"
            case "difference":
                return f"{number} between the largest and the smallest of {self.of:,}"
            case "average" | "average bindings":
                return f"{number} on average, of {self.of:,}"
            case _:
                return f"{number} in total, of {self.of:,}"


@dataclass(frozen=True, slots=True)
class EvidenceTriple:
    """A triple of the graph on the way from a topic to an answer.

    `part` is the sentence that the triple proves, as an index of the trace's ``crp_words``: the
    first if it proves several, None if the answer comes from no path.
    """

    subject: Term
    relation: str
    object: Term
    subject_name: str  # its id if it has no name
    object_name: str  # the text of a literal
    part: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON record."""
        return {
            "subject": term_text(self.subject),
            "subject_name": self.subject_name,
            "relation": self.relation,
            "object": term_text(self.object),
            "object_name": self.object_name,
            "part": self.part,
        }


class WhyNot(NamedTuple):
    """Why a question has no answer: a code for programs, and a sentence for people."""

    reason: Reason
    problem: str


class Trace(Protocol):
    """The record of how a method worked on one question; each method has its own."""

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON record."""

    def describe(self) -> list[str]:
        """Say in English lines how the answers were found, or why there are none."""


@dataclass(frozen=True, slots=True)
class PartsTrace:
    """The traces of several questions that were asked in one; each answer has its own."""

    traces: tuple[Trace, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return nothing: the records of the parts have it."""
        return {}

    def describe(self) -> list[str]:
        """Say how each was found."""
        return [line for trace in self.traces for line in trace.describe()]


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a question, with its proof."""

    question: str
    answers: tuple[AnswerEntity, ...]  # best first; if there are none, `problem` says why
    trace: Trace
    linked: "tuple[LinkedEntity, ...]" = ()  # entities that the question mentions, best first
    confidence: float | None = None  # the expected F1 of the answers, in [0, 1]; None if not known
    sparql: str | None = None  # the query that returned the answers; None if no single query did
    evidence: tuple[EvidenceTriple, ...] = ()  # triples that join the topic to the first answers
    stage: str | None = None  # the stage of the method that found the answers
    problem: str | None = None  # why there are no answers, or what is missing from their proof
    reason: Reason | None = None  # why there are no answers, as a code; None if there are
    truncated: bool = False  # more answers exist than were fetched
    usage: Usage = field(default_factory=Usage)  # of the general model
    seconds: Mapping[str, float] = field(default_factory=dict)  # wall time by stage
    boolean: bool | None = None  # the answer to a yes/no question
    count: int | None = None  # the answer to "how many?"; `answers` lists what was counted
    value: Computed | None = None  # a sum, average or difference of numbers; `answers` have them
    not_understood: tuple[str, ...] = ()  # words that the path does not express, such as a *not*
    not_used: tuple[str, ...] = ()  # words of the question that the path says nothing about
    unsure_below: float = 0.0  # the confidence below which it is only a guess
    understood: str | None = None  # the whole question, where what was asked leaves something out
    parts: "tuple[Answer, ...]" = ()  # the answers to each of several questions in one

    @classmethod
    def of_parts(cls, question: str, parts: "Sequence[Answer]") -> "Answer":
        """Put together the answers to several questions that were asked in one."""
        sure = [each.confidence for each in parts if each.confidence is not None]
        seconds: dict[str, float] = {}
        for each in parts:
            for stage, s in each.seconds.items():
                seconds[stage] = seconds.get(stage, 0.0) + s
        return cls(
            question,
            (),
            PartsTrace(tuple(each.trace for each in parts)),
            linked=tuple(dict.fromkeys(entity for each in parts for entity in each.linked)),
            confidence=min(sure, default=None),
            problem=next((each.problem for each in parts if not each.is_answered), None),
            usage=sum((each.usage for each in parts), Usage()),
            seconds=seconds,
            unsure_below=max(each.unsure_below for each in parts),
            parts=tuple(parts),
        )

    @property
    def is_partial(self) -> bool:
        """Whether only some of its parts have an answer."""
        return 0 < sum(each.is_answered for each in self.parts) < len(self.parts)

    @property
    def is_answered(self) -> bool:
        """Whether the question has an answer of any kind, a guess included."""
        of_parts = any(each.is_answered for each in self.parts)
        return of_parts or bool(self.answers) or self.boolean is not None or self.count is not None

    @property
    def status(self) -> Status:
        """Whether there is an answer, and whether it is sure."""
        if not self.is_answered:
            return "none"
        is_unsure = self.confidence is not None and self.confidence < self.unsure_below
        return "unsure" if is_unsure else "answered"

    @property
    def doubt(self) -> str | None:
        """Why the answer is only a guess, in words; None if it is none."""
        if self.status != "unsure":
            return None
        unlinked = (
            "" if self.linked else ", and the graph has no entity of any name in the question"
        )
        return f"the confidence is below {self.unsure_below:g}{unlinked}"

    def to_dict(self) -> dict[str, Any]:
        """Return everything as a JSON record."""
        if_set = {
            "boolean": self.boolean,
            "count": self.count,
            "value": None if self.value is None else self.value.number,
            "doubt": self.doubt,
            "not_understood": list(self.not_understood) or None,
            "not_used": list(self.not_used) or None,
            "understood": self.understood,
            "parts": [each.to_dict() for each in self.parts] or None,
            "partial": self.is_partial or None,
        }
        return {
            "question": self.question,
            "answers": [answer.to_dict() for answer in self.answers],
            **{name: value for name, value in if_set.items() if value is not None},
            "status": self.status,
            "confidence": rounded(self.confidence),
            "truncated": self.truncated,
            "problem": self.problem,
            "reason": self.reason,
            "stage": self.stage,
            "sparql": self.sparql,
            "evidence": [triple.to_dict() for triple in self.evidence],
            "linked": [
                {"mid": e.mid, "name": e.name, "mention": e.mention, "score": round(e.score, 4)}
                for e in self.linked
            ],
            "trace": self.trace.to_dict(),
            "usage": {"general": self.usage.to_dict()},
            "seconds": {stage: round(s, 4) for stage, s in self.seconds.items()},
        }

    def to_dataframe(self) -> "polars.DataFrame":
        """Return the answers as a table, but not a yes or no or a count.

        Its columns are ``mid``, ``value``, ``name``, ``origin`` and ``confidence``.
        """
        import polars

        rows = [answer.to_dict() for answer in self.answers]
        texts = dict.fromkeys(("mid", "value", "name", "origin"), polars.String)
        return polars.DataFrame(rows, {**texts, "confidence": polars.Float64})

    def __repr__(self) -> str:
        return in_one_line(self.to_dict())

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """Return what a notebook shows."""
        shown = self.parts or (self,)
        html = "\n".join(as_html(each.to_dict(), each.trace.describe()) for each in shown)
        return {"text/plain": repr(self), "text/html": html}


def rounded(confidence: float | None) -> float | None:
    """Return a confidence with four digits, as records have it."""
    return None if confidence is None else round(confidence, 4)


Style = Literal["answer", "heading", "warning", "faint"]

_SHOWN = 10
_DIGITS = 6  # of a sum or average at least, if it has so many, in what people read
_ORIGINS = {origin: f"  [{note}]" for origin, note in ORIGIN_NOTES.items()}
_HINTS = {"unlinked": " Name one with --topic MID, or with :topic at the prompt."}
"""Advice for the terminal by the reason why there is no answer."""

_OF_ANYTHING = ("type.object.", "common.topic.")
"""Relations of these types do not say what kind of thing a node is."""


class Line(NamedTuple):
    """A line of output."""

    text: str
    style: Style | None = None  # where there are colours
    wraps: bool = True  # a line of a query must not be broken into several


def literal_forms(answer: Answer, graph: Graph) -> LiteralForms:
    """Read from the graph how the literals among the answers are written for reading."""
    answers = (answer, *answer.parts)
    relations = [
        relation
        for each in answers
        for item in each.answers
        if isinstance(item.term, LiteralTerm) and (relation := _relations(each).get(item.term))
    ]
    relations += [
        each.value.relation
        for each in answers
        if each.value is not None and each.value.relation is not None
    ]
    try:
        return read_literal_forms(graph, relations)
    except GraphError as error:
        logger.warning("literals are shown as the graph writes them: %s", error)
        return LiteralForms()


def answer_lines(answer: Answer, forms: LiteralForms) -> Iterator[Line]:
    """Write an answer: the answers, how they were found, the evidence and the query."""
    if answer.parts:
        for number, part in enumerate(answer.parts, 1):
            if number > 1:
                yield from (Line(""), Line(""))
            yield Line(f"{number}. {part.understood or part.question}", "heading")
            yield from answer_lines(replace(part, understood=None), forms)
        return
    if answer.understood is not None:
        yield Line(f"Understood as: {answer.understood}", "faint")
    if answer.status == "unsure":
        yield Line(f"Not sure ({answer.confidence:.2f}): {answer.doubt}. Best guess:", "warning")
    yield from _answer_lines(answer, forms)
    if answer.problem is not None:
        kind = "Note" if answer.is_answered else "No answer"
        hint = _HINTS.get(answer.reason or "", "")
        yield Line(f"{kind}: {answer.problem.removesuffix('.')}.{hint}", "warning")
    if answer.not_understood:
        words = ", ".join(f"“{word}”" for word in answer.not_understood)
        yield Line(f"Not understood: {words}. The path below does not say it.", "warning")
    if answer.not_used:
        words = ", ".join(f"“{word}”" for word in answer.not_used)
        yield Line(f"Not used: {words}.", "faint")
    if answer.confidence is not None and answer.status != "unsure":
        yield Line(f"Confidence: {answer.confidence:.2f}")
    yield Line("")
    for text in answer.trace.describe():
        yield Line(text, "heading" if text.endswith(":") and not text.startswith(" ") else None)
    if answer.evidence and answer.boolean is None:
        yield from (Line(""), Line("Evidence:", "heading"))
        yield from _evidence(answer.evidence)
    if answer.sparql is not None:
        yield from (Line(""), Line("SPARQL:", "heading"))
        for text in prefix_query(answer.sparql).split("\n"):
            yield Line(f"  {text}", wraps=False)


def last_lines(graph: str, seconds: Mapping[str, float]) -> list[Line]:
    """Write what stands below an answer: the graph that was asked, and the time of each stage."""
    times = ", ".join(f"{stage} {s:.2f} s" for stage, s in seconds.items())
    return [Line(""), Line(f"Graph: {graph}", "faint"), Line(f"Time: {times}", "faint")]


def _answer_lines(answer: Answer, forms: LiteralForms) -> Iterator[Line]:
    """Write what was answered: yes or no with its proof, a number with its list, or the answers."""
    if answer.boolean is not None:
        if answer.evidence:
            yield Line("Yes:" if answer.boolean else "No:", "answer")
            yield from _evidence(answer.evidence)
        else:
            yield Line("Yes." if answer.boolean else "No. Nothing in the graph says so.", "answer")
        return
    relations, kinds = _relations(answer), _kinds(answer.evidence)
    names = [
        forms.write(each.term, relations.get(each.term))
        if isinstance(each.term, LiteralTerm) and each.origin == "graph"
        else each.name
        for each in answer.answers[:_SHOWN]
    ]
    if answer.value is not None or answer.count is not None:
        count = len(answer.answers) if answer.count is None else answer.count
        value = answer.value
        counted = f"{count:,}" if value is None else value.describe(forms, names)
        is_said = value is not None and value.form == "difference" and value.number and count == 2
        if names and not is_said:  # Not all may have been fetched, so the count decides.
            left = count - len(names)
            where = "" if answer.truncated else " (--json prints all)"
            rest = f" and {left:,} more{where}" if left > 0 else ""
            counted = f"{counted}: {', '.join(names)}{rest}"
        yield Line(counted, "answer")
        return
    differ = len({_sure(each) for each in answer.answers}) > 1
    for item, name in zip(answer.answers, names, strict=False):
        line = name
        if isinstance(item.term, str) and item.term != item.name:
            line = f"{name}  ({item.term})"
        elif item.term in kinds:
            line = _end(name, item.term, kinds)
        sure = f"  {_sure(item)}" if differ else ""
        yield Line(f"{line}{_ORIGINS.get(item.origin, '')}{sure}", "answer")
    if len(answer.answers) > _SHOWN:
        more = "+" if answer.truncated else ""
        yield Line(f"… and {len(answer.answers) - _SHOWN}{more} more (--json prints all)")


def _sure(item: AnswerEntity) -> str:
    """Write the confidence of an answer; nothing if it is not known."""
    return "" if item.confidence is None else f"{item.confidence:.2f}"


def _relations(answer: Answer) -> dict[Term, str]:
    """Return the relation that leads to each term, by the evidence."""
    return {triple.object: triple.relation for triple in reversed(answer.evidence)}


def _evidence(evidence: Sequence[EvidenceTriple]) -> Iterator[Line]:
    kinds = _kinds(evidence)
    for triple in evidence[:_SHOWN]:
        subject = _end(triple.subject_name, triple.subject, kinds)
        object_ = _end(triple.object_name, triple.object, kinds)
        yield Line(f"  {subject}  {triple.relation}  {object_}")
    if len(evidence) > _SHOWN:
        yield Line(f"  … and {len(evidence) - _SHOWN} more triples (--json prints all)")


def _end(name: str, term: Term, kinds: Mapping[Term, str]) -> str:
    """Write an end of a triple: its name, or what an unnamed node is with its mid."""
    if term != name or not is_mid(name):
        return name
    return f"[{kinds[term]} {term}]" if term in kinds else f"[{term}]"


def _kinds(evidence: Iterable[EvidenceTriple]) -> dict[Term, str]:
    """Say of each unnamed node what kind of thing it is, in words."""
    kinds: dict[Term, str] = {}
    # A relation belongs to a type, as `measurement_unit.dated_integer.number` does. Without one,
    # the relation that leads to the node says it.
    for triple in evidence:
        if triple.subject == triple.subject_name and is_mid(triple.subject_name):
            _, _, kind = triple.relation.rpartition(".")[0].rpartition(".")
            if kind and not triple.relation.startswith(_OF_ANYTHING):
                kinds.setdefault(triple.subject, kind.replace("_", " "))
    for triple in evidence:
        if triple.object == triple.object_name and is_mid(triple.object_name):
            kind = triple.relation.rpartition(".")[2].removesuffix("_s")
            kinds.setdefault(triple.object, kind.replace("_", " "))
    return kinds
