"""Compare a run's confidences with its scores.

Test whether the difference of two runs over the same questions may be chance.

Both tests are paired: they compare the two scores of each question, so the difficulty of the
questions does not matter. Nothing here corrects for testing many metrics or tiers at once.

Estimate what a run takes of the general model from a few of its questions, without asking it.

The questions are answered with a `StandIn`: the graph and the small model work as in the run, and
prompts are written in full. Replies never say that enough is known, so most methods go on for
longer than they would. Methods that walk go where chance leads; the router takes the paths most
similar to the question.
"""

import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from operator import itemgetter
from typing import Any, Final, NamedTuple

from kbqa.engine.chat.cache import LETTERS_A_TOKEN
from kbqa.engine.engine import Engine
from kbqa.engine.evaluation.scores import Mean, bootstrap_mean
from kbqa.engine.questions.question_sets import Question
from kbqa.engine.writing.generate import Candidate
from kbqa.sparql.errors import AnsweringError, EndpointDown, GraphError, ModelError

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


ESTIMATED_FROM: Final = 5
"""Questions, if a run has as many."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What one question took.

    Attributes:
        decisions: By any chooser.
        calls: Of the general model.
        input_tokens: Of its prompts.
        output_tokens: Of its replies, if each is as long as it may be.
        cost_usd: Of these tokens; None if the price is not known.
        seconds: Besides those of the general model.
    """

    decisions: int
    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: float | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a run is going to take.

    Attributes:
        questions: How many the run has.
        taken: By each question of the sample that was answered.
        failed: Why other questions of the sample failed.
        model: The general model; None if there is none.
    """

    questions: int
    taken: tuple[Taken, ...]
    failed: tuple[str, ...]
    model: str | None

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON record: of each figure the mean of a question, the least and the most."""
        figures = {name: self._figures(name) for name in Taken.__slots__}
        return {
            "questions": self.questions,
            "sampled": len(self.taken),
            "failed": list(self.failed),
            "model": self.model,
            "a_question": {
                name: None if found is None else dict(zip(_FIGURES, found, strict=True))
                for name, found in figures.items()
            },
        }

    def describe(self) -> list[str]:
        """Return it in English, with a table."""
        sampled = len(self.taken)
        asked = "There is no general model to ask."
        if self.model is not None:
            asked = f"Nothing was sent to {self.model}."
        lines = [f"Estimated from {sampled} of {self.questions} questions. {asked}"]
        if self.failed:
            lines.append(f"{len(self.failed)} more failed; the first: {self.failed[0]}")
        if not self.taken:
            return lines
        rows = {
            "decisions": self._figures("decisions"),
            "calls": self._figures("calls"),
            "input tokens": self._figures("input_tokens"),
            "output tokens, at most": self._figures("output_tokens"),
            "USD, at most": self._figures("cost_usd"),
            "seconds": self._figures("seconds"),
        }
        lines += ["", f"{'':24}{'a question':>32}{'the run':>40}"]
        for name, found in rows.items():
            if found is None:
                lines.append(f"{name:24}{'the price is not known: give --llm-price':>72}")
                continue
            of_run = tuple(each * self.questions for each in found)
            lines.append(f"{name:24}{_range(*found):>32}{_range(*of_run):>40}")
        lines += ["", _RANGES]
        return [*lines, _SECONDS] if self.model is None else [*lines, _TOKENS, _SECONDS]

    def _figures(self, name: str) -> tuple[float, float, float] | None:
        """Return the mean, the least and the most of a question; None if one is not known."""
        values = [getattr(each, name) for each in self.taken]
        if not values or None in values:
            return None
        return sum(values) / len(values), min(values), max(values)


_FIGURES = ("mean", "least", "most")
_RANGES = "In brackets: if every question took as much as the least, or as the most, of those."
_TOKENS = (
    f"A token is counted for each {LETTERS_A_TOKEN} letters of a prompt. The replies are made up "
    "and never say that enough is known, so most methods take fewer calls."
)
_SECONDS = "Seconds are those of the graph and the small model alone."


def estimate_run(
    engine: Engine,
    sample: Sequence[Question],
    questions: int,
    *,
    gold_entities: bool = False,
    deadline_s: float | None = None,
    beams: Mapping[str, Sequence[Candidate]] | None = None,
) -> Estimate:
    """Answer a few questions of a run, and count what they take.

    Args:
        engine: As for the run, but with a `StandIn` as the general model.
        sample: The questions to answer.
        questions: How many the run has.
        gold_entities: Topics are given with the questions.
        deadline_s: Seconds that a question may take in all.
        beams: Candidates by question id; paths for other questions are written.

    Raises:
        EndpointDown: The graph does not respond.
    """
    taken: list[Taken] = []
    failed: list[str] = []
    for question in sample:
        started = time.perf_counter()
        try:
            topics = question.topics if gold_entities else ()
            asked = engine.prepare(question.text, topics, deadline_s=deadline_s)
            if beams is not None and question.id in beams:
                asked = replace(asked, candidates=beams[question.id])
            usage = engine.answer(asked).usage
        except EndpointDown:
            raise
        except (AnsweringError, GraphError, ModelError) as error:
            failed.append(str(error))
            continue
        taken.append(
            Taken(
                asked.budget.spent,
                usage.calls,
                usage.input_tokens,
                usage.output_tokens,
                usage.cost_usd,
                time.perf_counter() - started,
            )
        )
    chat = engine.resources.chat
    return Estimate(questions, tuple(taken), tuple(failed), None if chat is None else chat.name)


def _range(mean: float, least: float, most: float) -> str:
    """Write a mean with its range.

    >>> _range(12.34, 2, 1800)
    '12.3 (2 to 1,800)'
    """
    return f"{_number(mean)} ({_number(least)} to {_number(most)})"


def _number(value: float) -> str:
    """Write a number with three digits that count."""
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if rounded >= 100 else f"{rounded:g}"
