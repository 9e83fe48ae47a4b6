"""The rows of a run: the answer to each question, its scores and its cost.

`kbqa eval` writes rows and reports read them. What only one method knows is in its trace. Each row
is in the file whole or not at all, however the run ends. A run is its rows and the manifest next to
them.
"""

import json
import os
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, StrictBool, ValidationError

from kbqa.engine.answer import Answer
from kbqa.engine.chat.model import Usage
from kbqa.engine.evaluation.scores import (
    WRONG,
    NameScores,
    Predicted,
    Scores,
    score_answer,
    score_names,
)
from kbqa.engine.files import (
    drop_unfinished_line,
    invalid_field,
    manifest_path,
    read_manifest,
    read_rows,
)
from kbqa.engine.questions.question_sets import GoldKind, Question, convert_queries, gold_kind
from kbqa.engine.writing.generate import Candidate
from kbqa.sparql.crp import Crp
from kbqa.sparql.crp_match import CrpMatch
from kbqa.sparql.errors import InputError, OutputError
from kbqa.sparql.relax import Level, leaves
from kbqa.sparql.terms import term_text

SCHEMA_VERSION = 3

Count = Annotated[int, Field(ge=0)]

_NO_CALLS = Usage()

# Of the fields of a row, reports do not use the first, and of a trace and its steps only these.
_UNUSED = ("evidence", "linked", "sparql")
_USED_OF_TRACE = ("level", "repair", "stop", "queries", "decisions")
_USED_OF_STEP = (
    "kind",
    "hop",
    "chosen",
    "hidden",
    "clipped",
    "unread",
    "is_truncated",
    "no_decision",
    "input_tokens",
    "output_tokens",
)


class RowPart(BaseModel):
    """A part of a file that somebody else may have written."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class GoldShape(RowPart):
    """The shape of a gold query, taken from the CRP that means the same."""

    hops: Count  # steps of its main path
    constraints: Count  # at any depth, its ordering included
    ordered: bool  # it keeps the first or last of its answers

    @classmethod
    def of(cls, crp: Crp) -> "GoldShape":
        """Return the shape of a gold query's CRP."""
        constraints = sum(1 for _ in leaves(crp))
        return cls(hops=len(crp.path), constraints=constraints, ordered=crp.order is not None)


class RowAnswer(RowPart):
    """An answer, as `AnswerEntity.to_dict` writes it."""

    mid: str | None = None
    value: str | None = None
    name: str
    origin: str = "graph"
    confidence: float | None = None

    @property
    def key(self) -> str:
        """The mid or text, which is compared with the gold answers."""
        return self.mid or self.value or ""


class GeneralUsage(RowPart):
    """The cost of general models; only runs with timings have `cached_calls` and `seconds`."""

    calls: int
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    cached_calls: int | None = None
    seconds: float | None = None
    reasoned_calls: int | None = None  # None if no reply held reasoning

    @property
    def counted(self) -> tuple[int | None, int | None]:
        """The input and output tokens; None if the server did not count: every prompt has some."""
        is_known = self.input_tokens or not self.calls
        return (self.input_tokens, self.output_tokens) if is_known else (None, None)


class WriterUsage(RowPart):
    """The work of the small model; what an older kbqa did not count is None."""

    calls: int = 0
    input_tokens: int | None = None  # of the prompt
    output_tokens: int = 0  # of all paths
    best_tokens: int | None = None  # of the first path


class RowUsage(RowPart):
    """The work of the models on a question.

    Of the small model, `input_tokens`, `output_tokens` and `tokens` count the prompt and the first
    path alone, as RouterKGQA's Table 2 does. They are None if that is not known.
    """

    specialised: WriterUsage = WriterUsage()
    general: GeneralUsage

    @property
    def input_tokens(self) -> int | None:
        """The tokens that the models read."""
        writer = self.specialised
        return _sum(writer.input_tokens if writer.calls else 0, *self.general.counted[:1])

    @property
    def output_tokens(self) -> int | None:
        """The tokens that the models wrote."""
        writer = self.specialised
        return _sum(writer.best_tokens if writer.calls else 0, *self.general.counted[1:])

    @property
    def tokens(self) -> int | None:
        """The tokens that the models read and wrote."""
        return _sum(self.input_tokens, self.output_tokens)


