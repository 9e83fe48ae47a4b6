"""Let a language model read many texts side by side, each at its own pace, with one cache.

Each text is a row of the batch. Between readings, rows can be dropped, repeated and reordered, and
each can be given a different number of tokens: a block is padded on its left, and the padding stays
masked.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_PAD = 0  # any token: it is masked


class Reading(Protocol):
    """A causal language model with the cache of what it has read so far."""

    def keep(self, rows: "Tensor") -> None:
        """Keep some rows of the cache, renumbered in this order; one may occur more than once."""

    def read(
        self, tokens: "Tensor", mask: "Tensor", positions: "Tensor", wanted: "Tensor"
    ) -> "Tensor":
        """Read tokens in every row, and add them to the cache.

        Args:
            tokens: Shape (rows, tokens).
            mask: 1 for each token of what was read before and of `tokens`, 0 for padding, shape
                (rows, all tokens).
            positions: Of `tokens` in their texts, in the same shape.
            wanted: True for each of `tokens` after which logits are needed.

        Returns:
            Logits in float32, row after row, shape (tokens wanted, vocabulary).
        """


class ReadableModel(Protocol):
    """A causal language model in evaluation mode."""

    @property
    def device(self) -> "torch.device":
        """Where the tensors have to be that it reads."""

    def begin(self) -> Reading:
        """Begin to read, with an empty cache."""


class BatchReader:
    """Reads prompts, and then the texts that continue them.

    Args:
        model: A causal language model.
        prompts: Token ids, left-padded, shape (texts, tokens).
        mask: 1 where a token is, shape (texts, tokens).
    """

    def __init__(self, model: ReadableModel, prompts: "Tensor", mask: "Tensor") -> None:
        self._reading, self._prompts, self._mask = model.begin(), prompts, mask

    def read_prompts(self) -> "Tensor":
        """Read the prompts.

        Returns:
            Log-probabilities of the next token, natural log, shape (texts, vocabulary).
        """
        import torch

        last = torch.zeros_like(self._mask, dtype=torch.bool)
        last[:, -1] = True
        return self._logprobs(self._prompts, last)

    def read(
        self, rows: Sequence[int], blocks: Sequence[Sequence[int]], *, only_last: bool = False
    ) -> "Tensor":
        """Keep some of the rows, renumbered in this order, and read a block of tokens in each.

        Args:
            rows: The rows to keep; one may occur more than once.
            blocks: At least one token for each of them.
            only_last: Return only what follows the last token of each block.

        Returns:
            Log-probabilities of the next token after each token read, block after block, shape
            (tokens, vocabulary).
        """
        import torch

        device = self._mask.device
        if list(rows) != list(range(len(self._mask))):
            kept = torch.tensor(rows, device=device)
            self._reading.keep(kept)
            self._mask = self._mask[kept]
        width = max(map(len, blocks))
        padded = [[_PAD] * (width - len(block)) + list(block) for block in blocks]
        is_token = [[0] * (width - len(block)) + [1] * len(block) for block in blocks]
        block_mask = torch.tensor(is_token, device=device)
        self._mask = torch.cat([self._mask, block_mask], dim=1)
        wanted = block_mask.bool()
        if only_last:
            wanted[:, :-1] = False
        return self._logprobs(torch.tensor(padded, device=device), wanted)

    def _logprobs(self, tokens: "Tensor", wanted: "Tensor") -> "Tensor":
        """Read tokens in every row; their mask is the end of the rows' masks."""
        positions = (self._mask.cumsum(-1) - 1).clamp(min=0)[:, -tokens.shape[1] :]
        return self._reading.read(tokens, self._mask, positions, wanted).log_softmax(-1)
