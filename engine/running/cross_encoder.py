"""A small cross-encoder: it scores pairs of a question and a text.

It is the packaged all-MiniLM-L6-v2 (`kbqa.engine.embedding.bert`), with a LoRA adapter merged into
it and a linear output over the mean of the last layer.

Source: Nogueira and Cho 2019, cross-encoders that rank; Hu et al. 2022, LoRA.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from kbqa.engine.embedding.bert import Bert, linear, load_minilm, tanh_gelu
from kbqa.engine.files.json_file import read_json
from kbqa.engine.writing.models.adapter_files import files_sha256
from kbqa.engine.writing.models.checkpoint_weights import merge_lora
from kbqa.sparql.errors import ModelError

if TYPE_CHECKING:
    import numpy as np
    import tokenizers
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Weights = Mapping[str, Floats]

MAX_TOKENS = 96
"""Of question and text together; if they have more, the longer one is cut at its end."""

ADAPTER_FILE = "adapter.safetensors"
SETTINGS_FILE = "adapter.json"

SCHEMA_VERSION = 2

_MATRIX = re.compile(r"(.+)\.lora_([AB])")


class AdapterSettings(NamedTuple):
    """What the file of an adapter's settings holds."""

    scale: float


class CrossEncoder:
    """Scores pairs of texts. Any number of threads may use one.

    Args:
        weights: Of the model with its adapter merged, and of the output, by their names in BERT's
            checkpoints; the output is ``head``.
        tokenizer: Of the model.
        revision: Identifies the weights, for manifests.
    """

    def __init__(
        self, weights: "Weights", tokenizer: "tokenizers.Tokenizer", revision: str = ""
    ) -> None:
        tokenizer.enable_truncation(MAX_TOKENS, strategy="longest_first")
        # The adapter is trained with this activation.
        self._bert, self._head = Bert(weights, tokenizer, tanh_gelu), linear(weights, "head")
        self.revision = revision

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Load the packaged model, and merge an adapter that `kbqa train-judge` wrote.

        Raises:
            ModelError: A package or a file is missing or broken.
        """
        weights, tokenizer = load_minilm()
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        try:
            adapter = load_file(folder / ADAPTER_FILE)
            settings = read_json(
                folder / SETTINGS_FILE, AdapterSettings, ModelError, schema_version=SCHEMA_VERSION
            )
            merged = merge_adapter(weights, adapter, settings.scale)
            return cls(merged, tokenizer, reader_revision(folder))
        except (OSError, ValueError, KeyError, SafetensorError, ModelError) as error:
            raise ModelError(f"the judge in {folder} cannot be loaded: {error}") from error

    def score(self, question: str, texts: Sequence[str]) -> list[float]:
        """Score how well each text fits a question; higher is better, without bounds."""
        if not texts:
            return []
        scores = self._head(self._bert.mean([(question, text) for text in texts]))
        return [float(score) for score in scores[:, 0]]


def reader_revision(folder: Path) -> str:
    """Hash an adapter and its scale, to tell it from others.

    Raises:
        OSError: They cannot be read.
    """
    return files_sha256([folder / ADAPTER_FILE, folder / SETTINGS_FILE])[:8]


def merge_adapter(weights: "Weights", adapter: "Weights", scale: float) -> dict[str, "Floats"]:
    """Add the product of an adapter's matrices to the weights that they adapt.

    Args:
        weights: Of the model.
        adapter: For each adapted ``NAME.weight`` of them, ``NAME.lora_A`` of shape (rank, inputs)
            and ``NAME.lora_B`` of shape (outputs, rank); and the output, ``head``, which is added.
        scale: Of the products.

    Raises:
        ValueError: There is anything else in the adapter, or it does not fit the weights.
    """
    head = {name: adapter[name] for name in adapter if name.startswith("head.")}
    lora = {name: adapter[name] for name in adapter if name not in head}
    return {**merge_lora(weights, lora, scale, _MATRIX), **head}
