"""What goes over the wire, as pydantic models: bodies of requests, and what look-ups return.

Answers are records of `Answer.to_dict`; `AnswerRecord` documents them.

What the tools return: short records, for readers who pay by the token.

A result is at most `MAX_RESULT_BYTES` long. Lists are shortened to fit, and `truncated` says so.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from kbqa.engine.answer import MAX_ANSWERS, Answer, term_text
from kbqa.engine.serve.served import (
    DEFAULT_MAX_ANSWERS,
    MAX_CONVERTED,
    MAX_PATH,
    MAX_QUESTION,
    Served,
)
from kbqa.kb.graph import Direction, Table
from kbqa.sparql.terms import Term

Question = Annotated[
    str, Field(min_length=1, max_length=MAX_QUESTION, examples=["what is the capital of Kenya?"])
]
Mid = Annotated[str, Field(max_length=100, examples=["m.06w2sn5"])]
Topics = Annotated[
    list[Mid], Field(max_length=20, description="Mids of what it is about, if that is known.")
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


class GraphRecord(BaseModel):
    """The graph that the server answers from."""

    kind: Literal["store", "endpoint"]
    settings: dict[str, Any]


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
