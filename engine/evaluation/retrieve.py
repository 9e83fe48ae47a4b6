"""Retrieve triples for a question set and write a row for each question, for any reader.

As in a run of `kbqa.engine.evaluation.evaluate`, a question that fails becomes a row with its
error, an interrupted run can be resumed, which also tries again what failed, and a manifest next to
the rows records what made them.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from kbqa.engine.asked import Clock
from kbqa.engine.embedding.embedder import Embedder
from kbqa.engine.evaluation.rows import take_over, write_rows
from kbqa.engine.files import claimed
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
from kbqa.kb.graph import DEFAULT_TIMEOUT_S, Graph
from kbqa.kb.names.search import Names, name_terms
from kbqa.kb.schema import GraphSchema
from kbqa.sparql.errors import InputError, KbqaError

logger = logging.getLogger(__name__)

SCHEMA_VERSION = 1


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class RowTriple(_Record):
    """A triple of a row; its subject and object are ids of entities, or an object is a text.

    Attributes:
        subject: An entity.
        relation: From the subject to the object.
        object: An entity, or the text of a literal.
        score: How likely the triple helps to answer, above 0 and at most 1.
        pooled: The score after pooling; None if nothing was pooled.
        is_literal: Whether the object is a literal; only such triples have it.
        subject_name: Its name, or its id if it has none; only rows with names have it.
        object_name: Likewise; of a literal its text.
    """

    subject: str
    relation: str
    object: str
    score: float
    pooled: float | None
    is_literal: bool = False
    subject_name: str | None = None
    object_name: str | None = None


class RetrievalRow(_Record):
    """What was retrieved for a question. Fields that the file does not have are None or empty.

    Attributes:
        schema_version: Of the rows.
        id: The question's.
        question: Its words.
        topics: Ids of the entities that the search started from, best first.
        triples: Best first.
        seen: How many triples were scored; None if the question failed.
        truncated: Whether something around the topics was left out; None if the question failed.
        cut: What was left out, in numbers: the fields of `kbqa.engine.retrieval.subgraphs.Cut`.
        seconds: Wall time by stage; only runs with timings have it.
        error: Why the question failed; None if it did not.
    """

    schema_version: int
    id: str
    question: str
    topics: tuple[str, ...]
    triples: tuple[RowTriple, ...]
    seen: int | None = None
    truncated: bool | None = None
    cut: Mapping[str, int] | None = None
    seconds: Mapping[str, float] | None = None
    error: str | None

    def to_dict(self) -> dict[str, Any]:
        """Return the row as a JSON record, without the fields that were not set."""
        return self.model_dump(exclude_unset=True)


def read_retrieval_row(record: Mapping[str, object], place: str) -> RetrievalRow:
    """Read a row.

    Args:
        record: Of JSON.
        place: Where it is, for messages.

    Raises:
        InputError: It is not a row, or one of a version that cannot be read.
    """
    try:
        row = RetrievalRow.model_validate(record)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = ".".join(map(str, first["loc"]))
        raise InputError(
            f"{place} is not a row of `kbqa retrieve`: {name}: {first['msg']}"
        ) from None
    if row.schema_version != SCHEMA_VERSION:
        raise InputError(
            f"{place} is a row of schema_version {row.schema_version}, and this kbqa reads "
            f"{SCHEMA_VERSION}. Run `kbqa retrieve` again."
        )
    return row


@dataclass(frozen=True, slots=True)
class RetrievalConfig:
    """How triples are retrieved for the questions of a set.

    Attributes:
        triples: Triples of a question, at most.
        scorer: What scores them.
        scorer_file: The JSON file of a trained scorer; None for the one that ships with kbqa.
        shown: Whether a fact that a relation and its reverse state is there once or twice.
        pooling: How triples are pooled.
        gold_entities: Topics are given with the questions; only a question without any is linked.
        names: Triples have the names of their ends.
        timings: Rows have seconds. Without them, runs can be compared byte by byte.

    Raises:
        InputError: There are to be more triples than reselection chooses among.
    """

    triples: int = 100
    scorer: ScorerName = "trained"
    scorer_file: Path | None = None
    shown: Shown = "once"
    pooling: PoolingSettings = field(default_factory=PoolingSettings)
    gold_entities: bool = False
    names: bool = False
    timings: bool = True

    def __post_init__(self) -> None:
        if self.triples < 1:
            raise InputError(f"triples is {self.triples}: use 1 or more")
        self.pooling.check_count(self.triples)


class QuestionRetrieval:
    """Retrieves triples for questions over one graph. Any number of threads may use one.

    Args:
        graph: The graph.
        names: Of its entities.
        config: How.
        timeout_s: Seconds for a query about the schema.

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
        """Return what decides the rows besides the questions and the graph, for manifests."""
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
        clock, head = Clock(), {"schema_version": SCHEMA_VERSION, "id": question.id}
        topics: tuple[str, ...] = ()
        found: dict[str, object] = {"seen": None, "truncated": None, "cut": None}
        triples: Sequence[Mapping[str, object]] = ()
        failure = None
        try:
            topics = self._topics(question, clock)
            retrieved = self._retrieve(question, topics, clock)
            triples = list(self._triples(retrieved, clock))
            found = {
                "seen": retrieved.seen,
                "truncated": retrieved.truncated,
                "cut": asdict(retrieved.subgraph.cut),
            }
        except Exception as error:  # one question's failure never ends a run
            name, is_bug = type(error).__name__, not isinstance(error, KbqaError)
            logger.warning("question %s failed: %s", question.id, name, exc_info=is_bug)
            failure = f"{name}: {error}"
        if self.config.timings:
            found["seconds"] = {stage: round(s, 4) for stage, s in clock.seconds.items()}
        return RetrievalRow.model_validate(
            {
                **head,
                "question": question.text,
                "topics": topics,
                "triples": triples,
                **found,
                "error": failure,
            }
        )

    def _topics(self, question: Question, clock: Clock) -> tuple[str, ...]:
        """Return where to start: the entities that methods start from."""
        if not question.text.strip():
            raise InputError("the question is empty; ask something in words")
        given = question.topics if self.config.gold_entities else ()
        with clock.stage("link"):
            linked = () if given else self._linker.link(question.text)
            starts = starting_topics(given, linked)
        return tuple(dict.fromkeys(each.mid for each in starts if each.mid))

    def _retrieve(self, question: Question, topics: Sequence[str], clock: Clock) -> Retrieved:
        config = self.config
        return retrieve(
            self._graph,
            self._schema,
            self._score,
            " ".join(question.text.split()),
            topics,
            config.triples,
            config.pooling,
            shown=config.shown,
            clock=clock,
        )

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
    settings: Mapping[str, object],
    notes: Mapping[str, object],
    *,
    concurrency: int = 1,
    report: Callable[[RetrievalRow], object] = lambda row: None,
) -> list[RetrievalRow]:
    """Retrieve for questions and append a row for each to `output`.

    Args:
        retrieval: Does it.
        questions: Those that have a row in `output` without an error are skipped.
        output: JSON Lines file of rows, in the order in which questions are done; the manifest goes
            to the same name with ``.manifest.json``.
        settings: What determines the rows besides `retrieval`, for the manifest: the questions and
            the graph. A resumed run must have the same.
        notes: Other facts for the manifest, which may differ.
        concurrency: Questions to work on at once.
        report: Called with each row, first with those that `output` had; by one thread at a time.

    Returns:
        All rows of the file, in the order of the questions.

    Raises:
        InputError: `output` cannot be written, or is not a run with these settings.
        OutputError: A row cannot be written.
    """
    notes = {**notes, "question_count": len(questions)}
    with claimed(output, {**retrieval.settings(), **settings}, notes) as is_begun:
        rows = take_over(output, read_retrieval_row) if is_begun else {}
        for row in rows.values():
            report(row)

        def note(row: RetrievalRow) -> None:
            rows[row.id] = row
            report(row)

        unread = [question for question in questions if question.id not in rows]
        jobs = (partial(retrieval.row, question) for question in unread)
        write_rows(output, jobs, note, concurrency=concurrency)
    return [rows[question.id] for question in questions]
