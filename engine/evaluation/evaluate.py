"""Answer a question set and write a row for each question.

A question that fails becomes a row with its error, and the run goes on. Rows are written as they
come, so that an interrupted run can be resumed, which also asks the failed questions again. A
manifest next to them records the run: its `settings` decide the rows, and a run is only resumed
with the same; its `notes`, such as where files are, may differ. `run_set` is this loop, for any
kind of row.

Any number of threads answer; only one asks the small model, for questions in batches. Batches
depend only on the question file, because log-probabilities depend on what is written together. On
resume, a batch with a missing row is written again as a whole. Calls of the general model that a
method limits over a run are spent in the order of the questions (`kbqa.engine.chat.model`).

`estimate_run` predicts the cost of a run. `predictions` are for benchmarks' official scripts: a
boolean is then ``true`` or ``false``, and a count its number without what was counted.
"""

import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

from kbqa.engine.answer import UNSURE_BELOW
from kbqa.engine.asked import Asked, Clock, Method
from kbqa.engine.chat.cache import LETTERS_A_TOKEN
from kbqa.engine.chat.model import RunBudget, Usage
from kbqa.engine.engine import Engine
from kbqa.engine.evaluation.own_graphs import OpenEngine, OwnGraphs
from kbqa.engine.evaluation.rows import (
    GoldShape,
    Row,
    WrittenRow,
    answered_row,
    failed_row,
    gold_paths,
    read_row,
    take_over,
    write_rows,
)
from kbqa.engine.files import claimed, file_sha256, manifest_path
from kbqa.engine.questions.question_sets import Question
from kbqa.engine.writing.generate import DEFAULT_ADAPTER, Candidate, ModelChoice, write_apart
from kbqa.kb.graph import Graph
from kbqa.sparql.crp import Crp, Entity
from kbqa.sparql.crp_match import NO_MATCH, CrpMatch, match_crps
from kbqa.sparql.errors import (
    AnsweringError,
    CrpSyntaxError,
    EndpointDown,
    GraphError,
    InputError,
    KbqaError,
    ModelError,
    SpendingLimitReached,
)
from kbqa.sparql.forms import read_crp

logger = logging.getLogger(__name__)

Prepared: TypeAlias = Asked | Exception
"""A question that is linked and has its candidates, or the error that prevented it."""

_R = TypeVar("_R", bound=WrittenRow)


@dataclass(frozen=True, slots=True)
class Recorded:
    """A part of a manifest."""

    settings: Mapping[str, object]  # these decide the rows
    notes: Mapping[str, object]

    def __or__(self, other: "Recorded") -> "Recorded":
        return Recorded({**self.settings, **other.settings}, {**self.notes, **other.notes})


@dataclass(frozen=True, slots=True)
class EvaluationConfig:
    """The settings of a run, and the rest of its manifest."""

    gold_entities: bool = False  # topics are given; only a question without any is linked
    timings: bool = True  # rows have what differs from run to run, such as seconds
    deadline_s: float | None = None  # for a question in all
    recorded: Recorded = Recorded({}, {})  # what else decides the rows, and notes


def run_set(
    questions: Sequence[Question],
    output: Path,
    recorded: Recorded,
    read: Callable[[Mapping[str, object], str], _R],
    jobs: Callable[[Mapping[str, _R]], Iterable[Callable[[], _R]]],
    *,
    concurrency: int = 1,
    report: Callable[[_R], object] = lambda row: None,
) -> list[_R]:
    """Make the rows that a file does not have yet; return all rows in the order of the questions.

    Questions that have a row in `output` without an error are skipped. `read` reads a row from a
    record and its place, which is for messages. `jobs`, given the rows of `output` by id, yields
    what makes each other row; see `write_rows`. `report` is called with each row, first with those
    that `output` had, by one thread at a time.
    """
    notes = {**recorded.notes, "question_count": len(questions)}
    with claimed(output, recorded.settings, notes) as is_begun:
        rows = take_over(output, read) if is_begun else {}
        for row in rows.values():
            report(row)

        def note(row: _R) -> None:
            rows[row.id] = row
            report(row)

        write_rows(output, jobs(dict(rows)), note, concurrency=concurrency)
    return [rows[question.id] for question in questions]


def log_failure(question: Question, error: Exception) -> None:
    """Log that a question failed; one question's failure never ends a run."""
    # The message goes into the row only: a server's may quote the prompt.
    name, is_bug = type(error).__name__, not isinstance(error, KbqaError)
    logger.warning("question %s failed: %s", question.id, name, exc_info=is_bug)


