"""A small cross-encoder, computed with numpy: it scores pairs of a question and a text.

It is the packaged all-MiniLM-L6-v2, a BERT of six layers, with a LoRA adapter merged into it and a
linear output over the mean of the last layer. Ten candidates are a few large matrix products, for
which numpy is as fast as torch, and importing numpy takes a tenth of a second and not two.

Source: Devlin et al. 2019, BERT; Nogueira and Cho 2019, cross-encoders that rank; Hu et al. 2022,
LoRA.
"""

import math
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from kbqa.engine.embedding.embedder import minilm_folder
from kbqa.engine.files.json_file import read_json
from kbqa.engine.files.manifest import file_sha256
from kbqa.sparql.errors import ModelError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

    Floats = NDArray[np.float32]
    Weights = Mapping[str, Floats]

MAX_TOKENS = 96
"""Of question and text together; what is longer is cut at its end."""

ADAPTER_FILE = "adapter.safetensors"
SETTINGS_FILE = "adapter.json"

SCHEMA_VERSION = 1

_LAYERS, _HEADS, _EPSILON, _MASKED = 6, 12, 1e-12, -1e9


class _Settings(NamedTuple):
    scale: float


class _Linear(NamedTuple):
    """Weights of shape (inputs, outputs), and a bias."""

    weights: "Floats"
    bias: "Floats"

    def __call__(self, x: "Floats") -> "Floats":
        return x @ self.weights + self.bias


class _Norm(NamedTuple):
    scale: "Floats"
    bias: "Floats"

    def __call__(self, x: "Floats") -> "Floats":
        x = x - x.mean(axis=-1, keepdims=True)
        variance = (x * x).mean(axis=-1, keepdims=True)
        normed: Floats = x / (variance + _EPSILON) ** 0.5 * self.scale + self.bias
        return normed


class _Layer(NamedTuple):
    attention: _Linear  # queries, keys and values side by side
    joined: _Linear
    attention_norm: _Norm
    wide: _Linear
    narrow: _Linear
    norm: _Norm


