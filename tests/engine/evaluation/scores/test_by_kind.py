from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbqa.engine.evaluation.scores.by_kind import Predicted, match_values, score_answer
from kbqa.engine.evaluation.scores.metrics import score_best
from kbqa.engine.questions.question_sets import Question

QUESTION = Question("q", "what?", (), ())
YES = replace(QUESTION, boolean=True)
THREE = replace(QUESTION, count=3)
OPEN = replace(QUESTION, unanswerable=True)


@pytest.mark.parametrize(
    ("question", "predicted", "is_right"),
    [
        (YES, Predicted([], boolean=True), True),
        (YES, Predicted([], boolean=False), False),
        (YES, Predicted(["true"]), False),
        (YES, Predicted([]), False),
        (replace(YES, boolean=False), Predicted([], boolean=False), True),
        (replace(YES, boolean=False), Predicted([]), False),
        (THREE, Predicted(["m.1"], count=3), True),
        (THREE, Predicted(["m.1", "m.2", "m.3"], count=4), False),
        (THREE, Predicted(["m.1", "m.2", "m.3"]), False),
        (THREE, Predicted(["3"]), True),
        (THREE, Predicted(["3.0"]), True),
        (THREE, Predicted(["3", "4"]), False),
        (THREE, Predicted(["3"], count=2), False),
        (THREE, Predicted([]), False),
        (replace(THREE, count=0), Predicted([], count=0), True),
        (replace(THREE, count=0), Predicted([]), False),
        (OPEN, Predicted([]), True),
        (OPEN, Predicted(["m.1"]), False),
        (OPEN, Predicted([], boolean=False), False),
        (OPEN, Predicted([], count=0), False),
        (OPEN, Predicted(["m.1"], status="unsure"), True),
        (OPEN, Predicted(["m.1"], status="none"), True),
        (OPEN, Predicted(["m.1"], status="sure"), False),
    ],
)
def test_other_kinds_are_right_or_wrong(
    question: Question, predicted: Predicted, is_right: bool
) -> None:
    scores = score_answer(predicted, question)
    assert scores is not None
    assert (scores.f1, scores.exact_match, scores.hits_at_1) == (float(is_right),) * 3


@pytest.mark.parametrize(
    ("predicted", "gold", "f1"),
    [
        (["103000"], ["103000.0"], 1.0),
        (["1084.6200001"], ["1084.62"], 1.0),
        (["1084.7"], ["1084.62"], 0.0),
        (["1774-08-01"], ["1774"], 1.0),
        (["1774-08-01-08:00"], ["1774"], 1.0),
        (["1775-08-01"], ["1774"], 0.0),
        (["1774"], ["1774-08-01"], 0.0),
        (["6037"], ["06037"], 0.0),
        (["m.1", "2.0"], ["2", "m.2"], 0.5),
        (["2.0", "2"], ["2"], 1.0),
        (["1774-08-01", "1774"], ["1774-08-01", "1774"], 1.0),
        (["nan"], ["nan"], 1.0),
        (["1_0"], ["10"], 0.0),
    ],
)
def test_literals_are_compared_by_value_if_the_set_says_so(
    predicted: list[str], gold: list[str], f1: float
) -> None:
    question = replace(QUESTION, golds=(gold,), compares_values=True)
    scores = score_answer(Predicted(predicted), question)
    assert scores is not None
    assert scores.f1 == f1


TEXTS = st.lists(st.sampled_from(["m.1", "m.2", "1990", "1990-01-01", "2", "2.0"]), max_size=4)


@given(TEXTS, st.lists(TEXTS, min_size=1, max_size=3))
def test_benchmarks_compare_the_texts_of_literals(
    predicted: list[str], golds: list[list[str]]
) -> None:
    question = replace(QUESTION, golds=tuple(golds))
    assert score_answer(Predicted(predicted), question) == score_best(predicted, golds)


@given(TEXTS, TEXTS)
def test_gold_answers_themselves_are_matched(predicted: list[str], gold: list[str]) -> None:
    found = match_values(predicted, gold)
    assert len(found) == len(predicted)
    assert all(now == then for now, then in zip(found, predicted, strict=True) if then in gold)


def test_without_gold_there_is_no_score() -> None:
    assert score_answer(Predicted(["m.1"]), QUESTION) is None
