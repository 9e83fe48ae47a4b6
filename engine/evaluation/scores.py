"""Score the answers to one question, and average scores over questions.

Answers are a set of mids and texts of literals, and are scored as sets: each score is in [0, 1]; if
gold and prediction are both empty it is 1, and if only one is, 0. A boolean, a count and the
absence of an answer are right or wrong: each score is 1 or 0. There are two other ways to score:

- **By names**, as the papers of walking and retrieving methods do (`NameScores`). This is weaker:
  two entities of one name are the same, and some rules also count parts of names.
- **By the rule of WebQSP's official script.** F1 is the same. But if nothing is predicted and
  something is gold, precision is 1, not 0, and the other way round recall; dates keep their time
  zone; and a gold answer that a parse lists twice counts twice. The script skips questions without
  a complete parse of good quality, and uses *all* parses of a question if one of them counts. No
  question of the released test set has both kinds of parses.

Source: Yih et al. 2016 and the script ``eval/eval.py`` that comes with the data, for the best parse
and the official rule; Talmor and Berant 2018 for CWQ; the released code of Bounded Path Context for
exact names, of Think-on-Graph, Plan-on-Graph and KnowPath for `contained`, and of RoG and
SubgraphRAG for theirs.

`ValueError` is raised if there is no gold set to score against, or nothing to average.
"""

import math
import random
import re
import string
from array import array
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from kbqa.sparql.terms import term_text

if TYPE_CHECKING:
    from kbqa.engine.questions.question_sets import Question
    from kbqa.engine.running.tried import Tried

