"""A general model behind any server that speaks OpenAI's protocol: OpenAI's own, vLLM's, others.

To a single request (`OpenAIServer`) this adds retries, a limit on concurrent requests, the spending
limit and the counting. Servers differ, so an answer needs no more than a text.
"""

import json
import logging
import re
import threading
import time
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from pydantic import BaseModel, Field, NonNegativeInt, ValidationError

from kbqa.engine.chat.model import (
    DEFAULT_CONCURRENCY,
    DEFAULT_MAX_TOKENS,
    DEFAULT_TIMEOUT_S,
    Message,
    Price,
    Reply,
    SpendingLimit,
    Usage,
    count_tokens,
    find_price,
    without_reasoning,
)
from kbqa.engine.chat.server import (
    OPENAI_URL,
    OpenAIServer,
    RequestFailed,
    Retrying,
    describe_offer,
)
from kbqa.kb.deadline import held
from kbqa.sparql.errors import InputError, ModelError

if TYPE_CHECKING:
    from openai import OpenAI
    from openai.types.chat import ChatCompletionMessageParam

# OpenAI's newer models refuse the older name, other servers may not know the newer one.
_LIMIT_NAMES = ("max_tokens", "max_completion_tokens")
_OPTIONAL = (*_LIMIT_NAMES, "temperature", "seed")

# OpenAI: "Unsupported parameter: 'max_tokens'", "does not support 0.0", and in Azure "Unrecognized
# request argument"; vLLM and Mistral: "Extra inputs are not permitted".
_SAYS_REFUSED = re.compile(
    r"unsupported|not support|unrecogni[sz]ed|unknown|unexpected|not (?:permitted|allowed)"
    r"|extra_forbidden|deprecated",
    re.IGNORECASE,
)

logger = logging.getLogger(__name__)


