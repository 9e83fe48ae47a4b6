"""Write an answer for people to read, as lines; a terminal colours and wraps them.

Numbers, dates and units of answers are written for reading; evidence shows what the graph has, and
what kind of thing an unnamed node is.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from kbqa.engine.answer import Answer, AnswerEntity, EvidenceTriple
from kbqa.engine.display.notebook import ORIGIN_NOTES
from kbqa.kb.graph import Graph
from kbqa.kb.schema.literals import LiteralForms, read_literal_forms
from kbqa.sparql.errors import GraphError
from kbqa.sparql.queries.prefixes import prefix_query
from kbqa.sparql.terms import LiteralTerm, Term, is_mid

logger = logging.getLogger(__name__)

Style = Literal["answer", "heading", "warning", "faint"]

_SHOWN = 10
_ORIGINS = {origin: f"  [{note}]" for origin, note in ORIGIN_NOTES.items()}
_HINTS = {"unlinked": " Name one with --topic MID, or with :topic at the prompt."}
"""What to try in a terminal, by the reason why there is no answer; other doors have their own."""

_OF_ANYTHING = ("type.object.", "common.topic.")
"""Relations of these types do not say what kind of thing a node is."""


class Line(NamedTuple):
    """A line of output.

    Attributes:
        text: What it says.
        style: How it looks where there are colours.
        wraps: Whether it may be broken into several, which a query would not survive.
    """

    text: str
    style: Style | None = None
    wraps: bool = True


class ShownAnswer(NamedTuple):
    """An answer as `kbqa ask` prints it.

    Attributes:
        record: For --json.
        lines: For people; empty with --json.
    """

    record: Mapping[str, Any]
    lines: Sequence[Line]

    @property
    def is_answered(self) -> bool:
        """Whether the question has an answer of any kind, a guess included."""
        return bool(self.record["status"] != "none")


def literal_forms(answer: Answer, graph: Graph) -> LiteralForms:
    """Read from the graph how the literals among the answers are written for reading.

    If the graph does not say, they are written as they are.
    """
    relations = filter(None, map(_relations(answer).get, _literals(answer)))
    try:
        return read_literal_forms(graph, relations)
    except GraphError as error:
        logger.warning("literals are shown as the graph writes them: %s", error)
        return LiteralForms()


def answer_lines(answer: Answer, forms: LiteralForms) -> Iterator[Line]:
    """Write an answer: the answers, how they were found, the evidence and the query.

    Args:
        answer: What a method returned.
        forms: How literals are written.
    """
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
    if answer.confidence is not None and answer.status != "unsure":
        yield Line(f"Confidence: {answer.confidence:.2f}")
    yield Line("")
    for text in answer.trace.describe():
        yield Line(text, "heading" if text.endswith(":") and not text.startswith(" ") else None)
    if answer.evidence and answer.boolean is None:
        yield from (Line(""), Line("Evidence:", "heading"))
        yield from map(Line, _evidence(answer.evidence))
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
    relations = _relations(answer)
    if answer.boolean is not None:
        yield from _boolean_lines(answer)
    elif answer.count is not None:
        names = [_readable(each, forms, relations) for each in answer.answers]
        yield Line(_count_line(answer, names), "answer")
    else:
        kinds = _kinds(answer.evidence)
        differ = len({_sure(each) for each in answer.answers}) > 1
        for item in answer.answers[:_SHOWN]:
            name = _readable(item, forms, relations)
            if isinstance(item.term, LiteralTerm):
                line = name
            elif item.term == item.name:
                line = _end(name, item.term, kinds) if item.term in kinds else name
            else:
                line = f"{name}  ({item.term})"
            sure = f"  {_sure(item)}" if differ else ""
            yield Line(f"{line}{_ORIGINS.get(item.origin, '')}{sure}", "answer")
        if len(answer.answers) > _SHOWN:
            more = "+" if answer.truncated else ""
            yield Line(f"… and {len(answer.answers) - _SHOWN}{more} more (--json prints all)")


def _sure(item: AnswerEntity) -> str:
    """Write how sure an answer is; nothing if that is not known."""
    return "" if item.confidence is None else f"{item.confidence:.2f}"


def _boolean_lines(answer: Answer) -> Iterator[Line]:
    if answer.evidence:
        yield Line("Yes:" if answer.boolean else "No:", "answer")
        yield from map(Line, _evidence(answer.evidence))
    else:
        yield Line("Yes." if answer.boolean else "No. Nothing in the graph says so.", "answer")


def _count_line(answer: Answer, names: Sequence[str]) -> str:
    """Write a count and the first of what was counted.

    Not all of it may have been fetched, so the count decides how many more there are.
    """
    line = f"{answer.count:,}"
    if not names:
        return line
    more = (answer.count or 0) - len(names[:_SHOWN])
    where = "" if answer.truncated else " (--json prints all)"
    rest = f" and {more:,} more{where}" if more > 0 else ""
    return f"{line}: {', '.join(names[:_SHOWN])}{rest}"


def _readable(item: AnswerEntity, forms: LiteralForms, relations: Mapping[Term, str]) -> str:
    if isinstance(item.term, LiteralTerm) and item.origin == "graph":
        return forms.write(item.term, relations.get(item.term))
    return item.name


def _literals(answer: Answer) -> list[LiteralTerm]:
    return [each.term for each in answer.answers if isinstance(each.term, LiteralTerm)]


def _relations(answer: Answer) -> dict[Term, str]:
    """Return the relation that leads to each term, by the evidence."""
    return {triple.object: triple.relation for triple in reversed(answer.evidence)}


def _evidence(evidence: tuple[EvidenceTriple, ...]) -> Iterator[str]:
    kinds = _kinds(evidence)
    for triple in evidence[:_SHOWN]:
        subject = _end(triple.subject_name, triple.subject, kinds)
        object_ = _end(triple.object_name, triple.object, kinds)
        yield f"  {subject}  {triple.relation}  {object_}"
    if len(evidence) > _SHOWN:
        yield f"  … and {len(evidence) - _SHOWN} more triples (--json prints all)"


def _end(name: str, term: Term, kinds: Mapping[Term, str]) -> str:
    """Write an end of a triple: its name, or what an unnamed node is with its mid."""
    if term != name or not is_mid(name):
        return name
    return f"[{kinds[term]} {term}]" if term in kinds else f"[{term}]"


def _kinds(evidence: Iterable[EvidenceTriple]) -> dict[Term, str]:
    """Say of each unnamed node what kind of thing it is, in words.

    A relation belongs to a type, as `measurement_unit.dated_integer.number` does. Without one, the
    relation that leads to the node says it.
    """
    kinds: dict[Term, str] = {}
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
