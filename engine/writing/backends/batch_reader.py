"""Let a language model read many texts side by side, each at its own pace, with one cache.

Each text is a row of the batch. Between readings, rows can be dropped, repeated and reordered, and
each can be given a different number of tokens: a block is padded on its left, and the padding stays
masked.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]

_PAD = 0  # any token: it is masked


class Likely(NamedTuple):
    """A token that may follow, and its log-probability, natural log."""

    token: int
    logprob: float


class NextTokens(Protocol):
    """What may follow each of some tokens, valid until the next reading."""

    def logprobs(self, rows: Sequence[int], tokens: Sequence[int]) -> list[float]:
        """Return the log-probability of each token in its row."""

    def likeliest(self, row: int, count: int) -> list[Likely]:
        """Return the likeliest tokens of a row, best first."""


class Reading(Protocol):
    """A causal language model with the cache of what it has read so far."""

    def keep(self, rows: "Integers") -> None:
        """Keep some rows of the cache, renumbered in this order; one may occur more than once."""

    def read(
        self,
        tokens: "Integers",
        mask: "Integers",
        positions: "Integers",
        wanted: "NDArray[np.bool_]",
    ) -> NextTokens:
        """Read tokens in every row, and add them to the cache.

        Args:
            tokens: Shape (rows, tokens).
            mask: 1 for each token of what was read before and of `tokens`, 0 for padding, shape
                (rows, all tokens).
            positions: Of `tokens` in their texts, in the same shape.
            wanted: True for each of `tokens` of which the next token is wanted.

        Returns:
            What may follow the tokens wanted, text after text.
        """


class ReadableModel(Protocol):
    """A causal language model in evaluation mode."""

    def begin(self) -> Reading:
        """Begin to read, with an empty cache."""


class BatchReader:
    """Reads prompts, and then the texts that continue them.

    Args:
        model: A causal language model.
        prompts: The tokens of each prompt, at least one.
    """

    def __init__(self, model: ReadableModel, prompts: Sequence[Sequence[int]]) -> None:
        self._reading = model.begin()
        self._prompts, self._mask = _padded(prompts)

    def read_prompts(self) -> NextTokens:
        """Read the prompts; return what may follow each."""
        import numpy as np

        last = np.zeros(self._mask.shape, np.bool_)
        last[:, -1] = True
        return self._read(self._prompts, last)

    def read(
        self, rows: Sequence[int], blocks: Sequence[Sequence[int]], *, only_last: bool = False
    ) -> NextTokens:
        """Keep some of the rows, renumbered in this order, and read a block of tokens in each.

        Args:
            rows: The rows to keep; one may occur more than once.
            blocks: At least one token for each of them.
            only_last: Return only what follows the last token of each block.

        Returns:
            What may follow each token read, block after block.
        """
        import numpy as np

        if list(rows) != list(range(len(self._mask))):
            kept = np.array(rows)
            self._reading.keep(kept)
            self._mask = self._mask[kept]
        tokens, is_token = _padded(blocks)
        self._mask = np.concatenate([self._mask, is_token], axis=1)
        wanted = is_token.astype(np.bool_)
        if only_last:
            wanted[:, :-1] = False
        return self._read(tokens, wanted)

    def _read(self, tokens: "Integers", wanted: "NDArray[np.bool_]") -> NextTokens:
        """Read tokens in every row; their mask is the end of the rows' masks."""
        positions = (self._mask.cumsum(axis=1) - 1).clip(min=0)[:, -tokens.shape[1] :]
        return self._reading.read(tokens, self._mask, positions, wanted)


def read_continuation(
    model: ReadableModel, prompts: Sequence[Sequence[int]], text: Sequence[int]
) -> list[list[float]]:
    """Read one text after each of some prompts; return the log-probabilities of its tokens.

    Args:
        model: A causal language model.
        prompts: The tokens of each, at least one.
        text: At least one token.
    """
    import numpy as np

    tokens, mask = _padded([[*prompt, *text[:-1]] for prompt in prompts])
    wanted = np.zeros(tokens.shape, np.bool_)
    wanted[:, -len(text) :] = True
    positions = (mask.cumsum(axis=1) - 1).clip(min=0)
    found = model.begin().read(tokens, mask, positions, wanted)
    flat = found.logprobs(range(len(prompts) * len(text)), list(text) * len(prompts))
    return [flat[at : at + len(text)] for at in range(0, len(flat), len(text))]


def _padded(texts: Sequence[Sequence[int]]) -> "tuple[Integers, Integers]":
    """Return texts padded on their left, shape (texts, tokens), and 1 where a token is."""
    import numpy as np

    width = max(map(len, texts))
    tokens = np.full((len(texts), width), _PAD, np.int64)
    is_token = np.zeros((len(texts), width), np.int64)
    for row, text in enumerate(texts):
        tokens[row, width - len(text) :] = text
        is_token[row, width - len(text) :] = 1
    return tokens, is_token
