"""Shares and differences with their uncertainty, for the tables that the tools print."""

from collections.abc import Sequence
from math import sqrt

from kbqa.engine.evaluation.statistics import count_signs, paired_bootstrap, sign_test

_Z = 1.959964  # of the normal distribution, for 95 %


def share_with_interval(hits: int, n: int) -> str:
    """Write a share with its 95 % Wilson interval, all in per cent.

    >>> share_with_interval(98, 100)
    '98.0 % [93.0, 99.4]'

    Raises:
        ValueError: There is nothing to take a share of.

    Source: Wilson 1927, "Probable inference, the law of succession, and statistical inference".
    """
    if n < 1:
        raise ValueError("a share of nothing")
    share = hits / n
    middle = share + _Z**2 / (2 * n)
    spread = _Z * sqrt(share * (1 - share) / n + _Z**2 / (4 * n**2))
    low, high = ((middle + side * spread) / (1 + _Z**2 / n) for side in (-1, 1))
    return f"{100 * share:.1f} % [{100 * low:.1f}, {100 * high:.1f}]"


def paired_difference(first: Sequence[float], second: Sequence[float]) -> str:
    """Write the mean difference of two runs over the same questions, and whether it may be chance.

    >>> paired_difference([0.0, 0.5], [0.5, 1.0])
    '0.500 [0.500, 0.500], 2 wins, 0 losses, p = 0.5'

    Raises:
        ValueError: The runs differ in length, or are empty.
    """
    wins, losses, _ = count_signs(first, second)
    p = sign_test(wins, losses)
    return f"{paired_bootstrap(first, second)}, {wins} wins, {losses} losses, p = {p:.3g}"
