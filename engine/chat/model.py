"""The general language model as the engine sees it: messages in, a counted reply out.

`ChatModel` is the seam behind which a server that speaks OpenAI's protocol stands
(`kbqa.engine.chat.openai_chat`), and in tests a script.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal as Choice
from typing import Protocol

DEFAULT_MAX_TOKENS = 512
"""Tokens of a reply, at most: a blueprint or a choice among paths takes under a hundred."""

DEFAULT_CONCURRENCY = 8
"""Requests under way at once, over all threads."""

DEFAULT_TIMEOUT_S = 120.0
"""Seconds for one request."""


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation."""

    role: Choice["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True)
class Usage:
    """What asking general models took; usages are added up.

    Attributes:
        calls: Replies, those out of the cache among them.
        cached_calls: Replies out of the cache: nobody was asked, and nothing paid.
        input_tokens: Of all prompts, as the server counted them when it was asked.
        output_tokens: Of all replies.
        seconds: Wall time of the calls, retries included; those out of the cache took none.
        cost_usd: What the tokens cost by the price table, also of replies out of the cache, so that
            a figure does not hang on what was asked before; None where a price is not known.
    """

    calls: int = 0
    cached_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    seconds: float = 0.0
    cost_usd: float | None = 0.0

    def __add__(self, other: "Usage") -> "Usage":
        known = self.cost_usd is not None and other.cost_usd is not None
        return Usage(
            calls=self.calls + other.calls,
            cached_calls=self.cached_calls + other.cached_calls,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            seconds=self.seconds + other.seconds,
            cost_usd=(self.cost_usd or 0.0) + (other.cost_usd or 0.0) if known else None,
        )


@dataclass(frozen=True, slots=True)
class Reply:
    """What a general model said, and what it took: a usage of one call."""

    text: str
    usage: Usage


class ChatModel(Protocol):
    """A general language model. Any number of threads may ask it."""

    @property
    def name(self) -> str:
        """The model, and where it is served, for reports and manifests."""

    def complete(
        self, messages: Sequence[Message], *, max_tokens: int = DEFAULT_MAX_TOKENS
    ) -> Reply:
        """Say what comes next, at temperature 0.

        Args:
            messages: The conversation so far; the last is the user's.
            max_tokens: Of the reply, at most.

        Raises:
            ModelError: The model is not there, or gave no usable reply after every retry.
            SpendingLimitReached: What may be spent is spent; nothing was asked.
        """
