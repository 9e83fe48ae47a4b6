"""Ask vLLM's server for texts that kbqa's logits processor constrains, and hand it adapters.

Besides OpenAI's ``/v1/completions``, vLLM's own ``/v1/load_lora_adapter`` and
``/v1/unload_lora_adapter`` are used. An adapter is handed over as a folder, so the server has to
see the same files.

Source: https://docs.vllm.ai/en/stable/features/lora/

Draw texts from a language model under the constraints of the graph, many questions at once.

Texts that begin alike are one row of the batch until they part, and tokens that must follow are
read several at a time. A draw depends on the seed, the question and the text so far, and on nothing
else: not on the other questions of the batch, nor on what was drawn before.

Where several tokens may follow, the model's probabilities are renormalised over these. Where free
text may follow, these are the allowed ones among the `CONSIDERED` likeliest.
"""

import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pydantic import BaseModel, Field

from kbqa.engine.chat.server import SMALL_MODEL, OpenAIServer, RequestFailed, Retrying
from kbqa.engine.writing.beam_search import CONSIDERED, BatchReader, NextTokens, State, forced_run
from kbqa.engine.writing.ebnf import (
    GRAPH_PROCESSOR,
    KEEP,
    TOPICS,
    Steered,
    write_steered,
)
from kbqa.engine.writing.server import VLLM_AS_IT_IS
from kbqa.engine.writing.transformers import NextTokenLogits
from kbqa.sparql.crp import Entity
from kbqa.sparql.errors import ModelError

if TYPE_CHECKING:
    from openai import OpenAI


_TIMEOUT_S = 900.0  # for a whole group; on a CPU, many texts at once take minutes
_TOKEN = "token_id:"
_ALLOW = "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True"


class ServerText(NamedTuple):
    """A text that a server drew.

    Attributes:
        tokens: With the token that ended it, if one did.
        likeliest: For each of them, the tokens that the model itself held likeliest in its place:
            the `CONSIDERED` likeliest, and the token itself.
    """

    tokens: tuple[int, ...]
    likeliest: tuple[tuple[int, ...], ...]


class Draw(NamedTuple):
    """What a server is to draw.

    Attributes:
        prompt: Tokens to continue.
        steered: What constrains the texts.
        texts: How many to draw.
        temperature: Divides the logits.
        seed: Of the draws.
        max_new_tokens: The longest text.
        dead_end: The token that the logits processor writes where nothing may follow.
    """

    prompt: Sequence[int]
    steered: Steered
    texts: int
    temperature: float
    seed: int
    max_new_tokens: int
    dead_end: int


