"""Beam search for many questions at once, exact in the sum of log-probabilities.

A text's score is the log-probability of all its tokens, so it only falls as the text grows: a beam
that stands below the n-th best finished text can be dropped, and a question without beams left is
done. Questions and beams that are done leave the batch, so that the cost is what the beams need and
not what the longest text of the batch needs. All beams share one key-value cache.

Where a text is steered, only tokens that its state allows are looked at, by the probabilities that
the model itself gives them: they are not spread over what is allowed. Tokens that have no
alternative are not searched for; the model reads several of them at a time.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

HOPELESS = 12.0
"""A beam this many nats below its question's best is dropped: e^-12 is 6 in a million."""

_BLOCK_TOKENS = 64
"""Tokens that the model reads at a time, padding included, if there is one for each beam: on a CPU
as many cost hardly more than one for each of five beams."""

_CONSIDERED = 64
"""Likeliest tokens that are looked at where the state does not list those that it allows."""


class State(Protocol):
    """Where a text stands: what may follow, and where that leads."""

    @property
    def tokens(self) -> Sequence[int] | None:
        """The tokens that may follow; None where it is for `follow` to say."""

    def follow(self, token: int) -> "State | None":
        """Go on by a token, end of text included; None where it may not follow."""


class Unsteered:
    """The state of a text that may go on in any way."""

    tokens: Sequence[int] | None = None

    def follow(self, token: int) -> "Unsteered":  # noqa: ARG002 – every one
        """Stay as it is."""
        return self


class Hypothesis(NamedTuple):
    """A finished text: its tokens without end of text, and its log-probability with it."""

    tokens: tuple[int, ...]
    logprob: float


class Beam(NamedTuple):
    """An unfinished text.

    Attributes:
        tokens: The text.
        unread: How many of its last tokens the model has not read yet; at least one.
        logprob: Of its tokens, without the unread ones but for the first of these.
        state: Where it stands behind its last token.
        row: The row of the batch that holds its cache.
    """

    tokens: tuple[int, ...]
    unread: int
    logprob: float
    state: State
    row: int


class _Scores(NamedTuple):
    """What the model says of the next token of a row: tokens, and their log-probabilities."""

    tokens: Sequence[int]
    logprobs: Sequence[float]


@dataclass(slots=True)
class _Search:
    """The beams of one question."""

    n: int
    end: int
    max_tokens: int
    beams: list[Beam]
    finished: list[Hypothesis] = field(default_factory=list)

    def advance(self, scores: dict[int, _Scores]) -> None:
        """Extend the beams that were read to their end by what is likeliest; keep the best n.

        Args:
            scores: By row; a beam whose row has none is not read yet.
        """
        waiting = [beam for beam in self.beams if beam.row not in scores]
        options = [(beam.logprob, beam, None) for beam in waiting]
        for beam in self.beams:
            if (found := scores.get(beam.row)) is not None:
                pairs = zip(found.logprobs, found.tokens, strict=True)
                options += [(beam.logprob + logprob, beam, token) for logprob, token in pairs]
        options.sort(key=lambda option: -option[0])
        self.beams = []
        for logprob, beam, token in options[: 2 * self.n]:
            if token == self.end:
                self.finished.append(Hypothesis(beam.tokens, logprob))
            elif len(self.beams) < self.n:
                extended = beam if token is None else _extended(beam, token, logprob, self.end)
                if extended is not None and len(extended.tokens) < self.max_tokens:
                    self.beams.append(extended)
        self._prune()

    def _prune(self) -> None:
        self.finished = sorted(self.finished, key=lambda hypothesis: -hypothesis.logprob)[: self.n]
        logprobs = [text.logprob for text in self.finished] + [beam.logprob for beam in self.beams]
        floor = max(logprobs, default=0.0) - HOPELESS
        if len(self.finished) == self.n:
            floor = max(floor, self.finished[-1].logprob)
        self.beams = [beam for beam in self.beams if beam.logprob > floor]


def _extended(beam: Beam, token: int, logprob: float, end: int) -> Beam | None:
    """Add a token to a beam, and all that must follow it."""
    tokens, state = [token], beam.state.follow(token)
    while state is not None and state.tokens is not None and len(state.tokens) == 1:
        [only] = state.tokens
        if only == end:
            break
        tokens.append(only)
        state = state.follow(only)
    if state is None or state.tokens == ():
        return None  # A way that leads nowhere.
    return Beam((*beam.tokens, *tokens), len(tokens), logprob, state, beam.row)


def beam_search(
    model: "PreTrainedModel",
    input_ids: "Tensor",
    attention_mask: "Tensor",
    *,
    n: int,
    end: int,
    max_new_tokens: int,
    starts: Sequence[State] | None = None,
) -> list[list[Hypothesis]]:
    """Find up to n likeliest texts for each prompt.

    Args:
        model: A causal language model in evaluation mode.
        input_ids: Prompts, left-padded, shape (questions, tokens).
        attention_mask: 1 where a token is, shape (questions, tokens).
        n: Beams, and texts to return at most; 1 is greedy search.
        end: The end-of-text token.
        max_new_tokens: Texts that are not finished by then are given up.
        starts: For each prompt the state in which its texts begin; unsteered by default.

    Returns:
        For each prompt its texts, best first; fewer than n where the others are hopeless.
    """
    import torch

    reader = _Reader(model, attention_mask)
    states = starts if starts is not None else [Unsteered()] * len(input_ids)
    with torch.inference_mode():
        logprobs = reader.read_prompts(input_ids)
        searches = []
        for row, state in enumerate(states):
            search = _Search(n, end, max_new_tokens, [Beam((), 0, 0.0, state, row)])
            search.advance({row: _likeliest(logprobs[row], search.beams[0], n, end)})
            searches.append(search)
        while any(search.beams for search in searches):
            for search in searches:
                pass
            beams = [beam for search in searches for beam in search.beams]
            _advance_all(searches, beams, reader, n, end)
    return [search.finished for search in searches]
