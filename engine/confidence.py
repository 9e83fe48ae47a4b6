"""How sure it is that a candidate's answers are right: a small model over what became of it.

The language model's own probability says how well a path fits the question, not whether the graph
holds it, nor what it leads to; a path that can be walked may still be the wrong one, which the
paper names as its limitation. Here both are weighed: a logistic model over a handful of features,
fitted by `kbqa.training.confidence` on questions that the language model was not trained on. Its
confidence is the F1 that is to be expected of the candidate's answers; the candidate of the highest
answers the question, and the router asks for help where it is low.

Source: RouterKGQA §6, "Limitations"; Platt 1999 for reading a score as a probability.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from kbqa.engine.answer import Fate
from kbqa.engine.generate import Candidate
from kbqa.sparql.crp import Crp
from kbqa.sparql.errors import ModelError
from kbqa.sparql.relax import Level
from kbqa.sparql.terms import Term

SHIPPED_CONFIDENCE = Path(__file__).with_name("confidence_model.json")
"""The model that comes with kbqa."""

SCHEMA_VERSION = 1

Features = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a candidate.

    Attributes:
        candidate: As the model wrote it.
        fate: How far it came; see `kbqa.engine.answer.Beam`.
        crp: As it was grounded and run, before relaxation; None where it has no answers.
        level: How far it was relaxed.
        dropped: How many of its constraints were dropped for that.
        answers: What it leads to; empty where it was not run or leads to nothing.
        topic_score: How likely the question is about its topic, by the linker; 1 where it is given.
        mentioned: How many entities of the constraints that its answers satisfy the question
            mentions.
        is_replaced: A name in it was taken for somebody who does not bear it, or nobody bears it.
    """

    candidate: Candidate
    fate: Fate
    crp: Crp | None = None
    level: Level = "full"
    dropped: int = 0
    answers: frozenset[Term] = frozenset()
    topic_score: float = 0.0
    mentioned: int = 0
    is_replaced: bool = False


def describe_outcomes(outcomes: Sequence[Outcome]) -> list[Features]:
    """Measure what became of a question's candidates, one against the other.

    Shares are of the probability that the candidates have together. What supports answers is the
    share of those candidates that lead to them in full: a constraint that had to be dropped speaks
    for other answers, not for these.

    Returns:
        For each outcome its features; none where it has no answers.
    """
    shares = _shares([outcome.candidate.logprob for outcome in outcomes])
    support: dict[frozenset[Term], float] = {}
    for outcome, share in zip(outcomes, shares, strict=True):
        if outcome.level == "full":
            support[outcome.answers] = support.get(outcome.answers, 0.0) + share
    return [
        _features(outcome, share, support.get(outcome.answers, 0.0)) if outcome.answers else {}
        for outcome, share in zip(outcomes, shares, strict=True)
    ]


def rank_outcomes(outcomes: Sequence[Outcome], confidences: Sequence[float]) -> list[int]:
    """Order candidates by how sure their answers are, the surest first; returns their indexes.

    Of those that are alike, what needed no relaxation goes first, and then what the language model
    thinks likelier.
    """

    def key(at: int) -> tuple[bool, float, bool]:
        return not outcomes[at].answers, -confidences[at], outcomes[at].level != "full"

    return sorted(range(len(outcomes)), key=key)


def _features(outcome: Outcome, share: float, support: float) -> Features:
    assert outcome.crp is not None
    candidate, answers = outcome.candidate, len(outcome.answers)
    return {
        "logprob": max(candidate.logprob, -20.0),
        "token_logprob": candidate.logprob / candidate.tokens,
        "share": share,
        "support": support,
        "hops": float(len(outcome.crp.path)),
        "constraints": float(len(outcome.crp.constraints) + (outcome.crp.order is not None)),
        "dropped": float(outcome.dropped),
        f"level {outcome.level}": 1.0,
        "answers": math.log(answers),
        "many answers": float(answers > 20),
        "topic": outcome.topic_score,
        "mentioned": float(outcome.mentioned),
        "replaced": float(outcome.is_replaced),
    }


def _shares(logprobs: Sequence[float]) -> list[float]:
    highest = max(logprobs, default=0.0)
    powers = [math.exp(logprob - highest) for logprob in logprobs]
    return [power / sum(powers) for power in powers]


@dataclass(frozen=True, slots=True)
class ConfidenceModel:
    """A logistic model of the F1 that is to be expected.

    Attributes:
        bias: Log-odds where all features are 0.
        weights: By feature; one that is not named here counts nothing.
        fitted_on: What it was fitted on, in words, for reports.
        calibration: How it held on what it was not fitted on: for each tenth of the confidences,
            rising, the mean confidence, the mean F1 and the number of candidates.
        spread: The confidences of the best candidates there, one for each hundredth of the
            questions, rising; 0 for a question without any. Empty where nobody looked.
    """

    bias: float
    weights: Mapping[str, float]
    fitted_on: str = ""
    calibration: Sequence[tuple[float, float, int]] = field(default=())
    spread: Sequence[float] = field(default=())

    def confidence(self, features: Features) -> float:
        """Compute the confidence, in [0, 1]; that of no features, which means no answers, is 0."""
        if not features:
            return 0.0
        odds = self.bias + sum(
            self.weights.get(name, 0.0) * value for name, value in features.items()
        )
        return 1 / (1 + math.exp(-max(-30.0, min(30.0, odds))))

    def judge(self, outcomes: Sequence[Outcome]) -> list[float]:
        """Compute how sure the answers of a question's candidates are.

        Candidates of the same answers are as sure as the surest of them.
        """
        surest: dict[frozenset[Term], float] = {}
        for outcome, features in zip(outcomes, describe_outcomes(outcomes), strict=True):
            confidence = self.confidence(features)
            surest[outcome.answers] = max(confidence, surest.get(outcome.answers, 0.0))
        return [surest[outcome.answers] for outcome in outcomes]

    def threshold(self, share: float) -> float:
        """Find the confidence below which a share of the questions stays.

        Args:
            share: In [0, 1]; as it was on the questions of `spread`.

        Raises:
            ModelError: The model knows no spread.
        """
        if not self.spread:
            raise ModelError("the confidence model does not know how its confidences are spread")
        return self.spread[min(int(share * len(self.spread)), len(self.spread) - 1)]

    def digest(self) -> str:
        """Hash what decides its confidences."""
        decisive = json.dumps([self.bias, sorted(self.weights.items())])
        return hashlib.sha256(decisive.encode()).hexdigest()[:16]

    def save(self, path: Path) -> None:
        """Write it as JSON."""
        record = {"schema_version": SCHEMA_VERSION, **asdict(self)}
        path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path = SHIPPED_CONFIDENCE) -> "ConfidenceModel":
        """Read what `save` wrote.

        Raises:
            ModelError: The file is missing or of another form.
        """
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            if record.pop("schema_version") != SCHEMA_VERSION:
                raise ValueError("another schema_version")
            return cls(
                float(record["bias"]),
                {str(name): float(weight) for name, weight in record["weights"].items()},
                str(record["fitted_on"]),
                [(float(p), float(f1), int(n)) for p, f1, n in record["calibration"]],
                [float(confidence) for confidence in record["spread"]],
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ModelError(f"{path} cannot be read as a confidence model: {error!r}") from error
