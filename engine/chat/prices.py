"""What the tokens of general models cost.

A short table, for the figures of the paper and of similar runs; users can give their own prices. A
model with open weights has the price of companies that host it, even if the user serves it: costs
stay comparable, and the cost of electricity need not be guessed.
"""

import re
from dataclasses import dataclass

from kbqa.sparql.errors import InputError


@dataclass(frozen=True, slots=True)
class Price:
    """The price of a million tokens.

    Attributes:
        input_usd: Of prompts.
        output_usd: Of replies.
        source: Who says so, and when.
    """

    input_usd: float
    output_usd: float
    source: str = "the user"

    def cost_usd(self, input_tokens: int, output_tokens: int) -> float | None:
        """Compute what tokens cost; None if the server counted none and they are not free.

        >>> Price(0.15, 0.60).cost_usd(1_000_000, 500_000)
        0.45
        >>> Price(0.15, 0.60).cost_usd(0, 0)
        """
        is_free = self.input_usd == self.output_usd == 0
        if input_tokens == 0 and not is_free:  # Every prompt has some.
            return None
        return (input_tokens * self.input_usd + output_tokens * self.output_usd) / 1e6


_OPENAI = "OpenAI on 2026-02-14, by RouterKGQA's Table 2"
_HOSTS = "Artificial Analysis on 2026-02-14, by RouterKGQA's Table 2"

PRICES = {
    "gpt-4o-mini": Price(0.15, 0.60, _OPENAI),
    "llama-2-7b": Price(0.05, 0.25, _HOSTS),
    "llama-3.1-8b": Price(0.10, 0.10, _HOSTS),
}
"""By the model's name in lower case, without what `find_price` leaves out."""

# Whose it is or who offers it, what it was tuned for, its format, and the date of its version.
_NOT_PRICED = re.compile(r"^.*/|\bmeta-|-(?:instruct|chat|hf|\d{4}-\d\d-\d\d)\b")


def find_price(model: str) -> Price | None:
    """Look up a model's price; None if the table does not have it.

    >>> find_price("meta-llama/Llama-3.1-8B-Instruct").output_usd
    0.1
    >>> find_price("gpt-4o-mini-2024-07-18").output_usd
    0.6
    >>> find_price("gpt-4o-mini-audio-preview")
    """
    return PRICES.get(_NOT_PRICED.sub("", model.lower()))


def parse_price(text: str) -> Price:
    """Read a price as it is given on the command line.

    >>> parse_price("0.15/0.60")
    Price(input_usd=0.15, output_usd=0.6, source='the user')

    Raises:
        InputError: It is not two numbers with a slash between them.
    """
    number = r"\s*(\d+(?:\.\d*)?|\.\d+)\s*"
    found = re.fullmatch(f"{number}/{number}", text)
    if found is None:
        raise InputError(
            f"{text!r} is not a price: give the USD for a million input tokens and for a million "
            "output tokens, such as 0.15/0.60"
        )
    return Price(float(found[1]), float(found[2]))
