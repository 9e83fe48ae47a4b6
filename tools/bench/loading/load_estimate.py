"""Estimate the load of the full dump from the stages of two smaller loads.

Arithmetic only; `tools.bench.loading.stages` measures and prints. docs/freebase.md has the formulas
in words and the limits of the estimate.
"""

import math
from dataclasses import dataclass

from kbqa.kb.loading.job import KEPT_SHARE

LINES = 3.13e9
"""L: lines of the final dump, as others report."""
NAMES_SHARE = 0.075
"""N / K: names and aliases, as in the synthetic dumps."""
MOST_LOADERS = 8
"""The most loaders that a load chooses by default."""


@dataclass(frozen=True, slots=True)
class StageCosts:
    """CPU time of the stages of a load, in microseconds."""

    triples: int  # triples that were kept
    reading: float  # g, per line, to unpack, hash and cut into blocks
    filling: float  # f, per line, the same with cleaning, filtering and writing shards
    writing: float  # w, per triple, to load
    compacting: float  # c, per triple, to compact
    indexing: float  # n, per name, to build names, schema and statistics


@dataclass(frozen=True, slots=True)
class Estimate:
    """The load of the full dump on some cores, in seconds."""

    reading: float  # one stream must be unpacked: the minimum
    work: float  # all work up to the triples in the store, shared by all cores
    writing: float  # the part of it that only the loaders can do
    compacting: float  # on one core
    indexing: float  # on one core, while the store is compacted

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

    We assume that compacting costs the same for a triple at any size, since it writes each once.

    Args:
        costs: The costs of the larger load.
        writing: w′, microseconds a triple at full size.
        cores: The machine's cores; each loader keeps one busy.
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
    """Extrapolate the growth of a cost from a small to a large load to the full dump.

    The growth is a power of the number of triples; a cost never shrinks.

    >>> round(at_full_size(2.0, 3.0, 1_000_000, 10_000_000), 2)  # 1.5 times for ten times as many
    7.17
    """
    exponent = math.log(large / small) / math.log(large_triples / small_triples)
    return large * math.pow(LINES * KEPT_SHARE / large_triples, max(exponent, 0.0))
