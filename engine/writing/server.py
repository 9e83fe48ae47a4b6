"""Write CRPs with a model behind a server of OpenAI's protocol: vLLM's, llama.cpp's, others.

Only ``/v1/models`` and ``/v1/completions`` are used: chat would put the server's own template
around the prompt. Each candidate is a request, since not every server supports ``n``.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TYPE_CHECKING, NamedTuple, Self

from pydantic import BaseModel, Field

from kbqa.engine.chat.openai import read_tokens
from kbqa.engine.chat.server import SMALL_MODEL, OpenAIServer, Retrying, describe_offer
from kbqa.engine.writing.beam_search import best_walked
from kbqa.engine.writing.ebnf import (
    GRAPH_PROCESSOR,
    TOPICS,
    Steered,
    decoding_grammar,
    write_steered,
)
from kbqa.engine.writing.generate import (
    DEFAULT_BEAMS,
    DEFAULT_SEED,
    MAX_NEW_TOKENS,
    TEMPERATURE,
    Candidate,
    Progress,
    PromptFormat,
    Request,
)
from kbqa.engine.writing.steering import Decoding
from kbqa.kb.graph import Graph
from kbqa.sparql.errors import KbqaError, ModelError

if TYPE_CHECKING:
    from openai import OpenAI


VLLM = "vllm"  # what vLLM's server names as the owner of its models

# Else vLLM would begin the prompt with the tokenizer's own special token, and sample by the
# settings that the model's makers recommend for chat.
VLLM_AS_IT_IS = {"add_special_tokens": False, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}

_CONCURRENT = 16  # requests: vLLM computes them together, llama.cpp one after the other


class _Continuation(NamedTuple):
    text: str
    temperature: float  # 0 is greedy
    seed: int
    extra: Mapping[str, object]  # fields of the request that only this server knows


class _TokenLogprobs(BaseModel):
    token_logprobs: list[float | None] | None = None


class _Continued(BaseModel):
    text: str
    finish_reason: str | None = None
    logprobs: _TokenLogprobs | None = None
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None


class _Completion(BaseModel):
    """A completion of a text."""  # the words of a message

    choices: list[_Continued] = Field(min_length=1)
    usage: object = None


class ServerGenerator:
    """A model behind an OpenAI-compatible server, with its key in KBQA_SERVER_API_KEY.

    `url` is the root of the API, such as ``http://127.0.0.1:8000/v1``, `model` its name there, not
    needed if there is only one. Only the server of vLLM offers the level ``schema``, and
    ``graph`` only with kbqa's logits processor, which should have opened the same graph.

    Raises:
        InputError: The URL or the key is not valid.
        ModelError: The `llm` extra is missing, no server answers, it does not serve the model, or
            it cannot constrain as asked.
    """

    def __init__(
        self,
        url: str,
        prompt: PromptFormat,
        model: str | None = None,
        decoding: Decoding | None = None,
        *,
        seed: int = DEFAULT_SEED,
        timeout_s: float = 120.0,
        retries: int = 3,
    ) -> None:
        decoding = decoding or Decoding()
        self._decoding, self._grammar = decoding, decoding_grammar(decoding, prompt)
        self._server = OpenAIServer(url, timeout_s, SMALL_MODEL)
        self._retrying = Retrying(retries=retries)
        self._url = self._server.url
        served = self._retrying.call(self._server.models, self._url)
        self._model = _choose(url, served, model)
        self._prompt, self._seed = prompt, seed
        is_vllm = served[self._model] == VLLM
        if decoding.level != "none" and not is_vllm:
            raise ModelError(
                f"{url} is not a vLLM server; only those can be constrained. Use --decoding none."
            )
        self._extra: dict[str, object] = {**VLLM_AS_IT_IS} if is_vllm else {}
        if self._grammar is not None:
            grammar = {"grammar": self._grammar}
            self._extra |= {"structured_outputs": grammar, "return_token_ids": True}
        if decoding.level == "graph":
            self._check_follows_graph()
        self.name = f"{self._model} at {self._url}, decoding {decoding.level}"
        self.suggested_relations = prompt.relations

    def generate(
        self,
        requests: Sequence[Request],
        n: int = DEFAULT_BEAMS,
        *,
        progress: Progress | None = None,
    ) -> list[list[Candidate]]:
        """Write up to n candidates for each request; see `Generator.generate`.

        Sampling asks for the greedy text and, if n is above 1, for n samples.
        """
        continuations = [self._continuations(request, n) for request in requests]
        with ThreadPoolExecutor(_CONCURRENT) as pool:
            asked = [
                [pool.submit(copy_context().run, self._complete, one) for one in of]
                for of in continuations
            ]
            try:
                found = [[one for call in calls for one in call.result()] for calls in asked]
            except KbqaError:
                pool.shutdown(cancel_futures=True)
                raise
        form = self._prompt.crp_format
        return [
            best_walked(written, n, self._decoding.steps(request.topics, form) if written else None)
            for request, written in zip(requests, found, strict=True)
        ]

    def over(self, graph: Graph) -> Self:
        """Return itself: the server must not be constrained."""
        return self

    def _continuations(self, request: Request, n: int) -> list[_Continuation]:
        text = self._prompt.render(request.question, request.relations)
        extra = self._extra
        if self._decoding.level == "graph":
            steered = Steered(request.topics, self._prompt.crp_format)
            extra = {**extra, "vllm_xargs": write_steered(steered)}
        greedy = _Continuation(text, 0.0, self._seed, extra)
        samples = [
            greedy._replace(temperature=TEMPERATURE, seed=self._seed + number)
            for number in range(n if n > 1 else 0)
        ]
        return [greedy, *samples]

    def _complete(self, continuation: _Continuation) -> list[Candidate]:
        """Continue a text; leave out candidates beyond the length limit."""

        def request(client: "OpenAI") -> bytes:
            response = client.completions.with_raw_response.create(
                model=self._model,
                prompt=continuation.text,
                n=1,
                temperature=continuation.temperature,
                top_p=1,
                seed=continuation.seed,
                max_tokens=MAX_NEW_TOKENS,
                logprobs=1,  # those of the tokens themselves; some servers take 0 for none at all
                extra_body=continuation.extra,
            )
            return response.content

        candidates = []
        completion = self._ask(request)
        read, _ = read_tokens(completion.usage)
        for written in completion.choices:
            logprobs = [] if written.finish_reason == "length" else self._logprobs(written)
            if logprobs and self._grammar is not None:
                logprobs = self._own_logprobs(written)
            if logprobs:  # A text that ends at once is empty, and may count no token.
                tokens = len(logprobs)
                candidates.append(
                    Candidate(written.text, sum(logprobs), tokens, input_tokens=read or None)
                )
        return candidates

    def _own_logprobs(self, continued: _Continued) -> list[float]:
        """Have the model read its text: under a grammar, the server sends other probabilities."""
        prompt, written = continued.prompt_token_ids, continued.token_ids
        if not prompt or not written:
            raise ModelError(
                f"{self._url} does not send the tokens of a text under a grammar; newer vLLM "
                "servers do. Use --decoding none."
            )

        def request(client: "OpenAI") -> bytes:
            response = client.completions.with_raw_response.create(
                model=self._model, prompt=[*prompt, *written], max_tokens=0, echo=True, logprobs=1
            )
            return response.content

        texts = self._ask(request).choices
        if len(texts) != 1 or len(read := self._logprobs(texts[0])) < len(written):
            raise ModelError(f"{self._url} does not score the text that it is sent")
        return read[-len(written) :]

    def _logprobs(self, continued: _Continued) -> list[float]:
        logprobs = continued.logprobs.token_logprobs if continued.logprobs else None
        if logprobs is None or (continued.text and not logprobs):
            raise ModelError(
                f"{self._url} sends no log-probabilities, which kbqa needs to rank paths. vLLM's "
                "server sends them, llama.cpp's only if started with --logits_all true."
            )
        # The first token of a prompt has none.
        return [logprob for logprob in logprobs if logprob is not None]

    def _ask(self, request: "Callable[[OpenAI], bytes]") -> _Completion:
        def ask() -> _Completion:
            return self._server.send(request, _Completion)

        return self._retrying.call(ask, self._url)

    def _check_follows_graph(self) -> None:
        """Check that the server has the logits processor: only this refuses topics like these."""
        wrong = _Continuation("?", 0.0, self._seed, {"vllm_xargs": {TOPICS: "wrong"}})
        try:
            self._complete(wrong)
        except ModelError as error:
            if TOPICS not in str(error):
                raise
        else:
            raise ModelError(
                f"{self._url} cannot follow the graph. Start it with --logits-processors "
                f"{GRAPH_PROCESSOR}, or use --decoding schema."
            )


def _choose(url: str, served: Collection[str], model: str | None) -> str:
    if model is None and len(served) == 1:
        return next(iter(served))
    if not served:
        raise ModelError(f"{url} serves no model. Start it with one.")
    if model is None or model not in served:
        what = "several models" if model is None else f"no model {model!r}"
        raise ModelError(
            f"{url} serves {what}. {describe_offer(served, model or '')} "
            "Choose one with --served-model."
        )
    return model
