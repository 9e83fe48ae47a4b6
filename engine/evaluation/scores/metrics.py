"""Score predicted answers against gold ones: pure functions on sets.

Every score is in [0, 1]. If gold and prediction are both empty, each score is 1; if only one is
empty, 0. Names are not compared: an answer is a mid or a literal's text.

Source: Yih et al. 2016 for WebQSP's best parse; Talmor and Berant 2018 for CWQ.
"""

import random
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache

# Virtuoso adds its own time zone to plain dates, and the gold answers keep it.
_STORE_ZONE = re.compile(r"^(-?\d{4}(?:-\d\d(?:-\d\d(?:T[\d:.]+)?)?)?)(?:Z|[+-]\d\d:\d\d)$")


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores of one question.

    Attributes:
        hit: A gold answer is among the predicted ones; the papers often call this Hits@1.
        hits_at_1: The first predicted answer is gold.
        exact_match: The sets are equal.
        precision: Share of the predicted answers that are gold.
        recall: Share of the gold answers that are predicted.
        f1: Harmonic mean of precision and recall.
    """

    hit: float
    hits_at_1: float
    exact_match: float
    precision: float
    recall: float
    f1: float


METRICS = tuple(field.name for field in fields(Scores))
"""The names of the scores."""


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean with its 95 % bootstrap interval.

    >>> str(Mean(0.5, 0.25, 0.75, 8)), f"{Mean(0.5, 0.25, 0.75, 8):+.1f}"
    ('0.500 [0.250, 0.750]', '+0.5 [+0.2, +0.8]')
    """

    mean: float
    low: float
    high: float
    n: int

    def __format__(self, spec: str) -> str:
        spec = spec or ".3f"
        return f"{self.mean:{spec}} [{self.low:{spec}}, {self.high:{spec}}]"

    def __str__(self) -> str:
        return format(self)


def normalise_answer(text: str) -> str:
    """Remove the store's time zone from a date; return other texts unchanged.

    >>> normalise_answer("1968-03-29-08:00"), normalise_answer("m.0abc")
    ('1968-03-29', 'm.0abc')
    """
    match = _STORE_ZONE.match(text)
    return match[1] if match else text


def score(predicted: Sequence[str], gold: Collection[str]) -> Scores:
    """Score a ranked list of answers against a set of gold ones.

    >>> score(["m.1", "m.2"], {"m.2"}).f1
    0.6666666666666666
    """
    ranked = [normalise_answer(text) for text in predicted]
    found, wanted = set(ranked), {normalise_answer(text) for text in gold}
    if not found or not wanted:
        both = float(not found and not wanted)
        return Scores(both, both, both, both, both, both)
    common = len(found & wanted)
    precision, recall = common / len(found), common / len(wanted)
    return Scores(
        hit=float(common > 0),
        hits_at_1=float(ranked[0] in wanted),
        exact_match=float(found == wanted),
        precision=precision,
        recall=recall,
        f1=2 * precision * recall / (precision + recall) if common else 0.0,
    )


def score_best(predicted: Sequence[str], golds: Sequence[Collection[str]]) -> Scores:
    """Score against the gold set with the best F1, as WebQSP does for its parses.

    Raises:
        ValueError: There is no gold set.
    """
    return max((score(predicted, gold) for gold in golds), key=lambda scores: scores.f1)


def bootstrap_mean(values: Sequence[float], seed: int = 42, resamples: int = 1000) -> Mean:
    """Compute a mean over questions and its 95 % percentile bootstrap interval.

    Raises:
        ValueError: There are no values.
    """
    if not values:
        raise ValueError("no values to take the mean of")
    n = len(values)
    draws = _draws(n, seed, resamples)
    means = sorted(sum(map(values.__getitem__, draw)) / n for draw in draws)
    low, high = means[round(0.025 * resamples)], means[round(0.975 * resamples) - 1]
    return Mean(sum(values) / n, low, high, n)


@lru_cache(maxsize=1)
def _draws(n: int, seed: int, resamples: int) -> list[list[int]]:
    """Draw the resamples' positions; cached for the other metrics of the same questions."""
    rng = random.Random(seed)
    positions = list(range(n))
    return [rng.choices(positions, k=n) for _ in range(resamples)]
