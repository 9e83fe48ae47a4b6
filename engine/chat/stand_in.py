"""Stand in for a general model: prompts are counted, and nothing is sent.

For estimates of what a run will take, before anything is spent.
"""

from collections.abc import Sequence
from typing import Final

from kbqa.engine.chat.model import DEFAULT_MAX_TOKENS, Message, Reply, Usage
from kbqa.engine.chat.prices import Price

LETTERS_A_TOKEN: Final = 4
"""As of English text. Names of relations have fewer, so tokens are rather more than estimated."""


class StandIn:
    """Replies ``none`` to everything. Any number of threads may ask it.

    A prompt has a token for each four letters, and a reply as many as it may have at most.

    Args:
        name: Of the model that it stands in for.
        price: Of that model's tokens; None if it is not known.
    """

    def __init__(self, name: str, price: Price | None = None) -> None:
        self._name, self._price = name, price

    @property
    def name(self) -> str:
        """The name of the model that it stands in for."""
        return self._name

    def complete(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int = DEFAULT_MAX_TOKENS,
        temperature: float = 0.0,
        seed: int | None = None,
        ends_at: float | None = None,
    ) -> Reply:
        """Count a prompt."""
        letters = sum(len(message.content) for message in messages)
        taken = -(-letters // LETTERS_A_TOKEN), max_tokens
        cost_usd = None if self._price is None else self._price.cost_usd(*taken)
        return Reply("none", Usage(1, 0, *taken, cost_usd=cost_usd))
