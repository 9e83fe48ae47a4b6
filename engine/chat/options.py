"""Command-line options that choose the general model, and what it may cost."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from kbqa.engine.chat.model import DEFAULT_CONCURRENCY, DEFAULT_TIMEOUT_S
from kbqa.engine.chat.prices import Price, parse_price
from kbqa.sparql.errors import InputError

if TYPE_CHECKING:
    from kbqa.engine.chat.model import ChatModel

Command = Callable[..., None]


@dataclass(frozen=True, slots=True)
class ChatChoice:
    """The general model that the user chose, not yet asked.

    Attributes:
        url: Where it is served; None for OpenAI's own server.
        model: As the server calls it; None where it offers only one.
        price: Of its tokens; None for what the table of prices knows.
        limit_usd: What asking it may cost; None for any amount.
        limit_calls: Requests that may be sent; None for any number.
        concurrency: Requests under way at once.
        timeout_s: Seconds for one request.
        is_cached: Whether its replies are kept, and looked for before it is asked.
    """

    url: str | None = None
    model: str | None = None
    price: Price | None = None
    limit_usd: float | None = None
    limit_calls: int | None = None
    concurrency: int = DEFAULT_CONCURRENCY
    timeout_s: float = DEFAULT_TIMEOUT_S
    is_cached: bool = True

    def open(self) -> "ChatModel | None":
        """Make the model ready to be asked; None where the user chose none.

        It is asked nothing, but its server which model it has where that is not said.

        Raises:
            InputError: The URL, the key or the limit cannot be used.
            ModelError: The `llm` extra is missing, or the server does not say which model it has.
        """
        if self.url is None and self.model is None:
            return None
        from kbqa.engine.chat.cached_chat import CachedChat
        from kbqa.engine.chat.chat_server import OPENAI_URL
        from kbqa.engine.chat.openai_chat import OpenAIChat
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
    """Add what chooses the general model; the command takes it as `chat: ChatChoice`."""

    @click.option(
        "--llm",
        metavar="URL",
        help="OpenAI-compatible server of the general model, such as http://127.0.0.1:8000/v1. Its "
        "key is read from KBQA_LLM_KEY, OpenAI's also from OPENAI_API_KEY.  [default: OpenAI's own "
        "with --llm-model, else no general model]",
    )
    @click.option(
        "--llm-model",
        metavar="NAME",
        help="The general model as its server calls it, such as gpt-4o-mini.  [default: the "
        "server's only one]",
    )
    @click.option(
        "--llm-price",
        callback=_read_price,
        metavar="IN/OUT",
        help="USD for a million tokens of its input and output, such as 0.15/0.60.  [default: "
        "known for a few models]",
    )
    @click.option(
        "--llm-limit",
        type=click.FloatRange(min=0),
        metavar="USD",
        help="Ask it no more once this run has spent as much. What is cached costs nothing.",
    )
    @click.option(
        "--llm-calls",
        type=click.IntRange(min=0),
        metavar="N",
        help="Send it at most this many requests; with 0, use only what is cached.",
    )
    @click.option(
        "--llm-concurrency",
        type=click.IntRange(min=1),
        default=DEFAULT_CONCURRENCY,
        show_default=True,
        metavar="N",
        help="Requests to it under way at once.",
    )
    @click.option(
        "--llm-timeout",
        type=click.FloatRange(min=0, min_open=True),
        default=DEFAULT_TIMEOUT_S,
        show_default=True,
        metavar="S",
        help="Seconds for a request to it.",
    )
    @click.option(
        "--no-llm-cache", is_flag=True, help="Ask it anew, and keep nothing of what it says."
    )
    @functools.wraps(command)
    def with_chat(
        *args: object,
        llm: str | None,
        llm_model: str | None,
        llm_price: Price | None,
        llm_limit: float | None,
        llm_calls: int | None,
        llm_concurrency: int,
        llm_timeout: float,
        no_llm_cache: bool,
        **rest: object,
    ) -> None:
        chat = ChatChoice(
            llm,
            llm_model,
            llm_price,
            llm_limit,
            llm_calls,
            llm_concurrency,
            llm_timeout,
            not no_llm_cache,
        )
        command(*args, chat=chat, **rest)

    return with_chat


def _read_price(_: click.Context, option: click.Parameter, text: str | None) -> Price | None:
    try:
        return None if text is None else parse_price(text)
    except InputError as error:
        raise click.BadParameter(str(error), param=option) from None
