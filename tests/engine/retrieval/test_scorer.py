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
    relation_columns,
    save_scorer,
)
from kbqa.sparql.errors import ModelError

CARD = ScorerCard("some model", 1, "agreement", "gold", {"webqsp.train": 7}, {"a": "b"}, {"c": 0.5})
DIMENSIONS, HIDDEN, DISTANCES = 4, 6, 6


def random_weights(seed: int, kind: RelationInput = "agreement") -> Weights:
    of_relation = DIMENSIONS if kind == "words" else 2 * DIMENSIONS + 1
    draw = np.random.default_rng(seed)
    shapes = [(DIMENSIONS, HIDDEN), (of_relation, HIDDEN), *[(DISTANCES, HIDDEN)] * 2]
    return Weights(*(draw.normal(size=s).astype(np.float32) for s in [*shapes, HIDDEN, HIDDEN, 1]))


@given(st.integers(0, 2**32 - 1), st.integers(0, 40), st.sampled_from(["words", "agreement"]))
def test_the_factored_first_layer_is_the_plain_one(
    seed: int, triples: int, kind: RelationInput
) -> None:
    draw = np.random.default_rng(seed)
    question = draw.normal(size=DIMENSIONS).astype(np.float32)
    words = draw.normal(size=(5, DIMENSIONS)).astype(np.float32)
    distances = draw.random((7, DISTANCES), dtype=np.float32)
    heads, tails = draw.integers(0, 7, (2, triples), dtype=np.int32)
    links = draw.integers(0, 5, triples, dtype=np.int32)
    weights = random_weights(seed, kind)
    columns = relation_columns(question, words, kind)
    found = weights.score(question, columns, distances, heads, links, tails)
    first = np.concatenate([weights.question, weights.relation, weights.head, weights.tail])
    for at, score in enumerate(found):
        ends = (distances[heads[at]], distances[tails[at]])
        seen = np.concatenate([question, columns[links[at]], *ends])
        hidden = np.maximum(seen @ first + weights.bias, 0)
        plain = 1 / (1 + np.exp(-(hidden @ weights.output + weights.output_bias[0])))
        assert score == pytest.approx(plain, abs=1e-5)
    assert found.dtype == np.float64
    assert ((found > 0) & (found < 1)).all()


def test_the_agreement_of_a_relation_ends_with_the_cosine() -> None:
    question = np.array([0.6, 0.8], dtype=np.float32)
    words = np.array([[1, 0], [0.6, 0.8]], dtype=np.float32)
    assert relation_columns(question, words, "words") is words
    assert relation_columns(question, words, "agreement")[:, -1] == pytest.approx([0.6, 1])


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
