"""The loss of a batch: on its target tokens alone, and with logits for these alone where possible.

On a small model with a large vocabulary that is most of what can be saved.
"""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kbqa.engine.transformers_generator import has_fast_bf16
from kbqa.training.batches import IGNORED, Batch

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from transformers import PreTrainedModel


@dataclass(frozen=True, slots=True)
class TargetLoss:
    """Computes the loss of batches.

    Attributes:
        causal: The model that writes.
        device: Where it is.
        has_plain_head: Whether its logits are its last hidden states times a matrix; some models
            scale or cap them, and then all are computed.
    """

    causal: "PreTrainedModel"
    device: "torch.device"
    has_plain_head: bool

    @classmethod
    def of(cls, causal: "PreTrainedModel", device: "torch.device") -> "TargetLoss":
        """Look whether a model, in evaluation mode, has a plain head."""
        import torch

        ids = torch.tensor([[1, 2]], device=device)
        with torch.no_grad():
            hidden = causal.base_model(input_ids=ids, use_cache=False).last_hidden_state
            plain = causal.get_output_embeddings()(hidden)
            logits = causal(input_ids=ids, use_cache=False).logits
        return cls(causal, device, torch.equal(plain.float(), logits.float()))

    def __call__(self, batch: Batch) -> "Tensor":
        """Sum the negative log-likelihood, natural log, of a batch's target tokens."""
        import torch

        labels = batch.labels[:, 1:].to(self.device)
        wanted = labels != IGNORED
        inputs = {
            "input_ids": batch.input_ids.to(self.device),
            "attention_mask": batch.attention_mask.to(self.device),
            "use_cache": False,
        }
        with mixed_precision(self.device):
            if self.has_plain_head:
                hidden = self.causal.base_model(**inputs).last_hidden_state[:, :-1]
                logits = self.causal.get_output_embeddings()(hidden[wanted])
            else:
                logits = self.causal(**inputs).logits[:, :-1][wanted]
        return torch.nn.functional.cross_entropy(logits.float(), labels[wanted], reduction="sum")


def mixed_precision(device: "torch.device") -> AbstractContextManager[None]:
    """Compute in bf16 where that is faster than fp32."""
    import torch

    return torch.autocast(device.type, torch.bfloat16, enabled=has_fast_bf16(device.type))
