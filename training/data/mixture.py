"""Draw a training mixture: how much of each question set an epoch has."""

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from kbqa.sparql.forms import read_crp
from kbqa.training.data.training_set import Example


def draw_mixture(
    examples: Iterable[Example], weights: Mapping[str, float], seed: int
) -> tuple[Example, ...]:
    """Take each set's examples as often as its weight says.

    Args:
        examples: The examples of all sets.
        weights: By the name of the set; 2 takes each example twice, 0.1 a tenth of the examples.
            Sets without a weight are taken once.
        seed: Decides which examples a part of a set has.

    Returns:
        Set after set. A part of a set has as many different relations as possible: one example of
        each chain of relations, then a second one of each, and so on.
    """
    of_set: dict[str, list[Example]] = defaultdict(list)
    for example in examples:
        of_set[example.source].append(example)
    drawn: list[Example] = []
    for source, members in sorted(of_set.items()):
        whole, part = divmod(round(weights.get(source, 1.0) * len(members)), len(members))
        drawn += members * whole
        drawn += _by_relations(members, f"{seed}/{source}")[:part] if part else ()
    return tuple(drawn)


def _by_relations(members: Sequence[Example], seed: str) -> list[Example]:
    """Shuffle examples, and put the first of each chain of relations first, then the second."""
    shuffled = list(members)
    random.Random(seed).shuffle(shuffled)
    seen: Counter[tuple[str, ...]] = Counter()
    ranks = []
    for example in shuffled:
        relations = tuple(read_crp(example.target).crp.relations())
        ranks.append(seen[relations])
        seen[relations] += 1
    order = sorted(range(len(shuffled)), key=lambda index: ranks[index])
    return [shuffled[index] for index in order]
