"""Shares with their uncertainty, for the tables that the tools print."""

from math import sqrt

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
