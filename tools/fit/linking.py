"""Train the linker's model: count which words go with what, then fit the weights of its features.

Tables are counted from questions and their topic entities. If a question's features came from
tables that include the question, the weights would trust them too much. So the questions are split
into folds, and each question takes its features from the tables of the other folds.
"""

import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial

from kbqa.engine.linking.linker import (
    EntityCandidate,
    EntityFacts,
    Features,
    choose_finalists,
    final_features,
    find_candidates,
)
from kbqa.engine.linking.mentions import LinkingModel, Mentions, find_mentions, stem
from kbqa.kb.graph import Graph
from kbqa.kb.names.search import Names
from kbqa.sparql.errors import InputError
from kbqa.training.linker import ChoiceSet, LinkingExample, fit_weights

_FOLDS = 4
_LEAST_EXAMPLES = 50
_LEAST_COUNT = 2  # of a word, to count it in names or with types and relations
_LEAST_TOPICS = 10  # of a type, to know its words
_LEAST_RATIO = 0.5
_NAME_SMOOTHING = 2.0
_TYPE_SMOOTHING = 5.0
_RELATION_SMOOTHING = 3.0


def train_linking_model(
    examples: Iterable[LinkingExample],
    graph: Graph,
    names: Names,
    seed: int = 0,
) -> LinkingModel:
    """Count tables and fit weights; each question set weighs the same.

    Args:
        examples: Examples whose question has no name of a topic are left out.
        graph: Has the types and relations of entities.
        names: The graph's names.
        seed: Splits the examples into folds.

    Raises:
        InputError: Too few examples name their topic.
        GraphError: The graph does not answer.
    """
    fetch = cache(partial(EntityFacts.fetch, graph))
    examples = list(examples)
    # As the linker does: it looks for no typing errors in words that it knows.
    seen = _see(examples, names, _count_tables(_see(examples, names), fetch))
    if len(seen) < _LEAST_EXAMPLES:
        raise InputError(
            f"only {len(seen)} questions contain a name of their topic; "
            f"training needs at least {_LEAST_EXAMPLES}"
        )
    counts = Counter(one.example.source for one in seen)
    dealer = random.Random(seed)
    folds = [dealer.randrange(_FOLDS) for _ in seen]
    tables = [
        _count_tables([one for one, of in zip(seen, folds, strict=True) if of != fold], fetch)
        for fold in range(_FOLDS)
    ]
    first = fit_weights(
        _choice(one, candidates, [candidate.features for candidate in candidates], counts)
        for one, fold in zip(seen, folds, strict=True)
        for candidates in [find_candidates(one.mentions, tables[fold])]
    )
    choices = []
    for one, fold in zip(seen, folds, strict=True):
        model = replace(tables[fold], first=first)
        finalists = choose_finalists(find_candidates(one.mentions, model), model)
        features = final_features(one.mentions, finalists, fetch, model)
        choices.append(_choice(one, finalists, features, counts))
    return replace(
        _count_tables(seen, fetch),
        first=first,
        final=fit_weights(choices),
        trained_on=dict(sorted(counts.items())),
    )


@dataclass(frozen=True)
class _Seen:
    """An example with the mentions that linking finds in it."""

    example: LinkingExample
    mentions: Mentions

    @cached_property
    def topics(self) -> list[range]:
        """The spans that match a topic."""
        return [
            range(span.start, span.end)
            for span in self.mentions.spans
            if any(match.mid in self.example.topics for match in span.matches)
        ]

    @cached_property
    def covered(self) -> frozenset[int]:
        """The tokens of spans that match a topic."""
        return frozenset(i for span in self.topics for i in span)

    @cached_property
    def alone(self) -> frozenset[int]:
        """The tokens that match a topic by themselves, or with "the", and not with others."""
        words = [token.text.lower() for token in self.mentions.tokens]
        in_longer = {
            i for span in self.topics if len(span) > 1 + (words[span[0]] == "the") for i in span
        }
        return self.covered - in_longer

    @cached_property
    def stems(self) -> list[str]:
        """The stems of all tokens."""
        return [stem(token.text.lower()) for token in self.mentions.tokens]


