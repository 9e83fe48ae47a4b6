"""Ask a server that speaks OpenAI's protocol to continue texts, with their log-probabilities.

Only ``/v1/models`` and ``/v1/completions`` are used: a prompt must reach the model as it is, and
chat would put the server's own template around it. What may pass is tried again by the `openai`
client, with growing pauses or those that the server asks for: no connection, a time-out, 408, 409,
429, and 500 and above. What a server sends is checked here, since servers differ.
"""

import importlib.util
import os
import weakref
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from kbqa.engine.generate import MAX_NEW_TOKENS, Candidate
from kbqa.sparql.errors import ModelError

API_KEY_VARIABLE = "KBQA_SERVER_API_KEY"
"""Names the server's key. It is not OPENAI_API_KEY, which is no other server's business."""

VLLM = "vllm"
"""What vLLM's server names as the owner of its models."""

_Body = TypeVar("_Body", bound=BaseModel)


class Prompt(NamedTuple):
    """A text to continue, and how.

    Attributes:
        text: Reaches the model as it is.
        temperature: Of sampling; 0 is greedy.
        seed: Of sampling.
        n: Continuations to ask for; only some servers know more than one.
        extra: Fields of the request that are the server's own.
        grammar: Constrains the text, in EBNF; for vLLM's servers.
    """

    text: str
    temperature: float
    seed: int
    n: int = 1
    extra: Mapping[str, object] = {}
    grammar: str | None = None


class CompletionsServer:
    """A server, and what asking it may end in.

    Args:
        url: The API's root, such as ``http://127.0.0.1:8000/v1``.
        timeout_s: Seconds for one request.
        retries: Further tries of a request that failed.

    Raises:
        ModelError: The `llm` extra is missing.
    """

    def __init__(self, url: str, timeout_s: float, retries: int) -> None:
        if importlib.util.find_spec("openai") is None:
            raise ModelError("a server is asked by openai. Install: pip install 'kbqa[llm]'")
        from openai import OpenAI

        self.url = url
        self._timeout_s, self._retries = timeout_s, retries
        # The client refuses to go without a key; a server without one does not look at it.
        key = os.environ.get(API_KEY_VARIABLE) or "none"
        self._client = OpenAI(base_url=url, api_key=key, timeout=timeout_s, max_retries=retries)
        weakref.finalize(self, self._client.close)  # else its sockets wait for the collector

    def models(self) -> dict[str, str]:
        """List the models that the server serves, each with its owner.

        Raises:
            ModelError: No server answers, or not as the protocol has it.
        """
        listed = self._ask(lambda: self._client.models.with_raw_response.list().content, _Models)
        return {model.id: model.owned_by for model in listed.data}

    def complete(self, model: str, prompt: Prompt) -> list[Candidate]:
        """Continue a text; what the longest text allowed does not end is left out.

        Raises:
            ModelError: No server answers, or it refuses, fails, answers something else, or sends no
                log-probabilities.
        """
        extra = dict(prompt.extra)
        if prompt.grammar is not None:
            extra |= {"structured_outputs": {"grammar": prompt.grammar}, "return_token_ids": True}

        def ask() -> bytes:
            response = self._client.completions.with_raw_response.create(
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

        choices = self._ask(ask, _Completion).choices
        if not choices:
            raise ModelError(f"{self.url} answers with no text at all")
        candidates = []
        for choice in choices:
            logprobs = [] if choice.finish_reason == "length" else self._logprobs(choice)
            if logprobs and prompt.grammar is not None:
                logprobs = self._own_logprobs(model, choice)
            if logprobs:  # A text that ends at once says nothing, and may count no token.
                candidates.append(Candidate(choice.text, sum(logprobs), len(logprobs)))
        return candidates

    def _own_logprobs(self, model: str, choice: "_Choice") -> list[float]:
        """Let the model read what it wrote: what it says is of what the grammar had left over."""
        prompt, written = choice.prompt_token_ids, choice.token_ids
        if not prompt or not written:
            raise ModelError(
                f"{self.url} does not tell the tokens of a text that a grammar constrains; newer "
                "servers of vLLM do. Use --decoding none."
            )

        def ask() -> bytes:
            response = self._client.completions.with_raw_response.create(
                model=model,
                prompt=[*prompt, *written],
                max_tokens=0,
                echo=True,
                logprobs=1,
            )
            return response.content

        choices = self._ask(ask, _Completion).choices
        if len(choices) != 1 or len(read := self._logprobs(choices[0])) < len(written):
            raise ModelError(f"{self.url} does not score the text that it is sent")
        return read[-len(written) :]

    def _logprobs(self, choice: "_Choice") -> list[float]:
        logprobs = choice.logprobs.token_logprobs if choice.logprobs else None
        if logprobs is None or (choice.text and not logprobs):
            raise ModelError(
                f"{self.url} sends no log-probabilities, by which paths are ranked. vLLM's server "
                "does, and llama.cpp's where it is started with --logits_all true"
            )
        # Nothing stands before a prompt's first token, so that it has none.
        return [logprob for logprob in logprobs if logprob is not None]

    def _ask(self, ask: Callable[[], bytes], body: type[_Body]) -> _Body:
        from openai import APIConnectionError, APIStatusError, APITimeoutError, OpenAIError

        try:
            return body.model_validate_json(ask())
        except APITimeoutError:
            raise ModelError(
                f"{self.url} did not answer within {self._timeout_s:g} s, asked "
                f"{self._retries + 1} times"
            ) from None
        except APIConnectionError as error:
            raise ModelError(
                f"no server answers at {self.url}: {error.__cause__ or error}"
            ) from None
        except APIStatusError as error:
            words = " ".join(error.message.split())[:300]
            raise ModelError(
                f"{self.url} refuses: {words}{_ADVICE.get(error.status_code, '')}"
            ) from None
        except (OpenAIError, ValidationError) as error:
            words = " ".join(str(error).split())[:300]
            raise ModelError(f"{self.url} answers what is no answer: {words}") from None


_ADVICE = {
    401: f". Set {API_KEY_VARIABLE}.",
    403: f". Set {API_KEY_VARIABLE}.",
    404: ". The URL of such an API mostly ends in /v1.",
}


class _Model(BaseModel):
    id: str
    owned_by: str = ""


class _Models(BaseModel):
    data: list[_Model]


class _Logprobs(BaseModel):
    token_logprobs: list[float | None] | None = None


class _Choice(BaseModel):
    text: str
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None


class _Completion(BaseModel):
    choices: list[_Choice]
