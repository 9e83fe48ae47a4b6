"""The linker's model: weights of a linear ranker, and tables of which words go with what.

It is counted and fitted by `kbqa.training.linking` and ships with kbqa as JSON that can be read:
how much each feature weighs, which words stand in the names of topics, and which words of a
question go with which types and relations. It knows words, types and relations, and no entity.
"""

import json
import math
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType

from kbqa.sparql.errors import ModelError

SHIPPED_MODEL = Path(__file__).with_name("linking_model.json")
"""The model that comes with kbqa."""

SCHEMA_VERSION = 1

_UNSEEN_NAME = 2.0  # names are rare words, and most of them are in no training question
_NOTHING: Mapping[str, float] = MappingProxyType({})
_ENDINGS = ("'s", "’s", "ing", "ies", "es", "ed", "s")


def stem(word: str) -> str:
    """Take a common ending off a lower-case word where three letters stay.

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
        names: Words with the log-odds that they stand in a topic's name.
        types: Types of topics, each with the words that go with it outside the name: for each word
            log p(word | type) - log p(word); those near 0 are left out.
        relations: Relations that questions asked of their topics, with their share of all asked.
        asking: Words, each with the relations that it asks for, or speaks against: for each
            relation log p(word | relation) - log p(word).
        first: Weights of what costs nothing, which choose the finalists, by feature.
        final: Weights of all features, which order the finalists.
        final_embedded: The same where an embedder adds its own; empty where none did in training.
        trained_on: Questions of each set that it was made from.
    """

    names: Mapping[str, float]
    types: Mapping[str, Mapping[str, float]]
    relations: Mapping[str, float]
    asking: Mapping[str, Mapping[str, float]]
    first: Mapping[str, float] = field(default_factory=dict)
    final: Mapping[str, float] = field(default_factory=dict)
    final_embedded: Mapping[str, float] = field(default_factory=dict)
    trained_on: Mapping[str, int] = field(default_factory=dict)

    def name_odds(self, word: str) -> float:
        """Tell how likely a stem stands in a topic's name, as log-odds."""
        return self.names.get(word, _UNSEEN_NAME)

    def is_ordinary(self, word: str) -> bool:
        """Tell whether a word in lower case stood in questions, and mostly outside names."""
        return self.name_odds(stem(word)) < 0

    def type_agreement(self, types: Iterable[str], words: AbstractSet[str]) -> float:
        """Tell how well words go with types, in the mean of those that are known; 0 if none is."""
        tables = [self.types[type_] for type_ in types if type_ in self.types]
        ratios = [table[word] for table in tables for word in table.keys() & words]
        # fsum, as words come in no order, and a sum depends on it.
        return math.fsum(ratios) / len(tables) if tables else 0.0

    def asked_relations(self, words: Iterable[str]) -> dict[str, float]:
        """Tell which relation words ask for: the probability of each (naive Bayes)."""
        raised: dict[str, float] = {}
        for word in sorted(words):
            for relation, ratio in self.asking.get(word, _NOTHING).items():
                raised[relation] = raised.get(relation, 0.0) + ratio
        powers = dict(self.relations)
        for relation, ratio in raised.items():
            powers[relation] *= math.exp(ratio)
        total = sum(powers.values())
        return {relation: power / total for relation, power in powers.items()}

    @classmethod
    def load(cls, path: Path = SHIPPED_MODEL) -> "LinkingModel":
        """Read a model that `save` wrote.

        Raises:
            ModelError: The file is missing or holds no such model.
        """
        try:
            fields = json.loads(path.read_text(encoding="utf-8"))
            if fields.pop("schema_version") != SCHEMA_VERSION:
                raise ValueError(f"its schema_version is not {SCHEMA_VERSION}")
            return cls(**fields)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ModelError(f"{path} holds no linking model: {error}") from error

    def save(self, path: Path) -> None:
        """Write the model as JSON, sorted, an entry a line, to four digits."""
        parts = [f'"schema_version": {SCHEMA_VERSION}']
        for name, table in asdict(self).items():
            entries = ",\n".join(
                f" {json.dumps(key, ensure_ascii=False)}: {_entry(table[key])}"
                for key in sorted(table)
            )
            parts.append(f'"{name}": {{\n{entries}\n}}')
        path.write_text("{" + ",\n".join(parts) + "}\n", encoding="utf-8")


def _entry(value: float | Mapping[str, float]) -> str:
    if isinstance(value, Mapping):
        rounded = {key: round(value[key], 2) for key in sorted(value)}
        return json.dumps(rounded, ensure_ascii=False)
    return f"{value:.4g}"
