"""Fitting on made-up candidates, of which it is known what makes them right."""

import random

import pytest

from kbqa.engine.evaluation.statistics import calibrate
from kbqa.training.judge.learning import Judged, fit_confidence


def _questions(n: int, seed: int = 1) -> list[Judged]:
    """Two candidates each, the likelier to be right the larger their share; noise tells nothing."""
    rng = random.Random(seed)
    questions = []
    for _ in range(n):
        shares = [rng.random(), rng.random()]
        features = [{"share": share, "noise": rng.random()} for share in shares]
        questions.append(Judged(features, [float(rng.random() < share) for share in shares]))
    return questions


def test_what_tells_is_weighed_and_what_does_not_is_not() -> None:
    model = fit_confidence(_questions(600), "made-up")
    assert model.weights["share"] > 10 * abs(model.weights["noise"])
    assert model.fitted_on == "made-up"


def test_confidences_are_what_they_say_on_questions_not_fitted_on() -> None:
    model = fit_confidence(_questions(600), "made-up")
    assert sum(n for _, _, n in model.calibration) == 1200
    assert all(abs(confidence - f1) < 0.15 for confidence, f1, _ in model.calibration)
    fresh = [pair for q in _questions(400, seed=2) for pair in zip(q.features, q.f1, strict=True)]
    for confidence, f1, _ in calibrate((model.confidence(x), y) for x, y in fresh):
        assert abs(confidence - f1) < 0.2


def test_where_no_candidate_is_right_the_best_of_them_is_not_called_sure() -> None:
    def with_wrong(question: Judged) -> Judged:
        wrong = [({**features, "lead": 0.0}, 0.0) for features in question.features]
        features = [{**each, "lead": 1.0} for each in question.features]
        return question._replace(features=features, without_right=wrong)

    model = fit_confidence(list(map(with_wrong, _questions(600))), "made-up")
    led, alone = ({"share": 0.9, "noise": 0.5, "lead": lead} for lead in (1.0, 0.0))
    assert model.confidence(led) > 0.8 > 0.2 > model.confidence(alone)


def test_the_spread_tells_below_what_a_share_of_questions_stays() -> None:
    questions = [*_questions(600), *[Judged([], [])] * 60]
    model = fit_confidence(questions, "made-up")
    assert model.threshold(0.05) == 0.0  # Those without candidates come first.
    best = [max(map(model.confidence, q.features), default=0.0) for q in questions]
    for share in (0.2, 0.5, 0.8):
        below = sum(confidence < model.threshold(share) for confidence in best) / len(best)
        assert abs(below - share) < 0.05
    assert model.threshold(1.0) == max(model.spread)


def test_too_few_questions_are_refused() -> None:
    with pytest.raises(ValueError, match="too few"):
        fit_confidence(_questions(4), "made-up")


def test_a_question_without_candidates_does_no_harm() -> None:
    assert fit_confidence([*_questions(50), Judged([], [])], "made-up").weights
