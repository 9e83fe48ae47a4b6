"""Test whether the difference of two runs over the same questions may be chance.

Both tests are paired: they compare the two scores of each question, so the difficulty of the
questions does not matter. Nothing here corrects for testing many metrics or tiers at once.
"""

from collections.abc import Sequence
from typing import NamedTuple

from kbqa.engine.evaluation.scores.metrics import Mean, bootstrap_mean

# Equal scores may differ in the last digits.
_SAME = 1e-9


class Signs(NamedTuple):
    """Numbers of questions on which the second run scores higher, lower, and the same."""

    wins: int
    losses: int
    ties: int


def paired_bootstrap(
    first: Sequence[float], second: Sequence[float], seed: int = 42, resamples: int = 1000
) -> Mean:
    """Compute the mean difference of two runs, and its 95 % percentile bootstrap interval.

    With dᵢ = secondᵢ − firstᵢ for the n questions, each resample draws n of the dᵢ with
    replacement, and the interval runs from the 2.5th to the 97.5th percentile of their means.

    Args:
        first: Scores of the first run, by question.
        second: Scores of the second, in the same order.
        seed: Of the random resamples.
        resamples: Their number.

    Raises:
        ValueError: The runs differ in length, or are empty.

    >>> paired_bootstrap([0.0, 0.5], [0.5, 1.0])
    Mean(mean=0.5, low=0.5, high=0.5, n=2)

    Source: Efron and Tibshirani 1993, §13.3 (percentile interval); Koehn 2004 (pairing).
    """
    return bootstrap_mean(_differences(first, second), seed, resamples)


def count_signs(first: Sequence[float], second: Sequence[float]) -> Signs:
    """Count the second run's wins, losses and ties.

    Raises:
        ValueError: The runs differ in length.

    >>> count_signs([0.0, 0.5, 1.0], [1.0, 0.0, 1.0])
    Signs(wins=1, losses=1, ties=1)
    """
    differences = _differences(first, second)
    wins = sum(difference > _SAME for difference in differences)
    losses = sum(difference < -_SAME for difference in differences)
    return Signs(wins, losses, len(differences) - wins - losses)


def sign_test(wins: int, losses: int) -> float:
    """Compute the p-value of the two-sided exact sign test, in [0, 1].

    If neither run were better, each would win any of the m = wins + losses decided questions with
    probability 1/2, so p = min(1, 2 · Σₖ C(m, k) / 2ᵐ) over k from 0 to
    min(wins, losses). Ties say nothing about the direction and are left out.

    Raises:
        ValueError: A count is negative.

    >>> sign_test(9, 1), sign_test(0, 0)
    (0.021484375, 1.0)

    Source: Dixon and Mood 1946, "The statistical sign test"; Conover 1999, §3.4.
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
