import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbqa.engine.retrieval.page_rank import RESTART, ROUNDS, page_rank

EDGES = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12)


def by_walking(edges: list[tuple[int, int]], topics: int) -> list[float]:
    """Compute the same, edge by edge."""
    start = [1 / topics if node < topics else 0.0 for node in range(6)]
    ways = edges + [(tail, head) for head, tail in edges]
    reached = start
    for _ in range(ROUNDS):
        after = [RESTART * share for share in start]
        for head, tail in ways:
            leaving = sum(one == head for one, _ in ways)
            after[tail] += (1 - RESTART) * reached[head] / leaving
        reached = after
    return reached


@given(EDGES, st.integers(1, 3))
def test_page_rank_is_the_share_of_walks(edges: list[tuple[int, int]], topics: int) -> None:
    heads, tails = np.array(edges, np.int32).reshape(-1, 2).T
    assert page_rank(heads, tails, 6, topics) == pytest.approx(by_walking(edges, topics))


def test_nodes_that_are_alike_have_the_same_score() -> None:
    heads, tails = np.array([[0, 0, 0], [1, 2, 3]], np.int32)
    scores = page_rank(heads, tails, 4, 1)
    assert scores[1] == scores[2] == scores[3]
    assert scores.sum() == pytest.approx(1)
