"""Fit a linear model that chooses among candidates: the conditional logit.

The probability of choosing a candidate is proportional to the exponential of its score, a weighted
sum of features. The fitted weights maximise the probability of choosing a right candidate.

Source: McFadden 1974, "Conditional logit analysis of qualitative choice behavior".

Read question sets for entity linking: questions and their topic entities.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from kbqa.engine.questions.official import read_question_rows
from kbqa.engine.questions.question_sets import topic_entities
from kbqa.sparql.errors import KbqaError
from kbqa.sparql.templates import query_mentions

_STEPS = 400
_LEARNING_RATE = 0.05
_L2 = 1e-3  # of weights for features scaled to unit variance; 3e-3 and 1e-2 rank no better
_LEAST_QUESTIONS = 50
_DECAY, _SQUARE_DECAY = 0.9, 0.999


class ChoiceSet(NamedTuple):
    """The candidates of one question.

    Attributes:
        features: Features of each candidate; a missing feature is 0.
        is_right: Whether each candidate is right; several may be.
        weight: The weight of the question.
    """

    features: Sequence[Mapping[str, float]]
    is_right: Sequence[bool]
    weight: float


def fit_weights(choices: Iterable[ChoiceSet]) -> dict[str, float]:
    """Fit the weights, by Adam, with a small L2 penalty on the weights of scaled features.

    Questions of which all candidates are right, or none, are ignored. Features that fewer than 50
    questions have get no weight.

    Raises:
        ValueError: All questions are ignored.
    """
    import numpy as np

    telling = [choice for choice in choices if any(choice.is_right) and not all(choice.is_right)]
    if not telling:
        raise ValueError("there is nothing to choose: no question has right and wrong candidates")
    counts = Counter(name for choice in telling for name in set().union(*choice.features))
    names = sorted(name for name, count in counts.items() if count >= _LEAST_QUESTIONS)
    rows = [features for choice in telling for features in choice.features]
    x = np.array([[features.get(name, 0.0) for name in names] for features in rows], dtype=float)
    scale = x.std(axis=0) + 1e-6
    x = (x - x.mean(axis=0)) / scale
    is_right = np.array([right for choice in telling for right in choice.is_right])
    sizes = [len(choice.features) for choice in telling]
    starts = np.cumsum([0, *sizes[:-1]])
    question = np.repeat(np.arange(len(telling)), sizes)
    share = np.array([choice.weight for choice in telling])
    share /= share.sum()
    weights, mean, square = (np.zeros(len(names)) for _ in range(3))
    for step in range(1, _STEPS + 1):
        scores = x @ weights
        powers = np.exp(scores - np.maximum.reduceat(scores, starts)[question])
        drawn = powers / np.add.reduceat(powers, starts)[question]
        powers *= is_right
        drawn_right = powers / np.add.reduceat(powers, starts)[question]
        gradient = x.T @ ((drawn - drawn_right) * share[question]) + _L2 * weights
        mean = _DECAY * mean + (1 - _DECAY) * gradient
        square = _SQUARE_DECAY * square + (1 - _SQUARE_DECAY) * gradient**2
        unbiased = mean / (1 - _DECAY**step)
        spread = np.sqrt(square / (1 - _SQUARE_DECAY**step)) + 1e-8
        weights -= _LEARNING_RATE * unbiased / spread
    return dict(zip(names, (weights / scale).tolist(), strict=True))


@dataclass(frozen=True, slots=True)
class LinkingExample:
    """A question with its topic entities.

    Attributes:
        source: Its question set.
        question: The question.
        topics: Mids of its topic entities, at least one.
        relations: Relations of its query; empty if it has none.
    """

    source: str
    question: str
    topics: frozenset[str]
    relations: tuple[str, ...]


def read_linking_examples(path: Path) -> Iterator[LinkingExample]:
    """Read a question set, without rows that have no topic or that are marked `test_parent`.

    Raises:
        InputError: The file is missing, or a line of it is not a JSON object.
    """
    source = path.name.split(".jsonl")[0]
    for _, row in read_question_rows(path):
        if not row.get("test_parent") and (example := linking_example(row, source)) is not None:
            yield example


def linking_example(row: Mapping[str, Any], source: str) -> LinkingExample | None:
    """Read a row of WebQSP, CWQ or SimpleQuestions; None if it has no topic.

    Rows of CWQ name no topic, so any entity of the query counts as one.
    """
    topics = {entity.mid for entity in topic_entities(row)}
    relations: tuple[str, ...] = ()
    parses = row.get("parses")
    if sparql := row.get("sparql") or (parses and parses[0]["Sparql"]):
        with suppress(KbqaError):
            mentioned = query_mentions(sparql)
            topics = topics or set(mentioned.entities)
            relations = tuple(sorted(mentioned.relations))
    mids = frozenset(topic for topic in topics if topic is not None)
    return LinkingExample(source, row["question"], mids, relations) if mids else None