def evaluate(
    engine: Engine | OwnGraphs,
    questions: Sequence[Question],
    output: Path,
    config: EvaluationConfig,
    *,
    beams: Mapping[str, Sequence[Candidate]] | None = None,
    batch_size: int = 8,
    concurrency: int = 1,
    report: Callable[[Row], object] = lambda row: None,
) -> list[Row]:
    """Answer questions and append a row for each to `output`, as `run_set` says.

    `beams` are candidates by question id. For other questions the small model writes them, a batch
    at once, but not over graphs of their own. Only a spending limit that is reached ends the run.
    """
    settings = {"gold_entities": config.gold_entities, "timings": config.timings}
    recorded = Recorded(settings, {}) | config.recorded
    beams = beams or {}
    if isinstance(engine, Engine):
        jobs = _Run(engine, config, questions, beams, batch_size).jobs
    else:
        jobs = partial(_jobs_alone, engine, config, questions, beams)
    return run_set(
        questions, output, recorded, read_row, jobs, concurrency=concurrency, report=report
    )


def _jobs_alone(
    own_graphs: OwnGraphs,
    config: EvaluationConfig,
    questions: Sequence[Question],
    beams: Mapping[str, Sequence[Candidate]],
    rows: Mapping[str, Row],
) -> Iterator[Callable[[], Row]]:
    """Yield what makes each missing row, over a graph of its own."""
    missing = [question for question in questions if question.id not in rows]
    for question, open_engine in own_graphs.each(missing):
        yield partial(_row_alone, question, open_engine, config, beams)


def _row_alone(
    question: Question,
    open_engine: OpenEngine,
    config: EvaluationConfig,
    beams: Mapping[str, Sequence[Candidate]],
) -> Row:
    """Answer a question as a run of its own."""
    try:
        with open_engine() as engine:
            [job] = _Run(engine, config, [question], beams, batch_size=1).jobs({})
            return job()
    except SpendingLimitReached:
        raise
    except Exception as error:  # noqa: BLE001 – one question's failure never ends a run
        log_failure(question, error)
        return failed_row(question, error, None, timings=config.timings)


class _Run:
    """Prepares the questions of a run, writes paths for them in batches, and answers them."""

    def __init__(
        self,
        engine: Engine,
        config: EvaluationConfig,
        questions: Sequence[Question],
        beams: Mapping[str, Sequence[Candidate]],
        batch_size: int,
    ) -> None:
        self._engine, self._config, self._beams = engine, config, beams
        self._questions = questions
        unwritten = [question for question in questions if question.id not in beams]
        starts = range(0, len(unwritten), batch_size)
        batches = [unwritten[at : at + batch_size] for at in starts]
        self._batch_of = {question.id: batch for batch in batches for question in batch}
        self._written: dict[str, Prepared] = {}
        self._places = {question.id: at for at, question in enumerate(questions)}
        limit = engine.method.general_calls
        self._calls = None if limit is None else RunBudget(round(limit * len(questions)))

    def jobs(self, rows: Mapping[str, Row]) -> Iterator[Callable[[], Row]]:
        """Yield what makes each missing row."""
        # Paths are written as jobs are taken. With one at a time the model does not write while a
        # question is answered, so times are comparable.
        for row in rows.values():
            self._settle(row.id, 0 if row.usage is None else row.usage.general.calls)
        open_questions = [question for question in self._questions if question.id not in rows]
        golds = gold_paths(open_questions)
        for question in open_questions:
            yield partial(self._row, question, self._prepared(question), golds.get(question.id))

    def _prepared(self, question: Question) -> Prepared | None:
        """Return a question with its candidates; None if these were written before the run."""
        if question.id in self._beams:
            return None
        if question.id not in self._written:
            self._write(self._batch_of[question.id])
        return self._written[question.id]

    def _row(self, question: Question, prepared: Prepared | None, gold: Crp | None) -> Row:
        """Answer a question; an error becomes its row, except `SpendingLimitReached`."""
        timings, first_path = self._config.timings, None
        shape = None if gold is None else GoldShape.of(gold)
        candidates = self._beams.get(question.id)
        if prepared is None:
            prepared = self._prepare(question)
        usage = Usage()
        try:
            if isinstance(prepared, Exception):
                raise prepared
            if candidates is None:
                candidates = prepared.candidates or ()
            if gold is not None and candidates:
                graph = self._engine.resources.graph
                first_path = _match(candidates[0], gold, graph, question.topics)
            asked = replace(
                prepared,
                candidates=candidates,
                clock=prepared.clock.resumed(),
                calls_left=None
                if self._calls is None
                else partial(self._calls.grant, self._places[question.id]),
            )
            answer = self._engine.answer(asked)
            return answered_row(
                question, answer, candidates, shape, first_path=first_path, timings=timings
            )
        except SpendingLimitReached:
            raise
        except Exception as error:  # noqa: BLE001 – one question's failure never ends a run
            log_failure(question, error)
            if isinstance(prepared, Asked):
                usage = prepared.usage
            return failed_row(
                question, error, shape, candidates, usage, first_path=first_path, timings=timings
            )
        finally:  # Later questions may wait for it, however it ends.
            self._settle(question.id, prepared.usage.calls if isinstance(prepared, Asked) else 0)

    def _settle(self, id_: str, calls: int) -> None:
        """Note how many of the run's general calls a question took."""
        if self._calls is not None:
            self._calls.settle(self._places[id_], calls)

    def _prepare(self, question: Question) -> Prepared:
        config = self._config
        topics = question.topics if config.gold_entities else ()
        try:
            return self._engine.prepare(question.text, topics, deadline_s=config.deadline_s)
        except SpendingLimitReached:
            raise
        except Exception as error:  # noqa: BLE001 – one question's failure never ends a run
            return error

    def _write(self, batch: Sequence[Question]) -> None:
        prepared = {question.id: self._prepare(question) for question in batch}
        asked = {id_: each for id_, each in prepared.items() if isinstance(each, Asked)}
        try:
            written = write_apart(partial(_write, self._engine), list(asked.values()))
            prepared.update(zip(asked, written, strict=True))
        except SpendingLimitReached:
            raise
        except Exception as error:  # noqa: BLE001 – a batch fails as a whole
            prepared.update(dict.fromkeys(asked, error))
        self._written.update(prepared)


