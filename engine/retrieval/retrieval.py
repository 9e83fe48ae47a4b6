"""Retrieve the triples that help to answer a question: extract, score, pool and select.

`extract` looks up the triples around the topics, a `TripleScorer` returns the probability that each
helps, and `select_triples` chooses among them by path pooling: triples on one path share their
scores.

A path has the mean score of its triples, or the highest. A triple gets the score of its best path,
and a bonus that keeps the triples of one path in order. A triple on no path is a path by itself.

In Algorithm 1 the bonus is the least score of all, divided by the position. That is next to nothing
for a trained scorer, but 0.45 for `(1 + cosine) / 2`: positions would decide, and not scores. So
here it is also at most a thousandth of the range of the scores, as if they began near 0. With a = 1
or more it never reorders paths whose scores differ by more than that, whatever the scorer.

The paths, or kernels, lead from a topic to a node or from a node to a topic, along triples from
head to tail. Of parallel triples, which have the same head and tail, only the best is on paths: the
first given if their scores are equal. A triple from a node to itself is on no path.

The paper leaves ties open, and with unit weights most nodes have several shortest paths. Here the
first in this order is taken: the shortest, with the fewest triples, the highest sum of scores, and
then the first heads and tails on its way. Lengths and sums are compared without rounding, so that
the order of the triples never decides.

Source: Path Pooling, Algorithm 1, §3.3 (`pool`), §3.4 (`select_triples`), §4.3.1.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from heapq import heappop, heappush
from math import log
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeAlias

from kbqa.engine.asked import Clock
from kbqa.engine.embedding.embedder import Embedder
from kbqa.engine.files import file_sha256
from kbqa.engine.retrieval.retriever import (
    SHIPPED_SCORER,
    Cut,
    ReadLabels,
    Retriever,
    ScorerName,
    Subgraph,
    cosine_scores,
    extract,
)
from kbqa.kb.graph import Graph
from kbqa.kb.schema import GraphSchema
from kbqa.sparql.crp import Hop
from kbqa.sparql.errors import InputError
from kbqa.sparql.terms import LiteralTerm, Term, term_text

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


Mechanism = Literal["none", "rerank", "reselect"]
KernelName = Literal["dijkstra", "bfs", "walk"]
Weight = Literal["unit", "one-minus", "neg-log"]
Sources = Literal["each", "set"]
Pooling = Literal["mean", "max"]
Smoothing = Literal["full", "half"]
Shown = Literal["once", "twice"]

# From a question and a subgraph to a score for each triple, above 0 and at most 1.
TripleScorer: TypeAlias = "Callable[[str, Subgraph], NDArray[np.float64]]"


@dataclass(frozen=True, slots=True)
class PoolingSettings:
    """How triples are pooled; each setting says its meaning.

    Source: Path Pooling §3.3, §3.4; smoothing by half is ours. On held-out training questions (180
    of webqsp.train, 52 of cwq.dev) it changes path recall at 50 by +0.01 and +0.02, and smoothing
    in full by -0.02 and -0.02.
    """

    mechanism: Annotated[
        Mechanism, "What pooling does: nothing, order the best triples, or choose them among more."
    ] = "reselect"
    kernel: Annotated[
        KernelName,
        "The paths that triples are pooled along: shortest paths from and to the topics, all "
        "simple paths of at most 4 triples, or 256 random walks.",
    ] = "dijkstra"
    weight: Annotated[
        Weight, "Of dijkstra: what a triple of score s adds to a path's length: 1, 1 - s or -log s."
    ] = "unit"
    sources: Annotated[
        Sources,
        "Of dijkstra: whether each topic has its own path to and from a node, or all have one.",
    ] = "each"
    pool: Annotated[Pooling, "Which score of its triples a path has."] = "mean"
    position: Annotated[
        float,
        "The constant a: the i-th triple of a path gains the least score of all, and at most a "
        "thousandth of their range, divided by i·a.",
    ] = 1.0
    smoothing: Annotated[
        Smoothing,
        "What takes the place of a triple's score: in full, the pooled one, as in the paper; by "
        "half, the geometric mean of both.",
    ] = "half"
    coarse: Annotated[int, "Triples that reselect chooses among: the best before pooling."] = 500

    def __post_init__(self) -> None:
        if not self.position > 0:
            raise InputError(f"position is {self.position}: use a number above 0")
        if self.coarse < 1:
            raise InputError(f"coarse is {self.coarse}: use 1 or more")

    def check_count(self, triples: int) -> None:
        """Raise `InputError` if more triples are to be selected than reselection chooses among."""
        if self.mechanism == "reselect" and triples > self.coarse:
            raise InputError(
                f"triples is {triples}, and reselect chooses among {self.coarse}: "
                f"set coarse to {triples} or more"
            )


LONGEST = 4  # triples of a path, for the kernels `bfs` and `walk`
WALKS = 256
_PARTS = 1000  # of the range of the scores: the bonus is at most one of them

_Path = tuple[int, ...]
_Onward = dict[int, list[tuple[int, int]]]  # for each node its arcs: their numbers and ends


class ScoredTriples(NamedTuple):
    """Triples as arrays of one length: the numbers of their subjects and objects, and scores."""

    heads: "NDArray[np.integer]"
    tails: "NDArray[np.integer]"
    # Above 0, at most 1. In 32 bits the bonus would be lost beside a high score.
    scores: "NDArray[np.float64]"
    topics: Collection[int]  # numbers, too; those in no triple are ignored


class _Arcs(NamedTuple):
    """The triples that may be on paths, sorted by head and tail."""

    triples: "NDArray[np.intp]"
    heads: "NDArray[np.intp]"
    tails: "NDArray[np.intp]"


def find_kernels(
    triples: ScoredTriples, settings: PoolingSettings, seed: str = ""
) -> list["NDArray[np.intp]"]:
    """Find the paths from topics to nodes and from nodes to topics, maybe more than once.

    Return an array for each length, shape (paths, length): the indexes of each path's triples.
    """
    import numpy as np

    arcs = _arcs(triples)
    starts = sorted({int(topic) for topic in triples.topics})
    if settings.kernel == "bfs":
        found = [*_simple_paths(arcs, starts, False), *_simple_paths(arcs, starts, True)]
        return [arcs.triples[paths] for paths in found]
    forward, backward = _onward(arcs)
    if settings.kernel == "walk":
        paths: Iterable[_Path] = _random_walks(forward, backward, starts, seed)
    else:
        values, lengths = _exact_lengths(triples.scores[arcs.triples].tolist(), settings.weight)
        groups = [[start] for start in starts] if settings.sources == "each" else [starts]
        paths = [
            path
            for group in groups
            for onward, reverse in ((forward, False), (backward, True))
            for path in _shortest_paths(onward, group, lengths, values, reverse)
        ]
    by_length: dict[int, list[_Path]] = defaultdict(list)
    for path in paths:
        by_length[len(path)].append(path)
    arrays = (np.array(by_length[length], dtype=np.intp) for length in sorted(by_length))
    return [arcs.triples[same] for same in arrays]


def _arcs(triples: ScoredTriples) -> _Arcs:
    import numpy as np

    heads, tails, scores, _ = triples
    order = np.lexsort((-scores, tails, heads))  # stable: equal triples stay as given
    order = order[heads[order] != tails[order]]
    of_heads, of_tails = heads[order].astype(np.intp), tails[order].astype(np.intp)
    best = np.ones(len(order), dtype=bool)
    best[1:] = (of_heads[1:] != of_heads[:-1]) | (of_tails[1:] != of_tails[:-1])
    return _Arcs(order[best], of_heads[best], of_tails[best])


def _onward(arcs: _Arcs) -> tuple[_Onward, _Onward]:
    """Return the arcs that leave each node, and those that enter it."""
    forward: _Onward = defaultdict(list)
    backward: _Onward = defaultdict(list)
    for arc, (head, tail) in enumerate(zip(arcs.heads.tolist(), arcs.tails.tolist(), strict=True)):
        forward[head].append((arc, tail))
        backward[tail].append((arc, head))
    return forward, backward


def _exact_lengths(scores: Sequence[float], weight: Weight) -> tuple[list[int], list[int]]:
    """Return the score of each arc and its length, both as integers whose sums are exact."""
    *values, one = _exact([*scores, 1.0])
    if weight == "unit":
        return values, [1] * len(values)
    if weight == "one-minus":
        return values, [one - value for value in values]
    return values, _exact([-log(score) for score in scores])


def _exact(values: Sequence[float]) -> list[int]:
    """Return numbers as multiples of one fraction, which divides them all."""
    ratios = [value.as_integer_ratio() for value in values]
    scale = max((below for _, below in ratios), default=1)  # all are powers of 2
    return [above * (scale // below) for above, below in ratios]


def _shortest_paths(
    onward: _Onward,
    starts: Sequence[int],
    lengths: Sequence[int],
    values: Sequence[int],
    reverse: bool,
) -> Iterator[_Path]:
    """Yield the best path between the starts and each node that they reach: Dijkstra's algorithm.

    If `reverse`, paths end at a start, and `onward` has the arcs that enter a node.
    """
    # Paths are ordered by length, triples, score, and the arcs in the order of the path. Each arc
    # adds to the triples, so that a path is always after those that it extends.
    waiting: list[tuple[int, int, int, _Path, int]] = [(0, 0, 0, (), start) for start in starts]
    reached = dict(zip(starts, waiting, strict=True))
    while waiting:
        best = heappop(waiting)
        length, hops, value, path, node = best
        if best is not reached[node]:
            continue  # a better one was found while it waited
        if path:
            yield path
        for arc, end in onward.get(node, ()):
            longer = (*path, arc) if not reverse else (arc, *path)
            way = (length + lengths[arc], hops + 1, value - values[arc], longer, end)
            if end not in reached or way < reached[end]:
                reached[end] = way
                heappush(waiting, way)


def _random_walks(
    forward: _Onward, backward: _Onward, topics: Sequence[int], seed: str
) -> set[_Path]:
    """Walk at random along and against arcs from each topic; each beginning is a path, too."""
    chance = Random(sha256(seed.encode(errors="replace")).digest())
    starts = [
        (onward, topic, reverse)
        for topic in topics
        for onward, reverse in ((forward, False), (backward, True))
        if topic in onward
    ]
    paths: set[_Path] = set()
    for walk in range(WALKS if starts else 0):
        onward, node, reverse = starts[walk % len(starts)]
        path: _Path = ()
        while len(path) < LONGEST and node in onward:
            arc, node = chance.choice(onward[node])
            path = (arc, *path) if reverse else (*path, arc)
            paths.add(path)
    return paths


def _simple_paths(
    arcs: _Arcs, topics: Sequence[int], reverse: bool
) -> Iterator["NDArray[np.intp]"]:
    """Yield all paths from topics, or to them, without a node twice, length by length."""
    import numpy as np

    begins, ends = (arcs.tails, arcs.heads) if reverse else (arcs.heads, arcs.tails)
    by_begin = np.argsort(begins, kind="stable")
    begins = begins[by_begin]
    nodes = np.array(topics, dtype=np.intp)[:, np.newaxis]  # of each path, the last one last
    paths = np.empty((len(topics), 0), dtype=np.intp)
    for _ in range(LONGEST):
        first = np.searchsorted(begins, nodes[:, -1])
        counts = np.searchsorted(begins, nodes[:, -1], side="right") - first
        extended = np.repeat(np.arange(len(nodes)), counts)
        before = np.repeat(np.cumsum(counts) - counts, counts)
        added = by_begin[first[extended] + np.arange(len(extended)) - before]
        is_new = (nodes[extended] != ends[added][:, np.newaxis]).all(axis=1)
        extended, added = extended[is_new], added[is_new]
        nodes = np.column_stack((nodes[extended], ends[added]))
        paths = np.column_stack((paths[extended], added))
        yield paths[:, ::-1] if reverse else paths


class Selected(NamedTuple):
    """Triples that were selected; the best is the last."""

    triples: "NDArray[np.intp]"  # indexes
    scores: "NDArray[np.float64]"  # pooled, if anything was


def pool(
    triples: ScoredTriples, settings: PoolingSettings, seed: str = ""
) -> "NDArray[np.float64]":
    """Pool the scores of triples along paths; random walks are drawn by the seed.

    A pooled score is at least the least score, and at most a bonus above the highest.

    Raises:
        ValueError: The arrays differ in length, or a score is not above 0 and at most 1.
    """
    import numpy as np

    scores = np.asarray(triples.scores, dtype=np.float64)
    heads, tails = len(triples.heads), len(triples.tails)
    if not heads == tails == len(scores):
        raise ValueError(f"{heads} heads, {tails} tails and {len(scores)} scores")
    if not ((scores > 0) & (scores <= 1)).all():
        # A cosine or a logit below 0 would turn the bonus round.
        raise ValueError("a score is not above 0 and at most 1; map scores to that range first")
    if not len(scores):
        return scores.copy()
    bonus = position_bonus(scores)
    pooled = np.zeros_like(scores)
    for paths in find_kernels(triples._replace(scores=scores), settings, seed):
        bonuses = bonus / (np.arange(1, paths.shape[1] + 1) * settings.position)
        of_triples = scores[paths]
        of_paths = of_triples.max(axis=1)
        if settings.pool == "mean":
            # A sum is rounded: the mean of equal scores could differ from them.
            of_paths = np.clip(of_triples.mean(axis=1), of_triples.min(axis=1), of_paths)
        np.maximum.at(pooled, paths, of_paths[:, np.newaxis] + bonuses)
    pooled = np.where(pooled > 0, pooled, scores + bonus / settings.position)
    return pooled if settings.smoothing == "full" else np.sqrt(pooled * scores)


def position_bonus(scores: "NDArray[np.float64]") -> float:
    """Return what the first triple of a path gains, with a = 1.

    >>> import numpy as np
    >>> [round(position_bonus(np.array(scores)), 5) for scores in ([1e-9, 0.9], [0.45, 0.85])]
    [0.0, 0.0004]
    """
    least, highest = float(scores.min()), float(scores.max())
    # Equal scores have no range. Then the bonus can reorder nothing.
    return min(least, (highest - least) / _PARTS or least)


def select_triples(
    triples: ScoredTriples,
    count: int,
    settings: PoolingSettings,
    seed: str = "",
    *,
    facts: "NDArray[np.integer] | None" = None,
) -> Selected:
    """Select the triples that a reader is shown, at most `count`; raises as `pool` does.

    Without pooling they are the best by score. Reranking takes the same and orders them by their
    scores pooled among themselves. Reselection pools the best `coarse` triples and takes the best
    by pooled score. Equal triples are ordered by the score before pooling, then as given.

    Of the triples with the same number in `facts`, only the best is selected. They are pooled with
    the others, since paths follow triples in one direction.
    """
    import numpy as np

    scores = np.asarray(triples.scores, dtype=np.float64)
    best = np.argsort(-scores, kind="stable")
    if settings.mechanism == "reselect":
        best = best[: settings.coarse]
    elif facts is None:
        best = best[:count]
    else:  # all that state the first `count` facts
        first = np.sort(np.unique(facts[best], return_index=True)[1])
        best = best[: first[count]] if len(first) > count else best
    ranked_by = scores[best]
    if settings.mechanism != "none":
        heads, tails = triples.heads[best], triples.tails[best]
        ranked_by = pool(ScoredTriples(heads, tails, ranked_by, triples.topics), settings, seed)
    order = np.argsort(-ranked_by, kind="stable")
    if facts is not None:
        order = order[np.sort(np.unique(facts[best[order]], return_index=True)[1])]
    order = order[:count][::-1]
    return Selected(best[order], ranked_by[order])


class RetrievedTriple(NamedTuple):
    """A triple that was selected, with its score, above 0 and at most 1."""

    subject: Term
    relation: str
    object: Term
    score: float
    pooled: float | None  # the score after pooling; None without pooling

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON record: a literal is its text, with ``is_literal``."""
        return {
            "subject": term_text(self.subject),
            "relation": self.relation,
            "object": term_text(self.object),
            "score": float(f"{self.score:.4g}"),
            "pooled": None if self.pooled is None else float(f"{self.pooled:.4g}"),
            **({"is_literal": True} if isinstance(self.object, LiteralTerm) else {}),
        }


