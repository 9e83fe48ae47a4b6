"""Write CRPs by beam search, for many questions at once, exact in the sum of log-probabilities.

A text's score is the log-probability of all its tokens, so it only falls as the text grows. A beam
below the n-th best finished text can be dropped, and a question without beams is done. Both leave
the batch, so the cost depends on the beams that are left and not on the longest text.

A steered text may take only the tokens that its state allows, which keep the model's probabilities.
Tokens without an alternative are not searched for; the model reads several of them at a time.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from heapq import nlargest
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

from kbqa.engine.writing.checkpoint import Adapter, open_adapter
from kbqa.engine.writing.generate import (
    DEFAULT_ADAPTER,
    DEFAULT_BEAMS,
    MAX_NEW_TOKENS,
    Candidate,
    Progress,
    Request,
    Tokenizer,
    best_distinct,
)
from kbqa.engine.writing.grammar import Steps, start
from kbqa.engine.writing.steering import (
    Decoding,
    Pieces,
    SteeredText,
    walked_topics,
)
from kbqa.kb.deadline import check_deadline, held
from kbqa.kb.graph import Graph

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]


HOPELESS = 6.0
"""A beam this many nats below its question's best is dropped: e^-6 is 0.0025. Among five candidates
for each of 196 held-out questions of webqsp.train, no right main path was more than 5 below."""

_BLOCK_TOKENS = 64
"""Tokens that the model reads at a time, padding included, but at least one for each beam. On a CPU
this many cost hardly more than one for each of five beams."""

CONSIDERED = 32  # most likely tokens, if the state does not list those that it allows

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
        """Return the most likely tokens of a row, best first."""


class Reading(Protocol):
    """A causal language model with the cache of what it has read so far."""

    def read(
        self,
        rows: "Integers | None",
        tokens: "Integers",
        mask: "Integers",
        positions: "Integers",
        wanted: "NDArray[np.bool_]",
    ) -> NextTokens:
        """Read tokens, shape (rows, tokens), in every row, and add them to the cache.

        `rows` are those of the cache that are continued, None for all as they are; one may occur
        more than once. `mask` is 1 for tokens read before or now, and 0 for padding, shape (rows,
        all tokens). `positions` are those of `tokens` in their texts. `wanted` is True for each of
        `tokens` after which the next one is wanted.
        """


class ReadableModel(Protocol):
    """A causal language model in evaluation mode."""

    def begin(self) -> Reading:
        """Begin to read, with an empty cache."""


class BatchReader:
    """Reads prompts, at least one, and then the texts that continue them, side by side.

    Each text has a row of the batch. Blocks of tokens are padded on their left, and the padding
    stays masked.
    """

    def __init__(self, model: ReadableModel, prompts: Sequence[Sequence[int]]) -> None:
        self._reading = model.begin()
        self._prompts, self._mask = _padded(prompts)

    def read_prompts(self, last: int = 1) -> NextTokens:
        """Read the prompts; return what may follow the last tokens of each."""
        import numpy as np

        wanted = np.zeros(self._mask.shape, np.bool_)
        wanted[:, -last:] = True
        return self._read(None, self._prompts, wanted)

    def read(
        self, rows: Sequence[int], blocks: Sequence[Sequence[int]], *, only_last: bool = False
    ) -> NextTokens:
        """Keep some rows, as `Reading.read` does, and read a block of tokens in each.

        Return what may follow each token, block after block, or only the last one of each block.
        """
        import numpy as np

        kept = None
        if list(rows) != list(range(len(self._mask))):
            kept = np.array(rows)
            self._mask = self._mask[kept]
        tokens, is_token = _padded(blocks)
        self._mask = np.concatenate([self._mask, is_token], axis=1)
        wanted = is_token.astype(np.bool_)
        if only_last:
            wanted[:, :-1] = False
        return self._read(kept, tokens, wanted)

    def _read(
        self, kept: "Integers | None", tokens: "Integers", wanted: "NDArray[np.bool_]"
    ) -> NextTokens:
        positions = (self._mask.cumsum(axis=1) - 1).clip(min=0)[:, -tokens.shape[1] :]
        return self._reading.read(kept, tokens, self._mask, positions, wanted)


def read_continuation(
    model: ReadableModel, prompts: Sequence[Sequence[int]], text: Sequence[int]
) -> list[list[float]]:
    """Return the log-probabilities of a text's tokens after each of some prompts."""
    reader = BatchReader(model, [[*prompt, *text[:-1]] for prompt in prompts])
    found = reader.read_prompts(len(text))
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