def _match(candidate: Candidate, gold: Crp, graph: Graph, topics: Sequence[Entity]) -> CrpMatch:
    """Compare a written path with the gold one, whose entities are known by their ids alone.

    Their names are those of the graph or of the question set, whichever the path has.
    """
    try:
        written = read_crp(candidate.text).crp
    except CrpSyntaxError:
        return NO_MATCH
    entities = (*written.entities(), *gold.entities())
    labels = graph.labels({entity.mid for entity in entities if entity.mid})
    given = {topic.mid: topic.name for topic in topics if topic.mid and topic.name}

    def named(crp: Crp, names: Mapping[str, str]) -> Crp:
        return crp.with_entities(lambda entity: Entity(names.get(entity.mid or "") or str(entity)))

    namings = ({**labels, **given}, {**given, **labels})
    matches = [match_crps(named(written, names), named(gold, names)) for names in namings]
    return max(matches, key=lambda match: match.exact)


def _write(engine: Engine, asked: Sequence[Asked]) -> list[Asked]:
    """Write for questions together.

    Deadlines do not end the writing of a batch: each question's share of its time is counted.
    """
    written = engine.write([replace(each, clock=Clock()) for each in asked])
    for each, done in zip(asked, written, strict=True):
        if "write" in done.clock.seconds:  # Not every method writes.
            each.clock.add("write", done.clock.seconds["write"])
    return [replace(done, clock=each.clock) for each, done in zip(asked, written, strict=True)]


class RunProgress:
    """How far a run over a question set is."""

    def __init__(self, total: int) -> None:
        self.total, self._done, self.failed = total, 0, 0

    def add(self, row: WrittenRow) -> None:
        """Count a row."""
        self._done += 1
        self.failed += row.error is not None

    @property
    def left(self) -> int:
        """Questions that a resumed run would ask: those to come, and those that failed."""
        return self.total - self._done + self.failed

    def figures(self) -> dict[str, str]:
        """Return what is shown of the rows so far, as texts by name."""
        return {"errors": str(self.failed)}


class EvaluationProgress(RunProgress):
    """How far a run of `evaluate` is, and how good so far."""

    def __init__(self, total: int) -> None:
        super().__init__(total)
        self._scored = self._general_calls = 0
        self._f1 = self._hit = 0.0

    def add(self, row: WrittenRow) -> None:
        """Count a row, with its scores."""
        super().add(row)
        if not isinstance(row, Row):
            return
        if row.scores is not None:
            self._scored += 1
            self._f1 += row.scores.f1
            self._hit += row.scores.hit
        if row.usage is not None:
            self._general_calls += row.usage.general.calls

    def figures(self) -> dict[str, str]:
        """Return means over the questions scored so far, and counts."""
        return {
            "n": str(self._scored),
            "F1": f"{self._f1 / max(self._scored, 1):.3f}",
            "hit": f"{self._hit / max(self._scored, 1):.3f}",
            **super().figures(),
            "general calls": f"{self._general_calls / max(self._done, 1):.2f}",
        }


