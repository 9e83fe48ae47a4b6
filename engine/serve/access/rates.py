"""Limit how many requests each client may send: a bucket of tokens that fills by and by."""

import time
from collections.abc import Callable

_MOST_CLIENTS = 10_000


class RateLimiter:
    """The buckets of all clients. Each holds as many tokens as a minute brings, but at least one.

    Args:
        clock: Seconds, as `time.monotonic` counts.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: dict[str, tuple[float, float, float]] = {}
        """How many tokens each had, when, and how many a minute brings."""
        self._most = _MOST_CLIENTS

    def take(self, client: str, a_minute: float) -> float:
        """Take a token of a client's bucket.

        Returns:
            The seconds until there will be one; 0 if there was one.
        """
        now = self._clock()
        most = max(a_minute, 1.0)
        left, seen_at, _ = self._buckets.get(client, (most, now, a_minute))
        left = min(most, left + (now - seen_at) * a_minute / 60)
        if left < 1:
            return (1 - left) * 60 / a_minute
        self._buckets[client] = left - 1, now, a_minute
        if len(self._buckets) > self._most:
            self._forget_full(now)
        return 0.0

    def __len__(self) -> int:
        """Return how many clients are remembered."""
        return len(self._buckets)

    def _forget_full(self, now: float) -> None:
        """Forget full buckets, and look again only when there are twice as many as are left."""
        self._buckets = {
            client: (left, seen_at, a_minute)
            for client, (left, seen_at, a_minute) in self._buckets.items()
            if left + (now - seen_at) * a_minute / 60 < max(a_minute, 1.0)
        }
        self._most = max(_MOST_CLIENTS, 2 * len(self._buckets))