# Virtuoso adds its own time zone to plain dates, and the gold answers keep it.
_STORE_ZONE = re.compile(r"^(-?\d{4}(?:-\d\d(?:-\d\d(?:T[\d:.]+)?)?)?)(?:Z|[+-]\d\d:\d\d)$")
# A number with leading zeros is a code, such as 06037.
_NUMBER = re.compile(r"[+-]?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_DATE = re.compile(r"(-?\d{4})-\d\d")
_TOLERANCE = 1e-6
_UNSURE = ("unsure", "none")
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
# SubgraphRAG: to questions with these words, an answer may also be a part of a gold name.
_LOOSE = re.compile(
    "when|what year|which year|where|sport|what countr|language|nba finals|world series"
)
_WEBQSP_ID = re.compile(r"WebQ(?:Test|Trn)-\d+")


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores of one question; `tables.DEFINITIONS` says what they mean."""

    hit: float  # some papers call this Hits@1
    hits_at_1: float
    exact_match: float
    precision: float
    recall: float
    f1: float


METRICS = tuple(field.name for field in fields(Scores))
"""The names of the scores."""

RESAMPLES = 1000
"""Of a bootstrap, unless more are asked for; papers often have 10,000."""

RIGHT = Scores(1.0, 1.0, 1.0, 1.0, 1.0, 1.0)
WRONG = Scores(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean with its 95 % bootstrap interval; a format applies to each of its numbers."""

    mean: float
    low: float
    high: float
    n: int

    def __format__(self, spec: str) -> str:
        spec = spec or ".3f"
        return f"{self.mean:{spec}} [{self.low:{spec}}, {self.high:{spec}}]"

    def __str__(self) -> str:
        return format(self)


def bootstrap_mean(values: Sequence[float], seed: int = 42, resamples: int = RESAMPLES) -> Mean:
    """Compute a mean over questions and its 95 % percentile bootstrap interval."""
    if not values:
        raise ValueError("no values to take the mean of")
    n = len(values)
    draws = draw_resamples(n, seed, resamples)
    low, high = interval([sum(map(values.__getitem__, draw)) / n for draw in draws])
    return Mean(sum(values) / n, low, high, n)


@lru_cache(maxsize=1)
def draw_resamples(n: int, seed: int, resamples: int) -> "list[array[int]]":
    """Draw the resamples' positions; cached for the other metrics of the same questions."""
    rng = random.Random(seed)
    positions = list(range(n))
    return [array("I", rng.choices(positions, k=n)) for _ in range(resamples)]


def interval(resampled: Iterable[float]) -> tuple[float, float]:
    """Return the 95 % percentile interval of resampled values."""
    ranked = sorted(resampled)
    return ranked[round(0.025 * len(ranked))], ranked[round(0.975 * len(ranked)) - 1]


def average(
    scores: Sequence[object], names: Iterable[str], resamples: int = RESAMPLES
) -> dict[str, Mean]:
    """Average scores over questions, each by its name."""
    return {
        name: bootstrap_mean([getattr(one, name) for one in scores], resamples=resamples)
        for name in names
    }


def normalise_answer(text: str) -> str:
    """Remove the store's time zone from a date; return other texts unchanged.

    >>> normalise_answer("1968-03-29-08:00"), normalise_answer("m.0abc")
    ('1968-03-29', 'm.0abc')
    """
    match = _STORE_ZONE.match(text)
    return match[1] if match else text


def score(predicted: Sequence[str], gold: Collection[str]) -> Scores:
    """Score a ranked list of answers against a set of gold ones."""
    ranked = [normalise_answer(text) for text in predicted]
    found, wanted = set(ranked), {normalise_answer(text) for text in gold}
    if not found or not wanted:
        return WRONG if found or wanted else RIGHT
    common = len(found & wanted)
    precision, recall = common / len(found), common / len(wanted)
    return Scores(
        hit=float(common > 0),
        hits_at_1=float(ranked[0] in wanted),
        exact_match=float(found == wanted),
        precision=precision,
        recall=recall,
        f1=_f1(precision, recall),
    )


def score_best(predicted: Sequence[str], golds: Iterable[Collection[str]]) -> Scores:
    """Score against the gold set with the best F1, as WebQSP does for its parses."""
    return max((score(predicted, gold) for gold in golds), key=lambda one: one.f1)


def _f1(precision: float, recall: float) -> float:
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


@dataclass(frozen=True, slots=True)
class Predicted:
    """An answer to score: mids and texts of literals, best first, or a boolean or a count.

    The statuses ``unsure`` and ``none`` count as no answer.
    """

    answers: Sequence[str]
    boolean: bool | None = None
    count: int | None = None
    status: str | None = None


def score_answer(predicted: Predicted, question: "Question") -> Scores | None:
    """Score an answer by the kind of gold of its question; None if it has no gold.

    Booleans and counts must be exact. A list without the number is no count, but one number alone
    is. A question that cannot be answered is right without an answer, or with one that is unsure.
    """
    match question.kind:
        case None:
            return None
        case "answers":
            if not question.compares_values:
                return score_best(predicted.answers, question.golds)
            matched = [score(match_values(predicted.answers, g), g) for g in question.golds]
            return max(matched, key=lambda one: one.f1)
        case "boolean":
            is_right = predicted.boolean is question.boolean
        case "count":
            count: float | None = predicted.count
            if count is None and len(predicted.answers) == 1:
                [only] = predicted.answers
                count = float(only) if _NUMBER.fullmatch(only) else None
            is_right = count == question.count
        case "unanswerable":
            is_right = predicted.status in _UNSURE or not (
                predicted.answers or predicted.boolean is not None or predicted.count is not None
            )
    return RIGHT if is_right else WRONG


def candidate_f1(tried: "Tried | None", question: "Question") -> float:
    """Score the answers of a candidate, or of none; 0 if the question has no gold."""
    said = Predicted(())
    if tried is not None:
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

    def match(text: str) -> str:
        if text in wanted:
            return text
        if (date := _DATE.match(text)) and date[1] in wanted:
            return date[1]
        if not _NUMBER.fullmatch(text):
            return text
        value = float(text)
        same = (each for each in numbers if math.isclose(numbers[each], value, rel_tol=_TOLERANCE))
        return next(same, text)

    return [match(normalise_answer(text)) for text in predicted]


class NameScores(NamedTuple):
    """The scores of one question by names; `tables.NAME_RULES` says what they mean."""

    hits_at_1: float  # BPC
    f1: float
    contained: float  # ToG, PoG and KnowPath
    rog_hit: float  # RoG and GCR
    rog_f1: float
    subgraphrag_hits_at_1: float  # SubgraphRAG and Path Pooling
    subgraphrag_f1: float


def score_names(
    predicted: Sequence[str], golds: Sequence[Collection[str]], question: str = ""
) -> NameScores:
    """Score the names of answers, best first, against the gold set with the best F1.

    >>> score_names(["The New York City!"], [["New York", "Albany"]])[:3]
    (0.0, 0.0, 1.0)
    >>> score_names(["The New York City!"], [["New York", "Albany"]])[3:]
    (1.0, 0.6666666666666666, 1.0, 0.6666666666666666)
    """
    names = list(filter(None, map(_single_blanks, predicted)))
    exact = [score(names, {*filter(None, map(_single_blanks, gold))}) for gold in golds]
    best = max(exact, key=lambda scores: (scores.f1, scores.hits_at_1))
    said = _without_blanks(", ".join(names))
    wanted = [name for gold in golds for name in map(_without_blanks, gold) if name]
    contained = bool(said) and any(said in name or name in said for name in wanted)
    predicted = list(dict.fromkeys(filter(str.strip, predicted)))
    named = [list(filter(str.strip, gold)) for gold in golds]
    rog = max(_score_rog(predicted, gold) for gold in named)
    subgraphrag = max(_score_subgraphrag(predicted, gold, question.lower()) for gold in named)
    return NameScores(best.hits_at_1, best.f1, float(contained), *rog[::-1], *subgraphrag[::-1])


def _score_rog(predicted: Sequence[str], gold: Collection[str]) -> tuple[float, float]:
    """Return F1 and hit: gold names that all answers in one text contain.

    An answer may contain several, so precision would exceed 1 in RoG's code.
    """
    if not predicted or not gold:
        return (0.0, 0.0) if predicted or gold else (1.0, 1.0)
    said = " ".join(map(_normalise_name, predicted))
    right = sum(_normalise_name(name) in said for name in gold)
    return _f1(min(1.0, right / len(predicted)), right / len(gold)), float(right > 0)


def _score_subgraphrag(
    predicted: Sequence[str], gold: Collection[str], question: str
) -> tuple[float, float]:
    """Return F1 and Hits@1: each gold name, the longest first, may take one answer."""
    if not predicted or not gold:
        return (0.0, 0.0) if predicted or gold else (1.0, 1.0)
    of_time = "when" in question or "what year" in question
    is_loose = _LOOSE.search(question) is not None

    def match(answer: str, name: str) -> bool:
        year = name.partition("-")[0]
        wanted = _normalise_name(year if of_time and year.isdigit() else name)
        said = _normalise_name(answer)
        return wanted in said or (is_loose and said in wanted)

    left = sorted(predicted, key=len, reverse=True)
    for name in sorted(set(gold), key=lambda name: (-len(name), name)):
        taken = next((answer for answer in left if match(answer, name)), None)
        if taken is not None:
            left.remove(taken)
    right = len(predicted) - len(left)
    first = any(match(predicted[0], name) for name in gold)
    return _f1(right / len(predicted), right / len({*gold})), float(first)


def _normalise_name(name: str) -> str:
    """Remove capitals, punctuation, articles and blanks, unless nothing else is left."""
    text = _ARTICLES.sub(" ", name.lower().translate(_PUNCTUATION))
    return " ".join(text.split()) or _single_blanks(name)


def _single_blanks(name: str) -> str:
    return " ".join(name.lower().split())


def _without_blanks(name: str) -> str:
    return "".join(name.lower().split())


class OfficialScores(NamedTuple):
    """Precision, recall and F1 of one question by WebQSP's official rule."""

    precision: float
    recall: float
    f1: float


@dataclass(frozen=True, slots=True)
class OfficialMeans:
    """The official scores of a set of questions."""

    precision: Mean
    recall: Mean
    f1: Mean  # the script's "average F1 over questions (accuracy)"
    f1_of_means: float  # of the mean precision and the mean recall
    true_accuracy: Mean  # share of questions whose F1 is 1


def is_webqsp_id(text: str) -> bool:
    """Return whether a question's id is one of WebQSP's.

    >>> is_webqsp_id("WebQTest-12"), is_webqsp_id("WebQTrn-12_0e83c2")  # the second is CWQ's
    (True, False)
    """
    return _WEBQSP_ID.fullmatch(text) is not None


def official_score(predicted: Collection[str], golds: Sequence[Collection[str]]) -> OfficialScores:
    """Score the answers to a question against the parse of the best F1.

    A repeated answer counts once, a repeated gold answer each time.
    """
    found = set(predicted)
    # In the script an answered parse without a match has an F1 just above 0, so it wins a tie.
    best = max(golds, key=lambda gold: (_official(found, gold).f1, bool(gold)))
    return _official(found, best)


def _official(found: set[str], gold: Collection[str]) -> OfficialScores:
    if not found or not gold:
        precision, recall = float(not found), float(not gold)
    else:
        right, wrong = sum(answer in found for answer in gold), len(found.difference(gold))
        precision, recall = right / (right + wrong), right / len(gold)
    return OfficialScores(precision, recall, _f1(precision, recall))


def official_means(scores: Sequence[OfficialScores], resamples: int = RESAMPLES) -> OfficialMeans:
    """Average official scores over questions."""
    means = average(scores, OfficialScores._fields, resamples)
    return OfficialMeans(
        precision=means["precision"],
        recall=means["recall"],
        f1=means["f1"],
        f1_of_means=_f1(means["precision"].mean, means["recall"].mean),
        true_accuracy=bootstrap_mean([float(one.f1 == 1.0) for one in scores], resamples=resamples),
    )
