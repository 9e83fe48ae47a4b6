"""Compare a run's confidences with its scores."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from operator import itemgetter
from typing import NamedTuple

_BINS = 10
RIGHT_F1 = 0.5
"""The F1 from which answers count as right."""


class Tenth(NamedTuple):
    """A tenth of the answers, by confidence: their mean confidence, mean F1 and number."""

    confidence: float
    f1: float
    n: int


class Covered(NamedTuple):
    """What is answered if only the surest are: their share, their mean F1 and the least sure."""

    share: float
    f1: float
    confidence: float


def calibrate(pairs: Iterable[tuple[float, float]]) -> list[Tenth]:
    """Compare confidences with F1, for each tenth of the confidences, rising.

    Args:
        pairs: Confidence and F1 of each answer; fewer than ten give as many tenths.
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

    Raises:
        ValueError: There are no tenths.

    >>> calibration_error([Tenth(0.2, 0.1, 10), Tenth(0.9, 0.6, 10)])
    0.2

    Source: Naeini et al. 2015, "expected calibration error", over bins of equal number.
    """
    if not tenths:
        raise ValueError("no answers to compare the confidence of")
    distance = sum(tenth.n * abs(tenth.confidence - tenth.f1) for tenth in tenths)
    return round(distance / sum(tenth.n for tenth in tenths), 4)


def brier_score(pairs: Sequence[tuple[float, float]]) -> float:
    """Average the squared distance between confidence and F1 over the answers.

    Source: Brier 1950, with the F1 as what happened.

    >>> brier_score([(0.5, 1.0), (1.0, 1.0)])
    0.125
    """
    return round(sum((confidence - f1) ** 2 for confidence, f1 in pairs) / len(pairs), 4)


def separate(right: Sequence[float], wrong: Sequence[float]) -> float | None:
    """Compute the AUROC: how often one of the right is surer than one of the wrong.

    Returns:
        The share of the pairs, where a tie counts half; None if one of them is empty.

    >>> separate([0.9, 0.4], [0.4])
    0.75
    """
    if not right or not wrong:
        return None
    ordered = sorted(wrong)
    below = sum(bisect_left(ordered, each) + bisect_right(ordered, each) for each in right)
    return round(below / 2 / len(right) / len(ordered), 4)


def separate_right(pairs: Iterable[tuple[float, float]]) -> float | None:
    """Compute the AUROC of confidences for answers that are right: with an F1 of at least 0.5."""
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
