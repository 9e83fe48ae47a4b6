"""The loss of a batch: on its target tokens alone."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kbqa.engine.next_token_logits import NextTokenLogits
from kbqa.engine.transformers_generator import has_fast_bf16
from kbqa.training.batches import IGNORED, Batch

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class TargetLoss:
    """Computes the loss of batches.

    Attributes:
        logits: Of the model that writes.
        device: Where it is.
    """

    logits: NextTokenLogits
    device: "torch.device"

    def __call__(self, batch: Batch) -> "Tensor":
        """Sum the negative log-likelihood, natural log, of a batch's target tokens."""
        import torch

        labels = batch.labels.to(self.device)
        wanted = torch.zeros_like(labels, dtype=torch.bool)
        wanted[:, :-1] = labels[:, 1:] != IGNORED
        with mixed_precision(self.device):
            logits = self.logits(
                wanted,
                input_ids=batch.input_ids.to(self.device),
                attention_mask=batch.attention_mask.to(self.device),
                use_cache=False,
            )
        targets = labels[:, 1:][wanted[:, :-1]]
        return torch.nn.functional.cross_entropy(logits, targets, reduction="sum")


def mixed_precision(device: "torch.device") -> AbstractContextManager[None]:
    """Compute in bf16 where that is faster than fp32."""
    import torch

    return torch.autocast(device.type, torch.bfloat16, enabled=has_fast_bf16(device.type))
