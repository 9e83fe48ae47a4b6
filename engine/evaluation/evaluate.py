"""Answer a question set, write a row for each question, and score the run.

A question that fails is a row with its error, and the run goes on. Rows are written as they come,
so that a run that was stopped can be resumed, which also asks again what failed; a manifest beside
them says what made them.

Any number of threads answer; only one asks the specialised model, for questions in batches. What a
batch holds hangs on the question file alone, because a model's figures hang on what it is asked
together: of a run that is resumed, a batch that lacks a row is written again in whole.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from kbqa.engine.chat.model import Usage
from kbqa.engine.engine import Engine
from kbqa.engine.evaluation.metrics import METRICS, Mean, bootstrap_mean
from kbqa.engine.evaluation.row_file import Row, RowFile, take_over
from kbqa.engine.evaluation.rows import Shape, answered_row, failed_row, gold_shapes
from kbqa.engine.generate import Candidate, Request, write_apart
from kbqa.engine.questions import Question
from kbqa.engine.run_manifest import claim_output, held
from kbqa.sparql.errors import KbqaError, SpendingLimitReached

logger = logging.getLogger(__name__)

Written: TypeAlias = Sequence[Candidate] | Exception
"""What the specialised model wrote for a question, or why it did not."""


@dataclass(frozen=True, slots=True)
class EvaluationConfig:
    """How a run is made, and what its manifest says of it.

    Attributes:
        gold_entities: Topics are given with the questions; only where one names none, it is linked.
        timings: Rows tell what differs from run to run, such as seconds; without, runs with the
            same settings can be compared byte by byte.
        settings: What else decides the rows, by name; of a run that is resumed it must be the same.
        notes: What is worth knowing besides, by name; it may differ.
    """

    gold_entities: bool = False
    timings: bool = True
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

    Whatever raises, the rows of the questions in hand are written before, if they can be.

    Args:
        engine: What answers.
        questions: Those that `output` already has rows of without an error are passed over.
        output: JSON Lines file of rows, in the order in which questions are done; the manifest goes
            to the same name with ``.manifest.json``.
        config: How; a run that is resumed must have the same.
        beams: Candidates by question id; those that have none are generated.
        batch_size: Questions to generate for at once.
        concurrency: Questions to answer at once.
        report: Called with each row, those that `output` had first; by one thread at a time.

    Returns:
        All rows of the file, in the order of the questions.

    Raises:
        InputError: `output` cannot be written, or holds something else than a run with this
            configuration.
        SpendingLimitReached: What may be spent is spent.
        OutputError: A row cannot be written.
    """
    settings = {
        "gold_entities": config.gold_entities,
        "timings": config.timings,
        **config.settings,
    }
    notes = {**config.notes, "question_count": len(questions)}
    is_begun = claim_output(output, settings, notes)
    with held(output):
        rows = take_over(output) if is_begun else {}
        for row in rows.values():
            report(row)
        open_questions = [question for question in questions if question.id not in rows]
        shapes = gold_shapes(open_questions)
        batches = _Batches(engine, questions, beams or {}, batch_size, config.gold_entities)
        with RowFile(output) as file, ThreadPoolExecutor(concurrency) as pool:
            writing = threading.Lock()

            def answer(question: Question, written: Written) -> None:
                row = _row(engine, question, written, shapes.get(question.id), config)
                with writing:
                    file.append(row)
                    rows[question.id] = row
                    report(row)

            running: set[Future[None]] = set()
            for question in open_questions:
                running.add(pool.submit(answer, question, batches.written(question)))
                # One at a time, so, the model does not write meanwhile, and stages are timed alone.
                running = _wait(running, concurrency - 1)
            _wait(running, 0)
    return [rows[question.id] for question in questions]


def summarise(rows: Sequence[Row]) -> dict[str, dict[str, Mean]]:
    """Average the scores over all scored questions, and over each tier of evidence.

    Returns:
        Means by tier (``all``, then the tiers by name) and metric; a tier without a scored question
        is absent.
    """
    scored = [row for row in rows if row["scores"] is not None]
    tiers: dict[str, list[Row]] = {"all": scored}
    for row in scored:
        if row["tier"]:
            tiers.setdefault(row["tier"], []).append(row)
    # In the rows' order, by which the bootstrap draws.
    known = [row for row in scored if row["tier"] in ("independent", "annotated")]
    if known:
        tiers["independent + annotated"] = known
    return {
        tier: {
            metric: bootstrap_mean([row["scores"][metric] for row in members]) for metric in METRICS
        }
        for tier, members in sorted(tiers.items())
        if members
    }


class _Batches:
    """Has candidates written for the questions of a file, batch by batch, when they are wanted."""

    def __init__(
        self,
        engine: Engine,
        questions: Sequence[Question],
        beams: Mapping[str, Sequence[Candidate]],
        size: int,
        gold_entities: bool,
    ) -> None:
        self._engine, self._gold_entities = engine, gold_entities
        unwritten = [question for question in questions if question.id not in beams]
        batches = [unwritten[at : at + size] for at in range(0, len(unwritten), size)]
        self._batch_of = {question.id: batch for batch in batches for question in batch}
        self._written: dict[str, Written] = dict(beams)

    def written(self, question: Question) -> Written:
        """Return what was written for a question; raises `SpendingLimitReached`."""
        if question.id not in self._written:
            self._write(self._batch_of[question.id])
        return self._written[question.id]

    def _write(self, batch: Sequence[Question]) -> None:
        requests = [Request(q.text, q.topics if self._gold_entities else ()) for q in batch]
        ids = [question.id for question in batch]
        try:
            written = write_apart(self._engine.generate, requests)
            self._written.update(zip(ids, written, strict=True))
        except SpendingLimitReached:
            raise
        except Exception as error:  # noqa: BLE001 – what cannot be written together fails together
            self._written.update(dict.fromkeys(ids, error))


def _row(
    engine: Engine,
    question: Question,
    written: Written,
    shape: Shape | None,
    config: EvaluationConfig,
) -> Row:
    """Answer a question; raises `SpendingLimitReached`, which is no failure of its own."""
    topics = question.topics if config.gold_entities else ()
    chat = engine.new_chat()
    try:
        if isinstance(written, Exception):
            raise written
        answer = engine.answer(question.text, written, topics, chat)
        return answered_row(question, answer, written, shape, timings=config.timings)
    except SpendingLimitReached:
        raise
    except Exception as error:  # Whatever it is, the run goes on.
        is_bug = not isinstance(error, KbqaError)
        # Its words stand in the row alone: a server's may quote the prompt.
        logger.warning("question %s failed: %s", question.id, type(error).__name__, exc_info=is_bug)
        candidates = None if isinstance(written, Exception) else written
        paid = Usage() if chat is None else chat.usage
        return failed_row(question, error, shape, candidates, paid, timings=config.timings)


def _wait(running: set[Future[None]], at_most: int) -> set[Future[None]]:
    """Wait until only so many are running; raises what one of the others has raised."""
    while len(running) > at_most:
        done, running = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            future.result()
    return running
