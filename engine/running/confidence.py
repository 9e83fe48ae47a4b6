"""How sure a candidate's answers are: a small model over how the candidate fared.

The language model's probability says how well a path fits the question. It does not say whether the
graph holds the path, nor what it leads to; and a path that exists may still be the wrong one, which
the paper names as its limitation. A logistic model over a handful of features weighs all of these.
`kbqa.training.judge.reading` fits it on questions that the language model was not trained on. Its
confidence is the F1 to be expected of the candidate's answers.

Source: RouterKGQA §6, "Limitations"; Platt 1999 for reading a score as a probability.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from kbqa.engine.files import read_model_json
from kbqa.engine.linking.mentions import softmax
from kbqa.engine.running.tried import Said, Tried
from kbqa.sparql.errors import ModelError
from kbqa.sparql.relax import leaves
from kbqa.sparql.terms import Term

SHIPPED_CONFIDENCE = Path(__file__).with_name("confidence_model.json")
"""The model that comes with kbqa."""

SCHEMA_VERSION = 1

_DOUBT = 0.5
"""What is left of the confidence in answers that pass over a word of the question."""

Features = Mapping[str, float]

ASKED_LEAD = "asked lead"
"""The feature that only an asker gives."""

_GREATEST_LEAD = 8.0
"""Of a log-probability: e⁸, or 3,000 times as likely, is clear."""


def describe_tried(tried: Sequence[Tried]) -> list[Features]:
    """Measure a question's candidates, one against the other; those without answers have none.

    Shares are of the probability that the written candidates have together. What supports answers
    is the share of those that lead to them in full: a constraint that had to be dropped speaks for
    other answers, not for these. Fits are shared out alike, among all candidates with answers and
    "none of these", which the cross-encoder scores 0. Answers lead by what their best fit is above
    that of all others, none of these included. Where the asker was asked, they also lead by the
    log-probability of the question. It is known for few paths, and the least stands for the others.
    """
    said = [each.said for each in tried]
    written = [each.candidate.logprob for each in tried if not each.candidate.is_searched]
    shares = _spread(softmax(written), [not each.candidate.is_searched for each in tried])
    is_full = [each.relaxation is None or each.relaxation.level == "full" for each in tried]
    support = _summed(said, shares, is_full)
    fitting = share_fits(tried)
    leads = _leads(_best(said, [each.fit for each in tried]), at_least=0.0)
    asked = _asked_features(said, tried)
    return [
        {
            **_features(each, share, support.get(says, 0.0)),
            **_fit_features(each, fitting.get(says, 0.0), leads.get(says, 0.0)),
            **asked.get(says, {}),
        }
        if each.table is not None
        else {}
        for each, share, says in zip(tried, shares, said, strict=True)
    ]


def share_fits(tried: Sequence[Tried]) -> Mapping[Said, float]:
    """Compute the share of each answer in the fits of all candidates and of "none of these"."""
    is_read = [each.fit is not None for each in tried]
    fits = _spread(softmax([*(each.fit for each in tried if each.fit is not None), 0.0]), is_read)
    return _summed([each.said for each in tried], fits, is_read)


def _spread(values: Sequence[float], wanted: Sequence[bool]) -> list[float]:
    """Put values where they are wanted, and 0 elsewhere."""
    rest = iter(values)
    return [next(rest) if each else 0.0 for each in wanted]


def _summed(
    said: Sequence[Said], shares: Sequence[float], counts: Sequence[bool]
) -> Mapping[Said, float]:
    """Add up the shares that count of those candidates that say the same."""
    sums: dict[Said, float] = {}
    for says, share, is_counted in zip(said, shares, counts, strict=True):
        if is_counted:
            sums[says] = sums.get(says, 0.0) + share
    return sums


def _best(said: Sequence[Said], values: Sequence[float | None]) -> Mapping[Said, float]:
    """Find the best value of each answer; answers without any are not there."""
    best: dict[Said, float] = {}
    for says, value in zip(said, values, strict=True):
        if value is not None:
            best[says] = max(value, best.get(says, value))
    return best


def _leads(best: Mapping[Said, float], at_least: float = -math.inf) -> Mapping[Said, float]:
    """Compute by how much the value of each answer is above those of all others, and a least."""
    leads: dict[Said, float] = {}
    for says, value in best.items():
        others = max([at_least, *(other for said, other in best.items() if said != says)])
        leads[says] = value - others if others > -math.inf else 0.0
    return leads


def _fit_features(tried: Tried, support: float, lead: float) -> Features:
    voted = {} if tried.votes is None else {"votes": tried.votes}
    if tried.fit is None:
        return voted
    return {**voted, "fit": tried.fit, "fit support": support, "fit lead": lead}


def _asked_features(said: Sequence[Said], tried: Sequence[Tried]) -> Mapping[Said, Features]:
    best = _best(said, [each.question_logprob for each in tried])
    if not best:
        return {}
    leads, behind = _leads(best), min(best.values()) - max(best.values())
    most = _GREATEST_LEAD
    # In this order, NaN counts as the least.
    return {says: {ASKED_LEAD: max(-most, min(leads.get(says, behind), most))} for says in said}


def rank_tried(tried: Sequence[Tried]) -> list[int]:
    """Order judged candidates by how sure their answers are, the surest first; return indexes.

    Of those that are equally sure, what needed no relaxation goes first, and then what the language
    model thinks likelier. A path that nothing satisfies is rarely what was meant, so 0 and no go
    last if nothing shows them.
    """

    def key(at: int) -> tuple[bool, bool, float, bool]:
        each = tried[at]
        is_relaxed = each.relaxation is not None and each.relaxation.level != "full"
        return each.table is None, not each.terms, -(each.confidence or 0.0), is_relaxed

    return sorted(range(len(tried)), key=key)


def answer_confidences(tried: Sequence[Tried]) -> dict[Term, float]:
    """Compute how sure each answer is, in [0, 1]: that not all lists with it in them are wrong.

    Different lists count as independent of each other, equal ones as one. On held-out training
    questions this holds better than the confidence of the list alone (docs/model.md).
    """
    surest: dict[frozenset[Term], float] = {}
    for each in tried:
        if each.boolean is None and each.count is None:
            answers = frozenset(each.terms)
            surest[answers] = max(each.confidence or 0.0, surest.get(answers, 0.0))
    wrong: dict[Term, float] = {}
    for answers, confidence in surest.items():
        for term in answers:
            wrong[term] = wrong.get(term, 1.0) * (1 - confidence)
    return {term: 1 - probability for term, probability in wrong.items()}


def _features(tried: Tried, share: float, support: float) -> Features:
    assert tried.grounding is not None
    assert tried.relaxation is not None
    candidate, crp = tried.candidate, tried.grounding.crp
    is_list = tried.boolean is None and tried.count is None
    answers = len(set(tried.terms)) if is_list else 1
    level, dropped = tried.relaxation.level, len(tried.relaxation.dropped)
    mentioned = tried.mentioned
    if not tried.terms:
        # 0 or no, because nothing satisfies the constraints: only the main path is in the graph.
        level, dropped, mentioned = "main_path", sum(1 for _ in leaves(crp)), 0
    written = {
        "logprob": max(candidate.logprob, -20.0),
        "token_logprob": candidate.logprob / candidate.tokens,
    }
    searched = {}
    if candidate.rank is not None:
        narrows = float(candidate.narrows)
        searched = {"searched": 1.0, "rank": float(candidate.rank), "narrows": narrows}
    return {
        **(searched or written),
        "share": share,
        "support": support,
        "hops": float(len(crp.path)),
        "constraints": float(len(crp.constraints) + (crp.order is not None)),
        "dropped": float(dropped),
        f"level {level}": 1.0,
        "answers": math.log(answers),
        "many answers": float(answers > 20),
        "topic": tried.topic_score,
        "mentioned": float(mentioned),
        "replaced": float(bool(tried.grounding.replaced or tried.grounding.unlinked)),
    }


@dataclass(frozen=True, slots=True)
class ConfidenceModel:
    """A logistic model of the F1 to be expected."""

    bias: float
    """Log-odds if all features are 0."""
    weights: Mapping[str, float]
    """By feature; a feature that is not named here counts nothing."""
    fitted_on: str = ""
    """What it was fitted on, in words, for reports."""
    calibration: Sequence[tuple[float, float, int]] = field(default=())
    """On questions that it was not fitted on: for each tenth of the confidences, rising, the mean
    confidence, the mean F1 and the number of candidates."""
    spread: Sequence[float] = field(default=())
    """The confidences of the best candidates there, one for each hundredth of the questions,
    rising; 0 for a question without any. Empty if it was not measured."""

    def confidence(self, features: Features) -> float:
        """Compute the confidence, in [0, 1]; without features, which means no answers, it is 0."""
        if not features:
            return 0.0
        odds = self.bias + sum(
            self.weights.get(name, 0.0) * value for name, value in features.items()
        )
        # In this order, NaN counts as the least.
        return 1 / (1 + math.exp(-max(-30.0, min(odds, 30.0))))

    def judge(self, tried: Sequence[Tried]) -> list[float]:
        """Compute how sure the answers of a question's candidates are.

        Candidates that say the same are as sure as the surest of them; half as sure, if they do not
        account for a word of the question.
        """
        said = [each.said for each in tried]
        surest: dict[Said, float] = {}
        for says, features in zip(said, describe_tried(tried), strict=True):
            surest[says] = max(self.confidence(features), surest.get(says, 0.0))
        return [surest[each.said] * (_DOUBT if each.not_understood else 1.0) for each in tried]

    def threshold(self, share: float) -> float:
        """Find the confidence below which a share in [0, 1] of the questions of `spread` stays."""
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
        return read_model_json(
            path, cls, SHIPPED_CONFIDENCE, "the confidence model", schema_version=SCHEMA_VERSION
        )