def _see(
    examples: Iterable[LinkingExample],
    names: Names,
    model: LinkingModel | None = None,
) -> list[_Seen]:
    """Find the mentions of all questions, and keep the questions that name their topic.

    Names that only contain words of the question are left out: they are too rare to learn from,
    and with them a quarter of webqsp.train, held out, had 0.5 % fewer topics in the first place.
    """
    seen = (
        _Seen(example, find_mentions(example.question, names, model=model, longer_names=False))
        for example in examples
    )
    return [one for one in seen if one.covered]


def _choice(
    one: _Seen,
    candidates: Sequence[EntityCandidate],
    features: Sequence[Features],
    counts: Mapping[str, int],
) -> ChoiceSet:
    is_topic = [candidate.match.mid in one.example.topics for candidate in candidates]
    return ChoiceSet(features, is_topic, 1 / counts[one.example.source])


def _count_tables(seen: Sequence[_Seen], fetch: Callable[[str], EntityFacts]) -> LinkingModel:
    """Count a model's tables from questions; it has no weights yet.

    Only relations of the topics count; the query's other relations are about other entities.
    """
    in_names, alone = Counter[str](), Counter[str]()
    anywhere, outside = Counter[str](), Counter[str]()
    types: Counter[str] = Counter()
    relations: Counter[str] = Counter()
    with_type: defaultdict[str, Counter[str]] = defaultdict(Counter)
    with_relation: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for one in seen:
        anywhere.update(one.stems)
        in_names.update(one.stems[i] for i in one.covered)
        alone.update(one.stems[i] for i in one.alone)
        around = {word for i, word in enumerate(one.stems) if i not in one.covered}
        outside.update(around)
        for topic in sorted(one.example.topics):
            facts = fetch(topic)
            for type_ in facts.types:
                types[type_] += 1
                with_type[type_].update(around)
            for relation in set(one.example.relations).intersection(facts.relations):
                relations[relation] += 1
                with_relation[relation].update(around)
    frequency = {
        word: (count + 1) / (len(seen) + 1)
        for word, count in outside.items()
        if count >= _LEAST_COUNT
    }
    asking: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for relation, count in relations.items():
        ratios = _ratios(with_relation[relation], count, frequency, _RELATION_SMOOTHING)
        for word, ratio in ratios.items():
            asking[word][relation] = ratio
    return LinkingModel(
        names=_odds(in_names, anywhere),
        alone=_odds(alone, anywhere),
        types={
            type_: _ratios(with_type[type_], count, frequency, _TYPE_SMOOTHING)
            for type_, count in types.items()
            if count >= _LEAST_TOPICS
        },
        relations={r: count / relations.total() for r, count in relations.items()},
        asking=dict(asking),
    )


def _odds(times: Counter[str], anywhere: Counter[str]) -> dict[str, float]:
    """Return the smoothed log-odds that a word that occurs is one of those counted."""
    share = times.total() / max(anywhere.total(), 1)
    return {
        word: math.log(
            (times[word] + _NAME_SMOOTHING * share)
            / (count - times[word] + _NAME_SMOOTHING * (1 - share))
        )
        for word, count in anywhere.items()
        if count >= _LEAST_COUNT
    }


def _ratios(
    words: Counter[str], count: int, frequency: Mapping[str, float], smoothing: float
) -> dict[str, float]:
    """Turn counts of words that occur with one of `count` things into smoothed log-ratios.

    Ratios near 0 are left out.
    """
    ratios = {
        word: math.log(
            (with_it + smoothing * frequency[word]) / ((count + smoothing) * frequency[word])
        )
        for word, with_it in words.items()
        if word in frequency
    }
    return {word: ratio for word, ratio in ratios.items() if abs(ratio) >= _LEAST_RATIO}
