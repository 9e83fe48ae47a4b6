"""Score an answer by the kind of gold that its question has.

Answers are a set, and are scored as sets. A boolean, a count and the absence of an answer are right
or wrong: each score is 1 or 0.

Score answers by their names, as the papers of walking methods do. Ids stay the headline.

Names are a weaker measure than ids: two entities of one name are the same to it, and the second
rule here also counts parts of names.

Source: the released code of Bounded Path Context for the first rule (exact names), and of
Think-on-Graph, Plan-on-Graph and KnowPath for the second (containment). There an empty answer is
part of every gold name, and so counts as right; here it is wrong.

Score predicted answers against gold ones: pure functions on sets.

Every score is in [0, 1]. If gold and prediction are both empty, each score is 1; if only one is
empty, 0. Names are not compared: an answer is a mid or a literal's text.

Source: Yih et al. 2016 for WebQSP's best parse; Talmor and Berant 2018 for CWQ.

Score answers by the rule of WebQSP's official evaluation script.

F1 is that of `kbqa.engine.evaluation.scores` for each question. The differences are:

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

import math
import random
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import TYPE_CHECKING

from kbqa.engine.answer import term_text

if TYPE_CHECKING:
    from kbqa.engine.questions.question_sets import Question
    from kbqa.engine.running.tried import Tried

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


RIGHT = Scores(1.0, 1.0, 1.0, 1.0, 1.0, 1.0)
WRONG = Scores(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)

_TOLERANCE = 1e-6
_UNSURE = ("unsure", "none")
# A number with leading zeros is a code, such as 06037.
_NUMBER = re.compile(r"[+-]?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_DATE = re.compile(r"(-?\d{4})-\d\d")


@dataclass(frozen=True, slots=True)
class Predicted:
    """What was answered.

    Attributes:
        answers: Mids and texts of literals, best first.
        boolean: The answer to a yes/no question.
        count: The answer to "how many?".
        status: How sure the method is, if it says so; ``unsure`` and ``none`` count as no answer.
    """

    answers: Sequence[str]
    boolean: bool | None = None
    count: int | None = None
    status: str | None = None


def score_answer(predicted: Predicted, question: "Question") -> Scores | None:
    """Score an answer; None if its question has no gold.

    Booleans and counts must be exact. A list without the number is no count, but one number alone
    is. A question that cannot be answered is right without an answer, or with one that is unsure.
    """
    if question.kind is None:
        return None
    if question.kind == "answers":
        if not question.compares_values:
            return score_best(predicted.answers, question.golds)
        return max(
            (score_best(match_values(predicted.answers, gold), [gold]) for gold in question.golds),
            key=lambda scores: scores.f1,
        )
    if question.kind == "boolean":
        is_right = predicted.boolean is question.boolean
    elif question.kind == "count":
        is_right = _counted(predicted) == question.count
    else:
        is_right = predicted.status in _UNSURE or not (
            predicted.answers or predicted.boolean is not None or predicted.count is not None
        )
    return RIGHT if is_right else WRONG


def candidate_f1(tried: "Tried | None", question: "Question") -> float:
    """Score what a candidate answers, or for None what no candidate does.

    It is 0 if the question has no gold.
    """
    if tried is None:
        said = Predicted(())
    else:
        terms = () if tried.boolean is not None else tried.terms
        said = Predicted([term_text(term) for term in set(terms)], tried.boolean, tried.count)
    scores = score_answer(said, question)
    return 0.0 if scores is None else scores.f1


def match_values(predicted: Sequence[str], gold: Collection[str]) -> list[str]:
    """Replace each predicted literal by the gold one of the same value; keep the others.

    Numbers are the same if they differ by at most a millionth. A gold year is any date in it.

    >>> match_values(["103000", "1774-08-01", "m.1"], ["103000.0", "1774"])
    ['103000.0', '1774', 'm.1']
    """
    wanted = {normalise_answer(text) for text in gold}
    numbers = {text: float(text) for text in sorted(wanted) if _NUMBER.fullmatch(text)}
    return [_match(normalise_answer(text), wanted, numbers) for text in predicted]


def _match(text: str, wanted: set[str], numbers: dict[str, float]) -> str:
    if text in wanted:
        return text
    if (date := _DATE.match(text)) and date[1] in wanted:
        return date[1]
    if _NUMBER.fullmatch(text):
        value = float(text)
        same = (each for each in numbers if math.isclose(numbers[each], value, rel_tol=_TOLERANCE))
        return next(same, text)
    return text


def _counted(predicted: Predicted) -> float | None:
    """Return the number that was answered; None if there is none."""
    if predicted.count is not None:
        return predicted.count
    if len(predicted.answers) == 1 and _NUMBER.fullmatch(predicted.answers[0]):
        return float(predicted.answers[0])
    return None


@dataclass(frozen=True, slots=True)
class NameScores:
    """The scores of one question by names.

    Attributes:
        hits_at_1: The name of the first answer is a gold one, in lower case with single blanks.
        f1: Of the set of names, written so, against the gold names.
        contained: The answers in one text, without blanks and capitals, contain a gold name, or a
            gold name contains them.
    """

    hits_at_1: float
    f1: float
    contained: float


@dataclass(frozen=True, slots=True)
class NameMeans:
    """Means of `NameScores` over questions."""

    hits_at_1: Mean
    f1: Mean
    contained: Mean


UNANSWERED = NameScores(0.0, 0.0, 0.0)
"""The scores of a question that failed."""


def score_names(predicted: Sequence[str], golds: Sequence[Collection[str]]) -> NameScores:
    """Score the names of answers, best first, against the gold set with the best F1.

    >>> score_names(["new  York City"], [["New York City", "Albany"]]).hits_at_1
    1.0
    >>> score_names(["New York"], [["New York City"]])
    NameScores(hits_at_1=0.0, f1=0.0, contained=1.0)
    >>> score_names([], [["Albany"]])
    NameScores(hits_at_1=0.0, f1=0.0, contained=0.0)

    Raises:
        ValueError: There is no gold set.
    """
    names = list(filter(None, map(_single_blanks, predicted)))
    exact = [score(names, {*filter(None, map(_single_blanks, gold))}) for gold in golds]
    best = max(exact, key=lambda scores: (scores.f1, scores.hits_at_1))
    said = _without_blanks(", ".join(names))
    wanted = [name for gold in golds for name in map(_without_blanks, gold) if name]
    contained = bool(said) and any(said in name or name in said for name in wanted)
    return NameScores(best.hits_at_1, best.f1, float(contained))


def average_names(scores: Sequence[NameScores]) -> NameMeans:
    """Average over questions, with 95 % bootstrap intervals.

    Raises:
        ValueError: There are no scores.
    """
    return NameMeans(
        hits_at_1=bootstrap_mean([one.hits_at_1 for one in scores]),
        f1=bootstrap_mean([one.f1 for one in scores]),
        contained=bootstrap_mean([one.contained for one in scores]),
    )


def _single_blanks(name: str) -> str:
    return " ".join(name.lower().split())


def _without_blanks(name: str) -> str:
    return "".join(name.lower().split())


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
