"""The OpenVINO graph of a random Llama against transformers' own computation."""

from collections.abc import Sequence
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the lm extra")
openvino = pytest.importorskip("openvino", reason="needs the cpu extra")

from kbqa.engine.writing.openvino import LlamaShape, llama_graph  # noqa: E402
from kbqa.sparql.errors import ModelError  # noqa: E402

_VOCABULARY = 23


def _model(**changes: object) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    shape: dict[str, object] = {
        "vocab_size": _VOCABULARY,
        "hidden_size": 48,
        "intermediate_size": 40,
        "num_hidden_layers": 2,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "initializer_range": 0.6,
    }
    torch.manual_seed(5)
    return LlamaForCausalLM(LlamaConfig(**(shape | changes))).eval()


def _compile(model: Any, *, in_int8: bool = False) -> Any:
    weights = {name: weight.numpy() for name, weight in model.state_dict().items()}
    graph = llama_graph(LlamaShape.of(model.config.to_dict()), weights, in_int8=in_int8)
    settings = {
        "INFERENCE_PRECISION_HINT": "f32",
        "KV_CACHE_PRECISION": "f32",
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0,
    }
    return openvino.Core().compile_model(graph, "CPU", settings | {"INFERENCE_NUM_THREADS": 1})


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tie_word_embeddings": True},
        {"num_key_value_heads": 6},
        {"num_key_value_heads": 1},
        {"head_dim": 16},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}, "rms_norm_eps": 1e-3},
    ],
    ids=["grouped heads", "tied head", "one for one", "one for all", "wide heads", "constants"],
)
def test_logits_are_those_of_transformers(changes: dict[str, object]) -> None:
    model = _model(**changes)
    request = _compile(model).create_infer_request()
    tokens = torch.randint(_VOCABULARY, (3, 7))
    first = _read(request, tokens[:, :4], 4, [0, 1, 2], range(12))
    rest = _read(request, tokens[:, 4:], 7, [0, 1, 2], range(9))
    with torch.inference_mode():
        expected = model(input_ids=tokens).logits
    torch.testing.assert_close(first, expected[:, :4].flatten(0, 1), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(rest, expected[:, 4:].flatten(0, 1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("is_tied", [False, True])
def test_logits_in_int8_are_nearly_those_of_transformers(is_tied: bool) -> None:
    model = _model(tie_word_embeddings=is_tied)
    request = _compile(model, in_int8=True).create_infer_request()
    tokens = torch.randint(_VOCABULARY, (3, 7))
    found = _read(request, tokens, 7, [0, 1, 2], range(21))
    with torch.inference_mode():
        expected = model(input_ids=tokens).logits.flatten(0, 1)
    assert (found - expected).abs().mean() < 0.1 * expected.std()


def test_only_wanted_logits_are_computed() -> None:
    model = _model()
    request = _compile(model).create_infer_request()
    tokens = torch.randint(_VOCABULARY, (2, 5))
    with torch.inference_mode():
        expected = model(input_ids=tokens).logits.flatten(0, 1)[[4, 7]]
    found = _read(request, tokens, 5, [0, 1], [4, 7])
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rows", [[1], [2, 0], [1, 1, 0, 2]], ids=["drop", "reorder", "repeat"])
def test_texts_go_on_from_the_rows_that_they_name(rows: list[int]) -> None:
    model = _model()
    request = _compile(model).create_infer_request()
    begun, added = torch.randint(_VOCABULARY, (3, 4)), torch.randint(_VOCABULARY, (len(rows), 2))
    _read(request, begun, 4, [0, 1, 2], [])
    found = _read(request, added, 6, rows, range(2 * len(rows)))
    with torch.inference_mode():
        expected = model(input_ids=torch.cat([begun[rows], added], 1)).logits[:, 4:]
    torch.testing.assert_close(found, expected.flatten(0, 1), rtol=1e-4, atol=1e-4)


def test_attention_keeps_its_state_in_one_kernel() -> None:
    """Otherwise it is several times slower, which no result would show."""
    kinds = [
        node.get_rt_info()["layerType"].value
        for node in _compile(_model()).get_runtime_model().get_ordered_ops()
    ]
    assert kinds.count("ScaledDotProductAttention") == 2
    assert kinds.count("RoPE") == 4
    assert kinds.count("RMS") == 5


@pytest.mark.parametrize(
    "changes",
    [
        {"model_type": "qwen2"},
        {"hidden_act": "gelu"},
        {"attention_bias": True},
        {"rope_parameters": {"rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0}},
    ],
)
def test_a_model_that_is_no_plain_llama_is_refused(changes: dict[str, object]) -> None:
    config = _model().config.to_dict() | changes
    with pytest.raises(ModelError, match="Use --backend transformers"):
        LlamaShape.of(config)


def _read(request: Any, tokens: Any, length: int, rows: list[int], wanted: Sequence[int]) -> Any:
    texts, read = tokens.shape
    positions = torch.arange(length - read, length).expand(texts, read)
    inputs = {
        "tokens": tokens.numpy(),
        "positions": positions.numpy(),
        "mask": torch.ones(texts, length, dtype=torch.long).numpy(),
        "rows": torch.tensor(rows, dtype=torch.int32).numpy(),
        "wanted": torch.tensor(list(wanted), dtype=torch.long).numpy(),
    }
    return torch.from_numpy(request.infer(inputs)[0])
