"""The loss of a batch: on its target tokens alone."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kbqa.engine.writing.backends.next_token_logits import NextTokenLogits
from kbqa.engine.writing.models.precision import mixed_precision
from kbqa.training.writer.batches import IGNORED, Batch

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class TargetLoss:
    """Computes the loss of batches.

    Attributes:
        logits: Computes the logits of the model.
        device: The device of the model.
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
            )
        targets = labels[:, 1:][wanted[:, :-1]]
        return torch.nn.functional.cross_entropy(logits, targets, reduction="sum")
