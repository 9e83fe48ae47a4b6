"""Pooling beside a slow version of its definition: all paths are listed, the right ones chosen."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise, permutations, product
from random import Random
from typing import NamedTuple, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbqa.engine.methods import describe_settings, read_settings
from kbqa.engine.retrieval.retrieval import (
    LONGEST,
    WALKS,
    KernelName,
    Mechanism,
    Pooling,
    PoolingSettings,
    ScoredTriples,
    Smoothing,
    Sources,
    Weight,
    find_kernels,
    pool,
    pool_triples,
    position_bonus,
    select_triples,
)
from kbqa.sparql.errors import InputError

Path = tuple[int, ...]
NODES = 8


class Scored(NamedTuple):
    """Triples, by their indexes in three lists, and topics."""

    heads: list[int]
    tails: list[int]
    scores: list[float]
    topics: list[int]

    def pooled(self, settings: PoolingSettings, seed: str = "") -> list[float]:
        pooled = pool(self.arrays(), settings, seed)
        assert pooled.dtype == np.float64
        return [float(score) for score in pooled]

    def kernels(self, settings: PoolingSettings, seed: str = "") -> list[Path]:
        found = find_kernels(self.arrays(), settings, seed)
        return [tuple(path) for same in found for path in same.tolist()]

    def arrays(self) -> ScoredTriples:
        heads, tails = (np.array(each, dtype=np.int32) for each in (self.heads, self.tails))
        return ScoredTriples(heads, tails, np.array(self.scores, dtype=np.float64), self.topics)

    def in_order(self, order: Sequence[int]) -> "Scored":
        given = (self.heads, self.tails, self.scores)
        return Scored(*([each[i] for i in order] for each in given), self.topics)

    def with_triple(self, head: int, tail: int, score: float) -> "Scored":
        return Scored([*self.heads, head], [*self.tails, tail], [*self.scores, score], self.topics)


def _graphs(scores: st.SearchStrategy[float]) -> st.SearchStrategy[Scored]:
    node = st.integers(0, NODES - 1)
    return st.lists(st.tuples(node, node, scores), min_size=1, max_size=14).flatmap(
        lambda triples: st.builds(
            Scored,
            *(st.just(list(each)) for each in zip(*triples, strict=True)),
            st.lists(node, min_size=1, max_size=2),
        )
    )


FEW = st.sampled_from([k / 1024 for k in (1, 256, 512, 512, 768, 1023)])
"""Few scores, so that paths often tie."""
MANY = st.integers(1, 1023).map(lambda k: k / 1024)
REAL = st.floats(1e-300, 1.0)
GRAPHS = st.one_of(_graphs(FEW), _graphs(MANY))
POSITIONS = st.sampled_from([0.5, 1.0, 2.0, 10.0, math.inf])
ANY_SETTINGS = st.builds(
    PoolingSettings,
    kernel=st.sampled_from(get_args(KernelName)),
    weight=st.sampled_from(get_args(Weight)),
    sources=st.sampled_from(get_args(Sources)),
    pool=st.sampled_from(get_args(Pooling)),
    position=POSITIONS,
    smoothing=st.sampled_from(get_args(Smoothing)),
)
SETTINGS = ANY_SETTINGS.map(lambda settings: replace(settings, smoothing="full"))
"""Those of the paper, whose pooled scores have the properties of means and of the bonus."""
FULL = PoolingSettings(smoothing="full")


def simple_paths(scored: Scored, start: int, longest: int = NODES) -> Iterator[Path]:
    """List the paths of triples from a node that meet no node twice, parallel triples apart."""

    def extend(path: Path, met: tuple[int, ...]) -> Iterator[Path]:
        for triple, (head, tail) in enumerate(zip(scored.heads, scored.tails, strict=True)):
            if head == met[-1] and tail not in met and len(path) < longest:
                yield (*path, triple)
                yield from extend((*path, triple), (*met, tail))

    yield from extend((), (start,))


def chosen_paths(scored: Scored, settings: PoolingSettings) -> list[Path]:
    """List the kernels of `dijkstra`: the least of all paths by length, triples, score and keys."""
    heads, tails, scores = scored.heads, scored.tails, scored.scores
    lengths = [
        {
            "unit": Fraction(1),
            "one-minus": 1 - Fraction(score),
            "neg-log": Fraction(-math.log(score)),
        }[settings.weight]
        for score in scores
    ]

    def rank(path: Path) -> tuple[object, ...]:
        length = sum((lengths[i] for i in path), Fraction(0))
        score = sum((Fraction(scores[i]) for i in path), Fraction(0))
        return length, len(path), -score, [(heads[i], tails[i], i) for i in path]

    topics = set(scored.topics)
    groups = [{topic} for topic in topics] if settings.sources == "each" else [topics]
    everything = [path for node in range(NODES) for path in simple_paths(scored, node)]
    kernels = []
    for group, node in product(groups, range(NODES)):
        if node in group:
            continue
        there = [p for p in everything if heads[p[0]] in group and tails[p[-1]] == node]
        back = [p for p in everything if heads[p[0]] == node and tails[p[-1]] in group]
        kernels += [min(paths, key=rank) for paths in (there, back) if paths]
    return kernels


def short_paths(scored: Scored) -> list[Path]:
    """List the kernels of `bfs`: short paths from and to topics, no parallel triples."""
    ends = list(zip(scored.heads, scored.tails, strict=True))
    best = {
        pair: max(
            (s, -i)
            for i, (s, each) in enumerate(zip(scored.scores, ends, strict=True))
            if each == pair
        )
        for pair in ends
    }
    kept = {-i for _, i in best.values()}
    return [
        path
        for node in range(NODES)
        for path in simple_paths(scored, node, LONGEST)
        if {ends[path[0]][0], ends[path[-1]][1]} & set(scored.topics) and set(path) <= kept
    ]


def most_bonus(scores: Sequence[float]) -> float:
    """Return the least score, or a thousandth of the range of the scores if that is less."""
    least, span = min(scores), max(scores) - min(scores)
    return min(least, span / 1000) if span else least


def pooled_along(scored: Scored, kernels: Sequence[Path], settings: PoolingSettings) -> list[float]:
    """Pool by the definition, one triple of one path at a time."""
    scores, bonus = scored.scores, most_bonus(scored.scores)
    on_path = {triple for path in kernels for triple in path}
    alone = [(triple,) for triple in range(len(scores)) if triple not in on_path]
    pooled = [0.0] * len(scores)
    for path in [*kernels, *alone]:
        of_path = [scores[triple] for triple in path]
        score = max(of_path) if settings.pool == "max" else sum(of_path) / len(path)
        for place, triple in enumerate(path, start=1):
            pooled[triple] = max(pooled[triple], score + bonus / (place * settings.position))
    if settings.smoothing == "half":
        return [math.sqrt(pair[0] * pair[1]) for pair in zip(pooled, scores, strict=True)]
    return pooled


@given(GRAPHS, ANY_SETTINGS)
def test_pooling_is_what_listing_all_paths_gives(scored: Scored, settings: PoolingSettings) -> None:
    if settings.kernel == "dijkstra":
        kernels = chosen_paths(scored, settings)
    elif settings.kernel == "bfs":
        kernels = short_paths(scored)
    else:
        kernels = scored.kernels(settings, "WebQTest-1")
    assert scored.pooled(settings, "WebQTest-1") == pooled_along(scored, kernels, settings)


@given(_graphs(REAL), SETTINGS)
def test_any_scores_give_the_same_paths(scored: Scored, settings: PoolingSettings) -> None:
    if settings.kernel == "dijkstra":
        assert set(scored.kernels(settings)) == set(chosen_paths(scored, settings))
    elif settings.kernel == "bfs":
        assert set(scored.kernels(settings)) == set(short_paths(scored))
    expected = pooled_along(scored, scored.kernels(settings), settings)
    assert scored.pooled(settings) == pytest.approx(expected, rel=1e-12, abs=0)


@given(GRAPHS, st.text(max_size=5))
def test_walks_go_from_and_to_topics(scored: Scored, seed: str) -> None:
    settings = PoolingSettings(kernel="walk")
    drawn = scored.kernels(settings, seed)
    walks = set(drawn)
    assert len(walks) == len(drawn) <= WALKS * LONGEST
    assert walks == set(scored.kernels(settings, seed))
    for path in walks:
        assert len(path) <= LONGEST
        ways = [(scored.heads[i], scored.tails[i]) for i in path]
        assert all(way[1] == onward[0] for way, onward in pairwise(ways))
        assert ways[0][0] in scored.topics or ways[-1][1] in scored.topics
        if ways[0][0] in scored.topics:
            assert path[:1] in walks
    first = {(i,) for i, head in enumerate(scored.heads) if head in scored.topics}
    first &= {(path[0],) for path in short_paths(scored)}
    assert first <= walks, "256 walks take every one of at most 14 triples at a topic"


def test_walks_differ_between_seeds() -> None:
    wide = Scored([0] * 500, list(range(1, 501)), [0.5] * 500, [0])
    settings = PoolingSettings(kernel="walk")
    one, other = (set(wide.kernels(settings, seed)) for seed in ("WebQTest-1", "WebQTest-2"))
    assert one != other
    assert WALKS / 2 < len(one) <= WALKS


@given(GRAPHS, ANY_SETTINGS, st.randoms())
def test_the_order_of_triples_makes_no_difference(
    scored: Scored, settings: PoolingSettings, chance: Random
) -> None:
    order = list(range(len(scored.heads)))
    chance.shuffle(order)
    shuffled = scored.in_order(order)
    # Equal parallel triples are told apart by their order alone.
    rows, others = (
        sorted(zip(each.heads, each.tails, each.scores, each.pooled(settings, "x"), strict=True))
        for each in (scored, shuffled)
    )
    assert rows == others


@given(_graphs(REAL), SETTINGS)
def test_pooled_scores_are_scores_and_a_bonus(scored: Scored, settings: PoolingSettings) -> None:
    pooled, bonus = scored.pooled(settings), most_bonus(scored.scores)
    assert all(map(math.isfinite, pooled))
    assert min(scored.scores) <= min(pooled)
    assert max(pooled) <= max(scored.scores) + bonus / settings.position


@given(GRAPHS, SETTINGS, st.sampled_from([0.0, 0.25, 0.5]))
def test_the_position_never_reorders_paths_of_clearly_different_means(
    scored: Scored, settings: PoolingSettings, floor: float
) -> None:
    """Whether scores begin near 0, as those of a trained scorer, or at 0.45, as cosines do."""
    settings = replace(settings, kernel="dijkstra", position=max(settings.position, 1.0))
    raised = scored._replace(scores=[floor + score / 2 for score in scored.scores])
    means = raised.pooled(replace(settings, position=math.inf))
    pooled = raised.pooled(settings)
    clear = (max(raised.scores) - min(raised.scores)) / 1000
    for (mean, score), (other, below) in permutations(zip(means, pooled, strict=True), 2):
        assert score > below or mean <= other + clear


@pytest.mark.parametrize("floor", [0.0, 0.45])
def test_a_triple_far_along_a_good_path_stays_before_one_next_to_the_topic(floor: float) -> None:
    scored = Scored([0, 1, 0], [1, 2, 3], [floor + 0.3, floor + 0.3, floor + 0.001], [0])
    near, far, poor = scored.pooled(FULL)
    assert near > far > poor


@given(_graphs(REAL), SETTINGS)
def test_the_highest_score_of_a_path_is_no_less_than_the_mean(
    scored: Scored, settings: PoolingSettings
) -> None:
    highest, mean = (
        scored.pooled(PoolingSettings(kernel=settings.kernel, weight=settings.weight, pool=each))
        for each in ("max", "mean")
    )
    assert all(high >= low for high, low in zip(highest, mean, strict=True))


@given(GRAPHS, st.floats(1e-9, 1.0), SETTINGS)
def test_equal_scores_leave_the_order_on_paths(
    scored: Scored, score: float, settings: PoolingSettings
) -> None:
    equal = scored._replace(scores=[score] * len(scored.scores))
    kernels = equal.kernels(settings)
    places = [
        min((path.index(i) + 1 for path in kernels if i in path), default=1)
        for i in range(len(equal.scores))
    ]
    assert equal.pooled(settings) == [score + score / (i * settings.position) for i in places]


@given(GRAPHS, st.floats(1e-9, 1.0), SETTINGS)
def test_a_triple_apart_changes_the_bonus_at_most(
    scored: Scored, score: float, settings: PoolingSettings
) -> None:
    more = scored.with_triple(NODES, NODES + 1, score)
    is_within = min(scored.scores) <= score <= max(scored.scores)
    if is_within or settings.position == math.inf:
        assert more.pooled(settings)[:-1] == scored.pooled(settings)
    assert more.pooled(settings)[-1] == score + position_bonus(more.arrays().scores) / (
        settings.position
    )


def test_a_weak_triple_between_strong_ones_overtakes_a_middling_one_apart() -> None:
    scored = Scored([0, 1, 2, 5], [1, 2, 3, 6], [0.9, 0.2, 0.9, 0.5], [0])
    for kernel in get_args(KernelName):
        first, weak, last, apart = scored.pooled(replace(FULL, kernel=kernel))
        assert first > weak > last > apart == 0.5 + most_bonus(scored.scores)


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_a_tie_goes_to_the_higher_score_and_then_to_the_first_key(order: tuple[int, ...]) -> None:
    settings = PoolingSettings()
    better = Scored([0, 0, 1, 2], [1, 2, 3, 3], [0.25, 0.5, 0.5, 0.5], [0])
    ends = {(0, 1), (0, 2), (1, 3), (2, 3)}
    for scored, end in (
        (better, [(0, 2), (2, 3)]),
        (better._replace(scores=[0.5] * 4), [(0, 1), (1, 3)]),
    ):
        given = scored.in_order(order)
        paths = [[(given.heads[i], given.tails[i]) for i in p] for p in given.kernels(settings)]
        assert {way for path in paths for way in path} <= ends
        assert [path for path in paths if len(path) == 2] == [end]


@pytest.mark.parametrize(
    ("weight", "path"), [("unit", (2,)), ("one-minus", (2,)), ("neg-log", (0, 1))]
)
def test_weights_choose_the_path(weight: Weight, path: Path) -> None:
    # 0.6 and 0.6 in two triples, or one of 0.3: 2 or 1 triples, 0.8 or 0.7, 0.36 or 0.3.
    scored = Scored([0, 1, 0], [1, 2, 2], [0.6, 0.6, 0.3], [0])
    kernels = scored.kernels(PoolingSettings(weight=weight))
    assert [each for each in kernels if scored.tails[each[-1]] == 2] == [path]


def test_all_topics_together_have_one_path_to_a_node() -> None:
    scored = Scored([0, 1, 2], [2, 2, 3], [0.4, 0.8, 0.6], [0, 1])
    each, together = (PoolingSettings(sources=sources) for sources in get_args(Sources))
    assert {(0,), (1,), (0, 2), (1, 2)} == set(scored.kernels(each))
    assert {(1,), (1, 2)} == set(scored.kernels(together))


@given(GRAPHS, SETTINGS, st.sampled_from(get_args(Mechanism)), st.integers(1, 20))
def test_selected_triples(
    scored: Scored, settings: PoolingSettings, mechanism: Mechanism, count: int
) -> None:
    settings = PoolingSettings(mechanism, kernel=settings.kernel, position=1.0, coarse=6)
    triples, scores = select_triples(scored.arrays(), count, settings, "x")
    best = sorted(range(len(scored.scores)), key=lambda i: -scored.scores[i])
    coarse = best[: count if mechanism != "reselect" else 6]
    assert len(set(triples.tolist())) == len(triples) == min(count, len(coarse))
    assert set(triples.tolist()) <= set(coarse)
    assert scores.tolist() == sorted(scores)
    expected = dict(zip(coarse, (scored.scores[i] for i in coarse), strict=True))
    if mechanism != "none":
        expected = dict(zip(coarse, scored.in_order(coarse).pooled(settings, "x"), strict=True))
    ranked = sorted(coarse, key=lambda i: (-expected[i], -scored.scores[i], i))
    assert triples.tolist() == ranked[:count][::-1]
    assert scores.tolist() == [expected[i] for i in triples.tolist()]


@given(GRAPHS, st.sampled_from(get_args(Mechanism)), st.integers(1, 20), st.randoms())
def test_of_triples_that_state_the_same_only_the_best_is_selected(
    scored: Scored, mechanism: Mechanism, count: int, chance: Random
) -> None:
    size = len(scored.scores)
    facts = np.array([chance.randrange(max(size // 2, 1)) for _ in range(size)], dtype=np.int64)
    settings = PoolingSettings(mechanism, coarse=6)
    selected, ranks = select_triples(scored.arrays(), count, settings, facts=facts)
    every, by_all = select_triples(scored.arrays(), size, settings)
    stated = [int(facts[each]) for each in selected]
    assert len(set(stated)) == len(stated) <= count
    assert ranks.tolist() == sorted(ranks.tolist())
    if mechanism != "rerank":  # that one pools the selected triples alone
        firsts = {int(facts[at]): int(at) for at in every}  # ascending: the best one stays
        ranked = dict(zip(every.tolist(), by_all.tolist(), strict=True))
        assert set(selected.tolist()) <= set(firsts.values())
        assert [ranked[each] for each in selected.tolist()] == ranks.tolist()
        assert len(selected) == min(count, len(firsts))


def test_reranking_orders_the_triples_that_are_selected_without() -> None:
    scored = Scored([0, 1, 0, 2, 0], [1, 0, 2, 3, 4], [0.9, 0.8, 0.2, 0.7, 0.6], [0]).arrays()
    facts = np.array([0, 0, 1, 2, 3])
    plain = select_triples(scored, 3, PoolingSettings("none"), facts=facts)
    reranked = select_triples(scored, 3, PoolingSettings("rerank"), facts=facts)
    assert sorted(plain.triples) == sorted(reranked.triples) == [0, 3, 4]


def test_no_triples_and_no_topics() -> None:
    settings = FULL
    assert Scored([], [], [], [0]).pooled(settings) == []
    for kernel in get_args(KernelName):
        settings = replace(FULL, kernel=kernel)
        assert Scored([0], [1], [0.5], []).pooled(settings) == [1.0]
        assert Scored([0], [1], [0.5], [7]).pooled(settings) == [1.0]
        assert Scored([0], [0], [0.5], [0]).pooled(settings) == [1.0]


@pytest.mark.parametrize("score", [0.0, -0.1, 1.5, math.nan])
def test_scores_that_cannot_be_pooled(score: float) -> None:
    with pytest.raises(ValueError, match="above 0 and at most 1"):
        Scored([0, 1], [1, 2], [0.5, score], [0]).pooled(PoolingSettings())


def test_arrays_of_unequal_length() -> None:
    with pytest.raises(ValueError, match="2 heads, 1 tails and 2 scores"):
        Scored([0, 1], [1], [0.5, 0.5], [0]).pooled(PoolingSettings())


TRIPLES = [
    ("Kenya", "currency", "Kenyan shilling", 0.2),
    ("Kenya", "capital", "Nairobi", 0.9),
    ("Nairobi", "mayor", "m.1", 0.4),
    ("Peru", "capital", "Lima", 0.5),
]


@pytest.mark.parametrize(("times", "plus"), [(1, 0), (20, -9), (2, -1), (0.5, 0.5)])
def test_triples_of_any_retriever_are_pooled_in_whatever_range_their_scores_are(
    times: float, plus: float
) -> None:
    given = [(*triple, score * times + plus) for *triple, score in TRIPLES]
    pooled = pool_triples(given, ["Kenya"], settings=FULL)
    assert [each.object for each in pooled] == ["Nairobi", "m.1", "Lima", "Kenyan shilling"]
    assert [each.score for each in pooled] == [given[at][3] for at in (1, 2, 3, 0)]
    assert all(0 < each.pooled <= 1.001 for each in pooled if each.pooled is not None)
    assert [each.object for each in pool_triples(given, ["Kenya"], 1)] == ["Nairobi"]


def test_without_pooling_triples_of_any_retriever_are_only_sorted() -> None:
    found = pool_triples(TRIPLES, ["Kenya"], 2, PoolingSettings("none"))
    assert [(each.object, each.pooled) for each in found] == [("Nairobi", None), ("Lima", None)]
    assert pool_triples([], ["Kenya"]) == []
    equal = [("a", "r", "b", 7.0), ("c", "r", "d", 7.0)]
    assert [each.subject for each in pool_triples(equal, ["nobody"])] == ["a", "c"]


def test_triples_that_cannot_be_pooled_are_refused() -> None:
    with pytest.raises(InputError, match=r"the score of \('a', 'r', 'b', nan\) is not finite"):
        pool_triples([*TRIPLES, ("a", "r", "b", math.nan)], ["Kenya"])
    with pytest.raises(InputError, match="set coarse to 501 or more"):
        pool_triples(TRIPLES, ["Kenya"], 501)


def test_settings_as_people_write_them() -> None:
    given = {"mechanism": "rerank", "position": "inf", "coarse": "100", "weight": "neg-log"}
    settings = read_settings(PoolingSettings, given, "path-pooling")
    assert settings == PoolingSettings("rerank", weight="neg-log", position=math.inf, coarse=100)
    assert all(each.text.endswith(".") for each in describe_settings(PoolingSettings))


@pytest.mark.parametrize("wrong", [{"position": 0.0}, {"position": math.nan}, {"coarse": 0}])
def test_settings_that_make_no_sense(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        PoolingSettings(**wrong)  # type: ignore[arg-type]