class Row(RowPart):
    """A question's row. Fields that the file does not have are None or empty.

    The fields from `answers` to `seconds` are those of `Answer.to_dict`, and those from `category`
    to `gold_unanswerable` are of `Question`. `gold_names` has the names of each set of `gold`.
    `first_path` compares the first path that the small model wrote with that of the gold query.
    """

    schema_version: int
    id: str
    question: str
    tier: str | None = None
    type: str | None = None
    gold: tuple[tuple[str, ...], ...]
    gold_names: tuple[tuple[str, ...], ...] = ()
    category: str | None = None
    generalization: str | None = None
    function: str | None = None
    gold_boolean: StrictBool | None = None
    gold_count: Count | None = None
    gold_unanswerable: bool = False
    gold_shape: GoldShape | None = None
    first_path: CrpMatch | None = None
    answers: tuple[RowAnswer, ...]
    boolean: StrictBool | None = None
    count: Count | None = None
    value: float | None = None
    not_understood: tuple[str, ...] = ()
    status: str | None = None
    confidence: float | None = None
    truncated: bool = False
    problem: str | None = None
    reason: str | None = None
    stage: str | None = None
    sparql: str | None = None
    evidence: tuple[object, ...] = ()
    linked: tuple[object, ...] = ()
    trace: Mapping[str, object] | None = None
    usage: RowUsage | None = None
    seconds: Mapping[str, float] | None = None
    scores: Scores | None
    calls: int | None = None
    tokens: int | None = None
    cost_usd: float | None = None
    error: str | None

    @property
    def kind(self) -> GoldKind | None:
        """The kind of gold that its question has; None if it has none."""
        return gold_kind(self.gold, self.gold_boolean, self.gold_count, self.gold_unanswerable)

    @property
    def gold_size(self) -> int | None:
        """The number of gold answers, of all parses; None if the gold is of another kind."""
        return len(set().union(*self.gold)) if self.kind == "answers" else None

    @property
    def is_answered(self) -> bool:
        """Whether the question got an answer of any kind."""
        return bool(self.answers) or self.boolean is not None or self.count is not None

    @property
    def predicted(self) -> tuple[str, ...]:
        """The answers as they are compared with the gold ones, best first."""
        return tuple(answer.key for answer in self.answers)

    @property
    def origin(self) -> str | None:
        """Where the answers come from, such as ``graph`` or ``graph + text``; None without any."""
        return " + ".join(sorted({answer.origin for answer in self.answers})) or None

    @property
    def level(self) -> Level | None:
        """How far the path that answers was relaxed; None if the method does not relax paths."""
        level = (self.trace or {}).get("level")
        return next((each for each in get_args(Level) if each == level), None)

    @property
    def name_scores(self) -> NameScores | None:
        """The scores by the names of answers; None if the gold ones have no names."""
        if not self.gold_names:
            return None
        if self.error is not None:
            return NameScores(*(0.0 for _ in NameScores._fields))
        names = [answer.name for answer in self.answers]
        return score_names(names, self.gold_names, self.question)

    def to_dict(self) -> dict[str, Any]:
        """Return the row as a JSON record, without the fields that were not set."""
        return self.model_dump(exclude_unset=True)


def _sum(*counts: int | None) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def read_row(record: Mapping[str, object], place: str) -> Row:
    """Read a row; the message of an `InputError` names its place."""
    version = record.get("schema_version")
    if version != SCHEMA_VERSION:
        if version is None or not {"id", "scores"} <= record.keys():
            raise InputError(f"{place} is not a row of `kbqa eval`")
        raise InputError(
            f"{place} is a row of schema_version {version}, and this kbqa reads "
            f"{SCHEMA_VERSION}. Run `kbqa eval` again."
        )
    try:
        return Row.model_validate(record)
    except ValidationError as error:
        raise InputError(f"{place} is not a row of `kbqa eval`: {invalid_field(error)}") from None


def gold_paths(questions: Iterable[Question]) -> dict[str, Crp]:
    """Return gold queries as CRPs by question id; absent if no CRP means the same."""
    queries = {question.id: question.sparql for question in questions if question.sparql}
    crps = convert_queries(queries.values())
    return {id_: crp for id_, query in queries.items() if isinstance(crp := crps[query], Crp)}


