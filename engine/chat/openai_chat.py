"""A general model behind any server that speaks OpenAI's protocol: OpenAI's own, vLLM's, others.

One call may take several requests. What this adds to a single request (`ChatServer`): tries, a cap
on the requests under way, the spending limit and the counting.
"""

import itertools
import logging
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from kbqa.engine.chat.chat_server import ChatServer, describe_offer
from kbqa.engine.chat.completion import Completion
from kbqa.engine.chat.model import (
    DEFAULT_CONCURRENCY,
    DEFAULT_MAX_TOKENS,
    DEFAULT_TIMEOUT_S,
    Message,
    Reply,
    Usage,
)
from kbqa.engine.chat.prices import Price, find_price
from kbqa.engine.chat.retrying import RequestFailed, Retrying
from kbqa.engine.chat.spending import SpendingLimit
from kbqa.sparql.errors import InputError, ModelError

_LONG_PAUSE_S = 10.0

logger = logging.getLogger(__name__)


class OpenAIChat:
    """A general model that a server offers. Any number of threads may ask it.

    Tokens are counted as the server counts them, those of tries that brought no usable reply among
    them; where it does not say, none are counted, and the cost is unknown. They are never guessed.

    Args:
        url: The API's root, such as ``http://127.0.0.1:8000/v1``.
        model: As the server calls it; None where it offers only one, which it is asked for.
        seed: For servers that do not always say the same at temperature 0; not sent by default.
        price: Of its tokens; by default what `find_price` knows.
        limit: What may be spent; by default anything.
        concurrency: Requests under way at once, at most; a pause between tries is none.
        timeout_s: Seconds for one request.
        retrying: How often and when a request that failed is sent again.

    The server's key is read from the environment variable KBQA_LLM_KEY, or for OpenAI's own server
    from OPENAI_API_KEY; a server that wants none needs none.

    Attributes:
        price: Of its tokens; None where it is not known.

    Raises:
        InputError: The URL or the key cannot be one, or the limit is in USD and the price unknown.
        ModelError: The `llm` extra is missing, or a model is to be chosen and is not the only one.
    """

    def __init__(
        self,
        url: str,
        model: str | None = None,
        *,
        seed: int | None = None,
        price: Price | None = None,
        limit: SpendingLimit | None = None,
        concurrency: int = DEFAULT_CONCURRENCY,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        retrying: Retrying | None = None,
    ) -> None:
        self._limit = limit or SpendingLimit()
        self._server = ChatServer(url, timeout_s)
        self._model = self._only_model() if model is None else model
        self.price = price or find_price(self._model)
        if self._limit.usd is not None and self.price is None:
            raise InputError(
                f"a limit in USD needs the price of {self._model}: give it with --llm-price, or "
                "limit the requests with --llm-calls"
            )
        self._seed = seed
        self._slots = threading.BoundedSemaphore(concurrency)
        self._retrying = retrying or Retrying()

    @property
    def name(self) -> str:
        """The model and its server, for reports."""
        return f"{self._model} at {self._server.url}"

    @property
    def identity(self) -> Mapping[str, str | int | None]:
        """What, besides the conversation, can change a reply."""
        return {
            "model": self._model,
            "url": self._server.url,
            "temperature": 0,
            "seed": self._seed,
        }

    def complete(
        self, messages: Sequence[Message], *, max_tokens: int = DEFAULT_MAX_TOKENS
    ) -> Reply:
        """Continue a conversation; see `ChatModel.complete`."""
        logger.debug("asking %s: %s", self.name, messages)
        started = time.perf_counter()
        usage = Usage(calls=1)
        for tries in itertools.count(1):
            try:
                completion = self._request(messages, max_tokens)
                usage += self._usage(completion)
                text = self._usable_text(completion, max_tokens)
            except RequestFailed as failure:
                self._pause(failure, tries)
            else:
                break
        logger.debug("%s says: %s", self.name, text)
        return Reply(text, replace(usage, seconds=time.perf_counter() - started))

    def _request(self, messages: Sequence[Message], max_tokens: int) -> Completion:
        with self._slots:
            self._limit.count_call()
            completion = self._server.complete(self._model, messages, max_tokens, self._seed)
            # Before the next request gets the slot.
            self._limit.add_cost(self._usage(completion).cost_usd)
        return completion

    def _usage(self, completion: Completion) -> Usage:
        taken = completion.input_tokens, completion.output_tokens
        cost_usd = None if self.price is None else self.price.cost_usd(*taken)
        return Usage(input_tokens=taken[0], output_tokens=taken[1], cost_usd=cost_usd)

    def _usable_text(self, completion: Completion, max_tokens: int) -> str:
        if completion.text.strip():
            return completion.text
        if completion.finish_reason == "length":
            # Reasoning models do it, and would again.
            raise RequestFailed(
                f"{self.name} took all of its {max_tokens} tokens without writing any text",
                "Take a model that does not reason before it writes.",
                may_pass=False,
            )
        raise RequestFailed(
            f"{self.name} answers with an empty text ({completion.finish_reason})", may_pass=True
        )

    def _pause(self, failure: RequestFailed, tries: int) -> None:
        """Wait until a request may be sent again.

        Raises:
            ModelError: It may not.
        """
        asked = "" if tries == 1 else f", asked {tries} times"
        if not failure.may_pass or tries > self._retrying.retries:
            raise ModelError(f"{failure}{asked}. {failure.advice}".rstrip()) from None
        wait_s = max(self._retrying.pause_s(tries), failure.wait_s or 0.0)
        if wait_s > self._retrying.longest_wait_s:
            raise ModelError(
                f"{failure}{asked}. It asks to wait {wait_s:.0f} s, longer than the "
                f"{self._retrying.longest_wait_s:g} s that are waited. Run again then."
            ) from None
        # Without the failure's words: they are the server's, which may quote the prompt.
        logger.log(
            logging.WARNING if wait_s > _LONG_PAUSE_S else logging.INFO,
            "%s gave no usable reply; it is asked again in %.1f s (try %d of %d)",
            self.name,
            wait_s,
            tries + 1,
            self._retrying.retries + 1,
        )
        logger.debug("what it gave: %s", failure)
        time.sleep(wait_s)

    def _only_model(self) -> str:
        try:
            offered = self._server.models()
        except RequestFailed as failure:
            raise ModelError(f"{failure}. {failure.advice}".rstrip()) from None
        if len(offered) != 1:
            raise ModelError(
                f"which model of {self._server.url}? {describe_offer(offered)} "
                "Choose with --llm-model."
            )
        return offered[0]
