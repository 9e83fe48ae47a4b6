"""Keep to the time at which a caller's deadline passes, as `time.monotonic` counts.

Such a time is called `ends_at` everywhere; None means that there is no deadline.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from kbqa.sparql.errors import DeadlineExceeded


def check_deadline(ends_at: float | None, what: str) -> None:
    """Raise `DeadlineExceeded` if the deadline has passed; `what` is what did not end in time."""
    if ends_at is not None and time.monotonic() >= ends_at:
        raise DeadlineExceeded(f"{what} did not end before the deadline")


@contextmanager
def held(
    lock: "threading.Lock | threading.Semaphore", ends_at: float | None, what: str
) -> Iterator[None]:
    """Hold a lock inside the block.

    Raises:
        DeadlineExceeded: It is not free before the deadline.
    """
    left_s = None
    if ends_at is not None:
        left_s = min(max(0.0, ends_at - time.monotonic()), threading.TIMEOUT_MAX)
    if not (lock.acquire() if left_s is None else lock.acquire(timeout=left_s)):
        raise DeadlineExceeded(f"{what} was busy with other questions until the deadline")
    try:
        yield
    finally:
        lock.release()
