"""Train the linker's model and write it to a file.

The shipped model was written by

    python -m tools.fit.linker --store slice --output engine/linking/linking_model.json FILES

with webqsp.train.jsonl.gz and cwq.dev.jsonl.gz as FILES.

Rows marked `test_parent` are left out: a test question was made from them, or they from one.

Tables are counted from questions and their topic entities. If a question's features came from
tables that include the question, the weights would trust them too much. So the questions are split
into folds, and each question takes its features from the tables of the other folds.

The weights are those of a conditional logit: the probability of choosing a candidate is
proportional to the exponential of its score, a weighted sum of features. They maximise the
probability of choosing a right candidate.

Source: McFadden 1974, "Conditional logit analysis of qualitative choice behavior".
"""

import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import click

from kbqa.engine.linking.linker import (
    EntityCandidate,
    EntityFacts,
    Features,
    choose_finalists,
    final_features,
    find_candidates,
)
from kbqa.engine.linking.mentions import LinkingModel, Mentions, find_mentions, stem
from kbqa.engine.questions.question_sets import read_question_rows, topic_entities
from kbqa.kb.graph import Graph
from kbqa.kb.names import Names
from kbqa.kb.open import open_graph
from kbqa.sparql.dialect import query_mentions
from kbqa.sparql.errors import InputError, KbqaError
from tools.options import FILE, NEW_FILE, STORE

_FOLDS = 4
_LEAST_EXAMPLES = 50
_LEAST_COUNT = 2  # of a word, to count it in names or with types and relations
_LEAST_TOPICS = 10  # of a type, to know its words
_LEAST_RATIO = 0.5
_NAME_SMOOTHING = 2.0
_TYPE_SMOOTHING = 5.0
_RELATION_SMOOTHING = 3.0
_STEPS = 400
_LEARNING_RATE = 0.05
_L2 = 1e-3  # of weights for features scaled to unit variance; 3e-3 and 1e-2 rank no better
_LEAST_QUESTIONS = 50
_DECAY, _SQUARE_DECAY = 0.9, 0.999


@dataclass(frozen=True, slots=True)
class LinkingExample:
    """A question with the mids of its topic entities, and the relations of its query."""

    source: str
    question: str
    topics: frozenset[str]  # at least one
    relations: tuple[str, ...]


def read_linking_examples(path: Path) -> Iterator[LinkingExample]:
    """Read a question set, without rows that have no topic or that are marked `test_parent`."""
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


class ChoiceSet(NamedTuple):
    """The candidates of a question, and the weight of the question."""

    features: Sequence[Mapping[str, float]]  # a missing one is 0
    is_right: Sequence[bool]  # several may be
    weight: float


def train_linking_model(
    examples: Iterable[LinkingExample], graph: Graph, names: Names
) -> LinkingModel:
    """Count tables and fit weights; each question set weighs the same.

    Examples whose question has no name of a topic are left out.
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
    dealer = random.Random(0)
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
    examples: Iterable[LinkingExample], names: Names, model: LinkingModel | None = None
) -> list[_Seen]:
    """Find the mentions of all questions, and keep the questions that name their topic."""
    # Names that only contain words of the question are too rare to learn from: with them a quarter
    # of webqsp.train, held out, had 0.5 % fewer topics in the first place.
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
    """Count a model's tables from questions; relations that are not the topics' do not count."""
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
    """Return smoothed log-ratios, not near 0, of words that occur with one of `count` things."""
    ratios = {
        word: math.log(
            (with_it + smoothing * frequency[word]) / ((count + smoothing) * frequency[word])
        )
        for word, with_it in words.items()
        if word in frequency
    }
    return {word: ratio for word, ratio in ratios.items() if abs(ratio) >= _LEAST_RATIO}


def fit_weights(choices: Iterable[ChoiceSet]) -> dict[str, float]:
    """Fit the weights, by Adam, with a small L2 penalty on the weights of scaled features.

    Questions of which all candidates are right, or none, are ignored. Features that fewer than 50
    questions have get no weight.
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


@click.command(help=__doc__)
@click.argument("files", type=FILE, nargs=-1, required=True)
@STORE
@click.option("--output", type=NEW_FILE, required=True, help="An existing file is replaced.")
def main(files: Sequence[Path], store: Path, output: Path) -> None:
    """Train on the files and write the model."""
    examples = [example for file in files for example in read_linking_examples(file)]
    with closing(open_graph(store)) as graph, closing(graph.names()) as names:
        model = train_linking_model(examples, graph, names)
    model.save(output)
    used = ", ".join(f"{count} of {name}" for name, count in model.trained_on.items())
    click.echo(f"{len(examples)} questions, of which {used} name their topic as the graph does")
    click.echo(f"{output}: {output.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
