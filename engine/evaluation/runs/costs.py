"""Summarise what a run took: calls, tokens, queries, seconds and money."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from kbqa.engine.evaluation.runs.rows import Row

_PER = 10_000


@dataclass(frozen=True, slots=True)
class Spread:
    """How much the questions take for which this is known.

    Attributes:
        mean: Of a question.
        median: Of a question.
        p95: The least value that 95 % of the questions do not exceed.
        total: Of all questions.
        n: How many questions there are.
    """

    mean: float
    median: float
    p95: float
    total: float
    n: int


def spread(values: Sequence[float]) -> Spread | None:
    """Summarise values; None if there are none.

    >>> spread([1, 2, 3, 10])
    Spread(mean=4.0, median=2.5, p95=10, total=16, n=4)
    """
    if not values:
        return None
    ranked = sorted(values)
    p95 = ranked[math.ceil(0.95 * len(ranked)) - 1]
    return Spread(fmean(ranked), median(ranked), p95, sum(ranked), len(ranked))


def measure_costs(rows: Sequence[Row]) -> dict[str, Spread]:
    """Measure what questions took, including those that failed.

    Returns:
        ``calls`` (of all models), ``general_calls`` (of the general model alone, paid or from the
        cache), ``cached_calls``, ``decisions`` (of a walking method, by any chooser), ``tokens``
        (written by the small model, in and out of the general one), ``queries`` (of a walking
        method), ``queries of a repair``, ``seconds``, and ``seconds of`` each stage. What is known
        of no row is absent.
    """
    general = [row.usage.general for row in rows if row.usage is not None]
    values: dict[str, Sequence[float]] = {
        "calls": [row.calls for row in rows if row.calls is not None],
        "general_calls": [usage.calls for usage in general],
        "cached_calls": [usage.cached_calls for usage in general if usage.cached_calls is not None],
        "decisions": [row.decisions for row in rows if row.decisions is not None],
        "tokens": [row.tokens for row in rows if row.tokens is not None],
        "queries": [row.queries for row in rows if row.queries is not None],
        "queries of a repair": [
            row.repair_queries for row in rows if row.repair_queries is not None
        ],
        "seconds": [sum(row.seconds.values()) for row in rows if row.seconds],
    }
    stages: dict[str, list[float]] = {}
    for row in rows:
        for stage, seconds in (row.seconds or {}).items():
            stages.setdefault(stage, []).append(seconds)
    values |= {f"seconds of {stage}": seconds for stage, seconds in stages.items()}
    found = {name: spread(list_) for name, list_ in values.items()}
    return {name: one for name, one in found.items() if one is not None}


def cost_per_10_000(rows: Sequence[Row]) -> float | None:
    """Compute the US dollars of general models for 10,000 questions.

    None if it is not known: a row that asked one has no cost, or no row has a cost.
    """
    known = [row.cost_usd for row in rows if row.cost_usd is not None]
    unknown = any(row.cost_usd is None and row.usage and row.usage.general.calls for row in rows)
    return fmean(known) * _PER if known and not unknown else None
