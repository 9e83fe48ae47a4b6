"""Answer a question set and write a row for each question.

A question that fails becomes a row with its error, and the run goes on. Rows are written as they
come, so that an interrupted run can be resumed, which also asks again what failed. A manifest next
to them records what made them.

Any number of threads answer; only one asks the small model, for questions in batches. Batches
depend only on the question file, because log-probabilities depend on what is written together. On
resume, a batch with a missing row is written again as a whole.

A method may limit the calls of the general model over a run. They are spent in the order of the
questions (`kbqa.engine.chat.run_budget`).
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

from kbqa.engine.chat.model import Usage
from kbqa.engine.chat.run_budget import RunBudget
from kbqa.engine.engine import Engine
from kbqa.engine.evaluation.runs.row_file import take_over, write_rows
from kbqa.engine.evaluation.runs.row_making import answered_row, failed_row, gold_shapes
from kbqa.engine.evaluation.runs.rows import GoldShape, Row, read_row
from kbqa.engine.files.manifest import claimed
from kbqa.engine.method import Asked, Clock
from kbqa.engine.questions.question_sets import Question
from kbqa.engine.writing.generate import Candidate, write_apart
from kbqa.sparql.errors import KbqaError, SpendingLimitReached

logger = logging.getLogger(__name__)

Prepared: TypeAlias = Asked | Exception
"""A question that is linked and has its candidates, or the error that prevented it."""


@dataclass(frozen=True, slots=True)
class EvaluationConfig:
    """How a run is made, and what its manifest records.

    Attributes:
        gold_entities: Topics are given with the questions; only a question without any is linked.
        timings: Rows include what differs from run to run, such as seconds. Without it, runs with
            the same settings can be compared byte by byte.
        deadline_s: Seconds that a question may take in all; None for no limit.
        settings: What else determines the rows, by name; a resumed run must have the same.
        notes: Other facts about the run, by name; they may differ.
    """

    gold_entities: bool = False
    timings: bool = True
    deadline_s: float | None = None
    settings: Mapping[str, object] = field(default_factory=dict)
    notes: Mapping[str, object] = field(default_factory=dict)


def evaluate(
    engine: Engine,
    questions: Sequence[Question],
    output: Path,
    config: EvaluationConfig,
    *,
    beams: Mapping[str, Sequence[Candidate]] | None = None,
    batch_size: int = 8,
    concurrency: int = 1,
    report: Callable[[Row], object] = lambda row: None,
) -> list[Row]:
    """Answer questions and append a row for each to `output`.

    On any error, the rows of questions in progress are written first if possible.

    Args:
        engine: Answers, by any method.
        questions: Those that have a row in `output` without an error are skipped.
        output: JSON Lines file of rows, in the order in which questions are done; the manifest goes
            to the same name with ``.manifest.json``.
        config: How; a resumed run must have the same.
        beams: Candidates by question id; paths for other questions are written.
        batch_size: Questions to write for at once.
        concurrency: Questions to answer at once.
        report: Called with each row, first with those that `output` had; by one thread at a time.

    Returns:
        All rows of the file, in the order of the questions.

    Raises:
        InputError: `output` cannot be written, or is not a run with this configuration.
        SpendingLimitReached: The spending limit is reached.
        OutputError: A row cannot be written.
    """
    settings = {
        "gold_entities": config.gold_entities,
        "timings": config.timings,
        **config.settings,
    }
    notes = {**config.notes, "question_count": len(questions)}
    with claimed(output, settings, notes) as is_begun:
        rows = take_over(output, read_row) if is_begun else {}
        for row in rows.values():
            report(row)
        open_questions = [question for question in questions if question.id not in rows]
        shapes = gold_shapes(open_questions)
        run = _Run(engine, config, questions, beams or {}, batch_size)
        for row in rows.values():
            run.settle(row.id, 0 if row.usage is None else row.usage.general.calls)

        def note(row: Row) -> None:
            rows[row.id] = row
            report(row)

        # Paths are written as jobs are taken. With one at a time the model does not write while a
        # question is answered, so times are comparable.
        jobs = (
            partial(run.row, question, run.written(question), shapes.get(question.id))
            for question in open_questions
        )
        write_rows(output, jobs, note, concurrency=concurrency)
    return [rows[question.id] for question in questions]


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
        unwritten = [question for question in questions if question.id not in beams]
        starts = range(0, len(unwritten), batch_size)
        batches = [unwritten[at : at + batch_size] for at in starts]
        self._batch_of = {question.id: batch for batch in batches for question in batch}
        self._written: dict[str, Prepared] = {}
        self._places = {question.id: at for at, question in enumerate(questions)}
        limit = engine.method.general_calls
        self._calls = None if limit is None else RunBudget(round(limit * len(questions)))

    def settle(self, id_: str, calls: int) -> None:
        """Note how many of the run's general calls a question took."""
        if self._calls is not None:
            self._calls.settle(self._places[id_], calls)

    def written(self, question: Question) -> Prepared | None:
        """Return a question with its candidates; None if these were written before the run."""
        if question.id in self._beams:
            return None
        if question.id not in self._written:
            self._write(self._batch_of[question.id])
        return self._written[question.id]

    def row(self, question: Question, prepared: Prepared | None, shape: GoldShape | None) -> Row:
        """Answer a question; an error becomes its row, except `SpendingLimitReached`."""
        timings = self._config.timings
        candidates = self._beams.get(question.id)
        if prepared is None:
            prepared = self._prepare(question)
        usage = Usage()
        try:
            if isinstance(prepared, Exception):
                raise prepared
            if candidates is None:
                candidates = prepared.candidates or ()
            asked = replace(
                prepared,
                candidates=candidates,
                clock=prepared.clock.resumed(),
                calls_left=self._calls_left(question),
            )
            answer = self._engine.answer(asked)
            return answered_row(question, answer, candidates, shape, timings=timings)
        except SpendingLimitReached:
            raise
        except Exception as error:  # one question's failure never ends a run
            # The message goes into the row only: a server's may quote the prompt.
            name, is_bug = type(error).__name__, not isinstance(error, KbqaError)
            logger.warning("question %s failed: %s", question.id, name, exc_info=is_bug)
            if isinstance(prepared, Asked):
                usage = prepared.usage
            return failed_row(question, error, shape, candidates, usage, timings=timings)
        finally:  # Later questions may wait for it, however it ends.
            self.settle(question.id, prepared.usage.calls if isinstance(prepared, Asked) else 0)

    def _calls_left(self, question: Question) -> Callable[[], int] | None:
        if self._calls is None:
            return None
        return partial(self._calls.grant, self._places[question.id])

    def _prepare(self, question: Question) -> Prepared:
        topics = question.topics if self._config.gold_entities else ()
        try:
            deadline_s = self._config.deadline_s
            return self._engine.prepare(question.text, topics, deadline_s=deadline_s)
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


def _write(engine: Engine, asked: Sequence[Asked]) -> list[Asked]:
    """Write for questions together.

    Deadlines do not end the writing of a batch: each question's share of its time is counted.
    """
    written = engine.write([replace(each, clock=Clock()) for each in asked])
    for each, done in zip(asked, written, strict=True):
        if "write" in done.clock.seconds:  # Not every method writes.
            each.clock.add("write", done.clock.seconds["write"])
    return [replace(done, clock=each.clock) for each, done in zip(asked, written, strict=True)]
