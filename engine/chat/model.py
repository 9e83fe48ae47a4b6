"""The general language model as the engine sees it: messages in, a counted reply out.

`ChatModel` is the seam: behind it is a server that speaks OpenAI's protocol
(`kbqa.engine.chat.openai_chat`), or in tests a script.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

DEFAULT_MAX_TOKENS = 512
"""Most tokens of a reply: a blueprint or a choice among paths takes under a hundred."""

DEFAULT_CONCURRENCY = 8
"""Most requests at once, over all threads."""

DEFAULT_TIMEOUT_S = 120.0
"""Seconds for one request, from the connection to the last byte of the answer."""

_TAG = r"(?:seed:)?(?:think(?:ing)?|thoughts?|reasoning)"
_CLOSING = (
    rf"</{_TAG}>|\[/THINK\]|◁/think▷|<\|end_of_thought\|>|<\|END_THINKING\|>"
    r"|<\|channel\|>final[^<]*<\|message\|>"
)
_OPENING = (
    rf"<{_TAG}>|\[THINK\]|◁think▷|<\|begin_of_thought\|>|<\|START_THINKING\|>"
    r"|<\|channel\|>(?:analysis|commentary)\b"
)
_REASONING = re.compile(rf"(?:{_OPENING}).*?(?:{_CLOSING}|\Z)", re.DOTALL | re.IGNORECASE)
_BEFORE_REPLY = re.compile(rf"\A.*(?:{_CLOSING})", re.DOTALL | re.IGNORECASE)
_END_OF_TURN = re.compile(r"(?:\s*<\|(?:end|return|im_end)\|>)+\s*\Z")
"""Marks of DeepSeek-R1, Qwen3, Mistral, Kimi, OpenThinker, Command A and gpt-oss."""


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True)
class Usage:
    """What asking general models took; usages can be added.

    Attributes:
        calls: Replies, including those from the cache.
        cached_calls: Replies from the cache: no server was asked, and nothing paid.
        input_tokens: Of all prompts, as the server counted them when it was asked.
        output_tokens: Of all replies.
        seconds: Wall time of the calls, retries included; those from the cache took none.
        cost_usd: What the tokens cost by the price table, also of replies from the cache, so that a
            figure does not depend on what was asked before. None if a price is not known.
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
    """What a general model replied, and what that took: the usage of one call.

    Attributes:
        text: Never blank. It may hold the model's reasoning; see `without_reasoning`.
        usage: Of the call.
        is_truncated: The model was not done: `max_tokens` or its context ended the text.
        at_temperature: The server took the temperature; else it sampled as it does by default.
    """

    text: str
    usage: Usage
    is_truncated: bool = False
    at_temperature: bool = True


def without_reasoning(text: str) -> str:
    r"""Return what a model wrote as its reply, without the reasoning that some write before it.

    Reasoning that was cut off, so that no reply follows it, leaves nothing. A chat template may
    have written the opening mark, so the closing mark is enough.

    >>> without_reasoning("<think>Mombasa? No.</think>\n\nNairobi")
    'Nairobi'
    """
    reply = _BEFORE_REPLY.sub("", _REASONING.sub("", text))
    return text if reply == text else _END_OF_TURN.sub("", reply).strip()


class ChatModel(Protocol):
    """A general language model. Any number of threads may ask it."""

    @property
    def name(self) -> str:
        """The model, and where it is served, for reports and manifests."""

    def complete(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int = DEFAULT_MAX_TOKENS,
        temperature: float = 0.0,
        seed: int | None = None,
        ends_at: float | None = None,
    ) -> Reply:
        """Continue a conversation.

        Args:
            messages: The conversation so far; the last message is the user's.
            max_tokens: Most tokens of the reply.
            temperature: How freely the reply is sampled; 0 for the likeliest.
            seed: Of the sampling; None leaves it to the server.
            ends_at: When the caller's deadline passes, as `time.monotonic` counts.

        Raises:
            ModelError: The model is missing, or gave no usable reply after every retry.
            PromptTooLong: The conversation does not fit into the model's context.
            SpendingLimitReached: What may be spent is spent; nothing was asked.
            DeadlineExceeded: The deadline passed.
        """
