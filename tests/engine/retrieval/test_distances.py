from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbqa.engine.retrieval.distances import encode_distances

Edges = Sequence[tuple[int, int]]


@st.composite
def multigraphs(draw: st.DrawFn) -> tuple[Edges, int, int]:
    nodes = draw(st.integers(1, 8))
    end = st.integers(0, nodes - 1)
    edges = draw(st.lists(st.tuples(end, end), max_size=20))
    return edges, nodes, draw(st.integers(1, nodes))


def by_dictionary(edges: Edges, nodes: int, topics: int, rounds: int) -> list[list[float]]:
    rows: dict[int, list[float]] = {}
    for node in range(nodes):
        rows[node] = [0.0, 1.0] if node < topics else [1.0, 0.0]
    start = {node: list(row) for node, row in rows.items()}
    for directed in (edges, [(tail, head) for head, tail in edges]):
        marks = start
        for _ in range(rounds):
            following: dict[int, list[float]] = {}
            for node in range(nodes):
                sources = [marks[head] for head, tail in directed if tail == node]
                following[node] = [sum(c) / len(sources) for c in zip(*sources, strict=True)] or [
                    0.0,
                    0.0,
                ]
            marks = following
            for node in range(nodes):
                rows[node] = rows[node] + marks[node]
    return [rows[node] for node in range(nodes)]


def encoded(edges: Edges, nodes: int, topics: int, rounds: int) -> np.ndarray:
    heads = np.array([head for head, _ in edges], dtype=np.int32)
    tails = np.array([tail for _, tail in edges], dtype=np.int32)
    return encode_distances(heads, tails, nodes, topics, rounds)


@given(multigraphs(), st.integers(1, 3))
def test_distances_are_those_of_the_definition(graph: tuple[Edges, int, int], rounds: int) -> None:
    found = encoded(*graph, rounds)
    assert found.shape == (graph[1], 2 + 4 * rounds)
    assert found == pytest.approx(np.array(by_dictionary(*graph, rounds)), abs=1e-6)


def test_parallel_edges_count_each() -> None:
    # Node 2 has three edges from others, two of them from the topic.
    found = encoded([(0, 2), (0, 2), (1, 2)], nodes=3, topics=1, rounds=1)
    assert found[2].tolist() == pytest.approx([1, 0, 1 / 3, 2 / 3, 0, 0])


def test_without_rounds_nothing_is_known() -> None:
    assert encoded([(0, 1)], nodes=2, topics=1, rounds=0).shape == (2, 0)
