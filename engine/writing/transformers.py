"""Write CRPs with a causal language model and a LoRA adapter under transformers, on CPU or GPU.

The logits of a causal language model, computed only where they are needed.

In a small model with a large vocabulary, the output layer is much of the work.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING

from kbqa.engine.writing.beam_search import BeamSearchGenerator, Likely
from kbqa.engine.writing.checkpoint import (
    adapter_base,
    adapter_revision,
    base_model,
    fastest_precision,
    load_merged,
    require_lm_extra,
)
from kbqa.engine.writing.generate import DEFAULT_ADAPTER, load_prompt_format
from kbqa.engine.writing.steering import Decoding, Tokenizer, check_form

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray
    from torch import Tensor
    from transformers import Cache, PreTrainedModel


@dataclass(frozen=True, slots=True)
class NextTokenLogits:
    """A causal language model that computes the logits after chosen tokens only.

    Attributes:
        causal: The model.
        has_plain_head: Whether its logits are its last hidden states times a matrix; some models
            scale or cap them, and then all are computed.
        cache_argument: What its `forward` calls the cache, which transformers 5.24 renamed.
    """

    causal: "PreTrainedModel"
    has_plain_head: bool
    cache_argument: str

    @classmethod
    def of(cls, causal: "PreTrainedModel") -> "NextTokenLogits":
        """Check whether a model, in evaluation mode, has a plain head."""
        import torch

        ids = torch.tensor([[1, 2]], device=causal.device)
        with torch.no_grad():
            hidden = causal.base_model(input_ids=ids, use_cache=False).last_hidden_state
            plain = causal.get_output_embeddings()(hidden)
            logits = causal(input_ids=ids, use_cache=False).logits
        takes_cache = "cache" in signature(causal.base_model.forward).parameters
        name = "cache" if takes_cache else "past_key_values"
        return cls(causal, torch.equal(plain.float(), logits.float()), name)

    @property
    def device(self) -> "torch.device":
        """Where the model is."""
        device: torch.device = self.causal.device
        return device

    def begin(self) -> "CachedReading":
        """Begin to read texts that go on, with an empty cache."""
        from transformers import DynamicCache

        return CachedReading(self, DynamicCache())

    def __call__(
        self, wanted: "Tensor", cache: "Cache | None" = None, **inputs: object
    ) -> "Tensor":
        """Read tokens.

        Args:
            wanted: True for each token after which logits are needed, shape (texts, tokens).
            cache: Of the tokens before; those that are read are added. None if these are all.
            inputs: Other arguments of the model's `forward`.

        Returns:
            Logits in float32, text after text, shape (tokens wanted, vocabulary).
        """
        inputs |= {"use_cache": cache is not None, self.cache_argument: cache}
        if self.has_plain_head:
            hidden = self.causal.base_model(**inputs).last_hidden_state
            logits: Tensor = self.causal.get_output_embeddings()(hidden[wanted])
        else:
            logits = self.causal(**inputs).logits[wanted]
        return logits.float()


@dataclass(frozen=True, slots=True)
class CachedReading:
    """A model of transformers with the cache of what it has read; a `batch_reader.Reading`."""

    logits: NextTokenLogits
    cache: "Cache"

    def keep(self, rows: "NDArray[np.int64]") -> None:
        """Keep some rows of the cache."""
        import torch

        with torch.inference_mode():
            self.cache.batch_select_indices(torch.from_numpy(rows).to(self.logits.device))

    def read(
        self,
        tokens: "NDArray[np.int64]",
        mask: "NDArray[np.int64]",
        positions: "NDArray[np.int64]",
        wanted: "NDArray[np.bool_]",
    ) -> "TorchNextTokens":
        """Read tokens; see `Reading.read`."""
        import torch

        input_ids, attention_mask, position_ids, is_wanted = (
            torch.from_numpy(array).to(self.logits.device)
            for array in (tokens, mask, positions, wanted)
        )
        with torch.inference_mode():
            logits = self.logits(
                is_wanted,
                self.cache,
                input_ids=input_ids,
                attention_mask=attention_mask,
                position_ids=position_ids,
            )
            return TorchNextTokens(logits.log_softmax(-1))


@dataclass(frozen=True, slots=True)
class TorchNextTokens:
    """Log-probabilities of next tokens on the model's device; a `batch_reader.NextTokens`.

    Attributes:
        table: Shape (rows, vocabulary).
    """

    table: "Tensor"

    def logprobs(self, rows: Sequence[int], tokens: Sequence[int]) -> list[float]:
        """Return the log-probability of each token in its row."""
        found: list[float] = self.table[list(rows), list(tokens)].tolist()
        return found

    def likeliest(self, row: int, count: int) -> list[Likely]:
        """Return the likeliest tokens of a row, best first."""
        top = self.table[row].topk(min(count, self.table.shape[1]))
        return list(map(Likely, top.indices.tolist(), top.values.tolist()))


class TransformersGenerator(BeamSearchGenerator):
    """A causal language model with a LoRA adapter, merged, under transformers."""

    @classmethod
    def load(
        cls,
        adapter: Path = DEFAULT_ADAPTER,
        base: str | None = None,
        decoding: Decoding | None = None,
        threads: int | None = None,
    ) -> "TransformersGenerator":
        """Load an adapter and the base model that it names.

        Args:
            adapter: Folder that `kbqa train-crp` wrote, an adapter's or a whole model's; the
                shipped one by default.
            base: Base model to use instead of the one that the adapter names.
            decoding: How far its texts are constrained; not at all by default.
            threads: Threads that torch computes with, in the whole process; None for torch's own
                choice, one for each core.

        Raises:
            ModelError: The `lm` extra, the base model or the adapter is missing or broken.
        """
        require_lm_extra()
        base = base or adapter_base(adapter)
        prompt, revision = load_prompt_format(adapter), adapter_revision(adapter)
        decoding = decoding or Decoding()
        if decoding.level != "none":
            check_form(prompt)
        model, tokenizer = load_transformers(adapter, base, threads)
        name = f"{base} + {adapter.resolve().name} {revision}, decoding {decoding.level}"
        return cls(model, tokenizer, prompt, name, decoding)


def load_transformers(
    adapter: Path, base: str | None = None, threads: int | None = None
) -> tuple[NextTokenLogits, Tokenizer]:
    """Load an adapter, merged into its base model, and the tokenizer.

    Args:
        adapter: Folder that `kbqa train-crp` wrote.
        base: Base model to use instead of the one that the adapter names.
        threads: Threads that torch computes with, in the whole process; None for torch's own
            choice.

    Raises:
        ModelError: The `lm` extra, the base model or the adapter is missing or broken.
    """
    require_lm_extra()
    import torch

    if threads is not None:
        torch.set_num_threads(threads)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    base = base_model(base or adapter_base(adapter))
    model, tokenizer = load_merged(base, adapter, fastest_precision(device), device)
    return NextTokenLogits.of(model.eval()), tokenizer