def record_questions(path: Path, sample: int | None, seed: int) -> Recorded:
    """Record a question file by its content, and the sample that is drawn of it."""
    settings = {
        "questions_sha256": file_sha256(path),
        "sample": sample,
        "seed": None if sample is None else seed,
    }
    return Recorded(settings, {"questions": str(path)})


def record_graph(graph: Graph | None, timeout_s: float) -> Recorded:
    """Record a graph: a store by what it was loaded from, an endpoint by its URL.

    None stands for the graphs in the rows of the question set.
    """
    if graph is None:
        settings = {"store": None, "endpoint": None, "own_graphs": True, "timeout_s": timeout_s}
        return Recorded(settings, {"graph": "that of each question"})
    identity = graph.identity()
    return Recorded({**identity.settings, "timeout_s": timeout_s}, identity.notes)


def record_beams(path: Path | None) -> Recorded:
    """Record a file of candidates that were written before, with its own manifest."""
    if path is None:
        return Recorded({"beams_sha256": None}, {})
    manifest, told = manifest_path(path), None
    if manifest.is_file():
        try:
            told = json.loads(manifest.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InputError(f"{manifest} cannot be read: {error}") from None
    notes = {"beams": str(path), "beams_manifest": told}
    return Recorded({"beams_sha256": file_sha256(path)}, notes)


def record_model(choice: ModelChoice, name: str | None) -> Recorded:
    """Record the specialised model by its name, which has a hash of the adapter's weights.

    The name is None if no model was loaded because all candidates were written before.
    """
    if name is None:
        return Recorded({"model": None, "n": None, "decoding": None}, {"adapter": None})
    return Recorded(
        {"model": name, "n": choice.n, "decoding": choice.level},
        {"adapter": str(choice.adapter or DEFAULT_ADAPTER) if choice.server is None else None},
    )


def record_method(
    method: Method,
    deadline_s: float | None,
    call_budget: int | None = None,
    general_model: str | None = None,
    unsure_below: float = UNSURE_BELOW,
) -> Recorded:
    """Record a method by its name and settings, and what a question may take."""
    of_method = {"name": method.name, **method.settings()}
    if of_method.get("chooser") == "llm":
        of_method["general_model"] = general_model
    settings: dict[str, object] = {"method": of_method}
    if call_budget is not None:  # Older runs do not have it, and stay comparable without it.
        settings["call_budget"] = call_budget
    if unsure_below != UNSURE_BELOW:
        settings["unsure_below"] = unsure_below
    # A note: a run can be resumed with a longer deadline, for what had too little time.
    return Recorded(settings, {"deadline_s": deadline_s})


ESTIMATED_FROM: Final = 5
"""Questions, if a run has as many."""

_MEASURED = {
    "decisions": "decisions",
    "calls": "calls",
    "input_tokens": "input tokens",
    "output_tokens": "output tokens, at most",
    "cost_usd": "USD, at most",
    "seconds": "seconds",
}
_RANGES = "In brackets: if every question took as much as the least, or as the most, of those."
_TOKENS = (
    f"A token is counted for each {LETTERS_A_TOKEN} letters of a prompt. The replies are made up "
    "and never say that enough is known, so most methods take fewer calls."
)
_SECONDS = "Seconds are those of the graph and the small model alone."


@dataclass(frozen=True, slots=True)
class Taken:
    """The costs of one question."""

    decisions: int  # by any chooser
    calls: int
    input_tokens: int
    output_tokens: int  # if each reply is as long as it may be
    cost_usd: float | None  # None if the price is not known
    seconds: float  # besides those of the general model


@dataclass(frozen=True, slots=True)
class Estimate:
    """The estimated costs of a run."""

    questions: int  # of the run
    taken: tuple[Taken, ...]  # by each question of the sample that was answered
    failed: tuple[str, ...]  # why the others of the sample failed
    model: str | None  # the general model

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON record: of each figure the mean of a question, the least and the most."""
        figures = {name: self._figures(name) for name in _MEASURED}
        return {
            "questions": self.questions,
            "sampled": len(self.taken),
            "failed": list(self.failed),
            "model": self.model,
            "a_question": {
                name: found and dict(zip(("mean", "least", "most"), found, strict=True))
                for name, found in figures.items()
            },
        }

    def describe(self) -> list[str]:
        """Return it in English, with a table."""
        asked = "There is no general model to ask."
        if self.model is not None:
            asked = f"Nothing was sent to {self.model}."
        lines = [f"Estimated from {len(self.taken)} of {self.questions} questions. {asked}"]
        if self.failed:
            lines.append(f"{len(self.failed)} more failed; the first: {self.failed[0]}")
        if not self.taken:
            return lines
        lines += ["", f"{'':24}{'a question':>32}{'the run':>40}"]
        for name, label in _MEASURED.items():
            found = self._figures(name)
            if found is None:
                lines.append(f"{label:24}{'the price is not known: give --llm-price':>72}")
                continue
            of_run = tuple(each * self.questions for each in found)
            lines.append(f"{label:24}{_range(*found):>32}{_range(*of_run):>40}")
        lines += ["", _RANGES]
        return [*lines, _SECONDS] if self.model is None else [*lines, _TOKENS, _SECONDS]

    def _figures(self, name: str) -> tuple[float, float, float] | None:
        """Return the mean, the least and the most of a question; None if one is not known."""
        values = [getattr(each, name) for each in self.taken]
        if not values or None in values:
            return None
        return sum(values) / len(values), min(values), max(values)


def estimate_run(
    engine: Engine | OwnGraphs,
    sample: Sequence[Question],
    questions: int,
    *,
    gold_entities: bool = False,
    deadline_s: float | None = None,
    beams: Mapping[str, Sequence[Candidate]] | None = None,
) -> Estimate:
    """Answer a sample of a run of so many questions, and count what the answers take.

    The engine has a `StandIn` as its general model, which is sent nothing: the graph and the small
    model work as in the run, and prompts are written in full. Replies never say that enough is
    known, so most methods walk longer than they would. Methods that walk go where chance leads; the
    router takes the paths most similar to the question.
    """
    taken: list[Taken] = []
    failed: list[str] = []
    each = engine.each(sample) if isinstance(engine, OwnGraphs) else _over_one(engine, sample)
    for question, open_engine in each:
        started = time.perf_counter()
        try:
            topics = question.topics if gold_entities else ()
            with open_engine() as opened:
                asked = opened.prepare(question.text, topics, deadline_s=deadline_s)
                if beams is not None and question.id in beams:
                    asked = replace(asked, candidates=beams[question.id])
                usage = opened.answer(asked).usage
        except EndpointDown:
            raise
        except (AnsweringError, GraphError, ModelError) as error:
            failed.append(str(error))
            continue
        seconds = time.perf_counter() - started
        tokens = usage.input_tokens, usage.output_tokens
        taken.append(Taken(asked.budget.spent, usage.calls, *tokens, usage.cost_usd, seconds))
    chat = engine.resources.chat
    return Estimate(questions, tuple(taken), tuple(failed), None if chat is None else chat.name)


def _over_one(
    engine: Engine, questions: Iterable[Question]
) -> Iterator[tuple[Question, OpenEngine]]:
    return ((question, lambda: nullcontext(engine)) for question in questions)


def _range(*values: float) -> str:
    """Write a mean with its range, such as ``12.3 (2 to 1,800)``: three digits that count."""
    rounded = [float(f"{value:.3g}") for value in values]
    mean, least, most = (f"{each:,.0f}" if each >= 100 else f"{each:g}" for each in rounded)
    return f"{mean} ({least} to {most})"


def predictions(rows: Iterable[Row], form: str) -> list[dict[str, Any]] | dict[str, Any]:
    """Return a run's answers as a benchmark's official script reads them.

    That is WebQSP's ``eval.py``, ComplexWebQuestions' ``eval_script.py`` or GrailQA's
    ``evaluate.py``.
    """
    match form:
        case "webqsp":
            # The script takes an empty list for a precision of 1, so failed questions are left out.
            answered = (row for row in rows if row.error is None)
            return [{"QuestionId": row.id, "Answers": _values(row)} for row in answered]
        case "cwq":
            # It compares one name, in lower case, and wants every question of the set.
            return [{"ID": row.id, "answer": _first_name(row).lower().strip()} for row in rows]
        case _:
            # kbqa writes no s-expressions, so the exact match of GrailQA's script is 0.
            return {row.id: {"logical_form": "", "answer": _values(row)} for row in rows}


def _values(row: Row) -> list[str]:
    """Return what is compared with gold answers, each once, best first."""
    special = _special(row)
    return list(dict.fromkeys(row.predicted)) if special is None else [special]


def _first_name(row: Row) -> str:
    """Return the name of the first answer; empty without an answer."""
    special = _special(row)
    return next((each.name for each in row.answers), "") if special is None else special


def _special(row: Row) -> str | None:
    """Return a boolean, a count or a sum as a value; None for answers."""
    if row.boolean is not None:
        return str(row.boolean).lower()
    if row.value is not None:
        return f"{row.value:.12g}"
    return None if row.count is None else str(row.count)