def pool_triples(
    triples: Sequence[tuple[str, str, str, float]],
    topics: Iterable[str],
    count: int | None = None,
    settings: PoolingSettings = PoolingSettings(),
    question: str = "",
) -> list[RetrievedTriple]:
    """Pool triples that any retriever scored, and return those to show a reader, best first.

    >>> triples = [("Kenya", "capital", "Nairobi", 0.9), ("Peru", "capital", "Lima", 0.5)]
    >>> triples += [("Nairobi", "mayor", "m.1", 0.4)]
    >>> [each.object for each in pool_triples(triples, ["Kenya"])]
    ['Nairobi', 'm.1', 'Lima']

    Args:
        triples: Subject, relation, object and score of each; entities may be names or ids. Scores
            that are not all above 0 and at most 1, such as cosines and logits, are mapped to that
            range first, in a straight line.
        topics: The entities that the question is about, as they are written in the triples.
        count: The most triples to return; by default all that were pooled.
        settings: How to pool.
        question: Random walks are drawn by it.

    Raises:
        InputError: A score is not finite, or reselection chooses among fewer than `count`.
    """
    import numpy as np

    if count is not None:
        settings.check_count(count)
    nodes: dict[str, int] = {}
    ends = [
        [nodes.setdefault(end, len(nodes)) for end in (subject, object_)]
        for subject, _, object_, _ in triples
    ]
    given = np.array([score for *_, score in triples], np.float64)
    if not np.isfinite(given).all():
        raise InputError(f"the score of {triples[int(np.isfinite(given).argmin())]} is not finite")
    heads, tails = np.array(ends, np.intp).reshape(-1, 2).T
    known = {nodes[topic] for topic in topics if topic in nodes}
    scored = ScoredTriples(heads, tails, _mapped(given), known)
    most = len(triples) if count is None else count
    selected = select_triples(scored, most, settings, question)
    best: list[int] = selected.triples[::-1].tolist()
    pooled: list[float | None] = selected.scores[::-1].tolist()
    if settings.mechanism == "none":
        pooled = [None] * len(best)
    return [RetrievedTriple(*triples[at], pooled=of) for at, of in zip(best, pooled, strict=True)]


