"""Answer a question set, write a row for each question, and score the run.

A question that fails is a row with its error, and the run goes on. Rows are written as they come,
so that a run that was stopped can be resumed, which also asks again what failed; a manifest beside
them says what made them.
"""

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from kbqa.engine.answer import Answer
from kbqa.engine.engine import Engine
from kbqa.engine.evaluation.metrics import Mean, Scores, bootstrap_mean, score_best
from kbqa.engine.generate import Candidate, Request
from kbqa.engine.json_lines import drop_unfinished_line, read_rows
from kbqa.engine.questions import Question
from kbqa.engine.run_manifest import claim_output, file_sha256
from kbqa.sparql.errors import KbqaError

logger = logging.getLogger(__name__)

SCHEMA_VERSION = 1
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class EvaluationConfig:
    """What decides the result of a run, for its manifest.

    Attributes:
        questions: The question file; its content decides, not its place.
        graph: The graph's description.
        model: The model's name.
        gold_entities: Topics are given with the questions; only where one names none, it is linked.
        n: Candidates a question.
        timeout_s: Seconds for each query.
        beams: File of candidates written before, or None.
    """

    questions: Path
    graph: str
    model: str
    gold_entities: bool
    n: int
    timeout_s: float
    beams: Path | None = None


def evaluate(
    engine: Engine,
    questions: Sequence[Question],
    output: Path,
    config: EvaluationConfig,
    *,
    beams: Mapping[str, Sequence[Candidate]] | None = None,
    batch_size: int = 8,
    report: Callable[[Row], object] = lambda row: None,
) -> list[Row]:
    """Answer questions and append a row for each to `output`.

    Args:
        engine: What answers.
        questions: Those that `output` already has rows of without an error are passed over.
        output: JSON Lines file of rows; the manifest goes to the same name with ``.manifest.json``.
        config: For the manifest; a run that is resumed must have the same.
        beams: Candidates by question id; those that have none are generated.
        batch_size: Questions to generate for at once.
        report: Called with each new row.

    Returns:
        All rows of the file, in the order of the questions.

    Raises:
        InputError: `output` cannot be written, or holds something else than a run with this
            configuration.
    """
    rows = _claim(output, config)
    open_questions = [question for question in questions if question.id not in rows]
    with output.open("a", encoding="utf-8") as file:
        for at in range(0, len(open_questions), batch_size):
            batch = open_questions[at : at + batch_size]
            for question, answer in _answers(engine, batch, config.gold_entities, beams):
                row = _row(question, answer)
                rows[question.id] = row
                file.write(_line(row))
                file.flush()
                report(row)
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
    known = tiers.get("independent", []) + tiers.get("annotated", [])
    if known:
        tiers["independent + annotated"] = known
    return {
        tier: {
            field.name: bootstrap_mean([row["scores"][field.name] for row in members])
            for field in fields(Scores)
        }
        for tier, members in sorted(tiers.items())
        if members
    }


def _answers(
    engine: Engine,
    batch: Sequence[Question],
    gold_entities: bool,
    beams: Mapping[str, Sequence[Candidate]] | None,
) -> Iterator[tuple[Question, Answer | Exception]]:
    """Answer a batch; what cannot be generated for together fails together."""
    unwritten = [q for q in batch if beams is None or q.id not in beams]
    candidates = dict(beams or {})
    try:
        written = engine.generate(
            [Request(q.text, q.topics if gold_entities else ()) for q in unwritten]
        )
    except Exception as error:  # noqa: BLE001 – whatever it is, the run goes on
        for question in unwritten:
            _log_failure(question, error)
            yield question, error
        batch = [question for question in batch if question not in unwritten]
    else:
        candidates.update(zip((q.id for q in unwritten), written, strict=True))
    for question in batch:
        topics = question.topics if gold_entities else ()
        try:
            yield question, engine.answer(question.text, candidates[question.id], topics)
        except Exception as error:  # noqa: BLE001 – whatever it is, the run goes on
            _log_failure(question, error)
            yield question, error


def _log_failure(question: Question, error: Exception) -> None:
    is_bug = not isinstance(error, KbqaError)
    logger.warning("question %s failed: %s", question.id, error, exc_info=is_bug)


def _row(question: Question, outcome: Answer | Exception) -> Row:
    row: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "id": question.id,
        "question": question.text,
        "tier": question.tier,
        "gold": [sorted(gold) for gold in question.golds],
        "error": None,
    }
    scores = Scores(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    if isinstance(outcome, Answer):
        record = outcome.to_dict()
        predicted = [answer.get("mid") or answer["value"] for answer in record["answers"]]
        row.update(record)
        row["stage"] = "specialised" if outcome.result is not None else None
        if question.golds:
            scores = score_best(predicted, question.golds)
    else:
        row.update(answers=[], error=f"{type(outcome).__name__}: {outcome}")
    row["scores"] = asdict(scores) if question.golds else None
    return row


def _claim(output: Path, config: EvaluationConfig) -> dict[str, Row]:
    """Write a new run's manifest; of a run with the same settings, take over the rows by id."""
    settings = {
        "questions_sha256": file_sha256(config.questions),
        "graph": config.graph,
        "model": config.model,
        "gold_entities": config.gold_entities,
        "n": config.n,
        "timeout_s": config.timeout_s,
        "beams_sha256": None if config.beams is None else file_sha256(config.beams),
    }
    notes = {
        "questions": str(config.questions),
        "beams": None if config.beams is None else str(config.beams),
    }
    return _finished_rows(output) if claim_output(output, settings, notes) else {}


def _finished_rows(output: Path) -> dict[str, Row]:
    """Read the rows that stay, and take all else out of the file.

    What goes: rows of questions that failed, and a last line that was being written when the run
    was killed.
    """
    drop_unfinished_line(output)
    rows = {row["id"]: row for _, row in read_rows(output) if row["error"] is None}
    partial = output.with_name(f"{output.name}.partial")
    partial.write_text("".join(map(_line, rows.values())), encoding="utf-8")
    partial.replace(output)
    return rows


def _line(row: Row) -> str:
    return json.dumps(row, ensure_ascii=False) + "\n"