class CrossEncoder:
    """Scores pairs of texts. Any number of threads may use one.

    Args:
        weights: Of the model with its adapter merged, and of the output, by their names in BERT's
            checkpoints; the output is ``head``.
        tokenizer: Of the model.
        revision: Identifies the weights, for manifests.
    """

    def __init__(self, weights: "Weights", tokenizer: "Tokenizer", revision: str = "") -> None:
        tokenizer.enable_truncation(MAX_TOKENS, strategy="only_second")
        tokenizer.enable_padding()
        self._tokenizer, self._lock = tokenizer, threading.Lock()
        self.revision = revision
        embeddings = "embeddings"
        self._words = weights[f"{embeddings}.word_embeddings.weight"]
        self._places = weights[f"{embeddings}.position_embeddings.weight"]
        self._sides = weights[f"{embeddings}.token_type_embeddings.weight"]
        self._norm = _norm(weights, f"{embeddings}.LayerNorm")
        self._layers = [_layer(weights, f"encoder.layer.{at}") for at in range(_LAYERS)]
        self._head = _linear(weights, "head")

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Load the packaged model, and merge an adapter that `kbqa train-judge` wrote.

        Raises:
            ModelError: A package or a file is missing or broken.
        """
        try:
            from safetensors import SafetensorError
            from safetensors.numpy import load_file
            from tokenizers import Tokenizer
        except ImportError as error:
            raise ModelError(
                f"the judge needs the package {error.name}. Install: pip install 'kbqa[lm]'"
            ) from None
        base = minilm_folder()
        try:
            weights = load_file(base / "model.safetensors")
            adapter = load_file(folder / ADAPTER_FILE)
            settings = read_json(
                folder / SETTINGS_FILE, _Settings, ModelError, schema_version=SCHEMA_VERSION
            )
            tokenizer = Tokenizer.from_file(str(base / "tokenizer.json"))
            merged = merge_adapter(weights, adapter, settings.scale)
            return cls(merged, tokenizer, file_sha256(folder / ADAPTER_FILE)[:8])
        except (OSError, ValueError, KeyError, SafetensorError, ModelError) as error:
            raise ModelError(f"the judge in {folder} cannot be loaded: {error}") from error

    def score(self, question: str, texts: Sequence[str]) -> list[float]:
        """Score how well each text fits a question; higher is better, without bounds."""
        import numpy as np

        if not texts:
            return []
        with self._lock:
            encoded = self._tokenizer.encode_batch([(question, text) for text in texts])
        ids = np.array([each.ids for each in encoded])
        sides = np.array([each.type_ids for each in encoded])
        mask = np.array([each.attention_mask for each in encoded], dtype=np.float32)
        x = self._words[ids] + self._places[: ids.shape[1]] + self._sides[sides]
        x = self._norm(x)
        hidden = ((1 - mask) * _MASKED)[:, None, None, :].astype(np.float32)
        for layer in self._layers:
            x = _forward(layer, x, hidden)
        mean = (x * mask[..., None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)
        scores: list[float] = self._head(mean)[:, 0].tolist()
        return scores


def merge_adapter(weights: "Weights", adapter: "Weights", scale: float) -> dict[str, "Floats"]:
    """Add the product of an adapter's matrices to the weights that they adapt.

    Args:
        weights: Of the model.
        adapter: For each adapted ``NAME.weight`` of them, ``NAME.lora_A`` of shape (rank, inputs)
            and ``NAME.lora_B`` of shape (outputs, rank); all else is added as it is.
        scale: Of the products.
    """
    merged = dict(weights)
    for name, matrix in adapter.items():
        module, _, kind = name.rpartition(".")
        if kind == "lora_A":
            update = adapter[f"{module}.lora_B"] @ matrix
            merged[f"{module}.weight"] = weights[f"{module}.weight"] + scale * update
        elif kind != "lora_B":
            merged[name] = matrix
    return merged


def _linear(weights: "Weights", *names: str) -> _Linear:
    """Read linear layers with the same input; their outputs stand side by side."""
    import numpy as np

    stacked = np.concatenate([weights[f"{name}.weight"] for name in names])
    bias = np.concatenate([weights[f"{name}.bias"] for name in names])
    return _Linear(np.ascontiguousarray(stacked.T, dtype=np.float32), bias.astype(np.float32))


def _norm(weights: "Weights", name: str) -> _Norm:
    return _Norm(weights[f"{name}.weight"], weights[f"{name}.bias"])


def _layer(weights: "Weights", name: str) -> _Layer:
    attention = f"{name}.attention"
    return _Layer(
        _linear(weights, *(f"{attention}.self.{each}" for each in ("query", "key", "value"))),
        _linear(weights, f"{attention}.output.dense"),
        _norm(weights, f"{attention}.output.LayerNorm"),
        _linear(weights, f"{name}.intermediate.dense"),
        _linear(weights, f"{name}.output.dense"),
        _norm(weights, f"{name}.output.LayerNorm"),
    )


def _forward(layer: _Layer, x: "Floats", hidden: "Floats") -> "Floats":
    """Compute a layer.

    Args:
        layer: Its weights.
        x: Of shape (texts, tokens, width).
        hidden: Added to the attention to each token: 0, or far below 0 for padding.
    """
    import numpy as np

    texts, tokens, width = x.shape
    of_heads = layer.attention(x).reshape(texts, tokens, 3, _HEADS, width // _HEADS)
    queries, keys, values = of_heads.transpose(2, 0, 3, 1, 4)  # (texts, heads, tokens, depth)
    attention = queries @ keys.swapaxes(-1, -2) / math.sqrt(width // _HEADS) + hidden
    attention = np.exp(attention - attention.max(axis=-1, keepdims=True))
    attention /= attention.sum(axis=-1, keepdims=True)
    joined = (attention @ values).swapaxes(1, 2).reshape(texts, tokens, width)
    x = layer.attention_norm(x + layer.joined(joined))
    return layer.norm(x + layer.narrow(_gelu(layer.wide(x))))


def _gelu(x: "Floats") -> "Floats":
    """Compute GELU by its approximation with tanh, with which the adapter is trained."""
    import numpy as np

    y: Floats = 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return y