class State(Protocol):
    """The state of a text: which tokens may follow, and which states they lead to."""

    @property
    def tokens(self) -> Sequence[int] | None:
        """The tokens that may follow; None if only `follow` decides."""

    def follow(self, token: int) -> "State | None":
        """Return the state after a token, end of text included; None if it may not follow."""


class Unsteered:
    """The state of a text that may continue in any way."""

    tokens: Sequence[int] | None = None

    def follow(self, token: int) -> "Unsteered":
        """Return the same state."""
        return self


class Hypothesis(NamedTuple):
    """A finished text: its tokens without end of text, and its log-probability with it."""

    tokens: tuple[int, ...]
    logprob: float


class Beam(NamedTuple):
    """An unfinished text."""

    tokens: tuple[int, ...]
    unread: int  # how many of its last tokens the model has not read yet
    logprob: float  # of its tokens up to the first unread one, that one included
    state: State  # after its last token
    row: int  # of the batch, in which it is read


class ForcedRun(NamedTuple):
    """The tokens that must follow a text, and the state after them."""

    tokens: tuple[int, ...]  # without the end of text
    state: State | None  # None if the text cannot be finished


def forced_run(state: State | None, end: int) -> ForcedRun:
    """Follow a text as long as only one token may follow."""
    tokens: list[int] = []
    while state is not None and state.tokens is not None and len(state.tokens) == 1:
        [token] = state.tokens
        if token == end:
            break
        tokens.append(token)
        state = state.follow(token)
    is_dead_end = state is None or state.tokens == ()
    return ForcedRun(tuple(tokens), None if is_dead_end else state)


class _Option(NamedTuple):
    logprob: float
    beam: Beam
    token: int | None  # None for a beam that is not fully read yet


@dataclass(slots=True)
class _QuestionSearch:
    n: int
    end: int
    max_tokens: int
    beams: list[Beam]
    finished: list[Hypothesis] = field(default_factory=list)

    def advance(self, options: list[_Option]) -> None:
        """Keep the n best continuations of the beams, and the finished texts above them."""
        self.beams = []
        given_up = 0  # too long; less likely beams do not take their place
        for option in sorted(options, key=lambda option: -option.logprob):
            if len(self.beams) + given_up == self.n:
                break
            if option.token == self.end:
                if option.beam.state.follow(self.end) is not None:
                    self.finished.append(Hypothesis(option.beam.tokens, option.logprob))
            elif (beam := self._follow(option)) is not None:
                if len(beam.tokens) < self.max_tokens:
                    self.beams.append(beam)
                else:
                    given_up += 1
        self._prune()

    def _follow(self, option: _Option) -> Beam | None:
        """Add a token to a beam, and all those that must follow it."""
        beam, token = option.beam, option.token
        if token is None:
            return beam
        forced, state = forced_run(beam.state.follow(token), self.end)
        if state is None:
            return None
        added = (token, *forced)
        return Beam((*beam.tokens, *added), len(added), option.logprob, state, beam.row)

    def _prune(self) -> None:
        self.finished = sorted(self.finished, key=lambda hypothesis: -hypothesis.logprob)[: self.n]
        logprobs = [text.logprob for text in self.finished] + [beam.logprob for beam in self.beams]
        floor = max(logprobs, default=0.0) - HOPELESS
        if len(self.finished) == self.n:
            floor = max(floor, self.finished[-1].logprob)
        self.beams = [beam for beam in self.beams if beam.logprob > floor]


