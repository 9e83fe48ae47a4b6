"""Make the row of a question from what a method answered, or from its failure."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from kbqa.engine.answer import Answer, term_text
from kbqa.engine.chat.model import Usage
from kbqa.engine.evaluation.runs.rows import SCHEMA_VERSION, GoldShape, Row
from kbqa.engine.evaluation.scores.by_kind import WRONG, Predicted, score_answer
from kbqa.engine.questions.conversion import convert_queries
from kbqa.engine.questions.question_sets import Question
from kbqa.engine.writing.generate import Candidate
from kbqa.sparql.crp import Crp
from kbqa.sparql.relax import leaves

_NO_CALLS = Usage()


def gold_shapes(questions: Iterable[Question]) -> dict[str, GoldShape]:
    """Return the shapes of gold queries by the question's id; absent if no CRP means the same."""
    queries = {question.id: question.sparql for question in questions if question.sparql}
    crps = convert_queries(queries.values())
    return {
        id_: GoldShape(
            hops=len(crp.path),
            constraints=sum(1 for _ in leaves(crp)),
            ordered=crp.order is not None,
        )
        for id_, query in queries.items()
        if isinstance(crp := crps[query], Crp)
    }


def answered_row(
    question: Question,
    answer: Answer,
    candidates: Sequence[Candidate],
    shape: GoldShape | None,
    *,
    timings: bool,
) -> Row:
    """Make the row of a question that a method answered, or found no answer to.

    Args:
        question: With its gold answers.
        answer: What the method returned.
        candidates: What the small model wrote for it; none if it was not asked.
        shape: Of its gold query, if that is known.
        timings: Include what differs from run to run: the seconds of each stage and of general
            models, and how many replies came from the cache.
    """
    record = answer.to_dict()
    if not timings:
        del record["seconds"]
    texts = [term_text(each.term) for each in answer.answers]
    predicted = Predicted(texts, answer.boolean, answer.count, record.get("status"))
    scores = score_answer(predicted, question)
    costs = _costs(candidates, answer.usage, timings)
    head = _head(question, shape)
    return Row.model_validate({**head, **record, "scores": scores, **costs, "error": None})


def failed_row(
    question: Question,
    error: Exception,
    shape: GoldShape | None,
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
        candidates: What the small model had written for it; None if that failed, so that its cost
            is not known.
        general: What was asked of the general model before.
        timings: As for `answered_row`.
    """
    if candidates is None:
        costs: dict[str, Any] = dict.fromkeys(("calls", "tokens", "usage", "cost_usd"))
    else:
        costs = _costs(candidates, general, timings)
    return Row.model_validate(
        {
            **_head(question, shape),
            "answers": (),
            "scores": None if question.kind is None else WRONG,
            "stage": None,
            "trace": None,
            **costs,
            "error": f"{type(error).__name__}: {error}",
        }
    )


def _head(question: Question, shape: GoldShape | None) -> dict[str, Any]:
    names = [sorted(each) for each in question.gold_names]
    others = {
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
        **({"gold_names": names} if names else {}),
        **{name: value for name, value in others.items() if value is not None},
        "gold_shape": shape,
    }


def _costs(candidates: Sequence[Candidate], general: Usage, timings: bool) -> dict[str, Any]:
    """Return what a question took of both models."""
    calls, tokens = int(bool(candidates)), sum(candidate.tokens for candidate in candidates)
    of_general = asdict(general)
    if timings:
        of_general["seconds"] = round(general.seconds, 6)
    else:
        del of_general["cached_calls"], of_general["seconds"]
    return {
        "calls": calls + general.calls,
        "tokens": tokens + general.input_tokens + general.output_tokens,
        "usage": {
            "specialised": {"calls": calls, "output_tokens": tokens},
            "general": of_general,
        },
        "cost_usd": general.cost_usd,
    }
