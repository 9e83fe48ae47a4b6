"""What the service tells whoever counts and measures it."""

from typing import Literal

from kbqa.engine.serve.asking.served import Served

CacheResult = Literal["hit", "miss", "shared"]
"""``shared``: an equal question was under way."""


class Observer:
    """Hears what the service does. This one ignores it; `Metrics` counts it."""

    def answered(self, served: Served) -> None:
        """Hear of an answer that was worked out."""

    def looked_in_cache(self, result: CacheResult) -> None:
        """Hear where the answer to a question comes from."""

    def wrote(self, batch_size: int, seconds: float) -> None:
        """Hear of a batch of the small model."""

    def rejected(self, reason: str) -> None:
        """Hear of a request that was turned away."""
