"""Fit the confidence model: a logistic regression of candidates' F1 on their outcomes.

The language model must not have been trained on the questions, or its probabilities would be higher
than they are in use. Only questions whose gold query has answers on the graph count: if the graph
lacks the facts, no candidate can be right, and there is nothing to learn about which one is.

Source: Platt 1999, "Probabilistic outputs for support vector machines".
"""

import random
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kbqa.engine.evaluation.scores.calibration import calibrate
from kbqa.engine.running.confidence import ASKED_LEAD, ConfidenceModel, Features

_L2 = 1.0  # on weights of features scaled to unit variance, in candidates
_STEPS = 50
_FOLDS = 5
_HUNDREDTHS = 100


class Judged(NamedTuple):
    """The candidates of a question, without those that have no answers.

    Attributes:
        features: Features of each, from `kbqa.engine.running.confidence.describe_tried`.
        f1: F1 of the answers of each against the gold answers.
    """

    features: Sequence[Features]
    f1: Sequence[float]


def without_asker(question: Judged) -> Judged:
    """Leave out the features of a question's candidates that only an asker gives."""
    return question._replace(
        features=[
            {name: value for name, value in each.items() if name != ASKED_LEAD}
            for each in question.features
        ]
    )


def fit_confidence(questions: Sequence[Judged], fitted_on: str, seed: int = 42) -> ConfidenceModel:
    """Fit the model to all questions, and calibrate it by cross-validation.

    Args:
        questions: At least five, one for each fold.
        fitted_on: Describes the questions, for reports.
        seed: Decides the folds.

    Raises:
        ValueError: There are fewer than five questions.
    """
    if len(questions) < _FOLDS:
        raise ValueError(
            f"{len(questions)} questions are too few to fit the confidence model; "
            f"it needs at least {_FOLDS}"
        )
    held_out: list[tuple[float, float]] = []
    best: list[float] = []
    for question, confidences in zip(questions, cross_validate(questions, seed), strict=True):
        held_out += zip(confidences, question.f1, strict=True)
        best.append(max(confidences, default=0.0))
    best.sort()
    spread = [best[at * len(best) // _HUNDREDTHS] for at in range(_HUNDREDTHS)]
    model = _fit(questions)
    return ConfidenceModel(model.bias, model.weights, fitted_on, calibrate(held_out), spread)


def cross_validate(questions: Sequence[Judged], seed: int = 42) -> list[list[float]]:
    """Compute the confidences of each question's candidates by a model fitted to other folds.

    Args:
        questions: At least five, one for each fold.
        seed: Decides the folds.
    """
    order = random.Random(seed).sample(range(len(questions)), len(questions))
    found: list[list[float]] = [[] for _ in questions]
    for fold in range(_FOLDS):
        model = _fit(questions[at] for place, at in enumerate(order) if place % _FOLDS != fold)
        for at in order[fold::_FOLDS]:
            found[at] = list(map(model.confidence, questions[at].features))
    return found


def _candidates(questions: Iterable[Judged]) -> list[tuple[Features, float]]:
    return [pair for question in questions for pair in zip(*question, strict=True)]


def _fit(questions: Iterable[Judged]) -> ConfidenceModel:
    """Maximise the likelihood by Newton's method, with a small L2 penalty."""
    import numpy as np

    candidates = _candidates(questions)
    names = sorted(set().union(*(features for features, _ in candidates)))
    x = np.array([[features.get(name, 0.0) for name in names] for features, _ in candidates])
    f1 = np.array([f1 for _, f1 in candidates])
    mean, scale = x.mean(axis=0), x.std(axis=0) + 1e-6
    x = np.column_stack([(x - mean) / scale, np.ones(len(x))])
    penalty = np.diag([_L2] * len(names) + [0.0])
    weights = np.zeros(x.shape[1])
    for _ in range(_STEPS):
        p = 1 / (1 + np.exp(-x @ weights))
        gradient = x.T @ (p - f1) + penalty @ weights
        hessian = (x * (p * (1 - p) + 1e-6)[:, None]).T @ x + penalty
        weights -= np.linalg.solve(hessian, gradient)
    slopes = weights[:-1] / scale
    bias = float(weights[-1] - slopes @ mean)
    return ConfidenceModel(bias, dict(zip(names, slopes.tolist(), strict=True)))
