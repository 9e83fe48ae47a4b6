import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbqa.engine.retrieval.scorer import (
    RelationInput,
    ScorerCard,
    Weights,
    load_scorer,
    node_columns,
    save_scorer,
    text_columns,
)
from kbqa.sparql.errors import ModelError

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
