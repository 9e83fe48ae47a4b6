"""Relations that are suggested to the writer."""

import json
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbqa.engine.embedding.embedder import Embedder
from kbqa.engine.files import read_json
from kbqa.engine.linking.linker import Linker
from kbqa.engine.retrieval.retriever import (
    SCHEMA_VERSION,
    SHIPPED_SCORER,
    NameVectors,
    RelationInput,
    RelationSuggester,
    Retriever,
    ScorerCard,
    Subgraph,
    Weights,
    best_relations,
    cosine_scores,
    load_scorer,
    node_columns,
    node_texts,
    save_scorer,
    text_columns,
)
from kbqa.kb.graph import Graph
from kbqa.kb.open import open_graph
from kbqa.kb.schema import GraphSchema
from kbqa.sparql.crp import Entity
from kbqa.sparql.english import relation_words
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


CARD = ScorerCard("some model", 1, "agreement", "gold", {"webqsp.train": 7}, {"a": "b"}, {"c": 0.5})
DIMENSIONS, HIDDEN, DISTANCES = 4, 6, 6


def random_weights(
    seed: int, kind: RelationInput = "agreement", sees_names: bool = False
) -> Weights:
    of_text = DIMENSIONS if kind == "words" else 2 * DIMENSIONS + 1
    of_node = DISTANCES + of_text + 1 if sees_names else DISTANCES
    draw = np.random.default_rng(seed)
    shapes = [(DIMENSIONS, HIDDEN), (of_text, HIDDEN), *[(of_node, HIDDEN)] * 2]
    return Weights(*(draw.normal(size=s).astype(np.float32) for s in [*shapes, HIDDEN, HIDDEN, 1]))


@given(
    st.integers(0, 2**32 - 1),
    st.integers(0, 40),
    st.sampled_from(["words", "agreement"]),
    st.booleans(),
)
def test_the_factored_first_layer_is_the_plain_one(
    seed: int, triples: int, kind: RelationInput, sees_names: bool
) -> None:
    draw = np.random.default_rng(seed)
    question = draw.normal(size=DIMENSIONS).astype(np.float32)
    words = draw.normal(size=(5, DIMENSIONS)).astype(np.float32)
    distances = draw.random((7, DISTANCES), dtype=np.float32)
    heads, tails = draw.integers(0, 7, (2, triples), dtype=np.int32)
    links = draw.integers(0, 5, triples, dtype=np.int32)
    weights = random_weights(seed, kind, sees_names)
    names = draw.normal(size=(7, DIMENSIONS)).astype(np.float32) if sees_names else None
    columns = text_columns(question, words, kind)
    nodes = node_columns(question, distances, names, kind)
    found = weights.score(question, columns, nodes, heads, links, tails)
    first = np.concatenate([weights.question, weights.relation, weights.head, weights.tail])
    for at, score in enumerate(found):
        ends = (nodes[heads[at]], nodes[tails[at]])
        seen = np.concatenate([question, columns[links[at]], *ends])
        hidden = np.maximum(seen @ first + weights.bias, 0)
        odds = float(hidden @ weights.output + weights.output_bias[0])
        plain = 1 / (1 + np.exp(-odds))
        assert score == pytest.approx(plain, abs=1e-5)
    assert found.dtype == np.float64
    assert ((found > 0) & (found < 1)).all()


def test_the_agreement_of_a_relation_ends_with_the_cosine() -> None:
    question = np.array([0.6, 0.8], dtype=np.float32)
    words = np.array([[1, 0], [0.6, 0.8]], dtype=np.float32)
    assert text_columns(question, words, "words") is words
    assert text_columns(question, words, "agreement")[:, -1] == pytest.approx([0.6, 1])


def test_a_node_without_a_name_is_marked() -> None:
    question = np.array([0.6, 0.8], dtype=np.float32)
    distances = np.array([[0.5], [0.25]], dtype=np.float32)
    names = np.array([[1, 0], [0, 0]], dtype=np.float32)
    assert node_columns(question, distances, None, "words") is distances
    assert node_columns(question, distances, names, "words").tolist() == [
        [0.5, 1, 0, 0],
        [0.25, 0, 0, 1],
    ]
    found = node_columns(question, distances, names, "agreement")
    assert found.dtype == np.float32
    assert found[0].tolist() == pytest.approx([0.5, 1, 0, 0.6, 0, 0.6, 0])


