from dataclasses import replace

import numpy as np
import pytest

from kbqa.training.retriever.examples import Labelled, measure_recall

# Topic 0; facts 0 and 1 lead over node 1 to answer 2, fact 2 to answer 3; fact 3 is out of sight.
# The last triple states fact 0 as well, by the reverse of its relation.
LABELLED = Labelled(
    question="?",
    relations=("a.b.c",),
    nodes=5,
    topics=1,
    heads=np.array([0, 1, 0, 0, 1], dtype=np.int32),
    links=np.zeros(5, dtype=np.int32),
    tails=np.array([1, 2, 3, 4, 0], dtype=np.int32),
    stated=np.array([0, 1, 2, -1, 0], dtype=np.int32),
    facts=4,
    matches=np.array([[0, 1], [2, 3]], dtype=np.int32),
    answers=np.array([2, 3, -1], dtype=np.int32),
    shortest=np.zeros(5, dtype=bool),
)


@pytest.mark.parametrize(
    ("order", "triples", "path", "answers"),
    [
        ([0, 1, 2, 3, 4], (1 / 4, 1 / 2, 3 / 4, 3 / 4), (0, 1, 1, 1), (0, 1 / 3, 2 / 3, 2 / 3)),
        ([4, 0, 3, 1, 2], (1 / 4, 1 / 4, 1 / 4, 1 / 2), (0, 0, 0, 1), (0, 0, 0, 1 / 3)),
        ([2, 3, 1, 0, 4], (1 / 4, 1 / 4, 1 / 2, 3 / 4), (0, 0, 0, 1), (1 / 3, 1 / 3, 2 / 3, 2 / 3)),
    ],
)
def test_what_is_right_counts_from_where_it_stands(
    order: list[int],
    triples: tuple[float, ...],
    path: tuple[float, ...],
    answers: tuple[float, ...],
) -> None:
    scores = np.zeros(5)
    scores[order] = [0.9, 0.8, 0.7, 0.6, 0.5]
    found = measure_recall(scores, LABELLED, (1, 2, 3, 4))
    assert found.triples == pytest.approx(triples)
    assert found.path == pytest.approx(path)
    assert found.answers == pytest.approx(answers)


def test_a_way_of_fewer_facts_is_padded() -> None:
    one = replace(LABELLED, matches=np.array([[0, 1], [2, -1]], dtype=np.int32))
    assert measure_recall(np.array([0, 0, 1.0, 0, 0]), one, (1,)).path == (1.0,)


def test_of_equal_scores_the_first_triple_comes_first() -> None:
    assert measure_recall(np.ones(5), LABELLED, (1, 3)).triples == (1 / 4, 3 / 4)


def test_a_subgraph_without_triples_recalls_nothing() -> None:
    nothing = np.array([], dtype=np.int32)
    empty = replace(LABELLED, heads=nothing, links=nothing, tails=nothing, stated=nothing)
    assert measure_recall(np.array([]), empty, (10,)) == ((0.0,), (0.0,), (0.0,))
