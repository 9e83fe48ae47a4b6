"""The plan of a synthetic dump's nodes: their ids, their types, and the country of each.

All of it is arithmetic on a node's number, and can be inverted: a type can list its instances and a
country its places without a dump in memory.
"""

from dataclasses import dataclass
from math import gcd

import numpy as np
from numpy.typing import NDArray

from tools.make.generated.lines import Ints
from tools.make.generated.words import COUNTRIES

NO_COUNTRY = len(COUNTRIES)

_PER_FIVE_TOPICS, _PER_FIVE_MEDIATORS = 3, 2
_ALPHABET = np.frombuffer(b"0123456789bcdfghjklmnpqrstvwxyz_", dtype=np.uint8)
_OPEN = b"<http://rdf.freebase.com/ns/m.0"
_KIND_AT = _OPEN.index(b"m.0")
_FIRST_NUMBER = 10 << 25  # Other ids continue with a letter, those of hubs with a digit.
_NUMBERS = 22 << 25
_ZIPF = 1.05
_US_SHARE = 0.6
_IN_A_COUNTRY = 0.85


@dataclass(frozen=True, slots=True)
class Shuffle:
    """A reordering of ``0 … size-1`` that needs no memory."""

    size: int
    factor: int
    shift: int

    @classmethod
    def of(cls, size: int, salt: int) -> "Shuffle":
        """Return one of many."""
        factor = int(size * 0.618) + salt
        while gcd(factor, size) != 1:
            factor += 1
        return cls(size, factor, salt * 7919)

    def place(self, numbers: Ints) -> Ints:
        """Return the place of each number."""
        return (numbers * self.factor + self.shift) % self.size

    def number(self, places: Ints) -> Ints:
        """Return the number at each place."""
        return (places - self.shift) % self.size * pow(self.factor, -1, self.size) % self.size


class Plan:
    """The nodes of a dump: `node_count` of them, rounded up to a multiple of five.

    Of five nodes in a row the first three are topics, the others mediators; both are also numbered
    by themselves. The first types are the most frequent.
    """

    def __init__(self, node_count: int, topic_types: int, mediator_types: int, seed: int) -> None:
        fives = -(-node_count // 5)
        self.node_count = 5 * fives
        self.topic_count = _PER_FIVE_TOPICS * fives
        self.mediator_count = _PER_FIVE_MEDIATORS * fives
        self._stride = _NUMBERS // self.node_count
        self._salt = seed * 0x9E3779B9 + 1
        self._g_nodes = self.node_count // 10
        self._topics = Shuffle.of(self.topic_count, seed + 1)
        self._mediators = Shuffle.of(self.mediator_count, seed + 2)
        self._popular = Shuffle.of(self.topic_count, seed + 3)
        self._zipf_span = 1 - self.topic_count ** (1 - _ZIPF)
        starts = _shares(topic_types, self.topic_count)
        self._cells = _country_cells(starts)
        self._mediator_starts = _shares(mediator_types, self.mediator_count)

    def topic_nodes(self, topics: Ints) -> Ints:
        """Return the node numbers of topics."""
        return topics // _PER_FIVE_TOPICS * 5 + topics % _PER_FIVE_TOPICS

    def mediator_nodes(self, mediators: Ints) -> Ints:
        """Return the node numbers of mediators."""
        five, place = np.divmod(mediators, _PER_FIVE_MEDIATORS)
        return five * 5 + _PER_FIVE_TOPICS + place

    def topic_types(self, topics: Ints) -> tuple[Ints, Ints]:
        """Return each topic's own type and its country, `NO_COUNTRY` for none."""
        cells = np.searchsorted(self._cells, self._topics.place(topics), side="right") - 1
        return cells // (NO_COUNTRY + 1), cells % (NO_COUNTRY + 1)

    def mediator_types(self, mediators: Ints) -> Ints:
        """Return each mediator's type."""
        places = self._mediators.place(mediators)
        types: Ints = np.searchsorted(self._mediator_starts, places, side="right") - 1
        return types

    def topic_places(self, topic_type: int, country: int | None = None) -> range:
        """Return the places of a type's topics, in one country or in all, for `topics_at`."""
        first, cells = topic_type * (NO_COUNTRY + 1), NO_COUNTRY + 1
        if country is not None:
            first, cells = first + country, 1
        return range(*self._cells[[first, first + cells]].tolist())

    def mediator_places(self, mediator_type: int) -> range:
        """Return the places of a type's mediators, for `mediators_at`."""
        return range(*self._mediator_starts[mediator_type : mediator_type + 2].tolist())

    def topics_at(self, places: Ints) -> Ints:
        """Return the node numbers of the topics at some places, ascending."""
        return np.sort(self.topic_nodes(self._topics.number(places)))

    def mediators_at(self, places: Ints) -> Ints:
        """Return the node numbers of the mediators at some places, ascending."""
        return np.sort(self.mediator_nodes(self._mediators.number(places)))

    def popular_ranks(self, draws: NDArray[np.float64]) -> Ints:
        """Turn draws in [0, 1) into ranks of popularity, Zipf's law with exponent 1.05."""
        ranks: Ints = ((1 - draws * self._zipf_span) ** (1 / (1 - _ZIPF))).astype(np.int64)
        return np.clip(ranks, 1, self.topic_count) - 1

    def popular_nodes(self, ranks: Ints) -> Ints:
        """Return the nodes of ranks."""
        return self.topic_nodes(self._popular.number(ranks))

    def terms(self, nodes: Ints, end: bytes = b">") -> list[bytes]:
        r"""Write nodes as IRIs."""
        # The low bits of a number's product scatter well; ids ascend with the numbers.
        scatter = ((nodes + self._salt) * 0x9E3779B1 >> 7) % self._stride
        numbers = _FIRST_NUMBER + nodes * self._stride + scatter
        text = np.empty((len(nodes), len(_OPEN) + 6 + len(end)), dtype=np.uint8)
        text[:, : len(_OPEN)] = np.frombuffer(_OPEN, dtype=np.uint8)
        g_nodes = nodes < self._g_nodes
        text[g_nodes, _KIND_AT] = ord("g")
        text[g_nodes, _KIND_AT + 2] = ord("1")
        for place in range(6):
            text[:, len(_OPEN) + place] = _ALPHABET[(numbers >> 5 * (5 - place)) & 31]
        text[:, len(_OPEN) + 6 :] = np.frombuffer(end, dtype=np.uint8)
        terms: list[bytes] = text.view(f"S{text.shape[1]}").ravel().tolist()
        return terms


def _shares(types: int, count: int) -> Ints:
    """Return where each type's nodes start, and the end; the shares follow Zipf's law."""
    weights = 1.0 / np.arange(2, types + 2)
    return np.concatenate([[0], np.round(np.cumsum(weights) / weights.sum() * count)]).astype(int)


def _country_cells(starts: Ints) -> Ints:
    """Cut each type's topics into those of each country and those of none."""
    weights = 1.0 / np.arange(1, len(COUNTRIES)) ** 1.3
    shares = np.concatenate([[_US_SHARE], weights / weights.sum() * (1 - _US_SHARE)])
    ends = np.concatenate([[0], np.cumsum(shares)]) * _IN_A_COUNTRY
    cells = starts[:-1, None] + np.floor(np.diff(starts)[:, None] * ends[None, :]).astype(int)
    return np.concatenate([cells.ravel(), starts[-1:]])
