"""Draw texts from a language model under the constraints of the graph, many questions at once.

Texts that begin alike are one row of the batch until they part, and tokens that must follow are
read several at a time. A draw depends on the seed, the question and the text so far, and on nothing
else: not on the other questions of the batch, nor on what was drawn before.

Where several tokens may follow, the model's probabilities are renormalised over these. Where free
text may follow, these are the allowed ones among the `CONSIDERED` likeliest.
"""

import math
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kbqa.engine.writing.beam_search import CONSIDERED, BatchReader, NextTokens, State, forced_run
from kbqa.engine.writing.checkpoint import mixed_precision
from kbqa.engine.writing.transformers import NextTokenLogits
from kbqa.sparql.crp import Entity

if TYPE_CHECKING:
    import torch


_BLOCK_TOKENS = 128
"""Tokens that the model reads at a time, padding included, but at least one for each text."""


class DrawRequest(NamedTuple):
    """A question to draw texts for."""

    prompt: Sequence[int]  # its tokens
    topics: tuple[Entity, ...]  # the entities that paths may start from
    start: State  # in which texts begin
    seed: str  # decides the draws


class Sampling(NamedTuple):
    """How texts are drawn."""

    texts: int  # for each question; they may coincide
    temperature: float
    end: int  # the end-of-text token
    max_new_tokens: int  # a longer text is not finished


class TokenChoice(NamedTuple):
    """A place in a text where several tokens could follow, which are sorted."""

    at: int  # of the chosen one among the text's tokens
    allowed: tuple[int, ...]


class Drawn(NamedTuple):
    """A text that was drawn."""

    tokens: tuple[int, ...]  # with the end-of-text token if it is finished
    choices: tuple[TokenChoice, ...]  # all other tokens had to follow
    times: int  # how often it was drawn
    is_finished: bool  # False if it is too long, or cannot be finished


class Sampler(Protocol):
    """Draws texts from the model in training."""

    def draw(self, asked: Sequence[DrawRequest], sampling: Sampling) -> list[list[Drawn]]:
        """Draw texts for each question; return the different ones, in the order of their tokens.

        Raises:
            GraphError: The graph failed for a question.
            ModelError: Whatever runs the model failed.
        """

    def close(self) -> None:
        """Give back what only drawing needs."""


@dataclass(frozen=True, slots=True)
class ModelSampler:
    """The model in training draws itself; it has to be in evaluation mode."""

    logits: NextTokenLogits
    device: "torch.device"

    def draw(self, asked: Sequence[DrawRequest], sampling: Sampling) -> list[list[Drawn]]:
        """Draw texts for each question; see `Sampler`."""
        with mixed_precision(self.device):
            return draw_texts(self.logits, asked, sampling)

    def close(self) -> None:
        """Do nothing."""


class _Draft(NamedTuple):
    """An unfinished text of a question, and the row of the batch in which it is read."""

    question: int
    row: int
    drawn: Drawn  # so far
    unread: int  # how many of its last tokens the model has not read yet
    state: State  # after its last token

    def next_block(self, width: int) -> tuple[int, ...]:
        """Return the first of the tokens that are not read yet."""
        tokens = self.drawn.tokens
        return tokens[len(tokens) - self.unread :][:width]


def draw_texts(
    logits: NextTokenLogits, asked: Sequence[DrawRequest], sampling: Sampling
) -> list[list[Drawn]]:
    """Draw texts for each question; return the different ones, in the order of their tokens."""
    drawing = _Drawing([each.seed for each in asked], sampling, [[] for _ in asked])
    nothing = Drawn((), (), sampling.texts, is_finished=False)
    for question, each in enumerate(asked):
        drawing.go_on(_Draft(question, question, nothing, 0, each.start), each.start)
    reader = BatchReader(logits, [each.prompt for each in asked])
    following = reader.read_prompts()
    while drawing.part(following):
        drafts = drawing.drafts
        width = max(1, _BLOCK_TOKENS // len(drafts))
        blocks = [draft.next_block(width) for draft in drafts]
        following = reader.read([draft.row for draft in drafts], blocks, only_last=True)
        drawing.drafts = [
            draft._replace(row=row, unread=draft.unread - len(block))
            for row, (draft, block) in enumerate(zip(drafts, blocks, strict=True))
        ]
    return [sorted(texts) for texts in drawing.done]


@dataclass(slots=True)
class _Drawing:
    """The texts of all questions: those that are done, and the drafts that are not."""

    seeds: Sequence[str]
    sampling: Sampling
    done: list[list[Drawn]]
    drafts: list[_Draft] = field(default_factory=list)

    def part(self, following: NextTokens) -> bool:
        """Draw what follows each draft that is fully read; return whether any draft is left.

        A draft parts into as many as there are different tokens drawn.
        """
        drafts, self.drafts = self.drafts, []
        for draft in drafts:
            if draft.unread:
                self.drafts.append(draft)
            else:
                self._part(draft, following)
        return bool(self.drafts)

    def _part(self, draft: _Draft, following: NextTokens) -> None:
        is_free = draft.state.tokens is None
        likeliest = following.likeliest(draft.row, CONSIDERED) if is_free else ()
        allowed = allowed_tokens(draft.state, (token for token, _ in likeliest))
        if not allowed:
            self.done[draft.question].append(draft.drawn)
            return
        tokens, choices, times, _ = draft.drawn
        logprobs = following.logprobs([draft.row] * len(allowed), allowed)
        best = max(logprobs)
        weights = [math.exp((one - best) / self.sampling.temperature) for one in logprobs]
        rng = random.Random(f"{self.seeds[draft.question]} {tokens}")
        chosen = Counter(rng.choices(allowed, weights, k=times))
        if len(allowed) > 1:
            choices = (*choices, TokenChoice(len(tokens), allowed))
        for token, n in sorted(chosen.items()):
            ends = token == self.sampling.end
            drawn = Drawn((*tokens, token), choices, n, is_finished=ends)
            if ends:
                self.done[draft.question].append(drawn)
            else:
                self.go_on(draft._replace(drawn=drawn, unread=1), draft.state.follow(token))

    def go_on(self, draft: _Draft, state: State | None) -> None:
        """Add to a draft in a state the tokens that must follow; keep it if more may follow."""
        end, longest = self.sampling.end, self.sampling.max_new_tokens
        forced, state = forced_run(state, end)
        tokens = (*draft.drawn.tokens, *forced)
        if state is None or len(tokens) >= longest:
            self.done[draft.question].append(draft.drawn._replace(tokens=tokens))
        elif state.tokens == (end,):
            finished = draft.drawn._replace(tokens=(*tokens, end), is_finished=True)
            self.done[draft.question].append(finished)
        else:
            drawn, unread = draft.drawn._replace(tokens=tokens), draft.unread + len(forced)
            self.drafts.append(draft._replace(drawn=drawn, unread=unread, state=state))


def allowed_tokens(state: State, likeliest: Iterable[int]) -> tuple[int, ...]:
    """List the tokens that may follow a text, sorted: of free text, those among the likeliest."""
    if state.tokens is not None:
        return tuple(sorted(state.tokens))
    return tuple(sorted(token for token in likeliest if state.follow(token) is not None))