def answered_row(
    question: Question,
    answer: Answer,
    candidates: Sequence[Candidate],
    shape: GoldShape | None,
    *,
    first_path: CrpMatch | None = None,
    timings: bool,
) -> Row:
    """Make the row of a question that did not fail.

    `timings` includes what differs from run to run: the seconds of each stage and of general
    models, and how many replies came from the cache.
    """
    record = answer.to_dict()
    if not timings:
        del record["seconds"]
    texts = [term_text(each.term) for each in answer.answers]
    predicted = Predicted(texts, answer.boolean, answer.count, answer.status)
    return Row.model_validate(
        {
            **_head(question, shape, first_path),
            **record,
            "scores": score_answer(predicted, question),
            **_costs(candidates, answer.usage, timings),
            "error": None,
        }
    )


def failed_row(
    question: Question,
    error: Exception,
    shape: GoldShape | None,
    candidates: Sequence[Candidate] | None = None,
    general: Usage = _NO_CALLS,
    *,
    first_path: CrpMatch | None = None,
    timings: bool = True,
) -> Row:
    """Make the row of a question that failed: it scores 0.

    Without `candidates`, writing failed and the cost is not known.
    """
    costs: dict[str, Any] = dict.fromkeys(("calls", "tokens", "usage", "cost_usd"))
    if candidates is not None:
        costs = _costs(candidates, general, timings)
    return Row.model_validate(
        {
            **_head(question, shape, first_path),
            "answers": (),
            "scores": None if question.kind is None else WRONG,
            "stage": None,
            "trace": None,
            **costs,
            "error": f"{type(error).__name__}: {error}",
        }
    )


def _head(
    question: Question, shape: GoldShape | None, first_path: CrpMatch | None
) -> dict[str, Any]:
    if_known = {
        "gold_names": [sorted(each) for each in question.gold_names] or None,
        "category": question.category,
        "generalization": question.generalization,
        "function": question.function,
        "gold_boolean": question.boolean,
        "gold_count": question.count,
        "gold_unanswerable": question.unanswerable or None,
    }
    return {
        "schema_version": SCHEMA_VERSION,
        "id": question.id,
        "question": question.text,
        "tier": question.tier,
        "type": question.type,
        "gold": [sorted(gold) for gold in question.golds],
        **{name: value for name, value in if_known.items() if value is not None},
        "gold_shape": shape,
        **({} if first_path is None else {"first_path": first_path}),
    }


def _costs(candidates: Sequence[Candidate], general: Usage, timings: bool) -> dict[str, Any]:
    first = candidates[0] if candidates else None
    calls = int(first is not None)
    writer = WriterUsage(
        calls=calls,
        input_tokens=first.input_tokens if first else 0,
        output_tokens=sum(candidate.tokens for candidate in candidates),
        best_tokens=first.tokens if first else 0,
    )
    of_general = general.to_dict()
    if timings:
        of_general["seconds"] = round(general.seconds, 6)
    else:
        del of_general["cached_calls"], of_general["seconds"]
    usage = RowUsage(specialised=writer, general=GeneralUsage(**of_general))
    return {
        "calls": calls + general.calls,
        "tokens": usage.tokens,
        "usage": usage,
        "cost_usd": general.cost_usd,
    }


class WrittenRow(Protocol):
    """The row of a question, in any kind of run."""

    id: str  # of the question
    error: str | None  # why the question failed; None if it did not

    def to_dict(self) -> dict[str, Any]:
        """Return it as a JSON record."""


_R = TypeVar("_R", bound=WrittenRow)


