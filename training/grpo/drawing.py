"""Draw the paths of a step under the constraints of the graph, many questions at once.

The model in training draws them itself, or a vLLM server that is handed its adapter does. Texts
that begin alike are one row of the batch until they part, and tokens that must follow are read
several at a time. A draw depends on the seed, the question and the text so far, and on nothing
else: not on the other questions of the batch, nor on what was drawn before.

Where several tokens may follow, the model's probabilities are renormalised over these. Where free
text may follow, these are the allowed ones among the `CONSIDERED` likeliest.

A server's logits processor lets through the tokens that the sampler of this process would draw
from, too. What comes back is walked again along the graph, for the choices that a text had. In free
text these are the allowed ones among the tokens that the server says the model held likeliest.

Besides OpenAI's ``/v1/completions``, vLLM's own ``/v1/load_lora_adapter`` and
``/v1/unload_lora_adapter`` are used. An adapter is handed over as a folder, so the server has to
see the same files.

vLLM's sums depend on what it computes at the same time. So draws with equal seeds may differ, and
the probabilities that were drawn from may differ a little from those of the model in training.

Source: https://docs.vllm.ai/en/stable/features/lora/
"""

import hashlib
import logging
import math
import random
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import BaseModel, Field

from kbqa.engine.chat.server import SMALL_MODEL, OpenAIServer, RequestFailed, Retrying
from kbqa.engine.writing.beam_search import CONSIDERED, BatchReader, NextTokens, State, forced_run
from kbqa.engine.writing.checkpoint import adapter_sha256
from kbqa.engine.writing.ebnf import GRAPH_PROCESSOR, KEEP, TOPICS, Steered, write_steered
from kbqa.engine.writing.server import VLLM_AS_IT_IS
from kbqa.engine.writing.transformers import NextTokenLogits
from kbqa.engine.writing.vllm import dead_end_token
from kbqa.sparql.crp import Entity
from kbqa.sparql.errors import EndpointDown, GraphError, ModelError
from kbqa.training.config import TrainingConfig
from kbqa.training.trained_model import TrainedModel

if TYPE_CHECKING:
    from openai import OpenAI


logger = logging.getLogger(__name__)

_CONCURRENT = 64  # requests: vLLM computes them together
_NAME_DIGITS = 16
_TIMEOUT_S = 900.0  # for a whole group; on a CPU, many texts at once take minutes
_TOKEN = "token_id:"
_ALLOW = "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True"
_BLOCK_TOKENS = 128  # that the model reads at a time with padding, but at least one for each text


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


def check_rollouts(url: str, config: TrainingConfig) -> None:
    """Check that a server can draw paths with the adapter that a run starts from.

    Raises:
        InputError: The URL or the key is not valid.
        ModelError: The server cannot, or there is none. The message says how to start it.
    """
    server = RolloutServer(url)
    server.check()
    start = Path(config.start)
    name = _name(start)
    if name not in server.served():
        server.load(name, start, config.lora_rank)
    server.unload(name)


@dataclass(frozen=True, slots=True)
class ServerSampler:
    """A vLLM server that draws with the adapter of a model in training.

    Adapters are handed over in a folder. It holds those that the server may have loaded, each in a
    folder of its name.
    """

    server: "RolloutServer"
    model: TrainedModel
    crp_format: str
    rank: int
    folder: Path

    def draw(self, asked: Sequence[DrawRequest], sampling: Sampling) -> list[list[Drawn]]:
        """Draw texts for each question; return the different ones, in the order of their tokens.

        Raises:
            GraphError: The graph failed for a question, here or in the server.
            ModelError: The server failed, or it follows another graph: the graph failed for all
                of several questions, or does not allow what was drawn.
        """
        adapter = self._hand_over()
        dead_end = dead_end_token(self.model.tokenizer)

        def draw(each: DrawRequest) -> "list[_ServerText]":
            return self.server.draw(adapter, each, self.crp_format, sampling, dead_end)

        with ThreadPoolExecutor(_CONCURRENT) as pool:
            drawn = list(pool.map(draw, asked))
        groups, failures = list[list[Drawn]](), list[GraphError]()
        for each, texts in zip(asked, drawn, strict=True):
            times = Counter(text.tokens for text in texts)
            different = {text.tokens: text for text in texts}.values()
            try:
                walked = (self._walk(t, each.start, sampling.end, dead_end) for t in different)
                counted = zip(walked, times.values(), strict=True)
                groups.append(sorted(one._replace(times=n) for one, n in counted))
            except EndpointDown:
                raise
            except GraphError as error:
                failures.append(error)
        if len(failures) == len(asked) > 1:
            raise ModelError(f"nothing that {self.server.url} drew can be used: {failures[0]}")
        if failures:
            raise failures[0]
        return groups

    def close(self) -> None:
        """Have the server forget the adapters that it was handed, and delete their folders."""
        try:
            self._take_back(())
        except ModelError as error:
            logger.warning("%s still has an adapter of this run: %s", self.server.url, error)
        else:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _hand_over(self) -> str:
        """Let the server load the adapter as it is now, and forget others; return its name."""
        partial = self.folder / "adapter.tmp"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        self.model.save(partial, exactly=True)
        # vLLM remembers what it computed by the adapter's name, so the name is that of the weights.
        name = _name(partial, self.folder)
        handed = self.folder / name
        if handed.exists():
            shutil.rmtree(partial)
        else:
            partial.rename(handed)
        if name not in self.server.served():
            self.server.load(name, handed, self.rank)
        self._take_back((name,))
        return name

    def _take_back(self, kept: Sequence[str]) -> None:
        """Have the server forget all adapters of this run but some, and delete their folders."""
        for folder in sorted(self.folder.glob("*")):
            if folder.name not in kept:
                self.server.unload(folder.name)
                shutil.rmtree(folder)

    def _walk(self, text: "_ServerText", start: State, end: int, dead_end: int) -> Drawn:
        """Find the choices that a text had."""
        state: State | None = start
        choices: list[TokenChoice] = []
        for at, (token, likeliest) in enumerate(zip(text.tokens, text.likeliest, strict=True)):
            allowed = () if state is None else allowed_tokens(state, likeliest)
            if token == dead_end:
                if allowed:
                    raise GraphError(
                        f"{self.server.url} gave up a path that may go on after "
                        f"{self._shown(text.tokens[:at])}. Its log says whether a query failed; "
                        "otherwise it has opened another graph."
                    )
                return Drawn(text.tokens[:at], tuple(choices), 1, is_finished=False)
            if token not in allowed:
                raise ModelError(
                    f"{self.server.url} wrote {self._shown((token,))} after "
                    f"{self._shown(text.tokens[:at])}, where the graph does not allow it. It must "
                    "open the same graph, and run the same version of kbqa."
                )
            if len(allowed) > 1:
                choices.append(TokenChoice(at, allowed))
            assert state is not None  # since a token is allowed
            state = state.follow(token)
        return Drawn(text.tokens, tuple(choices), 1, is_finished=text.tokens[-1:] == (end,))

    def _shown(self, tokens: Sequence[int]) -> str:
        return repr(self.model.tokenizer.decode(tokens))


