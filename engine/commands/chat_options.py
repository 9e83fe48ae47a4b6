"""Command-line options that choose the general model, and what it may cost."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from kbqa.engine.chat.model import DEFAULT_CONCURRENCY, DEFAULT_TIMEOUT_S
from kbqa.engine.chat.prices import Price, parse_price
from kbqa.engine.config import check_key
from kbqa.sparql.errors import InputError

if TYPE_CHECKING:
    from kbqa.engine.chat.model import ChatModel

Command = Callable[..., None]

_KEY_VARIABLE = "KBQA_LLM_KEY"


@dataclass(frozen=True, slots=True)
class ChatChoice:
    """The general model that the user chose, not yet asked.

    Attributes:
        url: Where it is served; None for OpenAI's own server.
        model: Its name on the server; None if the server offers only one.
        price: The price of its tokens; None for the one in the table of prices.
        limit_usd: What its replies may cost; None for no limit.
        limit_calls: Requests that may be sent; None for no limit.
        concurrency: Requests under way at once.
        timeout_s: Seconds for one request.
        is_cached: Whether its replies are kept, and looked for before it is asked.
        is_stand_in: Nothing is sent to it: prompts are only counted, for an estimate.
    """

    url: str | None = None
    model: str | None = None
    price: Price | None = None
    limit_usd: float | None = None
    limit_calls: int | None = None
    concurrency: int = DEFAULT_CONCURRENCY
    timeout_s: float = DEFAULT_TIMEOUT_S
    is_cached: bool = True
    is_stand_in: bool = False

    def check(self) -> None:
        """Cheaply check that the model can be asked, without asking its server.

        Raises:
            InputError: The URL or the key is not valid.
            ModelError: The `llm` extra is missing.
        """
        if self.url is None and self.model is None:
            return
        from kbqa.engine.chat.openai_server import OPENAI_URL, check_server

        check_server(self.url or OPENAI_URL)

    def open(self) -> "ChatModel | None":
        """Return the model, ready for requests; None if the user chose none.

        Its server is asked for nothing but the model's name, and only if none is given.

        Raises:
            InputError: The URL, the key or the limit is not valid.
            ModelError: The `llm` extra is missing, or the server does not say which model it has.
        """
        if self.url is None and self.model is None:
            return None
        if self.is_stand_in:
            from kbqa.engine.chat.prices import find_price
            from kbqa.engine.chat.stand_in import StandIn

            price = self.price or (None if self.model is None else find_price(self.model))
            return StandIn(self.model or str(self.url), price)
        from kbqa.engine.chat.cached_chat import CachedChat
        from kbqa.engine.chat.openai_chat import OpenAIChat
        from kbqa.engine.chat.openai_server import OPENAI_URL
        from kbqa.engine.chat.spending import SpendingLimit

        model = OpenAIChat(
            self.url or OPENAI_URL,
            self.model,
            price=self.price,
            limit=SpendingLimit(self.limit_usd, self.limit_calls),
            concurrency=self.concurrency,
            timeout_s=self.timeout_s,
        )
        return CachedChat(model, model.identity, model.price) if self.is_cached else model


def chat_options(command: Command) -> Command:
    """Add the options that choose the general model, as the parameter `chat: ChatChoice`."""

    @click.option(
        "--llm",
        metavar="URL",
        help="OpenAI-compatible server of the general model, such as http://127.0.0.1:8000/v1; "
        "OpenAI's own if only --llm-model is given. Its key is read from KBQA_LLM_KEY.",
    )
    @click.option(
        "--llm-model",
        metavar="NAME",
        help="The general model's name on its server, such as gpt-4o-mini.",
    )
    @click.option("--no-llm-cache", is_flag=True, help="Do not use or write the reply cache.")
    @functools.wraps(command)
    def with_chat(
        *args: object, llm: str | None, llm_model: str | None, no_llm_cache: bool, **rest: object
    ) -> None:
        if rest.get("via") is None:  # a server that is asked has a general model of its own
            if llm is not None:
                check_key("llm", llm, _KEY_VARIABLE)
            elif llm_model is not None:
                check_key("llm_model", "OpenAI's own server", _KEY_VARIABLE)
        command(*args, chat=ChatChoice(llm, llm_model, is_cached=not no_llm_cache), **rest)

    return with_chat


def chat_limits(command: Command) -> Command:
    """Add the options that limit the use of the general model; goes below `chat_options`."""

    @click.option(
        "--llm-price",
        callback=_read_price,
        metavar="IN/OUT",
        help="USD for a million input and output tokens, such as 0.15/0.60.  [default: "
        "known for a few models]",
    )
    @click.option(
        "--llm-limit",
        type=click.FloatRange(min=0),
        metavar="USD",
        help="Stop once this run has spent this much. Cached replies cost nothing.",
    )
    @click.option(
        "--llm-calls",
        type=click.IntRange(min=0),
        metavar="N",
        help="Send it at most N requests; with 0, use only cached replies.",
    )
    @click.option(
        "--llm-concurrency",
        type=click.IntRange(min=1),
        default=DEFAULT_CONCURRENCY,
        show_default=True,
        metavar="N",
        help="Requests to send to it at once.",
    )
    @click.option(
        "--llm-timeout",
        type=click.FloatRange(min=0, min_open=True),
        default=DEFAULT_TIMEOUT_S,
        show_default=True,
        metavar="S",
        help="Time limit of a request to it, in seconds.",
    )
    @functools.wraps(command)
    def with_limits(
        *args: object,
        chat: ChatChoice,
        llm_price: Price | None,
        llm_limit: float | None,
        llm_calls: int | None,
        llm_concurrency: int,
        llm_timeout: float,
        **rest: object,
    ) -> None:
        chat = replace(
            chat,
            price=llm_price,
            limit_usd=llm_limit,
            limit_calls=llm_calls,
            concurrency=llm_concurrency,
            timeout_s=llm_timeout,
        )
        command(*args, chat=chat, **rest)

    return with_limits


def _read_price(_: click.Context, option: click.Parameter, text: str | None) -> Price | None:
    try:
        return None if text is None else parse_price(text)
    except InputError as error:
        raise click.BadParameter(str(error), param=option) from None
