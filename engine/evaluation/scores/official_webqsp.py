"""Score answers by the rule of WebQSP's official evaluation script.

F1 is that of `kbqa.engine.evaluation.scores.metrics` for each question. The differences are:

- if nothing is predicted but something is gold, precision is 1 (ours: 0);
- if something is predicted but nothing is gold, recall is 1 (ours: 0);
- answers are compared as written: a date keeps its time zone;
- a gold answer that a parse lists twice counts twice;
- besides the mean F1, the rule has the F1 of the mean precision and the mean recall.

As in ours, all scores are 1 if gold and prediction are both empty. A question counts with the parse
of the best F1; if no answer matches, a parse with answers is preferred to one without. A question
without a complete parse of good quality is skipped, and one without a prediction scores 0. The
script uses *all* parses of a question if one of them counts; no question of the released test set
has both parses that count and parses that do not.

Source: Yih et al. 2016, "The Value of Semantic Parse Labeling for Knowledge Base Question
Answering", and the script that comes with the data (``eval/eval.py``).
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from kbqa.engine.evaluation.scores.metrics import Mean, bootstrap_mean

_ID = re.compile(r"WebQ(?:Test|Trn)-\d+")


@dataclass(frozen=True, slots=True)
class OfficialScores:
    """Precision, recall and F1 of one question."""

    precision: float
    recall: float
    f1: float


MISSING = OfficialScores(0.0, 0.0, 0.0)
"""The scores of a question without a prediction."""


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
    """Return whether a question's id is one of WebQSP's.

    >>> is_webqsp_id("WebQTest-12"), is_webqsp_id("WebQTrn-12_0e83c2")  # the second is CWQ's
    (True, False)
    """
    return _ID.fullmatch(text) is not None


def official_score(predicted: Collection[str], golds: Sequence[Collection[str]]) -> OfficialScores:
    """Score the answers to a question against the best parse.

    Args:
        predicted: Answers; a repeated one counts once.
        golds: Gold answers of each parse; a repeated one counts each time.

    Raises:
        ValueError: There is no parse.
    """
    found = set(predicted)
    # In the script an answered parse without a match has an F1 just above 0, so it wins a tie.
    best = max(golds, key=lambda gold: (_score(found, gold).f1, bool(gold)))
    return _score(found, best)


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


def _score(found: set[str], gold: Collection[str]) -> OfficialScores:
    if not found or not gold:
        precision, recall = float(not found), float(not gold)
    else:
        right, wrong = sum(answer in found for answer in gold), len(found.difference(gold))
        precision, recall = right / (right + wrong), right / len(gold)
    return OfficialScores(precision, recall, _f1(precision, recall))


def _f1(precision: float, recall: float) -> float:
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0
