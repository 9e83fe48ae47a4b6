"""Score answers by the rule of WebQSP's official evaluation script.

F1 is that of `kbqa.engine.evaluation.metrics`, question by question. What the rule has otherwise:

- where nothing is predicted though something is gold, precision is 1 (ours: 0);
- where something is predicted though nothing is gold, recall is 1 (ours: 0);
- answers are compared by the letter: no time zone is taken from a date;
- beside the mean F1 it knows the F1 of the mean precision and the mean recall.

As with ours, both are 1 where gold and prediction are both empty; a question counts with the parse
of the best F1, and is passed over where it has no complete parse of a good question; and one that
is missing among the predictions counts 0 throughout. The script takes the best of *all* parses of a
question that has one that counts; the released test set mixes no parses that count with others.

Source: Yih et al. 2016, "The Value of Semantic Parse Labeling for Knowledge Base Question
Answering", and the script that comes with the data (``eval/eval.py``).
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from kbqa.engine.evaluation.metrics import Mean, bootstrap_mean

_ID = re.compile(r"WebQ(?:Test|Trn)-\d+")


@dataclass(frozen=True, slots=True)
class OfficialScores:
    """Precision, recall and F1 of one question."""

    precision: float
    recall: float
    f1: float


MISSING = OfficialScores(0.0, 0.0, 0.0)
"""What a question counts that is missing among the predictions."""


@dataclass(frozen=True, slots=True)
class OfficialMeans:
    """The official scores of a set of questions.

    Attributes:
        precision: Mean over the questions.
        recall: Mean over the questions.
        f1: Mean over the questions; the script's "average F1 over questions (accuracy)".
        f1_of_means: Harmonic mean of the mean precision and the mean recall.
        true_accuracy: Share of questions whose F1 is 1.
    """

    precision: Mean
    recall: Mean
    f1: Mean
    f1_of_means: float
    true_accuracy: Mean


def is_webqsp_id(text: str) -> bool:
    """Tell whether a question's id is one of WebQSP's.

    >>> is_webqsp_id("WebQTest-12"), is_webqsp_id("WebQTrn-12_0e83c2")  # the second is CWQ's
    (True, False)
    """
    return _ID.fullmatch(text) is not None


def official_score(predicted: Collection[str], golds: Sequence[Collection[str]]) -> OfficialScores:
    """Score the answers to a question against the parse that fits them best.

    Args:
        predicted: Answers; one that is named twice counts once.
        golds: Gold answers by parse.

    Raises:
        ValueError: There is no parse.
    """
    found = set(predicted)
    return max((_score(found, set(gold)) for gold in golds), key=lambda scores: scores.f1)


def official_means(scores: Sequence[OfficialScores]) -> OfficialMeans:
    """Average over questions, with 95 % bootstrap intervals.

    Raises:
        ValueError: There are no scores.
    """
    precision = bootstrap_mean([one.precision for one in scores])
    recall = bootstrap_mean([one.recall for one in scores])
    return OfficialMeans(
        precision=precision,
        recall=recall,
        f1=bootstrap_mean([one.f1 for one in scores]),
        f1_of_means=_f1(precision.mean, recall.mean),
        true_accuracy=bootstrap_mean([float(one.f1 == 1.0) for one in scores]),
    )


def _score(found: set[str], wanted: set[str]) -> OfficialScores:
    common = len(found & wanted)
    precision = common / len(found) if found else 1.0
    recall = common / len(wanted) if wanted else 1.0
    return OfficialScores(precision, recall, _f1(precision, recall))


def _f1(precision: float, recall: float) -> float:
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0
