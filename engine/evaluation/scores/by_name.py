"""Score answers by their names, as the papers of walking methods do. Ids stay the headline.

Names are a weaker measure than ids: two entities of one name are the same to it, and the second
rule here also counts parts of names.

Source: the released code of Bounded Path Context for the first rule (exact names), and of
Think-on-Graph, Plan-on-Graph and KnowPath for the second (containment). There an empty answer is
part of every gold name, and so counts as right; here it is wrong.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from kbqa.engine.evaluation.scores.metrics import Mean, bootstrap_mean, score


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
