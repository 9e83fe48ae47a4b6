"""What the tools return: short records, for readers who pay by the token.

A result is at most `MAX_RESULT_BYTES` long. Lists are shortened to fit, and `truncated` says so.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, Field

from kbqa.engine.answer import Answer, term_text
from kbqa.engine.serve.asking.served import Served
from kbqa.engine.serve.records import (
    EntityRecord,
    FoundEntity,
    LinkedRecord,
    PathRecord,
)
from kbqa.kb.graph import Table
from kbqa.sparql.terms import Term

MAX_RESULT_BYTES = 8000
MAX_EVIDENCE = 20
MAX_CANDIDATES = 3
MAX_TYPES = 10
"""Types of an entity in a list of entities."""

_MAX_TEXT = 300
"""Characters of a name or a literal: the texts of a graph may have ten thousand."""

_MAX_SOURCE = 2500
"""Characters of a path or query; a longer one is left out, as a part of it would mislead."""

_ADVICE = {"unlinked": ". Find its mid with search_entities, and give it in `topics`."}
"""What to try, by the reason why there is no answer."""

_Result = TypeVar("_Result", bound=BaseModel)

Truncated = Annotated[
    bool, Field(description="Something is left out: ask for less, or for the next part.")
]


class AnswerItem(BaseModel):
    """An answer: an entity with its mid, or a literal with its value."""

    mid: str | None = None
    value: str | None = None
    name: str


class Candidate(BaseModel):
    """Another path that was written for the question."""

    path: str
    confidence: float | None
    answer_count: int | None
    first_answers: list[str]


class AskResult(BaseModel):
    """An answer with its proof."""

    status: Annotated[
        Literal["answered", "unsure", "none", "checked"],
        Field(
            description="unsure: answered with little confidence. none: no answer; `reason` and "
            "`problem` say why. checked: the path was only read."
        ),
    ]
    answers: list[AnswerItem] = []
    boolean: Annotated[bool | None, Field(description="The answer to a yes/no question.")] = None
    count: Annotated[int | None, Field(description="The answer to “how many?”.")] = None
    confidence: Annotated[
        float | None, Field(description="The F1 to be expected of the answers, from 0 to 1.")
    ] = None
    reason: str | None = None
    problem: str | None = None
    doubt: Annotated[str | None, Field(description="Why the answer is unsure, in words.")] = None
    not_understood: Annotated[
        list[str], Field(description="Words of the question that the path does not express.")
    ] = []
    path_words: Annotated[list[str], Field(description="The path in English.")] = []
    dropped: Annotated[
        list[str], Field(description="Conditions that were dropped: nothing satisfied all.")
    ] = []
    path: Annotated[str | None, Field(description="The path, for run_path.")] = None
    sparql: Annotated[str | None, Field(description="The query that returned the answers.")] = None
    evidence: Annotated[
        list[str], Field(description="Triples of the graph that prove the first answers.")
    ] = []
    candidates: list[Candidate] = []
    truncated: Truncated = False


class LinkedEntities(BaseModel):
    """The entities that a text mentions, best first."""

    entities: list[LinkedRecord]
    truncated: Truncated = False


class FoundEntities(BaseModel):
    """The entities with a name like the one looked for, best first."""

    entities: list[FoundEntity]
    truncated: Truncated = False


class DescribedEntity(EntityRecord):
    """An entity."""

    truncated: Truncated = False


class Rows(BaseModel):
    """The rows of a SELECT, or the answer to an ASK."""

    columns: list[str] = []
    rows: Annotated[
        list[list[str | None]], Field(description="Ids of resources, and texts of literals.")
    ] = []
    boolean: Annotated[bool | None, Field(description="The answer to an ASK.")] = None
    truncated: Truncated = False


def ask_result(served: Served, max_answers: int) -> AskResult:
    """Return what a tool says of an answer."""
    answer, record = served.answer, served.to_dict(max_answers)
    trace = record["trace"]
    path, query = _source(trace.get("crp")), _source(answer.sparql)
    others = [
        each
        for number, each in enumerate(trace.get("beams") or ())
        if number != trace.get("beam") and each.get("crp")
    ]
    return AskResult(
        status=served.status,
        answers=[
            AnswerItem(
                mid=each.get("mid"),
                value=_maybe_short(each.get("value")),
                name=_short(each["name"]),
            )
            for each in record["answers"]
        ],
        boolean=answer.boolean,
        count=answer.count,
        confidence=record["confidence"],
        reason=record["reason"],
        problem=_with_advice(answer),
        doubt=answer.doubt,
        not_understood=list(map(_short, answer.not_understood)),
        path_words=list(map(_short, trace.get("crp_words") or ())),
        dropped=list(map(_short, trace.get("dropped") or ())),
        path=path,
        sparql=query,
        evidence=[
            f"{_end(each.subject, each.subject_name)} {each.relation} "
            f"{_end(each.object, each.object_name)}"
            for each in answer.evidence[:MAX_EVIDENCE]
        ],
        candidates=list(map(_candidate, others[:MAX_CANDIDATES])),
        truncated=record["truncated"]
        or len(answer.evidence) > MAX_EVIDENCE
        or (path is None and trace.get("crp") is not None)
        or (query is None and answer.sparql is not None),
    )


def checked_path(record: PathRecord) -> AskResult:
    """Return what a tool says of a path that was only read."""
    path, query = _source(record.crp), _source(record.sparql)
    return AskResult(
        status="checked",
        problem=_maybe_short("; ".join(record.problems) or None),
        path_words=list(map(_short, record.crp_words)),
        path=path,
        sparql=query,
        truncated=path is None or (query is None and record.sparql is not None),
    )


def rows_result(found: Table | bool) -> Rows:
    """Return what a tool says of a query's result."""
    if isinstance(found, bool):
        return Rows(boolean=found)
    return Rows(
        columns=list(found.variables),
        rows=[[None if t is None else _short(term_text(t)) for t in row] for row in found.rows],
        truncated=found.truncated,
    )


