"""Write CRPs with a causal language model and a LoRA adapter under transformers, on CPU or GPU."""

from collections.abc import Sequence
from dataclasses import dataclass
from inspect import signature
from typing import TYPE_CHECKING

from kbqa.engine.writing.beam_search import BeamSearchGenerator, Likely, LoadedModel
from kbqa.engine.writing.checkpoint import Adapter, fastest_precision, load_merged, require_lm_extra

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray
    from torch import Tensor
    from transformers import Cache, PreTrainedModel


class TransformersGenerator(BeamSearchGenerator):
    """A causal language model with a LoRA adapter, merged, under transformers."""

    @staticmethod
    def load_model(adapter: Adapter, threads: int | None = None) -> LoadedModel:
        """Load the model; `threads` are torch's in the whole process."""
        require_lm_extra()
        import torch

        if threads is not None:
            torch.set_num_threads(threads)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        model, tokenizer = load_merged(adapter, fastest_precision(device), device)
        return LoadedModel(NextTokenLogits.of(model.eval()), tokenizer)


@dataclass(frozen=True, slots=True)
class NextTokenLogits:
    """A causal language model that computes the logits after chosen tokens only.

    The output layer is much of the work. If a model scales or caps its logits, all are computed.
    """

    causal: "PreTrainedModel"
    has_plain_head: bool  # whether the logits are the last hidden states times a matrix
    cache_argument: str  # what its `forward` calls the cache, which transformers 5.24 renamed

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
        """Begin to read, with an empty cache."""
        from transformers import DynamicCache

        return CachedReading(self, DynamicCache())

    def __call__(
        self, wanted: "Tensor", cache: "Cache | None" = None, **inputs: object
    ) -> "Tensor":
        """Return the logits after the wanted tokens, float32, shape (wanted, vocabulary).

        The inputs are arguments of the model's `forward`. Their tokens are added to the cache.
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
    """A `Reading` of a model of transformers."""

    logits: NextTokenLogits
    cache: "Cache"

    def read(
        self,
        rows: "NDArray[np.int64] | None",
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
            if rows is not None:
                self.cache.batch_select_indices(torch.from_numpy(rows).to(self.logits.device))
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
    """A `NextTokens` whose log-probabilities are on the model's device."""

    table: "Tensor"  # (rows, vocabulary)

    def logprobs(self, rows: Sequence[int], tokens: Sequence[int]) -> list[float]:
        """Return the log-probability of each token in its row."""
        found: list[float] = self.table[list(rows), list(tokens)].tolist()
        return found

    def likeliest(self, row: int, count: int) -> list[Likely]:
        """Return the most likely tokens of a row, best first."""
        top = self.table[row].topk(min(count, self.table.shape[1]))
        return list(map(Likely, top.indices.tolist(), top.values.tolist()))
