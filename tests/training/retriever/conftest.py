"""Labelled questions that are made up, as the scorer sees them."""

from dataclasses import replace

import numpy as np
import pytest

from kbqa.engine.retrieval.retriever import encode_distances
from kbqa.training.retriever.examples import Inputs, Labelled

DIMENSIONS, RELATIONS = 8, 6


def _made_up(seed: int) -> Inputs:
    """Make a question of which the right triples leave the topic by the relation most like it."""
    draw = np.random.default_rng(seed)
    nodes, triples = 40, 300
    words = np.random.default_rng(0).normal(size=(RELATIONS, DIMENSIONS)).astype(np.float32)
    words /= np.linalg.norm(words, axis=1, keepdims=True)
    heads, tails = draw.integers(0, nodes, (2, triples), dtype=np.int32)
    links = draw.integers(0, RELATIONS, triples, dtype=np.int32)
    heads[::2], links[0] = 0, seed % RELATIONS
    is_right = (heads == 0) & (links == seed % RELATIONS)
    stated = np.where(is_right, np.cumsum(is_right) - 1, -1).astype(np.int32)
    labelled = Labelled(
        question="made up",
        relations=tuple(f"a.b.r{number}" for number in range(RELATIONS)),
        nodes=nodes,
        topics=1,
        heads=heads,
        links=links,
        tails=tails,
        stated=stated,
        facts=int(is_right.sum()),
        matches=np.arange(is_right.sum(), dtype=np.int32)[:, None],
        answers=tails[is_right],
        shortest=is_right,
    )
    vector = words[seed % RELATIONS] + draw.normal(scale=0.1, size=DIMENSIONS).astype(np.float32)
    distances = encode_distances(heads, tails, nodes, 1)
    return Inputs(labelled, vector, words, np.arange(RELATIONS), distances, is_right)


@pytest.fixture(scope="session")
def made_up() -> list[Inputs]:
    """Twenty questions."""
    return [_made_up(seed) for seed in range(20)]


@pytest.fixture(scope="session")
def made_up_with_names(made_up: list[Inputs]) -> list[Inputs]:
    """The same with names; of the right triples, only those that lead to one name are right."""
    names = np.random.default_rng(1).normal(size=(10, DIMENSIONS)).astype(np.float16)
    names[0] = 0
    draw = np.random.default_rng(2)
    with_names = []
    for one in made_up:
        places = draw.choice([0, 1, 2, 3, 9], one.labelled.nodes).astype(np.int32)
        right = one.right & (places[one.labelled.tails] == 9)
        with_names.append(replace(one, right=right, names=names, name_places=places))
    return with_names
