"""Score an answer by the kind of gold that its question has.

Answers are a set, and are scored as sets. A boolean, a count and the absence of an answer are right
or wrong: each score is 1 or 0.
"""

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from kbqa.engine.answer import term_text
from kbqa.engine.evaluation.scores.metrics import Scores, normalise_answer, score_best
from kbqa.engine.questions.question_sets import Question
from kbqa.engine.running.tried import Tried

RIGHT = Scores(1.0, 1.0, 1.0, 1.0, 1.0, 1.0)
WRONG = Scores(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)

_TOLERANCE = 1e-6
_UNSURE = ("unsure", "none")
# A number with leading zeros is a code, such as 06037.
_NUMBER = re.compile(r"[+-]?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_DATE = re.compile(r"(-?\d{4})-\d\d")


@dataclass(frozen=True, slots=True)
class Predicted:
    """What was answered.

    Attributes:
        answers: Mids and texts of literals, best first.
        boolean: The answer to a yes/no question.
        count: The answer to "how many?".
        status: How sure the method is, if it says so; ``unsure`` and ``none`` count as no answer.
    """

    answers: Sequence[str]
    boolean: bool | None = None
    count: int | None = None
    status: str | None = None


def score_answer(predicted: Predicted, question: Question) -> Scores | None:
    """Score an answer; None if its question has no gold.

    Booleans and counts must be exact. A list without the number is no count, but one number alone
    is. A question that cannot be answered is right without an answer, or with one that is unsure.
    """
    if question.kind is None:
        return None
    if question.kind == "answers":
        if not question.compares_values:
            return score_best(predicted.answers, question.golds)
        return max(
            (score_best(match_values(predicted.answers, gold), [gold]) for gold in question.golds),
            key=lambda scores: scores.f1,
        )
    if question.kind == "boolean":
        is_right = predicted.boolean is question.boolean
    elif question.kind == "count":
        is_right = _counted(predicted) == question.count
    else:
        is_right = predicted.status in _UNSURE or not (
            predicted.answers or predicted.boolean is not None or predicted.count is not None
        )
    return RIGHT if is_right else WRONG


def candidate_f1(tried: Tried | None, question: Question) -> float:
    """Score what a candidate answers, or for None what no candidate does.

    It is 0 if the question has no gold.
    """
    if tried is None:
        said = Predicted(())
    else:
        terms = () if tried.boolean is not None else tried.terms
        said = Predicted([term_text(term) for term in set(terms)], tried.boolean, tried.count)
    scores = score_answer(said, question)
    return 0.0 if scores is None else scores.f1


def match_values(predicted: Sequence[str], gold: Collection[str]) -> list[str]:
    """Replace each predicted literal by the gold one of the same value; keep the others.

    Numbers are the same if they differ by at most a millionth. A gold year is any date in it.

    >>> match_values(["103000", "1774-08-01", "m.1"], ["103000.0", "1774"])
    ['103000.0', '1774', 'm.1']
    """
    wanted = {normalise_answer(text) for text in gold}
    numbers = {text: float(text) for text in sorted(wanted) if _NUMBER.fullmatch(text)}
    return [_match(normalise_answer(text), wanted, numbers) for text in predicted]


def _match(text: str, wanted: set[str], numbers: dict[str, float]) -> str:
    if text in wanted:
        return text
    if (date := _DATE.match(text)) and date[1] in wanted:
        return date[1]
    if _NUMBER.fullmatch(text):
        value = float(text)
        same = (each for each in numbers if math.isclose(numbers[each], value, rel_tol=_TOLERANCE))
        return next(same, text)
    return text


def _counted(predicted: Predicted) -> float | None:
    """Return the number that was answered; None if there is none."""
    if predicted.count is not None:
        return predicted.count
    if len(predicted.answers) == 1 and _NUMBER.fullmatch(predicted.answers[0]):
        return float(predicted.answers[0])
    return None