class RowFile:
    """Appends rows to a JSON Lines file, one thread at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            # Unbuffered: bytes that a full disk has refused must not be tried again on closing.
            self._file = path.open("ab", buffering=0)
        except OSError as error:
            raise InputError(f"{path} cannot be written: {error}") from error

    def append(self, row: WrittenRow) -> None:
        """Write a row; one that cannot be written whole is removed again."""
        # Not where the last write ended: the beginning of a row may have been removed since.
        end = self._file.seek(0, os.SEEK_END)
        left = memoryview(_line(row.to_dict()))
        try:
            while left:
                left = left[self._file.write(left) :]
        except OSError as error:
            self._file.truncate(end)
            raise OutputError(f"{self._path} cannot be written: {error}") from error

    def __enter__(self) -> "RowFile":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def write_rows(
    path: Path,
    jobs: Iterable[Callable[[], _R]],
    report: Callable[[_R], object],
    *,
    concurrency: int,
) -> None:
    """Make rows and append each to a file, in the order in which they are done.

    Each job makes a row, in any thread. The next is taken, in this thread, once fewer than
    `concurrency` are running. `report` is called with each written row, by one thread at a time.
    On any error, the rows of jobs in progress are written first if possible.
    """
    with RowFile(path) as file, ThreadPoolExecutor(concurrency) as pool:
        writing = threading.Lock()

        def write(job: Callable[[], _R]) -> None:
            row = job()
            with writing:
                file.append(row)
                report(row)

        running: set[Future[None]] = set()
        for job in jobs:
            running.add(pool.submit(write, job))
            running = _wait(running, concurrency - 1)
        _wait(running, 0)


def take_over(path: Path, read: Callable[[Mapping[str, object], str], _R]) -> dict[str, _R]:
    """Read the rows that a resumed run keeps, by id, and remove all else from the file.

    This removes rows of questions that failed, and a last line that was being written when the run
    was killed. `read` is a function such as `read_row`.
    """
    drop_unfinished_line(path)
    records = list(read_rows(path))
    kept = [(record, read(record, f"{path}, line {n}")) for n, record in records]
    kept = [(record, row) for record, row in kept if row.error is None]
    if len(kept) < len(records):
        partial = path.with_name(f"{path.name}.partial")
        try:
            partial.write_bytes(b"".join(_line(record) for record, _ in kept))
            partial.replace(path)
        except OSError as error:
            partial.unlink(missing_ok=True)
            raise OutputError(f"{path} cannot be written: {error}") from error
    return {row.id: row for _, row in kept}


def _wait(running: set[Future[None]], at_most: int) -> set[Future[None]]:
    """Wait until at most this many are running; raise what a finished one raised."""
    while len(running) > at_most:
        done, running = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            future.result()
    return running


def _line(record: Mapping[str, object]) -> bytes:
    # Half of a surrogate pair, which a JSON text may hold, has no UTF-8, so it stays an escape.
    return (json.dumps(record, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A run on disk: its file, its manifest, and its rows, one for each question."""

    path: Path
    manifest: Mapping[str, object]
    rows: tuple[Row, ...]

    @property
    def name(self) -> str:
        """The file's name without its ending."""
        return self.path.stem

    @property
    def entities(self) -> str:
        """Whether the questions' entities were given: ``gold`` or ``linked``."""
        return "gold" if self.manifest["gold_entities"] else "linked"

    @property
    def method(self) -> str | None:
        """The name of the method; None if the manifest does not say."""
        method = self.manifest.get("method")
        return str(method["name"]) if isinstance(method, dict) and "name" in method else None

    @property
    def writer(self) -> str | None:
        """The small model, without its adapter and server; None if the manifest does not say."""
        beams = self.manifest.get("beams_manifest")
        name = self.manifest.get("model") or (isinstance(beams, dict) and beams.get("model"))
        return re.split(r" \+ | at ", name)[0] if isinstance(name, str) else None

    @property
    def question_count(self) -> int | None:
        """How many questions were asked; None if the manifest does not say, as older ones."""
        count = self.manifest.get("question_count")
        return count if isinstance(count, int) else None


def flatten_manifest(manifest: Mapping[str, object]) -> dict[str, str]:
    """Return a manifest without null values as labels and texts; labels of nested ones are joined.

    >>> flatten_manifest({"n": 5, "beams": None, "store": {"languages": ["en"], "is_full": False}})
    {'n': '5', 'store, languages': 'en', 'store, is full': 'no'}
    """
    flat: dict[str, str] = {}
    for key, value in manifest.items():
        label = key.replace("_", " ")
        if isinstance(value, dict):
            inner = flatten_manifest(value)
            flat |= {f"{label}, {name}": text for name, text in inner.items()}
        elif value is not None:
            flat[label] = setting_text(value)
    return flat


def setting_text(value: object) -> str:
    """Return the value of a setting as reports show it.

    >>> setting_text({"name": "router", "write": True, "without": [], "repair": None})
    'router (write yes, without none, repair none)'
    """
    if isinstance(value, dict):
        name = value.get("name")
        rest = [f"{key} {setting_text(each)}" for key, each in value.items() if key != "name"]
        inner = ", ".join(rest).replace("_", " ")
        if name is None:
            return inner or "none"
        return f"{name} ({inner})" if inner else str(name)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(setting_text, value)) or "none"
    return "none" if value is None else str(value)


