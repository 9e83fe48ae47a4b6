"""Compare confidences with scores, and the scores of two runs over the same questions.

The tests of two runs are paired: they compare the two scores of each question, so the difficulty of
the questions does not matter. Nothing here corrects for testing many metrics or tiers at once.
`ValueError` is raised if two runs differ in length, or if there is nothing to measure.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from operator import itemgetter
from typing import NamedTuple

from kbqa.engine.evaluation.scores import (
    RESAMPLES,
    Mean,
    bootstrap_mean,
    draw_resamples,
    interval,
)

_BINS = 10
RIGHT_F1 = 0.5
"""The F1 from which answers count as right."""

_SAME = 1e-9
"""Equal scores may differ in the last digits."""


class Tenth(NamedTuple):
    """A tenth of the answers, by confidence: their mean confidence, mean F1 and number."""

    confidence: float
    f1: float
    n: int


class Covered(NamedTuple):
    """The surest answers: their share of all, their mean F1 and the least confidence."""

    share: float
    f1: float
    confidence: float


class Signs(NamedTuple):
    """Numbers of questions on which the second run scores higher, lower, and the same."""

    wins: int
    losses: int
    ties: int


def calibrate(pairs: Iterable[tuple[float, float]]) -> list[Tenth]:
    """Compare confidences with F1, for each tenth of the confidences, rising.

    Fewer than ten pairs of confidence and F1 give as many tenths.
    """
    # By confidence alone: sorting ties by F1 would make some tenths bad and others good.
    ordered = sorted(pairs, key=itemgetter(0))
    edges = [round(len(ordered) * bin_ / _BINS) for bin_ in range(_BINS + 1)]
    table = []
    for start, end in pairwise(edges):
        if tenth := ordered[start:end]:
            n = len(tenth)
            confidence, f1 = (sum(values) / n for values in zip(*tenth, strict=True))
            table.append(Tenth(round(confidence, 4), round(f1, 4), n))
    return table


def calibration_error(tenths: Sequence[Tenth]) -> float:
    """Average the distance between confidence and F1 over the tenths, each by its number.

    Source: Naeini et al. 2015, "expected calibration error", over bins of equal number.
    """
    if not tenths:
        raise ValueError("no answers to compare the confidence of")
    distance = sum(tenth.n * abs(tenth.confidence - tenth.f1) for tenth in tenths)
    return round(distance / sum(tenth.n for tenth in tenths), 4)


def brier_score(pairs: Sequence[tuple[float, float]]) -> float:
    """Average the squared distance between confidence and F1 over the answers.

    Source: Brier 1950, with the F1 as the outcome.
    """
    return round(sum((confidence - f1) ** 2 for confidence, f1 in pairs) / len(pairs), 4)


def separate(right: Sequence[float], wrong: Sequence[float]) -> float | None:
    """Compute the AUROC: how often one of the right is surer than one of the wrong.

    A tie counts half. None if one of the two is empty.
    """
    if not right or not wrong:
        return None
    ordered = sorted(wrong)
    below = sum(bisect_left(ordered, each) + bisect_right(ordered, each) for each in right)
    return round(below / 2 / len(right) / len(ordered), 4)


def separate_right(pairs: Iterable[tuple[float, float]]) -> float | None:
    """Compute the AUROC of confidences for answers with an F1 of at least `RIGHT_F1`."""
    pairs = list(pairs)
    right = [confidence for confidence, f1 in pairs if f1 >= RIGHT_F1]
    return separate(right, [confidence for confidence, f1 in pairs if f1 < RIGHT_F1])


def cover(pairs: Iterable[tuple[float, float]]) -> list[Covered]:
    """Compute the F1 of the surest tenth of the answers, the surest two, and so on to all.

    Source: El-Yaniv and Wiener 2010, whose risk-coverage curve has 1 - F1.
    """
    ordered = sorted(pairs, key=itemgetter(0), reverse=True)
    sums = list(accumulate(f1 for _, f1 in ordered))
    ends = dict.fromkeys(round(len(ordered) * bin_ / _BINS) for bin_ in range(1, _BINS + 1))
    return [
        Covered(round(end / len(ordered), 4), round(sums[end - 1] / end, 4), ordered[end - 1][0])
        for end in ends
        if end
    ]


def paired_bootstrap(
    first: Sequence[float], second: Sequence[float], seed: int = 42, resamples: int = RESAMPLES
) -> Mean:
    """Compute the mean difference of two runs, and its 95 % percentile bootstrap interval.

    Each resample draws as many of the differences as there are questions, with replacement.

    Source: Efron and Tibshirani 1993, §13.3 (percentile interval); Koehn 2004 (pairing).
    """
    return bootstrap_mean(_differences(first, second), seed, resamples)


def relative_change(
    first: Sequence[float],
    second: Sequence[float],
    units: tuple[Sequence[float], Sequence[float]] | None = None,
    resamples: int = RESAMPLES,
) -> Mean | None:
    """Compute by which share the second run's total is above the first's, and its interval.

    With `units`, such as the calls of both runs for each question, the totals are divided by
    theirs. Each resample draws questions, with both runs' values. None if the first run's total is
    0; resamples of which this is true are left out.

    >>> relative_change([100, 100], [80, 70]).mean
    -0.25
    """
    n = len(first)
    columns = (first, second, *(units or ()))

    def change(draw: Iterable[int]) -> float | None:
        old, new, *counts = (sum(map(column.__getitem__, draw)) for column in columns)
        if counts:
            old, new = old * counts[1], new * counts[0]
        return new / old - 1 if old else None

    if (total := change(range(n))) is None:
        return None
    changes = map(change, draw_resamples(n, 42, resamples))
    return Mean(total, *interval(each for each in changes if each is not None), n)


def count_signs(first: Sequence[float], second: Sequence[float]) -> Signs:
    """Count the second run's wins, losses and ties."""
    differences = _differences(first, second)
    wins = sum(difference > _SAME for difference in differences)
    losses = sum(difference < -_SAME for difference in differences)
    return Signs(wins, losses, len(differences) - wins - losses)


def sign_test(wins: int, losses: int) -> float:
    """Compute the p-value of the two-sided exact sign test.

    If neither run were better, each would win any of the m = wins + losses decided questions with
    probability 1/2, so p = min(1, 2 · Σₖ C(m, k) / 2ᵐ) over k from 0 to min(wins, losses). Ties are
    left out.

    Source: Dixon and Mood 1946, "The statistical sign test"; Conover 1999, §3.4.

    >>> sign_test(9, 1), sign_test(0, 0)
    (0.021484375, 1.0)
    """
    if wins < 0 or losses < 0:
        raise ValueError(f"{wins} wins and {losses} losses: no count is negative")
    decided = wins + losses
    # C(m, k) from the previous one, in whole numbers, so that the quotient is exact.
    tail = ways = 1
    for k in range(min(wins, losses)):
        ways = ways * (decided - k) // (k + 1)
        tail += ways
    return min(1.0, 2 * tail / (1 << decided))


def _differences(first: Sequence[float], second: Sequence[float]) -> list[float]:
    return [b - a for a, b in zip(first, second, strict=True)]
