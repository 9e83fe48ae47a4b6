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
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from kbqa.engine.writing.backends.batch_reader import BatchReader, NextTokens
from kbqa.engine.writing.backends.beam_search import CONSIDERED, State, forced_run
from kbqa.engine.writing.backends.next_token_logits import NextTokenLogits
from kbqa.sparql.crp import Entity

_BLOCK_TOKENS = 128
"""Tokens that the model reads at a time, padding included, but at least one for each text."""


class TokenChoice(NamedTuple):
    """A place in a text where several tokens could follow.

    Attributes:
        at: Position of the token that was chosen among the text's tokens.
        allowed: The tokens that could follow, sorted.
    """

    at: int
    allowed: tuple[int, ...]


class Drawn(NamedTuple):
    """A text that was drawn.

    Attributes:
        tokens: The text, with its end-of-text token if it is finished.
        choices: The places where there was a choice; all other tokens had to follow.
        times: How often it was drawn.
        is_finished: False if it is too long, or cannot be finished.
    """

    tokens: tuple[int, ...]
    choices: tuple[TokenChoice, ...]
    times: int
    is_finished: bool


class Asked(NamedTuple):
    """A question to draw texts for.

    Attributes:
        prompt: The tokens of its prompt.
        topics: The entities that its paths may start from.
        start: The state in which its texts begin.
        seed: Decides the draws.
    """

    prompt: Sequence[int]
    topics: tuple[Entity, ...]
    start: State
    seed: str


class _Draft(NamedTuple):
    """An unfinished text.

    Attributes:
        question: Index of its question.
        row: The row of the batch in which it is read.
        drawn: Its tokens and choices so far.
        unread: How many of its last tokens the model has not read yet.
        state: Its state after its last token.
    """

    question: int
    row: int
    drawn: Drawn
    unread: int
    state: State


class Sampling(NamedTuple):
    """How texts are drawn.

    Attributes:
        texts: How many to draw for each question; they may coincide.
        temperature: Divides the logits.
        end: The end-of-text token.
        max_new_tokens: A longer text is not finished.
    """

    texts: int
    temperature: float
    end: int
    max_new_tokens: int


class Sampler(Protocol):
    """Draws texts from the model in training."""

    def draw(self, asked: Sequence[Asked], sampling: Sampling) -> list[list[Drawn]]:
        """Draw texts for each question; return the different ones, in the order of their tokens.

        Raises:
            GraphError: The graph failed for a question.
            ModelError: Whatever runs the model failed.
        """

    def close(self) -> None:
        """Give back what only drawing needs."""


def draw_texts(
    logits: NextTokenLogits,
    prompts: Sequence[Sequence[int]],
    *,
    starts: Sequence[State],
    seeds: Sequence[str],
    sampling: Sampling,
) -> list[list[Drawn]]:
    """Draw texts for each prompt.

    Args:
        logits: The logits of a causal language model in evaluation mode.
        prompts: The tokens of each prompt.
        starts: The state in which the texts of each prompt begin.
        seeds: What decides the draws of each prompt.
        sampling: How they are drawn.

    Returns:
        The different texts for each prompt, in the order of their tokens.
    """
    drawing = _Drawing(seeds, sampling, [[] for _ in starts])
    nothing = Drawn((), (), sampling.texts, is_finished=False)
    for question, start in enumerate(starts):
        drawing.go_on(_Draft(question, question, nothing, 0, start), start)
    reader = BatchReader(logits, prompts)
    following = reader.read_prompts()
    while drawing.part(following):
        drafts = drawing.drafts
        width = max(1, _BLOCK_TOKENS // len(drafts))
        blocks = [_unread(draft)[:width] for draft in drafts]
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
        allowed = allowed_tokens(draft.state, _considered(draft, following))
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
    """List the tokens that may follow a text, sorted.

    Args:
        state: The state of the text.
        likeliest: The likeliest tokens; only read where free text may follow.
    """
    if state.tokens is not None:
        return tuple(sorted(state.tokens))
    return tuple(sorted(token for token in likeliest if state.follow(token) is not None))


def _considered(draft: _Draft, following: NextTokens) -> Iterator[int]:
    """Yield the likeliest tokens; they are looked up when the first is needed."""
    for token, _ in following.likeliest(draft.row, CONSIDERED):
        yield token


def _unread(draft: _Draft) -> tuple[int, ...]:
    tokens = draft.drawn.tokens
    return tokens[len(tokens) - draft.unread :]
