"""Retrieve triples for a question set and write a row for each question, for any reader.

A run is as one of `kbqa.engine.evaluation.evaluate`: a question that fails becomes a row with its
error, and a run can be resumed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from kbqa.engine.asked import Clock
from kbqa.engine.embedding.embedder import Embedder
from kbqa.engine.evaluation.evaluate import Recorded, log_failure, run_set
from kbqa.engine.files import invalid_field
from kbqa.engine.linking.linker import Linker, starting_topics
from kbqa.engine.questions.question_sets import Question
from kbqa.engine.retrieval.pooling import PoolingSettings, Shown
from kbqa.engine.retrieval.retrieval import (
    Retrieved,
    describe_scorer,
    make_scorer,
    retrieve,
)
from kbqa.engine.retrieval.retriever import ScorerName
from kbqa.engine.retrieval.subgraphs import Caps
from kbqa.kb.graph import DEFAULT_TIMEOUT_S, Graph, name_terms
from kbqa.kb.names import Names
from kbqa.kb.schema import GraphSchema
from kbqa.sparql.errors import InputError

SCHEMA_VERSION = 1


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class RowTriple(_Record):
    """A triple of a row; its object is an entity, or the text of a literal."""

    subject: str
    relation: str
    object: str
    score: float  # how likely the triple helps to answer, above 0 and at most 1
    pooled: float | None  # the score after pooling; None if nothing was pooled
    is_literal: bool = False
    subject_name: str | None = None  # its name, or its id; only rows with names have it
    object_name: str | None = None


class RetrievalRow(_Record):
    """The triples of a question. Fields that the file does not have are None or empty."""

    schema_version: int
    id: str
    question: str
    topics: tuple[str, ...]  # entities that the search started from, best first
    triples: tuple[RowTriple, ...]  # best first
    seen: int | None = None  # triples that were scored
    truncated: bool | None = None  # something around the topics was left out
    cut: Mapping[str, int] | None = None  # the fields of `kbqa.engine.retrieval.subgraphs.Cut`
    seconds: Mapping[str, float] | None = None  # by stage; only runs with timings have it
    error: str | None

    def to_dict(self) -> dict[str, Any]:
        """Return the row as a JSON record, without the fields that were not set."""
        return self.model_dump(exclude_unset=True)


def read_retrieval_row(record: Mapping[str, object], place: str) -> RetrievalRow:
    """Read a row; the message of an `InputError` names its place."""
    try:
        row = RetrievalRow.model_validate(record)
    except ValidationError as error:
        problem = invalid_field(error)
        raise InputError(f"{place} is not a row of `kbqa retrieve`: {problem}") from None
    if row.schema_version != SCHEMA_VERSION:
        raise InputError(
            f"{place} is a row of schema_version {row.schema_version}, and this kbqa reads "
            f"{SCHEMA_VERSION}. Run `kbqa retrieve` again."
        )
    return row


@dataclass(frozen=True, slots=True)
class RetrievalConfig:
    """The settings of a retrieval."""

    triples: int = 100  # of a question, at most
    scorer: ScorerName = "trained"
    scorer_file: Path | None = None  # None for the one that ships with kbqa
    shown: Shown = "once"  # a fact that a relation and its reverse state is there once or twice
    pooling: PoolingSettings = field(default_factory=PoolingSettings)
    gold_entities: bool = False  # topics are given; only a question without any is linked
    names: bool = False  # triples have the names of their ends
    timings: bool = True  # without seconds, runs can be compared byte by byte

    def __post_init__(self) -> None:
        if self.triples < 1:
            raise InputError(f"triples is {self.triples}: use 1 or more")
        self.pooling.check_count(self.triples)


class QuestionRetrieval:
    """Retrieves triples for questions over one graph. Any number of threads may use one.

    Raises:
        ModelError: The embedder or the scorer is missing or broken.
        StoreError: The store's schema is missing or broken.
    """

    def __init__(
        self,
        graph: Graph,
        names: Names,
        config: RetrievalConfig,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        self._graph, self.config = graph, config
        self._linker = Linker(graph, names)
        self._schema = GraphSchema(graph, timeout_s)
        self._embedder = Embedder.load()
        self._score = make_scorer(config.scorer, self._embedder, config.scorer_file, graph.labels)

    def settings(self) -> dict[str, object]:
        """Return all that decides the rows except the questions and the graph, for manifests."""
        config = self.config
        return {
            "retrieval": {
                "triples": config.triples,
                **describe_scorer(config.scorer, self._embedder, config.scorer_file),
                "shown": config.shown,
                **asdict(config.pooling),
                "caps": asdict(Caps()),
            },
            "gold_entities": config.gold_entities,
            "names": config.names,
            "timings": config.timings,
        }

    def row(self, question: Question) -> RetrievalRow:
        """Retrieve for a question; any error becomes its row."""
        clock = Clock()
        row: dict[str, object] = {
            "schema_version": SCHEMA_VERSION,
            "id": question.id,
            "question": question.text,
            "topics": (),
            "triples": (),
            "seen": None,
            "truncated": None,
            "cut": None,
        }
        error = None
        try:
            row["topics"] = topics = self._topics(question, clock)
            retrieved = retrieve(
                self._graph,
                self._schema,
                self._score,
                " ".join(question.text.split()),
                topics,
                self.config.triples,
                self.config.pooling,
                shown=self.config.shown,
                clock=clock,
            )
            row |= {
                "triples": list(self._triples(retrieved, clock)),
                "seen": retrieved.seen,
                "truncated": retrieved.truncated,
                "cut": asdict(retrieved.subgraph.cut),
            }
        except Exception as failure:  # noqa: BLE001 – one question's failure never ends a run
            log_failure(question, failure)
            error = f"{type(failure).__name__}: {failure}"
        if self.config.timings:
            row["seconds"] = {stage: round(s, 4) for stage, s in clock.seconds.items()}
        return RetrievalRow.model_validate({**row, "error": error})

    def _topics(self, question: Question, clock: Clock) -> tuple[str, ...]:
        """Return where to start: the entities that methods start from."""
        if not question.text.strip():
            raise InputError("the question is empty; ask something in words")
        given = question.topics if self.config.gold_entities else ()
        with clock.stage("link"):
            linked = () if given else self._linker.link(question.text)
            starts = starting_topics(given, linked)
        return tuple(dict.fromkeys(each.mid for each in starts if each.mid))

    def _triples(self, retrieved: Retrieved, clock: Clock) -> Iterator[Mapping[str, object]]:
        """Yield the triples, with names if these are wanted."""
        triples = list(retrieved.triples())
        if not self.config.names:
            yield from (each.to_dict() for each in triples)
            return
        with clock.stage("name"):
            ends = dict.fromkeys(end for each in triples for end in (each.subject, each.object))
            names = name_terms(self._graph, ends)
        for each in triples:
            named = {"subject_name": names[each.subject], "object_name": names[each.object]}
            yield {**each.to_dict(), **named}


def retrieve_set(
    retrieval: QuestionRetrieval,
    questions: Sequence[Question],
    output: Path,
    recorded: Recorded,
    *,
    concurrency: int = 1,
    report: Callable[[RetrievalRow], object] = lambda row: None,
) -> list[RetrievalRow]:
    """Retrieve for questions and append a row for each to `output`, as `run_set` says.

    `recorded` records the questions and the graph.
    """
    return run_set(
        questions,
        output,
        Recorded(retrieval.settings(), {}) | recorded,
        read_retrieval_row,
        lambda rows: (partial(retrieval.row, each) for each in questions if each.id not in rows),
        concurrency=concurrency,
        report=report,
    )
