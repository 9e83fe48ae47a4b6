"""Ask a server that speaks OpenAI's protocol to continue texts, with their log-probabilities.

Only ``/v1/models`` and ``/v1/completions`` are used: a prompt must reach the model as it is, and
chat would put the server's own template around it.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from pydantic import BaseModel, Field

from kbqa.engine.chat.openai_server import SMALL_MODEL, OpenAIServer
from kbqa.engine.chat.retrying import Retrying
from kbqa.engine.writing.generate import MAX_NEW_TOKENS, Candidate
from kbqa.sparql.errors import ModelError

if TYPE_CHECKING:
    from openai import OpenAI

VLLM = "vllm"
"""What vLLM's server names as the owner of its models."""


class Prompt(NamedTuple):
    """A text to continue, and how.

    Attributes:
        text: It reaches the model unchanged.
        temperature: Temperature of sampling; 0 is greedy.
        seed: Seed of sampling.
        n: Continuations to ask for; only some servers accept more than one.
        extra: Fields of the request that only this server knows.
        grammar: Constrains the text, in EBNF; for vLLM's servers.
    """

    text: str
    temperature: float
    seed: int
    n: int = 1
    extra: Mapping[str, object] = {}
    grammar: str | None = None


class CompletionsServer:
    """A server that continues texts.

    Args:
        url: The API's root, such as ``http://127.0.0.1:8000/v1``.
        timeout_s: Seconds for one request.
        retries: Further tries of a failed request.

    Raises:
        InputError: The URL or the key is not valid.
        ModelError: The `llm` extra is missing.
    """

    def __init__(self, url: str, timeout_s: float, retries: int) -> None:
        self._server = OpenAIServer(url, timeout_s, SMALL_MODEL)
        self._retrying = Retrying(retries=retries)
        self.url = self._server.url

    def models(self) -> dict[str, str]:
        """Return the models that the server serves, each with its owner.

        Raises:
            ModelError: No server answers, or it sends something else.
        """
        return self._retrying.call(self._server.models, self.url)

    def complete(self, model: str, prompt: Prompt, ends_at: float | None = None) -> list[Candidate]:
        """Continue a text; continuations that exceed the length limit are left out.

        Args:
            model: Its name on the server.
            prompt: What to continue.
            ends_at: When the caller's deadline passes, as `time.monotonic` counts.

        Raises:
            ModelError: No server answers, or it refuses, fails, sends something else, or sends no
                log-probabilities.
            DeadlineExceeded: The deadline passed.
        """
        extra = dict(prompt.extra)
        if prompt.grammar is not None:
            extra |= {"structured_outputs": {"grammar": prompt.grammar}, "return_token_ids": True}

        def request(client: "OpenAI") -> bytes:
            response = client.completions.with_raw_response.create(
                model=model,
                prompt=prompt.text,
                n=prompt.n,
                temperature=prompt.temperature,
                top_p=1,
                seed=prompt.seed,
                max_tokens=MAX_NEW_TOKENS,
                logprobs=1,  # those of the tokens themselves; some servers take 0 for none at all
                extra_body=extra,
            )
            return response.content

        candidates = []
        for choice in self._ask(request, ends_at):
            logprobs = [] if choice.finish_reason == "length" else self._logprobs(choice)
            if logprobs and prompt.grammar is not None:
                logprobs = self._own_logprobs(model, choice, ends_at)
            if logprobs:  # A text that ends at once is empty, and may count no token.
                candidates.append(Candidate(choice.text, sum(logprobs), len(logprobs)))
        return candidates

    def _own_logprobs(self, model: str, choice: "_Choice", ends_at: float | None) -> list[float]:
        """Have the model read its text: under a grammar, the server sends other probabilities."""
        prompt, written = choice.prompt_token_ids, choice.token_ids
        if not prompt or not written:
            raise ModelError(
                f"{self.url} does not send the tokens of a text under a grammar; newer vLLM "
                "servers do. Use --decoding none."
            )

        def request(client: "OpenAI") -> bytes:
            response = client.completions.with_raw_response.create(
                model=model,
                prompt=[*prompt, *written],
                max_tokens=0,
                echo=True,
                logprobs=1,
            )
            return response.content

        choices = self._ask(request, ends_at)
        if len(choices) != 1 or len(read := self._logprobs(choices[0])) < len(written):
            raise ModelError(f"{self.url} does not score the text that it is sent")
        return read[-len(written) :]

    def _logprobs(self, choice: "_Choice") -> list[float]:
        logprobs = choice.logprobs.token_logprobs if choice.logprobs else None
        if logprobs is None or (choice.text and not logprobs):
            raise ModelError(
                f"{self.url} sends no log-probabilities, which kbqa needs to rank paths. vLLM's "
                "server sends them, llama.cpp's only if started with --logits_all true."
            )
        # The first token of a prompt has none.
        return [logprob for logprob in logprobs if logprob is not None]

    def _ask(self, request: "Callable[[OpenAI], bytes]", ends_at: float | None) -> list["_Choice"]:
        def ask() -> _Completion:
            return self._server.send(request, _Completion, ends_at=ends_at)

        return self._retrying.call(ask, self.url, ends_at).choices


class _Logprobs(BaseModel):
    token_logprobs: list[float | None] | None = None


class _Choice(BaseModel):
    text: str
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None


class _Completion(BaseModel):
    """A completion of a text."""

    choices: list[_Choice] = Field(min_length=1)