class RolloutServer:
    """A vLLM server that draws texts with adapters that it is handed.

    Args:
        url: The API's root, such as ``http://127.0.0.1:8000/v1``.
        retries: Further tries of a request that failed but may succeed later.

    The server's key is read from the environment variable KBQA_SERVER_API_KEY.

    Raises:
        InputError: The URL or the key is not valid.
        ModelError: The `llm` extra is missing.
    """

    def __init__(self, url: str, retries: int = 3) -> None:
        self._server = OpenAIServer(url, _TIMEOUT_S, SMALL_MODEL)
        self._retrying = Retrying(retries=retries)
        self.url = self._server.url

    def check(self) -> None:
        """Check that the server has kbqa's logits processor, and takes adapters while it runs.

        Raises:
            ModelError: It has not, or does not, or there is no such server.
        """
        served = self.served()
        if not served:
            raise ModelError(f"{self.url} serves no model. Start it with one.")
        # Only the logits processor refuses this, and only one that knows the argument.
        refused = {"vllm_xargs": {TOPICS: [], KEEP: "wrong"}}

        def complete(client: "OpenAI") -> bytes:
            response = client.completions.with_raw_response.create(
                model=next(iter(served)), prompt="?", max_tokens=1, extra_body=refused
            )
            return response.content

        try:
            self._ask(complete)
        except ModelError as error:
            if KEEP not in str(error):
                raise
        else:
            raise ModelError(
                f"{self.url} does not follow the graph. Start it with this version of kbqa and "
                f"--logits-processors {GRAPH_PROCESSOR}."
            )
        self.unload("no-such-adapter")

    def served(self) -> set[str]:
        """Return the names of the models and adapters that the server has.

        Raises:
            ModelError: It does not say.
        """
        return set(self._retrying.call(self._server.models, self.url))

    def load(self, name: str, folder: Path, rank: int) -> None:
        """Let the server load an adapter.

        Args:
            name: The adapter's name on the server. vLLM remembers texts by it, so other weights
                need another name.
            folder: The adapter in PEFT's layout.
            rank: Its rank, for advice.

        Raises:
            ModelError: The server cannot load it.
        """
        folder = folder.resolve()
        try:
            self._post("load_lora_adapter", {"lora_name": name, "lora_path": str(folder)})
        except RequestFailed as failure:
            words = str(failure)
            raise ModelError(
                f"the adapter in {folder} was not loaded: {words}. {_advice(words, folder, rank)}"
            ) from None

    def unload(self, name: str) -> None:
        """Let the server forget an adapter; nothing happens if it has none of the name.

        Raises:
            ModelError: The server does not do that.
        """
        try:
            self._post("unload_lora_adapter", {"lora_name": name})
        except RequestFailed as failure:
            words = str(failure)
            if _has_no_route(words):
                raise ModelError(
                    f"{self.url} takes no adapters while it runs. Start it with the variable "
                    f"{_ALLOW} and with --enable-lora."
                ) from None
            if "cannot be found" not in words:
                raise ModelError(f"an adapter was not unloaded: {words}") from None

    def draw(self, adapter: str, asked: Draw) -> list[ServerText]:
        """Draw texts, which may coincide.

        Their tokens are drawn from the model's probabilities at the temperature, renormalised over
        the tokens that the logits processor lets through.

        Args:
            adapter: Its name on the server.
            asked: What to draw.

        Raises:
            ModelError: No server answers, or it refuses, fails or sends something else.
        """
        extra: dict[str, object] = {
            **VLLM_AS_IT_IS,
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
            "stop_token_ids": [asked.dead_end],
            "vllm_xargs": write_steered(asked.steered),
        }

        def complete(client: "OpenAI") -> bytes:
            response = client.completions.with_raw_response.create(
                model=adapter,
                prompt=list(asked.prompt),
                n=asked.texts,
                temperature=asked.temperature,
                top_p=1,
                seed=asked.seed,
                max_tokens=asked.max_new_tokens,
                logprobs=CONSIDERED,
                extra_body=extra,
            )
            return response.content

        choices = self._ask(complete).choices
        if len(choices) != asked.texts:
            raise ModelError(f"{self.url} sent {len(choices)} texts instead of {asked.texts}")
        return [self._text(choice) for choice in choices]

    def _text(self, choice: "_Choice") -> ServerText:
        top = choice.logprobs.top_logprobs if choice.logprobs else None
        try:
            likeliest = [[int(one.removeprefix(_TOKEN)) for one in place] for place in top or []]
        except ValueError:
            likeliest = []
        if choice.token_ids is None or len(likeliest) != len(choice.token_ids):
            raise ModelError(
                f"{self.url} does not send the tokens of its texts and the likeliest ones beside "
                "them. kbqa needs a vLLM server for that; 0.32 is tested."
            )
        return ServerText(tuple(choice.token_ids), tuple(map(tuple, likeliest)))

    def _ask(self, request: "Callable[[OpenAI], bytes]") -> "_Drawn":
        def ask() -> _Drawn:
            try:
                return self._server.send(request, _Drawn)
            except RequestFailed as failure:
                if "max allowed" in str(failure):
                    failure.advice = f"Start it with --max-logprobs {CONSIDERED}."
                raise

        return self._retrying.call(ask, self.url)

    def _post(self, route: str, body: dict[str, str]) -> None:
        """Send a request whose answer is only that it was done.

        Raises:
            RequestFailed: It was not.
        """

        def post(client: "OpenAI") -> bytes:
            client.post(f"/{route}", cast_to=str, body=body)
            return b"{}"

        self._server.send(post, _Done)


def _advice(words: str, folder: Path, rank: int) -> str:
    if _has_no_route(words):
        return f"Start the server with the variable {_ALLOW} and with --enable-lora."
    if "max_lora_rank" in words:
        return f"Start the server with --max-lora-rank {max(8, 2 ** math.ceil(math.log2(rank)))}."
    if "No adapter found" in words:
        return f"The server must see the folder under the same name: {folder}."
    if "not enabled" in words:
        return "Start the server with --enable-lora."
    return "Does the server run the adapter's base model? Its log says more."


def _has_no_route(words: str) -> bool:
    """Return whether a server does not know the route; else a 404 of vLLM's names an adapter."""
    return "Error code: 404" in words and "adapter" not in words


class _Logprobs(BaseModel):
    top_logprobs: list[dict[str, float]] | None = None


class _Choice(BaseModel):
    logprobs: _Logprobs | None = None
    token_ids: list[int] | None = None


class _Drawn(BaseModel):
    """Texts that continue a prompt."""

    choices: list[_Choice] = Field(min_length=1)


class _Done(BaseModel):
    """Nothing."""


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
