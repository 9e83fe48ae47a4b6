"""Make the row of a question: what it got, how good that is, and what it took."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from kbqa.engine.answer import Answer
from kbqa.engine.conversion import convert_queries
from kbqa.engine.evaluation.metrics import Scores, score_best
from kbqa.engine.evaluation.row_file import Row
from kbqa.engine.generate import Candidate
from kbqa.engine.questions import Question
from kbqa.sparql.crp import Crp

SCHEMA_VERSION = 2


class Shape(NamedTuple):
    """How a gold query is made, by the CRP that means the same.

    Attributes:
        hops: Steps of its main path.
        constraints: How many it has, at any depth.
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
        id_: Shape(len(crp.path), sum(1 for _ in crp.all_constraints()), crp.order is not None)
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
        timings: Tell also what differs from run to run: the seconds of each stage, and how many
            replies of general models came out of the cache.
    """
    record = answer.to_dict()
    general = answer.usage
    written_calls = int(bool(candidates))
    written_tokens = sum(candidate.tokens for candidate in candidates)
    predicted = [one.get("mid") or one["value"] for one in record["answers"]]
    general_usage: dict[str, object] = {
        "calls": general.calls,
        "cached_calls": general.cached_calls,
        "input_tokens": general.input_tokens,
        "output_tokens": general.output_tokens,
        "cost_usd": general.cost_usd,
    }
    row: dict[str, Any] = {
        **_head(question, shape),
        **record,
        "scores": asdict(score_best(predicted, question.golds)) if question.golds else None,
        "calls": written_calls + general.calls,
        "tokens": written_tokens + general.input_tokens + general.output_tokens,
        "usage": {
            "specialised": {"calls": written_calls, "output_tokens": written_tokens},
            "general": general_usage,
        },
        "cost_usd": general.cost_usd,
        "error": None,
    }
    if not timings:
        del row["seconds"], general_usage["cached_calls"]
    return row


def failed_row(question: Question, error: Exception, shape: Shape | None) -> Row:
    """Make the row of a question that failed: it scores 0, and what it took is not known."""
    wrong = Scores(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    unknown = ("stage", "level", "beam", "calls", "tokens", "usage", "cost_usd", "repair")
    return {
        **_head(question, shape),
        "answers": [],
        "scores": asdict(wrong) if question.golds else None,
        **dict.fromkeys(unknown),
        "error": f"{type(error).__name__}: {error}",
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
