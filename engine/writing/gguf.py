"""Write a Llama model from a GGUF file as an ordinary checkpoint, without torch or transformers.

The weights become bf16, which holds more than the few bits of a quantized file.

Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md for names.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer


Field = Callable[[str], Any]

_CONTROL = 3  # the type of special tokens

_NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}


def write_checkpoint(gguf: Path, directory: Path) -> None:
    """Write configuration, weights and tokenizer into a folder, in Hugging Face's layout.

    The model is a plain Llama with tied embeddings and SmolLM2's tokenizer.
    """
    from gguf import GGUFReader, dequantize
    from safetensors import TensorSpec, serialize_file

    reader = GGUFReader(gguf)

    def field(name: str) -> Any:
        return reader.fields[name].contents()

    config = _config(field)
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    bits: dict[str, NDArray[np.uint16]] = {}
    for tensor in reader.tensors:
        weights = dequantize(tensor.data, tensor.tensor_type)
        part = tensor.name.split(".")[-2]
        if part in heads:
            weights = _halves_together(weights, heads[part])
        bits[_name(tensor.name)] = _to_bf16(weights)
    tensors = {
        name: TensorSpec(
            dtype="bfloat16", shape=some.shape, data_ptr=some.ctypes.data, data_len=some.nbytes
        )
        for name, some in bits.items()
    }
    serialize_file(tensors, directory / "model.safetensors", {"format": "pt"})
    _write_json(directory / "config.json", config)
    _tokenizer(field).save(str(directory / "tokenizer.json"))
    tokens = field("tokenizer.ggml.tokens")
    special = {
        f"{short}_token": tokens[field(f"tokenizer.ggml.{long}_token_id")]
        for short, long in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding"))
    }
    tokenizer = {"tokenizer_class": "PreTrainedTokenizerFast", **special}
    _write_json(directory / "tokenizer_config.json", tokenizer)
    template = field("tokenizer.chat_template")
    (directory / "chat_template.jinja").write_text(template, encoding="utf-8")


def _config(field: Field) -> dict[str, Any]:
    heads, width = field("llama.attention.head_count"), field("llama.embedding_length")
    return {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "bos_token_id": field("tokenizer.ggml.bos_token_id"),
        "dtype": "bfloat16",
        "eos_token_id": field("tokenizer.ggml.eos_token_id"),
        "head_dim": width // heads,
        "hidden_act": "silu",
        "hidden_size": width,
        "intermediate_size": field("llama.feed_forward_length"),
        "max_position_embeddings": field("llama.context_length"),
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": heads,
        "num_hidden_layers": field("llama.block_count"),
        "num_key_value_heads": field("llama.attention.head_count_kv"),
        "pad_token_id": field("tokenizer.ggml.padding_token_id"),
        "rms_norm_eps": float(field("llama.attention.layer_norm_rms_epsilon")),
        "rope_parameters": {
            "rope_theta": float(field("llama.rope.freq_base")),
            "rope_type": "default",
        },
        "tie_word_embeddings": True,
        "vocab_size": field("llama.vocab_size"),
    }


def _name(name: str) -> str:
    match name.split("."):
        case ["blk", layer, part, "weight"]:
            return f"model.layers.{layer}.{_NAMES[part]}.weight"
        case ["token_embd", "weight"]:
            return "model.embed_tokens.weight"
        case _:
            return "model.norm.weight"


def _halves_together(weights: "NDArray[np.float32]", heads: int) -> "NDArray[np.float32]":
    """Undo the order of rows in GGUF, where the two halves that rotate together alternate."""
    rows, columns = weights.shape
    pairs = weights.reshape(heads, rows // heads // 2, 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns)


def _to_bf16(weights: "NDArray[np.float32]") -> "NDArray[np.uint16]":
    """Round to the nearest bf16, ties to even, as bits: numpy has no such type."""
    import numpy as np

    bits = np.ascontiguousarray(weights, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def _tokenizer(field: Field) -> "Tokenizer":
    from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import BPE

    tokens = field("tokenizer.ggml.tokens")
    merges = [tuple(merge.split(" ")) for merge in field("tokenizer.ggml.merges")]
    model = BPE({token: number for number, token in enumerate(tokens)}, merges)
    tokenizer = Tokenizer(model)
    # GGUF names the pre-tokenizer only as "smollm"; the original splits digits first.
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    kinds = zip(tokens, field("tokenizer.ggml.token_type"), strict=True)
    special = [
        AddedToken(token, special=True, normalized=False)
        for token, kind in kinds
        if kind == _CONTROL
    ]
    tokenizer.add_special_tokens(special)
    return tokenizer


def _write_json(path: Path, record: dict[str, Any]) -> None:
    path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
