"""Limit how many requests each client may send: a bucket of tokens that fills by and by."""

import time
from collections.abc import Callable

_MOST_CLIENTS = 10_000


class RateLimiter:
    """The buckets of all clients. Each holds as many tokens as a minute brings.

    Args:
        clock: Seconds, as `time.monotonic` counts.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}

    def take(self, client: str, a_minute: float) -> float:
        """Take a token of a client's bucket.

        Returns:
            The seconds until there will be one; 0 if there was one.
        """
        now = self._clock()
        most = max(a_minute, 1.0)
        left, seen_at = self._buckets.get(client, (most, now))
        left = min(most, left + (now - seen_at) * a_minute / 60)
        if left < 1:
            self._buckets[client] = left, now
            return (1 - left) * 60 / a_minute
        self._buckets[client] = left - 1, now
        if len(self._buckets) > _MOST_CLIENTS:
            self._forget(now)
        return 0.0

    def _forget(self, now: float) -> None:
        """Forget who has sent nothing for a minute: those buckets are full."""
        self._buckets = {
            client: bucket for client, bucket in self._buckets.items() if now - bucket[1] < 60
        }
