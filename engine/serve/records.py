"""Bodies of requests and results, as pydantic models.

HTTP sends the whole record of an answer, which `Served.to_dict` makes and `AnswerRecord` documents.
MCP's tools send fields of it in an `AskResult`, for readers who pay by the token: at most
`MAX_RESULT_BYTES`, with lists shortened to fit and `truncated` set.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from kbqa.engine.answer import MAX_ANSWERS
from kbqa.engine.serve.served import (
    DEFAULT_MAX_ANSWERS,
    MAX_CONVERTED,
    MAX_PATH,
    MAX_QUESTION,
    Served,
)
from kbqa.kb.graph import Direction, Table
from kbqa.sparql.terms import term_text

Question = Annotated[
    str, Field(min_length=1, max_length=MAX_QUESTION, examples=["what is the capital of Kenya?"])
]
Mid = Annotated[str, Field(max_length=100, examples=["m.06w2sn5"])]
Topics = Annotated[
    list[Mid], Field(max_length=20, description="Mids of what it is about, if that is known.")
]
History = Annotated[
    list[Question],
    Field(max_length=20, description="The questions before it, oldest first, if it goes on."),
]
TimeoutS = Annotated[
    float | None,
    Field(gt=0, le=3600, description="Seconds that it may take; at most the server's own limit."),
]
MaxAnswers = Annotated[int, Field(ge=1, le=MAX_ANSWERS, description="Answers to list at most.")]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class AskBody(_Body):
    """A question."""

    question: Question
    topics: Topics = []
    history: History = []
    timeout_s: TimeoutS = None
    max_answers: MaxAnswers = DEFAULT_MAX_ANSWERS
    lines: Annotated[
        bool, Field(description="Return `lines` too: the answer as `kbqa ask` prints it.")
    ] = False


class PathBody(_Body):
    """A path, in either text form."""

    path: Annotated[str, Field(min_length=1, max_length=MAX_PATH)]


class RunPathBody(PathBody):
    """A path to run, and what it is to answer."""

    question: Annotated[str, Field(max_length=MAX_QUESTION)] = ""
    topics: Topics = []
    relax: Annotated[
        bool, Field(description="Drop conditions if nothing satisfies all of them.")
    ] = True
    timeout_s: TimeoutS = None
    max_answers: MaxAnswers = DEFAULT_MAX_ANSWERS


class QueryBody(_Body):
    """A SPARQL query that is to become a path."""

    query: Annotated[str, Field(min_length=1, max_length=MAX_CONVERTED)]


class TextBody(_Body):
    """A text to link."""

    text: Annotated[str, Field(min_length=1, max_length=MAX_QUESTION)]


class AnswerRecord(BaseModel):
    """An answer with its proof: the record of `kbqa ask --json`, and how it was served."""

    model_config = ConfigDict(extra="allow")

    id: str
    status: Annotated[
        Literal["answered", "unsure", "none"],
        Field(description="`unsure`: less confident than the server's threshold."),
    ]
    question: str
    answers: Annotated[
        list[dict[str, Any]],
        Field(
            description="Each with `mid` or `value`, `name`, `origin` and, if known, `confidence`."
        ),
    ]
    confidence: Annotated[float | None, Field(description="The F1 to be expected.")]
    reason: Annotated[str | None, Field(description="Why there is no answer, as a code.")]
    problem: Annotated[str | None, Field(description="The same in a sentence.")]
    doubt: Annotated[str | None, Field(description="Why the answer is unsure, in words.")] = None
    understood: Annotated[
        str | None, Field(description="The whole question, where `question` leaves something out.")
    ] = None
    parts: Annotated[
        list[dict[str, Any]],
        Field(description="If several questions were asked in one, the record of each, in order."),
    ] = []
    partial: Annotated[bool, Field(description="Only some of the parts have an answer.")] = False
    truncated: bool
    sparql: Annotated[str | None, Field(description="The query that returned the answers.")]
    evidence: Annotated[
        list[dict[str, Any]],
        Field(description="Triples; `part` is the sentence of `crp_words` that one proves."),
    ]
    linked: list[dict[str, Any]]
    trace: Annotated[
        dict[str, Any], Field(description="The path (`crp`, `crp_words`) and all candidates.")
    ]
    seconds: dict[str, float]
    lines: Annotated[
        list[dict[str, Any]],
        Field(description="If asked for: each line's `text`, `style`, and whether it `wraps`."),
    ] = []


class PathRecord(BaseModel):
    """A path in all its forms."""

    crp: Annotated[str, Field(description="In kbqa's own form.")]
    routerkgqa: Annotated[str | None, Field(description="In RouterKGQA's, if that can say it.")]
    crp_words: Annotated[list[str], Field(description="In English, a sentence a part.")]
    sparql: Annotated[
        str | None, Field(description="The query; null while entities are only named.")
    ]
    problems: Annotated[list[str], Field(description="Lines that could not be read.")]


class LinkedRecord(BaseModel):
    """An entity that a text mentions."""

    mid: str
    name: str
    mention: str
    score: float


class FoundEntity(BaseModel):
    """An entity that was found by its name."""

    mid: str
    name: str
    matched: Annotated[str, Field(description="The name or alias that matches.")]
    types: list[str]
    triples: Annotated[int, Field(description="How well known it is.")]


class EntityRecord(BaseModel):
    """An entity."""

    mid: str
    name: str
    types: list[str]
    outgoing: Annotated[int | None, Field(description="Triples that leave it.")]
    incoming: Annotated[int | None, Field(description="Triples that enter it.")]


class RelationRecord(BaseModel):
    """A relation of an entity."""

    relation: str
    name: str | None
    direction: Direction
    count: Annotated[int | None, Field(description="Its edges; null if counting took too long.")]


class RelationsRecord(BaseModel):
    """The relations of an entity."""

    mid: str
    name: str
    relations: list[RelationRecord]
    truncated: bool


class NeighbourRecord(BaseModel):
    """An end of a relation: an entity with its mid, or a literal with its value."""

    mid: str | None = None
    value: str | None = None
    name: str


class NeighboursRecord(BaseModel):
    """What one relation leads to from an entity."""

    mid: str
    name: str
    relation: str
    direction: Direction
    offset: int
    neighbours: list[NeighbourRecord]
    truncated: Annotated[bool, Field(description="There are more, from a larger offset on.")]


class InfoRecord(BaseModel):
    """What the server is."""

    version: str
    state: str
    method: str | None
    model: str | None
    graph: dict[str, Any]
    limits: dict[str, float | int | None]


class ProblemRecord(BaseModel):
    """An error (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    request_id: str
    line: int | None = None
    reason: str | None = None
    retry_after_s: int | None = None


MAX_RESULT_BYTES = 8000
MAX_EVIDENCE = 20
MAX_CANDIDATES = 3
MAX_PART_ANSWERS = 10
MAX_TYPES = 10
"""Types of an entity in a list of entities."""

_MAX_TEXT = 300
"""Characters of a name or a literal: the texts of a graph may have ten thousand."""

_MAX_SOURCE = 2500
"""Characters of a path or query; a longer one is left out, as a part of it would mislead."""

_ADVICE = {"unlinked": ". Find its mid with search_entities, and give it in `topics`."}
"""Advice by the reason why there is no answer."""

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


class PartResult(BaseModel):
    """The answer to one of several questions that were asked in one."""

    question: Annotated[str, Field(description="In full, so that it can be asked alone.")]
    status: Literal["answered", "unsure", "none"]
    answers: list[AnswerItem] = []
    boolean: bool | None = None
    count: int | None = None
    confidence: float | None = None
    problem: str | None = None
    path_words: list[str] = []


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
    value: Annotated[
        float | None, Field(description="A sum, average or difference of numbers of `answers`.")
    ] = None
    confidence: Annotated[
        float | None, Field(description="The F1 to be expected of the answers, from 0 to 1.")
    ] = None
    reason: str | None = None
    problem: str | None = None
    doubt: Annotated[str | None, Field(description="Why the answer is unsure, in words.")] = None
    not_understood: Annotated[
        list[str], Field(description="Words of the question that the path does not express.")
    ] = []
    not_used: Annotated[
        list[str], Field(description="Words of the question that the path says nothing about.")
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
    understood: Annotated[
        str | None, Field(description="The whole question, if it was completed from `history`.")
    ] = None
    parts: Annotated[
        list[PartResult],
        Field(description="If several questions were asked in one, the answer to each, in order."),
    ] = []
    partial: Annotated[bool, Field(description="Only some parts have an answer.")] = False
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
    """Return the fields of an answer's record that a tool gives, with long texts cut."""
    whole = served.to_dict(max_answers)
    source, query = whole["trace"].get("crp"), whole["sparql"]
    record = _cut(whole)
    trace, evidence = record["trace"], record["evidence"]
    others = [
        {
            "path": beam["crp"],
            "confidence": beam["confidence"],
            "answer_count": beam.get("answer_count"),
            "first_answers": beam.get("first_answers") or [],
        }
        for number, beam in enumerate(trace.get("beams") or [])
        if number != trace.get("beam") and beam.get("crp")
    ]
    problem, advice = record["problem"], _ADVICE.get(record["reason"] or "", "")
    parts = record.get("parts") or []
    return AskResult.model_validate(
        {
            **record,  # fields of other names are ignored
            "problem": problem if problem is None else problem + advice,
            "path_words": trace.get("crp_words") or [],
            "dropped": trace.get("dropped") or [],
            "path": _unless_long(source),
            "sparql": _unless_long(query),
            "evidence": [
                f"{_end(each, 'subject')} {each['relation']} {_end(each, 'object')}"
                for each in evidence[:MAX_EVIDENCE]
            ],
            "candidates": others[:MAX_CANDIDATES],
            "parts": [
                {
                    **each,
                    "question": each.get("understood") or each["question"],
                    "answers": each["answers"][:MAX_PART_ANSWERS],
                    "path_words": each["trace"].get("crp_words") or [],
                }
                for each in parts
            ],
            "truncated": record["truncated"]
            or any(each["truncated"] or len(each["answers"]) > MAX_PART_ANSWERS for each in parts)
            or len(evidence) > MAX_EVIDENCE
            or _unless_long(source) != source
            or _unless_long(query) != query,
        }
    )


def checked_path(record: PathRecord) -> AskResult:
    """Return a path that was only read, as a tool gives it."""
    path, query = _unless_long(record.crp), _unless_long(record.sparql)
    return AskResult(
        status="checked",
        problem=_cut("; ".join(record.problems) or None),
        path_words=_cut(record.crp_words),
        path=path,
        sparql=query,
        truncated=path != record.crp or query != record.sparql,
    )


def rows_result(found: Table | bool) -> Rows:
    """Return a query's result, as a tool gives it."""
    if isinstance(found, bool):
        return Rows(boolean=found)
    rows = [[None if term is None else term_text(term) for term in row] for row in found.rows]
    return Rows(columns=list(found.variables), rows=_cut(rows), truncated=found.truncated)


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


def _end(triple: Mapping[str, str], end: str) -> str:
    term, name = triple[end], triple[f"{end}_name"]
    return name if name == term else f"{name} ({term})"


def _unless_long(source: str | None) -> str | None:
    return None if source is None or len(source) > _MAX_SOURCE else source


def _cut(value: Any) -> Any:
    """Cut all texts in a record."""
    match value:
        case str():
            return value if len(value) <= _MAX_TEXT else f"{value[:_MAX_TEXT]}…"
        case dict():
            return {name: _cut(each) for name, each in value.items()}
        case list() | tuple():
            return [_cut(each) for each in value]
        case _:
            return value
