from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np
import pytest

from kbqa.engine.embedding.embedder import Embedder, relation_words
from kbqa.engine.files.json_file import read_json
from kbqa.engine.retrieval.retriever import NameVectors, Retriever, cosine_scores, node_texts
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


@pytest.fixture(scope="module")
def names_retriever(embedder: Embedder) -> Retriever:
    """Its only hidden unit is the cosine of the question and the name of the object."""
    d = embedder.embed(["a"]).shape[1]
    tail = np.zeros((10 + 2 * d + 2, 1), dtype=np.float32)
    tail[-2] = 1
    shapes = ((d, 1), (2 * d + 1, 1), tail.shape)
    zeros = [np.zeros(shape, dtype=np.float32) for shape in shapes]
    one, none = np.ones(1, dtype=np.float32), np.zeros(1, dtype=np.float32)
    card = ScorerCard(embedder.name, 2, "agreement", "gold", {}, {}, {}, "name")
    weights = Weights(*zeros, tail, none, one, none)
    return Retriever(embedder, weights, card, read_labels)


def read_labels(mids: Iterable[str]) -> Mapping[str, str]:
    """Read the names of which London's is the only one."""
    return {mid: "London" for mid in mids if mid == "m.london"}


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


def test_a_scorer_that_sees_names_looks_them_up(
    names_retriever: Retriever, embedder: Embedder
) -> None:
    for question in ("was he born in London?", "was he born on 1994-03-01?"):
        cosines = embedder.similarity(question, ["1994-03-01", "London"])
        expected = [1 / (1 + np.exp(-max(cosine, 0))) for cosine in cosines]
        assert names_retriever.score(question, SUBGRAPH) == pytest.approx(expected, abs=1e-3)


def test_a_scorer_that_sees_names_needs_a_graph(
    names_retriever: Retriever, embedder: Embedder
) -> None:
    with pytest.raises(ModelError, match="sees the names of entities"):
        Retriever(embedder, names_retriever._weights, names_retriever._card)


def test_a_scorer_that_sees_no_names_looks_none_up(embedder: Embedder) -> None:
    def refuse(mids: Iterable[str]) -> Mapping[str, str]:
        raise AssertionError

    found = Retriever.load(embedder, read_labels=refuse).score(QUESTION, SUBGRAPH)
    assert np.array_equal(found, Retriever.load(embedder).score(QUESTION, SUBGRAPH))


def test_the_text_of_a_node_is_its_name_or_its_literal() -> None:
    assert node_texts(SUBGRAPH.nodes, read_labels) == (None, "1994-03-01", "London")


def test_the_vectors_of_the_names_last_used_are_kept(embedder: Embedder) -> None:
    embedded: list[str] = []

    class Counting(Embedder):
        def __init__(self) -> None:
            pass

        def embed(self, texts):  # type: ignore[no-untyped-def]
            embedded.extend(texts)
            return embedder.embed(texts)

    vectors = NameVectors(Counting(), size=2)
    first = vectors.recall(["b", None, "a", "b"])
    assert embedded == ["a", "b"]
    assert not first[1].any()
    assert np.array_equal(first[0], first[3])
    assert first[[2, 0]] == pytest.approx(embedder.embed(["a", "b"]), abs=1e-3)
    assert np.array_equal(vectors.recall(["a"]), first[2:3])
    vectors.recall(["c"])
    assert embedded == ["a", "b", "c"]
    vectors.recall(["a", "c"])
    assert embedded == ["a", "b", "c"]
    vectors.recall(["b"])
    assert embedded == ["a", "b", "c", "b"]
    assert vectors.recall([]).shape == (0, 384)