def shortened(record: _Result) -> _Result:
    """Return a record of the graph with its names cut to a reasonable length."""
    return type(record).model_validate(_cut(record.model_dump()))


def fitted(result: _Result) -> _Result:
    """Shorten the longest lists of a result until it is no longer than `MAX_RESULT_BYTES`."""
    while len(result.model_dump_json().encode()) > MAX_RESULT_BYTES:
        lists = {name: value for name, value in result if isinstance(value, list) and value}
        if not lists:
            break
        longest = max(lists, key=lambda name: len(str(lists[name])))
        kept = lists[longest][: len(lists[longest]) * 2 // 3]
        result = result.model_copy(update={longest: kept, "truncated": True})
    return result


def _with_advice(answer: Answer) -> str | None:
    if answer.problem is None:
        return None
    return _short(answer.problem) + _ADVICE.get(answer.reason or "", "")


def _candidate(beam: Mapping[str, Any]) -> Candidate:
    return Candidate(
        path=_short(beam["crp"]),
        confidence=beam["confidence"],
        answer_count=beam.get("answer_count"),
        first_answers=list(map(_short, beam.get("first_answers") or ())),
    )


def _end(term: Term, name: str) -> str:
    text = term_text(term)
    return _short(name) if name == text else f"{_short(name)} ({text})"


def _source(text: str | None) -> str | None:
    return None if text is None or len(text) > _MAX_SOURCE else text


def _maybe_short(text: str | None) -> str | None:
    return None if text is None else _short(text)


def _short(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}…"


def _cut(value: Any) -> Any:
    match value:
        case str():
            return _short(value)
        case dict():
            return {name: _cut(each) for name, each in value.items()}
        case list():
            return [_cut(each) for each in value]
        case _:
            return value