def _name(adapter: Path, run: Path = Path()) -> str:
    """Name an adapter by its files, so that another one has another name, and by its run."""
    digest = hashlib.sha256(f"{run.resolve()} {adapter_sha256(adapter)}".encode()).hexdigest()
    return f"kbqa-{digest[:_NAME_DIGITS]}"


class _ServerText(NamedTuple):
    """A text that a server drew, and what the model held likeliest in place of each token."""

    tokens: tuple[int, ...]  # with the token that ended it, if one did
    likeliest: tuple[tuple[int, ...], ...]  # the `CONSIDERED` likeliest, and the token itself


class RolloutServer:
    """A vLLM server that draws texts with adapters that it is handed.

    Its key is read from the environment variable KBQA_SERVER_API_KEY.
    """

    def __init__(self, url: str) -> None:
        self._server = OpenAIServer(url, _TIMEOUT_S, SMALL_MODEL)
        self._retrying = Retrying(retries=3)
        self.url = self._server.url

    def check(self) -> None:
        """Check that the server has kbqa's logits processor, and takes adapters while it runs."""
        served = self.served()
        if not served:
            raise ModelError(f"{self.url} serves no model. Start it with one.")
        # Only the logits processor refuses this, and only one that knows the argument.
        refused = {"vllm_xargs": {TOPICS: [], KEEP: "wrong"}}
        model = next(iter(served))
        try:
            self._complete({"model": model, "prompt": "?", "max_tokens": 1, "extra_body": refused})
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
        """Return the names of the models and adapters that the server has."""
        return set(self._retrying.call(self._server.models, self.url))

    def load(self, name: str, folder: Path, rank: int) -> None:
        """Let the server load an adapter of a rank, in PEFT's layout, under a name.

        vLLM remembers texts by the name, so other weights need another one.
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
        """Let the server forget an adapter; nothing happens if it has none of the name."""
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

    def draw(
        self, adapter: str, asked: DrawRequest, crp_format: str, sampling: Sampling, dead_end: int
    ) -> list[_ServerText]:
        """Draw texts, which may coincide, with an adapter that was loaded.

        Their tokens are drawn from the model's probabilities at the temperature, renormalised over
        the tokens that the logits processor lets through. It writes the dead end where nothing may
        follow.
        """
        arguments = {
            "model": adapter,
            "prompt": list(asked.prompt),
            "n": sampling.texts,
            "temperature": sampling.temperature,
            "top_p": 1,
            "seed": random.Random(asked.seed).getrandbits(32),
            "max_tokens": sampling.max_new_tokens,
            "logprobs": CONSIDERED,
            "extra_body": {
                **VLLM_AS_IT_IS,
                "return_token_ids": True,
                "return_tokens_as_token_ids": True,
                "stop_token_ids": [dead_end],
                "vllm_xargs": write_steered(Steered(asked.topics, crp_format, "all")),
            },
        }
        choices = self._complete(arguments).choices
        if len(choices) != sampling.texts:
            raise ModelError(f"{self.url} sent {len(choices)} texts instead of {sampling.texts}")
        return [self._text(choice) for choice in choices]

    def _text(self, choice: "_TextChoice") -> _ServerText:
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
        return _ServerText(tuple(choice.token_ids), tuple(map(tuple, likeliest)))

    def _complete(self, arguments: Mapping[str, Any]) -> "_Completions":
        def complete(client: "OpenAI") -> bytes:
            return client.completions.with_raw_response.create(**arguments).content

        def ask() -> _Completions:
            try:
                return self._server.send(complete, _Completions)
            except RequestFailed as failure:
                if "max allowed" in str(failure):
                    failure.advice = f"Start it with --max-logprobs {CONSIDERED}."
                raise

        return self._retrying.call(ask, self.url)

    def _post(self, route: str, body: dict[str, str]) -> None:
        """Send a request whose answer is only that it was done; `RequestFailed` if it was not."""

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


class _TopLogprobs(BaseModel):
    top_logprobs: list[dict[str, float]] | None = None


class _TextChoice(BaseModel):
    logprobs: _TopLogprobs | None = None
    token_ids: list[int] | None = None


class _Completions(BaseModel):
    """Texts that continue a prompt."""

    choices: list[_TextChoice] = Field(min_length=1)


class _Done(BaseModel):
    """Nothing."""