def read_run(path: Path) -> RecordedRun:
    """Read a run."""

    def not_a_run(problem: str) -> InputError:
        return InputError(
            f"{path} is not a run of `kbqa eval`: {problem}. "
            "The manifest must be in the same folder as the rows."
        )

    rows: dict[str, Row] = {}
    for number, record in read_rows(path):
        row = read_row(_used(record), f"{path}, line {number}")
        if row.id in rows:
            raise InputError(f"{path}, line {number}: a second row of question {row.id!r}")
        rows[row.id] = row
    if not rows:
        raise InputError(f"{path} has no rows")
    manifest = read_manifest(path, not_a_run)
    if not isinstance(manifest.get("gold_entities"), bool):
        raise not_a_run(f"{manifest_path(path)} does not say whether entities were given")
    return RecordedRun(path, manifest, tuple(rows.values()))


def _used(record: Mapping[str, object]) -> Mapping[str, object]:
    """Return the fields that reports use; whole rows would take several times the memory."""
    used = {name: value for name, value in record.items() if name not in _UNUSED}
    if isinstance(trace := record.get("trace"), dict):
        kept = {name: trace[name] for name in _USED_OF_TRACE if name in trace}
        if isinstance(steps := trace.get("steps"), list):
            kept["steps"] = [
                {name: step[name] for name in _USED_OF_STEP if name in step}
                for step in steps
                if isinstance(step, dict)
            ]
        used["trace"] = kept
    return used


RETRIEVAL_VERSION = 1
"""Of the rows of `kbqa retrieve`."""


class RowTriple(RowPart):
    """A triple of a row of `kbqa retrieve`; its object is an entity, or the text of a literal."""

    subject: str
    relation: str
    object: str
    score: float  # how likely the triple helps to answer, above 0 and at most 1; or as it was given
    pooled: float | None  # the score after pooling; None if nothing was pooled
    is_literal: bool = False
    subject_name: str | None = None  # its name, or its id; only rows with names have it
    object_name: str | None = None


class RetrievalRow(RowPart):
    """The triples of a question. Fields that the file does not have are None or empty."""

    schema_version: int
    id: str
    question: str
    topics: tuple[str, ...]  # entities that the search started from, best first
    triples: tuple[RowTriple, ...]  # best first
    seen: int | None = None  # triples that were scored
    truncated: bool | None = None  # something around the topics was left out
    cut: Mapping[str, int] | None = None  # the fields of `kbqa.engine.retrieval.retriever.Cut`
    seconds: Mapping[str, float] | None = None  # by stage; only runs with timings have it
    error: str | None

    def to_dict(self) -> dict[str, Any]:
        """Return the row as a JSON record, without the fields that were not set."""
        return self.model_dump(exclude_unset=True)


def read_retrieval_row(record: Mapping[str, object], place: str) -> RetrievalRow:
    """Read a row of `kbqa retrieve`; the message of an `InputError` names its place."""
    try:
        row = RetrievalRow.model_validate(record)
    except ValidationError as error:
        problem = invalid_field(error)
        raise InputError(f"{place} is not a row of `kbqa retrieve`: {problem}") from None
    if row.schema_version != RETRIEVAL_VERSION:
        raise InputError(
            f"{place} is a row of schema_version {row.schema_version}, and this kbqa reads "
            f"{RETRIEVAL_VERSION}. Run `kbqa retrieve` again."
        )
    return row


class ScoredQuestion(RowPart):
    """A question whose triples another retriever scored."""

    id: str | int | None = None
    question: str = ""
    topics: tuple[str, ...]  # as they are written in the triples
    triples: tuple[tuple[str, str, str, FiniteFloat], ...]


def read_scored(path: Path) -> dict[str, ScoredQuestion]:
    """Read a file of questions with scored triples, by their ids, or else by the line's number."""
    found: dict[str, ScoredQuestion] = {}
    for number, record in read_rows(path):
        place = f"{path}, line {number}"
        try:
            question = ScoredQuestion.model_validate(record)
        except ValidationError as error:
            raise InputError(
                f"{place} is not a question with scored triples: {invalid_field(error)}. Expected "
                '{"id", "question", "topics": […], "triples": [[subject, relation, object, score]]}'
            ) from None
        id_ = str(number if question.id is None else question.id)
        if id_ in found:
            raise InputError(f"{place}: an earlier question also has the id {id_!r}")
        found[id_] = question
    if not found:
        raise InputError(f"{path} has no questions")
    return found
