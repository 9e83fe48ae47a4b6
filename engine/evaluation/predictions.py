"""Write a run's answers in the form that a benchmark's official script reads.

- WebQSP's ``eval.py``: a list of ``{"QuestionId", "Answers": [mid or value, …]}``. Questions that
  failed are left out, since the script takes an empty list for a precision of 1.
- ComplexWebQuestions' ``eval_script.py``: a list of ``{"ID", "answer": name}``. It compares one
  name, in lower case, with the gold names and aliases, and wants every question of the set.
- GrailQA's ``evaluate.py``: a record ``{qid: {"logical_form", "answer": [mid or value, …]}}``.
  kbqa writes no s-expressions, so logical forms are empty, and the script's exact match is 0.

A boolean is written as ``true`` or ``false``, and a count as its number without what was counted.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from kbqa.engine.evaluation.runs.rows import Row

Predictions: TypeAlias = list[dict[str, Any]] | dict[str, Any]


def webqsp_predictions(rows: Iterable[Row]) -> Predictions:
    """Return a run's answers in WebQSP's form."""
    answered = (row for row in rows if row.error is None)
    return [{"QuestionId": row.id, "Answers": _values(row)} for row in answered]


def cwq_predictions(rows: Iterable[Row]) -> Predictions:
    """Return a run's first answers in the form of ComplexWebQuestions."""
    return [{"ID": row.id, "answer": _first_name(row)} for row in rows]


def grailqa_predictions(rows: Iterable[Row]) -> Predictions:
    """Return a run's answers in GrailQA's form."""
    return {row.id: {"logical_form": "", "answer": _values(row)} for row in rows}


FORMS: Mapping[str, Callable[[Sequence[Row]], Predictions]] = {
    "webqsp": webqsp_predictions,
    "cwq": cwq_predictions,
    "grailqa": grailqa_predictions,
}


def _values(row: Row) -> list[str]:
    """Return what is compared with gold answers, each once, best first."""
    special = _special(row)
    return list(dict.fromkeys(row.predicted)) if special is None else [special]


def _first_name(row: Row) -> str:
    """Return the name of the first answer in lower case; empty without an answer."""
    special = _special(row)
    if special is None:
        special = row.answers[0].name if row.answers else ""
    return special.lower().strip()


def _special(row: Row) -> str | None:
    """Return a boolean or a count as a value; None for answers."""
    if row.boolean is not None:
        return str(row.boolean).lower()
    return None if row.count is None else str(row.count)