def beam_search(
    model: ReadableModel,
    prompts: Sequence[Sequence[int]],
    *,
    n: int,
    end: int,
    max_new_tokens: int,
    starts: Sequence[State] | None = None,
    done: Callable[[int, Sequence[Hypothesis]], object] | None = None,
    is_wanted: Callable[[int], bool] | None = None,
) -> list[list[Hypothesis]]:
    """Find the n most likely texts for each prompt, best first; fewer if the others are hopeless.

    Texts begin in the states `starts`, unsteered by default, and are dropped if they do not reach
    the token `end` within `max_new_tokens`. `done` is called with a prompt's number and texts as
    soon as its search is over. Between steps the deadline is checked, and `is_wanted` is called
    with a prompt's number; if it returns False, the prompt gets no texts.
    """
    states = starts if starts is not None else [Unsteered()] * len(prompts)
    searches = [
        _QuestionSearch(n, end, max_new_tokens, [Beam((), 0, 0.0, state, row)])
        for row, state in enumerate(states)
    ]
    reader = BatchReader(model, prompts)
    going_on = dict(enumerate(searches))
    following = reader.read_prompts()
    for row, search in enumerate(searches):
        search.advance(list(_options(search.beams[0], following, row, n)))
    while True:
        for row in [row for row, search in going_on.items() if not search.beams]:
            search = going_on.pop(row)
            if done is not None:
                done(row, search.finished)
        if is_wanted is not None:
            for row in [row for row in going_on if not is_wanted(row)]:
                going_on.pop(row).finished = []
        if not going_on:
            return [search.finished for search in searches]
        check_deadline()
        _read_on(going_on.values(), reader, n)


