from dataclasses import replace

import numpy as np
import pytest

from kbqa.engine.embedding.embedder import Embedder, relation_words
from kbqa.engine.files.json_file import read_json
from kbqa.engine.retrieval.retriever import Retriever, cosine_scores
from kbqa.engine.retrieval.scorer import SCHEMA_VERSION, SHIPPED_SCORER, ScorerCard, Weights
from kbqa.engine.retrieval.subgraph import Subgraph
from kbqa.sparql.errors import ModelError
from kbqa.sparql.terms import LiteralTerm

pytest.importorskip("sentence_transformers", reason="needs the lm extra")

BORN, PLACE = "people.person.date_of_birth", "people.person.place_of_birth"
SUBGRAPH = Subgraph(
    nodes=("m.justin", LiteralTerm("1994-03-01", "date"), "m.london"),
    relations=(BORN, PLACE),
    heads=np.array([0, 0], dtype=np.int32),
    links=np.array([0, 1], dtype=np.int32),
    tails=np.array([1, 2], dtype=np.int32),
    topics=1,
)
NOTHING = Subgraph(("m.justin",), (), *[np.array([], dtype=np.int32)] * 3, topics=1)
QUESTION = "on which day was he born?"


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    return Embedder.load()


@pytest.fixture(scope="module")
def retriever(embedder: Embedder) -> Retriever:
    """Its only hidden unit is the cosine."""
    d = embedder.embed(["a"]).shape[1]
    relation = np.zeros((2 * d + 1, 1), dtype=np.float32)
    relation[-1] = 1
    zeros = [np.zeros(shape, dtype=np.float32) for shape in ((d, 1), (10, 1), (10, 1), 1)]
    one, none = np.ones(1, dtype=np.float32), np.zeros(1, dtype=np.float32)
    weights = Weights(zeros[0], relation, zeros[1], zeros[2], none, one, none)
    return Retriever(
        embedder, weights, ScorerCard(embedder.name, 2, "agreement", "gold", {}, {}, {})
    )


def test_triples_are_scored_in_their_order(retriever: Retriever, embedder: Embedder) -> None:
    cosines = embedder.similarity(QUESTION, [relation_words(BORN), relation_words(PLACE)])
    assert cosines[0] > cosines[1] > 0
    found = retriever.score(QUESTION, SUBGRAPH)
    assert found == pytest.approx([1 / (1 + np.exp(-cosine)) for cosine in cosines], abs=1e-5)


def test_the_shipped_scorer_knows_what_is_asked_for(embedder: Embedder) -> None:
    retriever = Retriever.load(embedder)
    relations = ("location.country.capital", "location.country.currency_used")
    subgraph = replace(SUBGRAPH, relations=relations)
    capital, money = retriever.score("what is the capital of jamaica?", subgraph)
    assert capital > money
    capital, money = retriever.score("what currency is used in jamaica?", subgraph)
    assert capital < money


def test_the_shipped_scorer_is_small_and_says_where_it_comes_from() -> None:
    card = read_json(SHIPPED_SCORER, ScorerCard, ModelError, schema_version=SCHEMA_VERSION)
    assert SHIPPED_SCORER.with_suffix(".safetensors").stat().st_size < 2_000_000
    assert card.held_out["triple_recall_50"] > 0.8
    assert sum(card.trained_on.values()) > 2000


def test_cosines_are_scores_as_well(embedder: Embedder) -> None:
    day, place = cosine_scores(embedder, QUESTION, SUBGRAPH)
    assert 1 >= day > place >= 0


def test_a_subgraph_without_triples_has_no_scores(retriever: Retriever, embedder: Embedder) -> None:
    assert retriever.score(QUESTION, NOTHING).shape == (0,)
    assert cosine_scores(embedder, QUESTION, NOTHING).shape == (0,)


def test_a_scorer_of_another_embedder_is_refused(retriever: Retriever, embedder: Embedder) -> None:
    card = ScorerCard("other 0123abcd", 2, "agreement", "gold", {}, {}, {})
    with pytest.raises(ModelError, match="trained with the embedder other 0123abcd, not all-Mini"):
        Retriever(embedder, retriever._weights, replace(card, rounds=1))