def _mapped(scores: "NDArray[np.float64]") -> "NDArray[np.float64]":
    """Map scores to (0, 1], if some are beyond, so that the least is a thousandth."""
    if not len(scores) or (scores.min() > 0 and scores.max() <= 1):
        return scores
    span = scores.max() - scores.min() or 1.0
    mapped: NDArray[np.float64] = 1 - (1 - 1 / _PARTS) * (scores.max() - scores) / span
    return mapped


@dataclass(frozen=True, slots=True, eq=False)
class Retrieved:
    """The triples around a question's topics, with their scores, and those selected."""

    subgraph: Subgraph
    scores: "NDArray[np.float64]"
    selected: Selected
    is_pooled: bool

    @property
    def seen(self) -> int:
        """How many triples were scored."""
        return len(self.subgraph.heads)

    @property
    def truncated(self) -> bool:
        """Whether something around the topics was left out."""
        return self.subgraph.cut != Cut()

    def triples(self) -> Iterator[RetrievedTriple]:
        """Yield the selected triples, best first."""
        graph = self.subgraph
        for at, pooled in zip(
            self.selected.triples[::-1].tolist(), self.selected.scores[::-1].tolist(), strict=True
        ):
            yield RetrievedTriple(
                graph.nodes[graph.heads[at]],
                graph.relations[graph.links[at]],
                graph.nodes[graph.tails[at]],
                float(self.scores[at]),
                pooled if self.is_pooled else None,
            )


