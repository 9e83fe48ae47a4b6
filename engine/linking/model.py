"""The linker's model: weights of a linear ranker, and tables of which words go together.

`tools.fit.linking` counts and fits it. It ships with kbqa as readable JSON: the weight
of each feature, the words in names of topics, and the words of a question that go with types and
relations. It contains words, types and relations, but no entities.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType

from kbqa.engine.files.json_file import read_model_json

SHIPPED_MODEL = Path(__file__).with_name("linking_model.json")
"""The model shipped with kbqa."""

SCHEMA_VERSION = 1

_UNSEEN_NAME = 2.0  # names are rare words, and most of them are in no training question
_MOST_ODDS = 300.0  # log-odds; above 700 math.exp overflows
_HARDLY = -3.0  # one time in twenty
_NOTHING: Mapping[str, float] = MappingProxyType({})
_ENDINGS = ("'s", "’s", "ing", "ies", "es", "ed", "s")


def stem(word: str) -> str:
    """Remove a common ending from a lower-case word, if three letters remain.

    >>> [stem(word) for word in ("countries", "speaks", "kenya's", "is")]
    ['countr', 'speak', 'kenya', 'is']
    """
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) >= len(ending) + 3:
            return word[: -len(ending)]
    return word


@dataclass(frozen=True, slots=True)
class LinkingModel:
    """Weights and tables; words are stems in lower case.

    Attributes:
        names: Words with the log-odds that they are part of a topic's name.
        alone: Words with the log-odds that a topic has the word alone as its name.
        types: Types of topics, each with the words that go with it outside the name: for each word
            log p(word | type) - log p(word); values near 0 are left out.
        relations: Relations that questions ask for, with their share of all.
        asking: Words, each with the relations that it makes more or less likely: for each relation
            log p(word | relation) - log p(word).
        first: Weights of the features that need no look-up; they choose the finalists.
        final: Weights of all features; they rank the finalists.
        trained_on: Number of questions from each set.
    """

    names: Mapping[str, float]
    types: Mapping[str, Mapping[str, float]]
    relations: Mapping[str, float]
    asking: Mapping[str, Mapping[str, float]]
    alone: Mapping[str, float] = field(default_factory=dict)
    first: Mapping[str, float] = field(default_factory=dict)
    final: Mapping[str, float] = field(default_factory=dict)
    trained_on: Mapping[str, int] = field(default_factory=dict)

    def name_odds(self, word: str) -> float:
        """Return the log-odds that a stem is part of a topic's name."""
        return self.names.get(word, _UNSEEN_NAME)

    def is_hardly_a_name(self, word: str) -> bool:
        """Return whether a lower-case word is known from questions, hardly ever as a whole name."""
        return self.alone.get(stem(word), 0.0) < _HARDLY

    def is_ordinary(self, word: str) -> bool:
        """Return whether a lower-case word is common in questions, mostly outside names."""
        return self.name_odds(stem(word)) < 0

    def is_known(self, word: str) -> bool:
        """Return whether a lower-case word is in several training questions, so spelled right."""
        return stem(word) in self.names

    def type_agreement(self, types: Iterable[str], words: AbstractSet[str]) -> float:
        """Return how well words fit types, as the mean over known types; 0 if none is known."""
        tables = [self.types[type_] for type_ in types if type_ in self.types]
        ratios = [table[word] for table in tables for word in table.keys() & words]
        # fsum: words are unordered, and the result of sum depends on the order.
        return math.fsum(ratios) / len(tables) if tables else 0.0

    def asked_relations(self, words: Iterable[str]) -> dict[str, float]:
        """Return the probability that words ask for each relation (naive Bayes)."""
        raised: dict[str, float] = {}
        for word in sorted(words):
            for relation, ratio in self.asking.get(word, _NOTHING).items():
                raised[relation] = raised.get(relation, 0.0) + ratio
        powers = dict(self.relations)
        for relation, ratio in raised.items():
            if relation in powers:  # else it has no share
                powers[relation] *= math.exp(min(ratio, _MOST_ODDS))
        total = sum(powers.values()) or 1.0
        return {relation: power / total for relation, power in powers.items()}

    @classmethod
    def load(cls, path: Path = SHIPPED_MODEL) -> "LinkingModel":
        """Read a model written by `save`.

        Raises:
            ModelError: The file is missing or is not such a model.
        """
        return read_model_json(
            path, cls, SHIPPED_MODEL, "the linking model", schema_version=SCHEMA_VERSION
        )

    def save(self, path: Path) -> None:
        """Write the model as sorted JSON, one entry a line, rounded to four digits."""
        parts = [f'"schema_version": {SCHEMA_VERSION}']
        for name, table in asdict(self).items():
            entries = ",\n".join(
                f" {json.dumps(key, ensure_ascii=False)}: {_entry(table[key])}"
                for key in sorted(table)
            )
            parts.append(f'"{name}": {{\n{entries}\n}}')
        path.write_text("{" + ",\n".join(parts) + "}\n", encoding="utf-8")


def softmax(scores: Sequence[float]) -> list[float]:
    """Turn scores into probabilities: shares of their exponentials.

    >>> softmax([0.0, 0.0])
    [0.5, 0.5]
    """
    highest = max(scores, default=0.0)
    powers = [math.exp(score - highest) for score in scores]
    total = sum(powers)
    return [power / total for power in powers]


def _entry(value: float | Mapping[str, float]) -> str:
    if isinstance(value, Mapping):
        rounded = {key: round(value[key], 2) for key in sorted(value)}
        return json.dumps(rounded, ensure_ascii=False)
    return f"{value:.4g}"
