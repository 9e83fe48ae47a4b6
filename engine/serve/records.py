"""What goes over the wire, as pydantic models: bodies of requests, and what look-ups return.

Answers are records of `Answer.to_dict`; `AnswerRecord` documents them.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from kbqa.engine.answer import MAX_ANSWERS
from kbqa.engine.serve.asking.served import DEFAULT_MAX_ANSWERS
from kbqa.engine.serve.settings import MAX_CONVERTED, MAX_PATH, MAX_QUESTION
from kbqa.kb.graph import Direction

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
