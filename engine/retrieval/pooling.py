"""Path pooling: triples on one path share their scores.

Pooling needs nothing but which nodes the triples join and how they score, so it works on the scores
of any retriever. A path has the mean score of its triples, or the highest; a triple has the score
of its best path, and a bonus that keeps the triples of one path in order. A triple on no path is a
path by itself.

Source: Path Pooling, Algorithm 1 and §3.3 (`pool`), §3.4 (`select_triples`).
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kbqa.engine.retrieval.kernels import find_kernels
from kbqa.engine.retrieval.pooling_settings import Pooling, PoolingSettings

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Selected(NamedTuple):
    """Triples that were selected, in ascending order: the best is the last.

    Attributes:
        triples: The index of each in the arrays that were given.
        scores: What orders them: pooled scores, or the given ones if nothing was pooled.
    """

    triples: "NDArray[np.intp]"
    scores: "NDArray[np.float64]"


def pool(
    heads: "NDArray[np.integer]",
    tails: "NDArray[np.integer]",
    scores: "NDArray[np.float64]",
    topics: Iterable[int],
    settings: PoolingSettings,
    seed: str = "",
) -> "NDArray[np.float64]":
    """Pool the scores of triples along paths from and to the topics.

    The order of the triples makes no difference, with one exception: of parallel triples with equal
    scores, the first is the one on paths.

    Args:
        heads: The subject of each triple, by number; of shape (triples,).
        tails: The object of each triple, likewise.
        scores: The score of each triple, above 0 and at most 1. In 32 bits the bonus would be lost
            beside a high score.
        topics: Numbers of topic entities.
        settings: The paths and how to pool along them.
        seed: What random walks are drawn by, such as the id of the question.

    Returns:
        The pooled score of each triple, of shape (triples,): no less than the least score, and
        greater than the highest by a bonus at most.

    Raises:
        ValueError: The arrays differ in length, or a score is not above 0 and at most 1.
    """
    scores = np.asarray(scores, dtype=np.float64)
    if not len(heads) == len(tails) == len(scores):
        raise ValueError(f"{len(heads)} heads, {len(tails)} tails and {len(scores)} scores")
    if not ((scores > 0) & (scores <= 1)).all():
        # A cosine or a logit below 0 would turn the bonus round.
        raise ValueError("a score is not above 0 and at most 1; map scores to that range first")
    if not len(scores):
        return scores.copy()
    least = scores.min()
    pooled = np.zeros_like(scores)
    for paths in find_kernels(heads, tails, scores, topics, settings, seed):
        bonuses = least / (np.arange(1, paths.shape[1] + 1) * settings.position)
        path_scores = _path_scores(scores[paths], settings.pool)
        np.maximum.at(pooled, paths, path_scores[:, np.newaxis] + bonuses)
    pooled = np.where(pooled > 0, pooled, scores + least / settings.position)
    return pooled if settings.smoothing == "full" else np.sqrt(pooled * scores)


def select_triples(
    heads: "NDArray[np.integer]",
    tails: "NDArray[np.integer]",
    scores: "NDArray[np.float64]",
    topics: Iterable[int],
    count: int,
    settings: PoolingSettings,
    seed: str = "",
    *,
    facts: "NDArray[np.integer] | None" = None,
) -> Selected:
    """Select the triples that a reader is shown.

    Without pooling they are the best `count` by score. Reranking takes the same and orders them by
    their scores pooled among themselves. Reselection pools the best `coarse` triples and takes the
    best `count` of them by pooled score.

    With `facts`, of triples that state the same only the best is selected, but they are pooled with
    those that are left out, since paths follow triples in one direction.

    Args:
        heads: The subject of each triple, by number; of shape (triples,).
        tails: The object of each triple, likewise.
        scores: The score of each triple, above 0 and at most 1.
        topics: Numbers of topic entities.
        count: How many to select, at most.
        settings: The mechanism, and how to pool.
        seed: What random walks are drawn by, such as the id of the question.
        facts: A number for each triple, the same for those that state the same; None to select any.

    Returns:
        The triples, the best last, where a prompt has its question. Of equal triples those with the
        higher scores before pooling are better, then those given first.

    Raises:
        ValueError: As for `pool`.
    """
    scores = np.asarray(scores, dtype=np.float64)
    best = np.argsort(-scores, kind="stable")
    if settings.mechanism == "reselect":
        best = best[: settings.coarse]
    else:
        best = best[: _reach(best, count, facts)]
    ranked_by = scores[best]
    if settings.mechanism != "none":
        ranked_by = pool(heads[best], tails[best], ranked_by, topics, settings, seed)
    order = np.argsort(-ranked_by, kind="stable")
    if facts is not None:
        order = order[np.sort(np.unique(facts[best[order]], return_index=True)[1])]
    order = order[:count][::-1]
    return Selected(best[order], ranked_by[order])


def _reach(best: "NDArray[np.intp]", count: int, facts: "NDArray[np.integer] | None") -> int:
    """Return how many of the best triples state the first `count` facts."""
    if facts is None:
        return count
    first = np.sort(np.unique(facts[best], return_index=True)[1])
    return int(first[count]) if len(first) > count else len(best)


def _path_scores(scores: "NDArray[np.float64]", pooling: Pooling) -> "NDArray[np.float64]":
    """Return the score of each path, given those of its triples in an array (paths, length)."""
    highest: NDArray[np.float64] = scores.max(axis=1)
    if pooling == "max":
        return highest
    # A sum is rounded: the mean of equal scores could differ from them.
    means: NDArray[np.float64] = np.clip(scores.mean(axis=1), scores.min(axis=1), highest)
    return means
