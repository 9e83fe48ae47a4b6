"""How candidates are gathered where a back end samples them instead of searching.

A question gets its greedy text and n samples; samples repeat one another, so what is left may be
fewer than n. A back end may draw them as it likes: equal seeds give equal texts on one back end,
not across them.
"""

from collections.abc import Iterable

from kbqa.engine.generate import Candidate, rank_candidates

TEMPERATURE = 1.0
"""Samples follow the model's own distribution: likely texts come, unlikely ones hardly do."""

DEFAULT_SEED = 42


def best_distinct(candidates: Iterable[Candidate], n: int) -> list[Candidate]:
    """Rank candidates, leave out texts that a better one has already, and keep the best n.

    >>> texts = [Candidate("a", -1.0, 10), Candidate("b", -2.0, 10), Candidate("a", -1.0, 10)]
    >>> [candidate.text for candidate in best_distinct(texts, 5)]
    ['a', 'b']
    """
    best: dict[str, Candidate] = {}
    for candidate in rank_candidates(candidates):
        best.setdefault(candidate.text, candidate)
    return list(best.values())[:n]