def retrieve(
    graph: Graph,
    schema: GraphSchema,
    score: TripleScorer,
    question: str,
    topics: Sequence[str],
    count: int,
    settings: PoolingSettings,
    *,
    shown: Shown = "once",
    clock: Clock | None = None,
) -> Retrieved:
    """Retrieve at most `count` triples for a question, whose topics are ids, best first.

    Random walks are drawn by its words. With ``shown="once"``, a fact that a relation and its
    reverse state is selected once, by the better of its triples.
    """
    clock = clock or Clock()
    with clock.stage("extract"):
        subgraph = extract(graph, schema, topics)
    with clock.stage("score"):
        scores = score(question, subgraph)
    with clock.stage("pool"):
        facts = number_facts(subgraph, schema) if shown == "once" else None
        scored = ScoredTriples(subgraph.heads, subgraph.tails, scores, range(subgraph.topics))
        selected = select_triples(scored, count, settings, question, facts=facts)
    return Retrieved(subgraph, scores, selected, settings.mechanism != "none")


def make_scorer(
    name: ScorerName,
    embedder: Embedder,
    file: Path | None = None,
    read_labels: ReadLabels | None = None,
) -> TripleScorer:
    """Load a scorer from its file, by default the one that ships with kbqa."""
    if name == "cosine":
        if file is not None:
            raise InputError(f"the scorer cosine is not trained: leave out {file}")
        return lambda question, subgraph: cosine_scores(embedder, question, subgraph)
    return Retriever.load(embedder, file or SHIPPED_SCORER, read_labels).score


def describe_scorer(
    name: ScorerName, embedder: Embedder, file: Path | None = None
) -> dict[str, object]:
    """Return the scorer, its files' hashes and the embedder, for manifests."""
    card = file or SHIPPED_SCORER
    files = (card, card.with_suffix(".safetensors"))
    hashes = [file_sha256(each) for each in files] if name == "trained" else None
    return {"scorer": name, "scorer_sha256": hashes, "embedder": embedder.name}


def number_facts(subgraph: Subgraph, schema: GraphSchema) -> "NDArray[np.int64]":
    """Number the facts that triples state: a triple and its reverse have the same number."""
    import numpy as np

    hops = schema.canonical(map(Hop, subgraph.relations))
    numbers = {relation: at for at, relation in enumerate(sorted({hop.relation for hop in hops}))}
    links = np.array([numbers[hop.relation] for hop in hops], np.int64)[subgraph.links]
    turned = np.array([hop.inverse for hop in hops], np.bool_)[subgraph.links]
    heads = np.where(turned, subgraph.tails, subgraph.heads)
    tails = np.where(turned, subgraph.heads, subgraph.tails)
    size = max(len(subgraph.nodes), 1)
    return (links * size + heads) * size + tails