def _read_on(searches: Collection[_QuestionSearch], reader: BatchReader, n: int) -> None:
    """Read a block of every beam, and extend the beams that are now fully read."""
    beams = [beam for search in searches for beam in search.beams]
    width = max(1, _BLOCK_TOKENS // len(beams))
    blocks = [beam.tokens[len(beam.tokens) - beam.unread :][:width] for beam in beams]
    following = reader.read([beam.row for beam in beams], blocks)
    ends = list(accumulate(map(len, blocks)))
    forced = _forced(beams, blocks, following)
    row = 0
    for search in searches:
        options: list[_Option] = []
        for beam in search.beams:
            unread = beam.unread - len(blocks[row])
            read = beam._replace(unread=unread, logprob=beam.logprob + forced[row], row=row)
            if unread:
                options.append(_Option(read.logprob, read, None))
            else:
                options += _options(read, following, ends[row] - 1, n)
            row += 1
        search.advance(options)


def _forced(
    beams: Sequence[Beam], blocks: Sequence[Sequence[int]], following: NextTokens
) -> list[float]:
    """Sum for each beam the log-probabilities of the tokens that follow those in its block."""
    rows: list[int] = []
    at: list[int] = []
    tokens: list[int] = []
    position = 0
    for row, (beam, block) in enumerate(zip(beams, blocks, strict=True)):
        forced = beam.tokens[len(beam.tokens) - beam.unread + 1 :][: len(block)]
        rows += [row] * len(forced)
        at += range(position, position + len(forced))
        tokens += forced
        position += len(block)
    sums = [0.0] * len(beams)
    for row, logprob in zip(rows, following.logprobs(at, tokens), strict=True):
        sums[row] += logprob
    return sums


def _options(beam: Beam, following: NextTokens, row: int, n: int) -> Iterator[_Option]:
    """Yield the most likely tokens that may follow a beam, as many as the search can use."""
    allowed = beam.state.tokens
    if allowed is None:
        likely = following.likeliest(row, max(n + 1, CONSIDERED))
    else:
        logprobs = following.logprobs([row] * len(allowed), allowed)
        listed = map(Likely, allowed, logprobs)
        likely = nlargest(n + 1, listed, key=lambda option: option.logprob)
    for token, logprob in likely:
        yield _Option(beam.logprob + logprob, beam, token)


def best_walked(candidates: Iterable[Candidate], n: int, steps: Steps | None) -> list[Candidate]:
    """Return the best n different texts, each with its `walked_topics`."""
    best = best_distinct(candidates, n)
    return [replace(one, topics=walked_topics(steps, one.text)) for one in best]


class LoadedModel(NamedTuple):
    """A causal language model and its tokenizer."""

    model: ReadableModel
    tokenizer: Tokenizer


class SmallModelGenerator(ABC):
    """Writes with a small model in this process, one batch at a time."""

    runtime = ""  # follows the model in the name

    def __init__(self, adapter: Adapter, decoding: Decoding | None = None) -> None:
        self._prompt, self._decoding = adapter.prompt, decoding or Decoding()
        self._decoding.check(self._prompt)
        self.name = f"{adapter.name}{self.runtime}, decoding {self._decoding.level}"
        self.suggested_relations = self._prompt.relations
        # Neither the model, nor tokenizers, nor the tries of `Pieces` are safe for several threads.
        self._lock = threading.Lock()

    def generate(
        self,
        requests: Sequence[Request],
        n: int = DEFAULT_BEAMS,
        *,
        progress: Progress | None = None,
    ) -> list[list[Candidate]]:
        """Write up to n candidates for each request; see `Generator.generate`."""
        if not requests:
            return []
        with held(self._lock, self.name):
            return self._write(requests, n, progress)

    def over(self, graph: Graph) -> Self:
        """Return it for another graph; see `Generator.over`."""
        other = copy(self)  # with the same lock
        other._decoding = Decoding(self._decoding.level, graph)
        return other

    @abstractmethod
    def _write(
        self, requests: Sequence[Request], n: int, progress: Progress | None
    ) -> list[list[Candidate]]:
        """Write for at least one request."""

    def _prompt_tokens(self, requests: Sequence[Request], tokenizer: Tokenizer) -> list[list[int]]:
        prompts = [self._prompt.render(one.question, one.relations) for one in requests]
        return [tokenizer.encode(prompt, add_special_tokens=False) for prompt in prompts]

    def _steps(self, requests: Sequence[Request]) -> list[Steps | None]:
        return [self._decoding.steps(one.topics, self._prompt.crp_format) for one in requests]


class BeamSearchGenerator(SmallModelGenerator):
    """A small model in this process that writes CRPs by beam search.

    `threads` is the number to compute with; None for the runtime's own choice.

    Raises:
        ModelError: A package, the base model or the adapter is missing or broken, the runtime
            cannot compute the model, or its texts cannot be constrained.
    """

    def __init__(
        self, adapter: Adapter, decoding: Decoding | None = None, threads: int | None = None
    ) -> None:
        super().__init__(adapter, decoding)
        self._model, self._tokenizer = self.load_model(adapter, threads)
        is_free = self._decoding.level == "none"
        self._pieces = None if is_free else Pieces(self._tokenizer)

    @classmethod
    def load(
        cls,
        adapter: Path = DEFAULT_ADAPTER,
        base: str | None = None,
        decoding: Decoding | None = None,
        threads: int | None = None,
    ) -> Self:
        """Open an adapter by `open_adapter`, and load it."""
        return cls(open_adapter(adapter, base), decoding, threads)

    @staticmethod
    @abstractmethod
    def load_model(adapter: Adapter, threads: int | None = None) -> LoadedModel:
        """Load an adapter, merged into its base model, and the tokenizer."""

    def _write(
        self, requests: Sequence[Request], n: int, progress: Progress | None
    ) -> list[list[Candidate]]:
        steps = self._steps(requests)
        written: list[list[Candidate]] = [[] for _ in requests]
        prompts = self._prompt_tokens(requests, self._tokenizer)

        def take(row: int, texts: Sequence[Hypothesis]) -> None:
            found = []
            for tokens, logprob in texts:
                text = self._tokenizer.decode(tokens, skip_special_tokens=True)
                read = len(prompts[row])
                found.append(Candidate(text, logprob, len(tokens) + 1, input_tokens=read))
            written[row] = best_walked(found, n, steps[row])
            if progress is not None:
                progress.written(row, written[row])

        beam_search(
            self._model,
            prompts,
            n=n,
            end=self._tokenizer.eos_token_id,
            max_new_tokens=MAX_NEW_TOKENS,
            starts=[self._start(walk) for walk in steps],
            done=take,
            is_wanted=None if progress is None else progress.is_wanted,
        )
        return written

    def _start(self, steps: Steps | None) -> State:
        if steps is None or self._pieces is None:
            return Unsteered()
        return SteeredText.begin(self._pieces, start(steps))
