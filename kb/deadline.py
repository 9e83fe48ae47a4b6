"""The deadline of the question that a thread works on.

An engine sets it for each step of a question. What waits for something (a query, a request to a
model, a lock) keeps to it, so nothing between has to pass it on. A thread that is started has no
deadline, unless its work runs in a copy of the starter's context (`contextvars`).
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Self

from kbqa.sparql.errors import DeadlineExceeded

_SHORTEST_S = 0.001


@dataclass(frozen=True, slots=True)
class Deadline:
    """The end of the seconds that a question may take."""

    seconds: float  # in all, as the user gave it
    ends_at: float  # as `time.monotonic` counts

    @classmethod
    def after(cls, seconds: float) -> Self:
        """Return the deadline of a question that begins now."""
        return cls(seconds, time.monotonic() + seconds)

    @property
    def left_s(self) -> float:
        """The seconds that are left; 0 or less once it has passed."""
        return self.ends_at - time.monotonic()


_current: ContextVar[Deadline | None] = ContextVar("deadline", default=None)


@contextmanager
def keep_to(deadline: Deadline | None) -> Iterator[None]:
    """Set the deadline of what this thread does in the block; an earlier one around it stays."""
    around = _current.get()
    if deadline is None or (around is not None and around.ends_at <= deadline.ends_at):
        yield
        return
    token = _current.set(deadline)
    try:
        yield
    finally:
        _current.reset(token)


def check_deadline() -> float | None:
    """Return the seconds that are left, more than 0, or None if there is no deadline.

    Raises:
        DeadlineExceeded: The deadline has passed.
    """
    if (deadline := _current.get()) is None:
        return None
    if (left_s := deadline.left_s) <= 0:
        raise DeadlineExceeded(f"no answer within {deadline.seconds:g} s. Raise --deadline.")
    return max(left_s, _SHORTEST_S)


def bound(limit_s: float) -> float:
    """Return the seconds that something may take: its own limit, or what is left if less.

    Raises:
        DeadlineExceeded: The deadline has passed.
    """
    left_s = check_deadline()
    return limit_s if left_s is None else min(limit_s, left_s)


@contextmanager
def held(lock: "threading.Lock | threading.Semaphore", what: str) -> Iterator[None]:
    """Hold a lock inside the block.

    Raises:
        DeadlineExceeded: It is not free before the deadline.
    """
    left_s = check_deadline()
    longest_s = None if left_s is None else min(left_s, threading.TIMEOUT_MAX)
    if not (lock.acquire() if longest_s is None else lock.acquire(timeout=longest_s)):
        raise DeadlineExceeded(f"{what} was busy with other questions until the deadline")
    try:
        yield
    finally:
        lock.release()
