"""Estimate what a run takes of the general model from a few of its questions, without asking it.

The questions are answered with a `StandIn`: the graph and the small model work as in the run, and
prompts are written in full. Replies never say that enough is known, so most methods go on for
longer than they would. Methods that walk go where chance leads; the router takes the paths most
similar to the question.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from kbqa.engine.chat.stand_in import LETTERS_A_TOKEN
from kbqa.engine.engine import Engine
from kbqa.engine.questions.question_sets import Question
from kbqa.engine.writing.generate import Candidate
from kbqa.sparql.errors import AnsweringError, EndpointDown, GraphError, ModelError

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
