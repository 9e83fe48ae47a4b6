"""Make the row of a question: what it got, how good that is, and what it took."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from kbqa.engine.answer import Answer
from kbqa.engine.chat.model import Usage
from kbqa.engine.conversion import convert_queries
from kbqa.engine.evaluation.metrics import Scores, score_best
from kbqa.engine.evaluation.row_file import Row
from kbqa.engine.generate import Candidate
from kbqa.engine.questions import Question
from kbqa.sparql.crp import Crp
from kbqa.sparql.relax import leaves

SCHEMA_VERSION = 2

_NO_CALLS = Usage()


class Shape(NamedTuple):
    """How a gold query is made, by the CRP that means the same.

    Attributes:
        hops: Steps of its main path.
        constraints: How many it has, at any depth, its ordering included.
        ordered: It keeps the first or last of its answers.
    """

    hops: int
    constraints: int
    ordered: bool


def gold_shapes(questions: Iterable[Question]) -> dict[str, Shape]:
    """Tell by id how questions' gold queries are made; those that no CRP can say are absent."""
    queries = {question.id: question.sparql for question in questions if question.sparql}
    crps = convert_queries(queries.values())
    return {
        id_: Shape(len(crp.path), sum(1 for _ in leaves(crp)), crp.order is not None)
        for id_, query in queries.items()
        if isinstance(crp := crps[query], Crp)
    }


def answered_row(
    question: Question,
    answer: Answer,
    candidates: Sequence[Candidate],
    shape: Shape | None,
    *,
    timings: bool,
) -> Row:
    """Make the row of a question that was answered, or of which it is known why it was not.

    Args:
        question: With its gold answers.
        answer: What it got.
        candidates: What the specialised model wrote for it; none where it was not asked.
        shape: How its gold query is made, if that is known.
        timings: Tell also what differs from run to run: the seconds of each stage and of general
            models, and how many replies of these came out of the cache.
    """
    record = answer.to_dict()
    predicted = [one.get("mid") or one["value"] for one in record["answers"]]
    row: dict[str, Any] = {
        **_head(question, shape),
        **record,
        "scores": asdict(score_best(predicted, question.golds)) if question.golds else None,
        **_taken(candidates, answer.usage, timings),
        "error": None,
    }
    if not timings:
        del row["seconds"]
    return row


def failed_row(
    question: Question,
    error: Exception,
    shape: Shape | None,
    candidates: Sequence[Candidate] | None = None,
    general: Usage = _NO_CALLS,
    *,
    timings: bool = True,
) -> Row:
    """Make the row of a question that failed: it scores 0.

    Args:
        question: As it was asked.
        error: Why it failed.
        shape: As for `answered_row`.
        candidates: What the specialised model had written for it; None where that failed, so that
            nobody knows what it took.
        general: What was asked of the general model before.
        timings: Likewise.
    """
    wrong = Scores(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    unknown = ("stage", "level", "beam", "repair")
    if candidates is None:
        taken = dict.fromkeys(("calls", "tokens", "usage", "cost_usd"))
    else:
        taken = _taken(candidates, general, timings)
    return {
        **_head(question, shape),
        "answers": [],
        "scores": asdict(wrong) if question.golds else None,
        **dict.fromkeys(unknown),
        **taken,
        "error": f"{type(error).__name__}: {error}",
    }


def _taken(candidates: Sequence[Candidate], general: Usage, timings: bool) -> dict[str, Any]:
    """Say what a question took of both models."""
    written_calls = int(bool(candidates))
    written_tokens = sum(candidate.tokens for candidate in candidates)
    of_general: dict[str, object] = {
        "calls": general.calls,
        "input_tokens": general.input_tokens,
        "output_tokens": general.output_tokens,
        "cost_usd": general.cost_usd,
    }
    if timings:
        of_general |= {"cached_calls": general.cached_calls, "seconds": round(general.seconds, 6)}
    return {
        "calls": written_calls + general.calls,
        "tokens": written_tokens + general.input_tokens + general.output_tokens,
        "usage": {
            "specialised": {"calls": written_calls, "output_tokens": written_tokens},
            "general": of_general,
        },
        "cost_usd": general.cost_usd,
    }


def _head(question: Question, shape: Shape | None) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "id": question.id,
        "question": question.text,
        "tier": question.tier,
        "type": question.type,
        "gold": [sorted(gold) for gold in question.golds],
        "gold_shape": None if shape is None else shape._asdict(),
    }
