"""Estimate the load of the full dump from what the stages of two smaller loads took.

Arithmetic only; `bench_stages.py` measures and prints. docs/freebase.md has the formulas in words,
and says how little an estimate is worth.
"""

import math
from dataclasses import dataclass

from kbqa.kb.load_forecast import KEPT_SHARE

LINES = 3.13e9
"""L: lines of the final dump, as others report."""
NAMES_SHARE = 0.075
"""N / K: names and aliases, as in the made-up dumps."""
MOST_LOADERS = 8
"""What a load chooses at most by itself."""


@dataclass(frozen=True, slots=True)
class StageCosts:
    """What the stages of a load took, in microseconds of processor time.

    Attributes:
        triples: Triples that were kept.
        reading: g, to unpack, hash and cut into blocks, a line.
        filling: f, the same with cleaning, filtering and writing shards, a line.
        writing: w, to load, a triple.
        compacting: c, to compact, a triple.
        indexing: n, to make names, schema and statistics, a name.
    """

    triples: int
    reading: float
    filling: float
    writing: float
    compacting: float
    indexing: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """The load of the full dump on some cores, in seconds.

    Attributes:
        reading: One stream has to be unpacked: the floor.
        work: All work up to the triples in the store, shared by all cores.
        writing: That part of it which only the loaders can do.
        compacting: On one core.
        indexing: On one core, while the store is compacted.
    """

    reading: float
    work: float
    writing: float
    compacting: float
    indexing: float

    @property
    def loading(self) -> float:
        """Until all triples are in the store: as long as the slowest of the three."""
        return max(self.reading, self.work, self.writing)

    @property
    def total(self) -> float:
        """From the dump to the finished store."""
        return self.loading + max(self.compacting, self.indexing)

    @property
    def total_without_compaction(self) -> float:
        """The same with ``--no-compact``."""
        return self.loading + self.indexing


def estimate(costs: StageCosts, writing: float, cores: int) -> Estimate:
    """Estimate the load of the full dump.

    Compacting is taken to cost a triple the same at any size, as it writes each of them once.

    Args:
        costs: Those of the larger load.
        writing: w′, microseconds a triple at full size.
        cores: The machine's; each loader keeps one busy.
    """
    kept = LINES * KEPT_SHARE
    return Estimate(
        reading=LINES * costs.reading / 1e6,
        work=(LINES * costs.filling + kept * writing) / cores / 1e6,
        writing=kept * writing / min(cores, MOST_LOADERS) / 1e6,
        compacting=kept * costs.compacting / 1e6,
        indexing=kept * NAMES_SHARE * costs.indexing / 1e6,
    )


def at_full_size(small: float, large: float, small_triples: int, large_triples: int) -> float:
    """Carry the growth of a cost from a small to a large load on to the full dump.

    As the power of the number of triples that the two loads show, and no shrinking.

    >>> round(at_full_size(2.0, 3.0, 1_000_000, 10_000_000), 2)  # 1.5 times for ten times as many
    7.17
    """
    exponent = math.log(large / small) / math.log(large_triples / small_triples)
    return large * math.pow(LINES * KEPT_SHARE / large_triples, max(exponent, 0.0))
