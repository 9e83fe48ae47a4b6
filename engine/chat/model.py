"""The general language model as the engine sees it, the cost of its tokens, and limits on both.

`ChatModel` is the seam: messages in, a counted reply out. `Usage` adds up the replies of one
question, `SpendingLimit` limits the requests of a process, and `RunBudget` shares a number of calls
among the questions of a run.
"""

import json
import re
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, Protocol, TypedDict, Unpack

from kbqa.sparql.errors import InputError, SpendingLimitReached

DEFAULT_MAX_TOKENS = 512  # of a reply: a blueprint or a choice among paths takes under a hundred
DEFAULT_CONCURRENCY = 8  # requests at once, over all threads
DEFAULT_TIMEOUT_S = 120.0  # for one request, from the connection to the last byte of the answer

# Marks of DeepSeek-R1, Qwen3, Mistral, Kimi, OpenThinker, Command A and gpt-oss.
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


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True)
class Usage:
    """The usage of general models. Usages can be added.

    Cached replies are counted, too, so that the cost does not depend on what was asked before.
    """

    calls: int = 0  # replies
    cached_calls: int = 0
    input_tokens: int = 0  # as the server counted them
    output_tokens: int = 0
    seconds: float = 0.0  # wall time, retries included
    cost_usd: float | None = 0.0  # None if a price is not known
    reasoned_calls: int = 0  # replies that held reasoning, which was removed

    def __add__(self, other: "Usage") -> "Usage":
        known = self.cost_usd is not None and other.cost_usd is not None
        return Usage(
            calls=self.calls + other.calls,
            cached_calls=self.cached_calls + other.cached_calls,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            seconds=self.seconds + other.seconds,
            cost_usd=(self.cost_usd or 0.0) + (other.cost_usd or 0.0) if known else None,
            reasoned_calls=self.reasoned_calls + other.reasoned_calls,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON record; `reasoned_calls` only if there are any."""
        record = asdict(self)
        if not self.reasoned_calls:
            del record["reasoned_calls"]
        return record


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply of a general model, and the usage of its one call."""

    text: str  # never blank; may hold the model's reasoning
    usage: Usage
    is_truncated: bool = False  # `max_tokens` or the context ended it
    at_temperature: bool = True  # else the server took none, and sampled by its default


def without_reasoning(text: str) -> str:
    r"""Return a model's reply without its reasoning; nothing if that was cut off.

    The closing mark is enough, since a chat template may have written the opening one.

    >>> without_reasoning("<think>Mombasa? No.</think>\n\nNairobi")
    'Nairobi'
    """
    reply = _BEFORE_REPLY.sub("", _REASONING.sub("", text))
    return text if reply == text else _END_OF_TURN.sub("", reply).strip()


class ReplySampling(TypedDict, total=False):
    """How a reply is sampled."""

    max_tokens: int  # `DEFAULT_MAX_TOKENS` by default
    temperature: float  # 0 by default
    seed: int | None  # left to the server if None


class ChatModel(Protocol):
    """A general language model. Any number of threads may ask it."""

    @property
    def name(self) -> str:
        """The model, and where it is served, for reports and manifests."""

    def complete(self, messages: Sequence[Message], **sampling: Unpack[ReplySampling]) -> Reply:
        """Continue a conversation, whose last message is the user's.

        Raises:
            ModelError: The model is missing, or gave no usable reply after every retry.
            PromptTooLong: The conversation does not fit into the model's context.
            SpendingLimitReached: What may be spent is spent; nothing was asked.
            DeadlineExceeded: The deadline passed.
        """


@dataclass(frozen=True, slots=True)
class Price:
    """The price of a million tokens in USD, with its source and date."""

    input_usd: float
    output_usd: float
    source: str = "the user"

    def cost_usd(self, input_tokens: int, output_tokens: int) -> float | None:
        """Return the cost of tokens; None if the server counted none and they are not free.

        >>> Price(0.15, 0.60).cost_usd(1_000_000, 500_000)
        0.45
        >>> Price(0.15, 0.60).cost_usd(0, 0)
        """
        is_free = self.input_usd == self.output_usd == 0
        if input_tokens == 0 and not is_free:  # Every prompt has some.
            return None
        return (input_tokens * self.input_usd + output_tokens * self.output_usd) / 1e6


def count_tokens(
    price: Price | None, input_tokens: int, output_tokens: int, *, calls: int = 1
) -> Usage:
    """Return the usage of some tokens; the price is None if it is not known."""
    cost_usd = None if price is None else price.cost_usd(input_tokens, output_tokens)
    return Usage(calls, 0, input_tokens, output_tokens, cost_usd=cost_usd)


_OPENAI = "OpenAI on 2026-02-14, by RouterKGQA's Table 2"
_HOSTS = "Artificial Analysis on 2026-02-14, by RouterKGQA's Table 2"

PRICES = {
    "gpt-4o-mini": Price(0.15, 0.60, _OPENAI),
    "llama-2-7b": Price(0.05, 0.25, _HOSTS),
    "llama-3.1-8b": Price(0.10, 0.10, _HOSTS),
}
"""By the model's name in lower case, without the parts in `_NOT_PRICED`.

A model with open weights has the price of companies that host it, so that costs are comparable.
"""

# The owner or provider, the tuning, the format, and the date of the version.
_NOT_PRICED = re.compile(r"^.*/|\bmeta-|-(?:instruct|chat|hf|\d{4}-\d\d-\d\d)\b")


def find_price(model: str) -> Price | None:
    """Look up a model's price; None if it is not in the table.

    >>> find_price("meta-llama/Llama-3.1-8B-Instruct").output_usd
    0.1
    >>> find_price("gpt-4o-mini-audio-preview")
    """
    return PRICES.get(_NOT_PRICED.sub("", model.lower()))


def parse_price(text: str) -> Price:
    """Read a price as given on the command line.

    >>> parse_price("0.15/0.60")
    Price(input_usd=0.15, output_usd=0.6, source='the user')
    """
    number = r"\s*(\d+(?:\.\d*)?|\.\d+)\s*"
    found = re.fullmatch(f"{number}/{number}", text)
    if found is None:
        raise InputError(
            f"{text!r} is not a price: give the USD for a million input tokens and for a million "
            "output tokens, such as 0.15/0.60"
        )
    return Price(float(found[1]), float(found[2]))


# What kbqa itself sends, or could not read the reply to.
_NOT_EXTRA = {"messages": "kbqa writes them", "model": "use --llm-model", "stream": "not read"}


def parse_extra(text: str) -> dict[str, Any]:
    """Read parameters for requests as given on the command line.

    >>> parse_extra('{"temperature": null, "chat_template_kwargs": {"enable_thinking": false}}')
    {'temperature': None, 'chat_template_kwargs': {'enable_thinking': False}}
    """

    def refuse(number: str) -> None:
        raise ValueError(f"{number} is no number of JSON")

    try:
        extra = json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{text!r} is not JSON ({error}): {_SUCH_EXTRA}") from None
    if not isinstance(extra, dict):
        raise InputError(f"{text!r} is not a JSON object: {_SUCH_EXTRA}")
    for name in _NOT_EXTRA.keys() & extra.keys():
        raise InputError(f"{name!r} cannot be set here: {_NOT_EXTRA[name]}")
    return extra


_SUCH_EXTRA = """write it as '{"temperature": null, "max_completion_tokens": 4096}'"""


class SpendingLimit:
    """A limit on the requests of a process and their cost, without cached replies. Thread-safe.

    Requests are counted when they are sent, retries included, but their cost when they are
    answered. So requests under way may exceed the limit in USD. None means no limit.
    """

    def __init__(self, usd: float | None = None, calls: int | None = None) -> None:
        self.usd, self.calls = usd, calls
        self._lock = threading.Lock()
        self._spent_usd, self._sent = 0.0, 0
        self._is_known = True

    def count_call(self) -> None:
        """Count a request that is about to be sent, or raise `SpendingLimitReached`."""
        with self._lock:
            if self.calls is not None and self._sent >= self.calls:
                raise SpendingLimitReached(
                    f"{self._sent} requests were sent to the general model, and no more are "
                    f"allowed. {_NOTHING_IS_LOST} Raise --llm-calls."
                )
            if self.usd is not None and not self._is_known:
                raise SpendingLimitReached(
                    "the general model's server does not report how many tokens it uses, so the "
                    f"limit of {self.usd:g} USD cannot be kept. {_NOTHING_IS_LOST} Use "
                    "--llm-calls instead of --llm-limit."
                )
            if self.usd is not None and self._spent_usd >= self.usd:
                raise SpendingLimitReached(
                    f"{self._spent_usd:.4g} USD were spent on the general model, of "
                    f"{self.usd:g} allowed. {_NOTHING_IS_LOST} Raise --llm-limit."
                )
            self._sent += 1

    def add_cost(self, usd: float | None) -> None:
        """Add the cost of a request; None if it is not known."""
        with self._lock:
            if usd is None:
                self._is_known = False
            else:
                self._spent_usd += usd


_NOTHING_IS_LOST = "Its replies so far are kept."

# The most calls that a question is granted. No repair takes more: a blueprint, a choice and a
# judgement for each of four steps, and the last choice.
MOST_CALLS: Final = 10


class RunBudget:
    """The general calls of a run, shared among its questions. Thread-safe.

    A question may take the calls that those before it leave. It waits for them only if their calls
    decide how many it may take. So a run gives the same rows with any concurrency, and when it is
    resumed. The questions must be begun in their order.
    """

    def __init__(self, calls: int) -> None:
        self._calls = calls
        self._taken: dict[int, int] = {}
        self._settled = threading.Condition()

    def grant(self, place: int) -> int:
        """Return the number of calls for the question at a place; wait until it is known."""
        with self._settled:
            while True:
                # Later questions have taken some only if there was enough for all before them, or
                # if this one failed and is asked again.
                left = self._calls - sum(self._taken.values())
                if left <= 0:
                    return 0
                open_ = sum(at not in self._taken for at in range(place))
                if not open_ or left >= (open_ + 1) * MOST_CALLS:
                    return min(left, MOST_CALLS)
                self._settled.wait()

    def settle(self, place: int, calls: int) -> None:
        """Note the calls of a question that is done."""
        with self._settled:
            self._taken[place] = calls
            self._settled.notify_all()
