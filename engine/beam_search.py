"""Beam search for many questions at once, exact in the sum of log-probabilities.

A text's score is the log-probability of all its tokens, so it only falls as the text grows: a beam
that stands below the n-th best finished text can be dropped, and a question without beams left is
done. Questions and beams that are done leave the batch, so that the cost is what the beams need and
not what the longest text of the batch needs. All beams share one key-value cache.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

HOPELESS = 12.0
"""A beam this many nats below its question's best is dropped: e^-12 is 6 in a million."""


class Hypothesis(NamedTuple):
    """A finished text: its tokens without end of text, and its log-probability with it."""

    tokens: tuple[int, ...]
    logprob: float


class Beam(NamedTuple):
    """An unfinished text, and the row of the batch that holds its cache."""

    tokens: tuple[int, ...]
    logprob: float
    row: int


@dataclass(slots=True)
class _Search:
    """The beams of one question."""

    n: int
    beams: list[Beam]
    finished: list[Hypothesis] = field(default_factory=list)

    def advance(
        self, scores: Sequence[Sequence[float]], ids: Sequence[Sequence[int]], end: int
    ) -> None:
        """Extend every beam by its likeliest tokens and keep the best n beams.

        Args:
            scores: Log-probabilities of the likeliest next tokens, by row and rank.
            ids: Those tokens.
            end: The end-of-text token.
        """
        options = sorted(
            (
                (beam.logprob + score, beam, token)
                for beam in self.beams
                for score, token in zip(scores[beam.row], ids[beam.row], strict=True)
            ),
            key=lambda option: -option[0],
        )
        self.beams = []
        for logprob, beam, token in options[: 2 * self.n]:
            if token == end:
                self.finished.append(Hypothesis(beam.tokens, logprob))
            elif len(self.beams) < self.n:
                self.beams.append(Beam((*beam.tokens, token), logprob, beam.row))
        self._prune()

    def _prune(self) -> None:
        self.finished = sorted(self.finished, key=lambda hypothesis: -hypothesis.logprob)[: self.n]
        logprobs = [text.logprob for text in self.finished] + [beam.logprob for beam in self.beams]
        floor = max(logprobs) - HOPELESS
        if len(self.finished) == self.n:
            floor = max(floor, self.finished[-1].logprob)
        self.beams = [beam for beam in self.beams if beam.logprob > floor]


def beam_search(
    model: "PreTrainedModel",
    input_ids: "Tensor",
    attention_mask: "Tensor",
    *,
    n: int,
    end: int,
    max_new_tokens: int,
) -> list[list[Hypothesis]]:
    """Find up to n likeliest texts for each prompt.

    Args:
        model: A causal language model in evaluation mode.
        input_ids: Prompts, left-padded, shape (questions, tokens).
        attention_mask: 1 where a token is, shape (questions, tokens).
        n: Beams, and texts to return at most; 1 is greedy search.
        end: The end-of-text token.
        max_new_tokens: Texts that are not finished by then are given up.

    Returns:
        For each prompt its texts, best first; fewer than n where the others are hopeless.
    """
    import torch
    from transformers import DynamicCache

    searches = [_Search(n, [Beam((), 0.0, row)]) for row in range(len(input_ids))]
    cache = DynamicCache()
    tokens, mask = input_ids, attention_mask
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    with torch.inference_mode():
        for _ in range(max_new_tokens):
            logits = model(
                input_ids=tokens,
                attention_mask=mask,
                position_ids=positions,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            ).logits[:, -1]
            top = logits.float().log_softmax(-1).topk(n + 1)
            scores, ids = top.values.tolist(), top.indices.tolist()
            for search in searches:
                if search.beams:
                    search.advance(scores, ids, end)
            beams = [beam for search in searches for beam in search.beams]
            if not beams:
                break
            rows = torch.tensor([beam.row for beam in beams], device=tokens.device)
            cache.batch_select_indices(rows)
            tokens = torch.tensor([[beam.tokens[-1]] for beam in beams], device=tokens.device)
            mask = torch.cat([mask[rows], torch.ones_like(tokens)], dim=1)
            positions = mask.sum(-1, keepdim=True) - 1
            _renumber(searches)
    return [search.finished for search in searches]


def _renumber(searches: Sequence[_Search]) -> None:
    """Give the beams the rows that they have after the selection: their order."""
    row = 0
    for search in searches:
        search.beams = [beam._replace(row=row + at) for at, beam in enumerate(search.beams)]
        row += len(search.beams)