class OpenAIChat:
    """A general model that a server offers. Any number of threads may ask it.

    If the server refuses a parameter, such as a temperature that reasoning models do not take, this
    request and all later ones are sent without it. Tokens are as the server counts them, those of
    failed tries included. If it does not count them, the cost is unknown.

    The server's key is read from the environment variable KBQA_LLM_KEY, for OpenAI's own server
    also from OPENAI_API_KEY.

    Args:
        url: The API's root, such as ``http://127.0.0.1:8000/v1``.
        model: Its name on the server; None if the server offers only one.
        price: Of its tokens; by default the one that `find_price` finds.
        concurrency: Most requests at once. A pause between tries does not count as one.
        timeout_s: For one request, from the connection to the last byte of the answer.
        extra: Parameters that each request has besides, or instead of kbqa's own of that name. One
            that is None is left out.

    Raises:
        InputError: The URL or the key is not valid, or the limit is in USD and the price unknown.
        ModelError: The `llm` extra is missing, or no model is named and the server offers several.
    """

    def __init__(
        self,
        url: str,
        model: str | None = None,
        *,
        price: Price | None = None,
        limit: SpendingLimit | None = None,
        concurrency: int = DEFAULT_CONCURRENCY,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        retrying: Retrying | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        self._extra, self._limit = dict(extra or {}), limit or SpendingLimit()
        self._server = OpenAIServer(url, timeout_s)
        self._model = self._only_model() if model is None else model
        self.price = price or find_price(self._model)
        if self._limit.usd is not None and self.price is None:
            raise InputError(
                f"a limit in USD needs the price of {self._model}: give it with --llm-price, or "
                "limit the requests with --llm-calls"
            )
        self._refused: frozenset[str] = frozenset()
        self._slots = threading.BoundedSemaphore(concurrency)
        self._retrying = retrying or Retrying()

    @property
    def name(self) -> str:
        """The model, its server and extra parameters, for reports and manifests."""
        extra = f" with {self._written_extra}" if self._extra else ""
        return f"{self._model} at {self._server.url}{extra}"

    @property
    def identity(self) -> Mapping[str, str]:
        """Everything but a call's own arguments that can change its reply."""
        extra = {"extra": self._written_extra} if self._extra else {}
        return {"model": self._model, "url": self._server.url, **extra}

    @property
    def _written_extra(self) -> str:
        return json.dumps(self._extra, sort_keys=True)

    def complete(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int = DEFAULT_MAX_TOKENS,
        temperature: float = 0.0,
        seed: int | None = None,
    ) -> Reply:
        """Continue a conversation; see `ChatModel.complete`."""
        logger.debug("asking %s: %s", self.name, messages)
        started = time.perf_counter()
        usage, refused = Usage(calls=1), self._refused

        def ask() -> _Completed:
            nonlocal usage, refused
            refused = self._refused
            try:
                with held(self._slots, self.name):
                    self._limit.count_call()
                    completion = self._request(messages, max_tokens, temperature, seed, refused)
                    # Counted before the next request gets the slot.
                    self._limit.add_cost(completion.usage.cost_usd)
            except RequestFailed as failure:
                parameter = self._named(failure.refusal)
                if not self._can_do_without(failure.refusal, parameter, refused):
                    failure.advice = failure.advice or _how_to_leave_out(parameter)
                    raise
                return ask()
            usage += completion.usage
            self._check_text(completion)
            return completion

        completion = self._retrying.call(ask, self.name)
        logger.debug("%s replied: %s", self.name, completion.text)
        usage = replace(usage, seconds=time.perf_counter() - started)
        is_truncated = completion.finish_reason == "length"
        return Reply(completion.text, usage, is_truncated, "temperature" not in refused)

    def _request(
        self,
        messages: Sequence[Message],
        max_tokens: int,
        temperature: float,
        seed: int | None,
        refused: AbstractSet[str],
    ) -> "_Completed":
        """Send one request, without the parameters that the server refused."""
        names = _LIMIT_NAMES[::-1] if self._server.url == OPENAI_URL else _LIMIT_NAMES
        limit_name = next(name for name in names if name not in refused)
        own: dict[str, Any] = {"temperature": temperature, "seed": seed}
        if not self._extra.keys() & {*_LIMIT_NAMES}:
            own[limit_name] = max_tokens
        kept = {name: value for name, value in own.items() if name not in refused}
        sent = {name: value for name, value in (kept | self._extra).items() if value is not None}

        def send(client: "OpenAI") -> bytes:
            response = client.chat.completions.with_raw_response.create(
                model=self._model,
                messages=[_write_message(message) for message in messages],
                extra_body=sent,
            )
            return response.content

        answer = self._server.send(send, _Answer, model=self._model)
        choice = answer.choices[0]
        return _Completed(
            choice.message.content or "",
            choice.finish_reason or "no reason given",
            count_tokens(self.price, *read_tokens(answer.usage), calls=0),
            next((sent[name] for name in _LIMIT_NAMES if name in sent), None),
        )

    def _named(self, refusal: str) -> str | None:
        """Return the parameter that a server names when it refuses a request."""
        names = "|".join(map(re.escape, (*self._extra, *_OPTIONAL)))
        found = re.search(rf"(?<!\w)(?:{names})(?!\w)", refusal)
        return None if found is None else found[0]

    def _can_do_without(self, refusal: str, parameter: str | None, refused: frozenset[str]) -> bool:
        """Note a refused parameter, and return whether to send the request without it."""
        if parameter is None or parameter in self._extra or not _SAYS_REFUSED.search(refusal):
            return False
        if parameter in refused or refused | {parameter} >= {*_LIMIT_NAMES}:
            return False
        if parameter not in self._refused:
            self._refused |= {parameter}
            logger.warning(
                "%s does not take %s; it is asked without%s",
                self.name,
                parameter,
                ", so its replies may differ from run to run" * (parameter == "temperature"),
            )
        return True

    def _check_text(self, completion: "_Completed") -> None:
        if without_reasoning(completion.text).strip():
            return
        # Reasoning models do the first two, and would again.
        if completion.finish_reason == "length":
            tokens = "tokens" if completion.limit is None else f"{completion.limit} tokens"
            what = f"used all of its {tokens} without writing any text"
        elif completion.text.strip():
            what = "wrote its reasoning and no reply"
        else:
            raise RequestFailed(
                f"{self.name} sent an empty text ({completion.finish_reason})", may_pass=True
            )
        advice = (
            "Use a model that does not reason before it writes, or switch that off: many servers "
            """take --llm-extra '{"chat_template_kwargs": {"enable_thinking": false}}'."""
        )
        raise RequestFailed(f"{self.name} {what}", advice, may_pass=False)

    def _only_model(self) -> str:
        try:
            offered = self._server.models()
        except RequestFailed as failure:
            raise ModelError(f"{failure}. {failure.advice}".rstrip()) from None
        if len(offered) != 1:
            raise ModelError(
                f"which model of {self._server.url}? {describe_offer(offered)} "
                "Choose one with --llm-model."
            )
        return next(iter(offered))


class _Completed(NamedTuple):
    text: str  # may be blank
    finish_reason: str  # in the server's words
    usage: Usage
    limit: int | None  # of its tokens, if one was sent


def _how_to_leave_out(parameter: str | None) -> str:
    if parameter is None:
        return ""
    return f"""Leave out {parameter} with --llm-extra '{{"{parameter}": null}}'."""


def _write_message(message: Message) -> "ChatCompletionMessageParam":
    # JSON can hold half a surrogate pair, which UTF-8 cannot: the client would fail.
    content = message.content.encode(errors="replace").decode()
    return cast("ChatCompletionMessageParam", {"role": message.role, "content": content})


class _AnswerMessage(BaseModel):
    content: str | None = None


class _AnswerChoice(BaseModel):
    message: _AnswerMessage
    finish_reason: str | None = None


class _Answer(BaseModel):
    """A chat completion."""  # Shown to the user if something else is sent.

    choices: list[_AnswerChoice] = Field(min_length=1)
    usage: object = None


class _Tokens(BaseModel):
    prompt_tokens: NonNegativeInt = 0
    completion_tokens: NonNegativeInt = 0


def read_tokens(usage: object) -> tuple[int, int]:
    """Return the input and output tokens that the server counted; 0 if it did not."""
    try:
        tokens = _Tokens.model_validate(usage)
    except ValidationError:
        return 0, 0
    return tokens.prompt_tokens, tokens.completion_tokens