def test_the_card_of_a_first_scorer_says_that_it_sees_no_names(tmp_path: Path) -> None:
    save_scorer(tmp_path / "some.json", random_weights(1), CARD)
    record = json.loads((tmp_path / "some.json").read_text())
    assert record.pop("entity_text") == "none"
    (tmp_path / "some.json").write_text(json.dumps(record))
    assert load_scorer(tmp_path / "some.json")[1].entity_text == "none"


def test_an_unknown_kind_of_entity_text_is_an_error(tmp_path: Path) -> None:
    save_scorer(tmp_path / "some.json", random_weights(1), CARD)
    record = json.loads((tmp_path / "some.json").read_text()) | {"entity_text": "types"}
    (tmp_path / "some.json").write_text(json.dumps(record))
    with pytest.raises(ModelError, match=r"entity_text: .*'none' or 'name'"):
        load_scorer(tmp_path / "some.json")


def test_a_scorer_is_read_as_it_was_written_but_for_float16(tmp_path: Path) -> None:
    weights = random_weights(1)
    save_scorer(tmp_path / "some.json", weights, CARD)
    found, card = load_scorer(tmp_path / "some.json")
    assert card == CARD
    for name in Weights.__slots__:
        assert getattr(found, name) == pytest.approx(getattr(weights, name), rel=1e-3, abs=1e-6)
        assert getattr(found, name).dtype == np.float32
    assert sorted(path.name for path in tmp_path.iterdir()) == ["some.json", "some.safetensors"]


@pytest.mark.parametrize("broken", ["missing", "cut short", "other weights"])
def test_a_scorer_without_its_weights_is_an_error(broken: str, tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    save_scorer(tmp_path / "some.json", random_weights(1), CARD)
    file = tmp_path / "some.safetensors"
    if broken == "missing":
        file.unlink()
    elif broken == "cut short":
        file.write_bytes(file.read_bytes()[:100])
    else:
        save_file({"question": np.zeros(3)}, file)
    with pytest.raises(ModelError, match=r"cannot read the scorer: .*some\.safetensors"):
        load_scorer(tmp_path / "some.json")


def test_another_version_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "some.json").write_text(json.dumps({"schema_version": 99}))
    with pytest.raises(ModelError, match="schema_version 99"):
        load_scorer(tmp_path / "some.json")


CAPITAL, USED = "location.country.capital", "location.country.currency_used"
COUNTRIES_USED, GENDER = "finance.currency.countries_used", "people.person.gender"


def test_a_relation_is_as_good_as_its_best_triple_and_comes_under_its_better_name(
    small_store: Path,
) -> None:
    relations = (COUNTRIES_USED, CAPITAL, USED, GENDER)
    links = np.array([0, 1, 1, 2, 3], dtype=np.int32)
    ends = np.zeros(5, dtype=np.int32)
    subgraph = Subgraph(("m.03_r3",), relations, ends, links, ends, topics=1)
    scores = np.array([0.2, 0.1, 0.9, 0.3, 0.3])
    with open_graph(small_store) as graph:
        found = best_relations(subgraph, scores, GraphSchema(graph))
    assert found == (CAPITAL, USED, GENDER)


@pytest.mark.parametrize(
    ("question", "wanted"),
    [("what is the capital of jamaica?", CAPITAL), ("what money is used in jamaica?", USED)],
)
def test_what_the_question_asks_for_comes_first(demo: Graph, question: str, wanted: str) -> None:
    with closing(demo.names()) as names:
        best = Linker(demo, names).link(question)[0]
    topics = [Entity(best.name, best.mid)]
    first, *others = RelationSuggester(demo, 4).suggest(question, topics)
    assert first == wanted
    assert len(others) == 3


def test_without_a_topic_nothing_is_suggested(demo: Graph) -> None:
    suggester = RelationSuggester(demo, 4)
    assert suggester.suggest("what is the capital?", []) == ()
    assert suggester.suggest("what is the capital?", [Entity("Nowhere", "m.0nowhere")]) == ()
