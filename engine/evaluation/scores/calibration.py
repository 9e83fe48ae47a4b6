"""Compare a run's confidences with its scores."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import NamedTuple

_BINS = 10


class Tenth(NamedTuple):
    """A tenth of the answers, by confidence: their mean confidence, mean F1 and number."""

    confidence: float
    f1: float
    n: int


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
