"""Threads for one kind of blocking work, so that no kind can starve another."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from kbqa.sparql.errors import ServerBusy

THREAD_PREFIX = "kbqa-"
"""What the names of the service's threads begin with."""

_Result = TypeVar("_Result")


class Lane:
    """Some threads, and a bounded number of callers that wait for one.

    Args:
        name: What the threads do, for their names.
        threads: How many there are.
        waiting: Callers that may wait; None for any number.
    """

    def __init__(self, name: str, threads: int, waiting: int | None = None) -> None:
        self._most = None if waiting is None else threads + waiting
        self._executor = ThreadPoolExecutor(threads, THREAD_PREFIX + name)
        self._held, self._lock = 0, threading.Lock()

    async def run(
        self, call: Callable[[], _Result], ended: Callable[[], None] = lambda: None
    ) -> _Result:
        """Call a function in one of the threads.

        A call that has begun goes on when its caller leaves.

        Args:
            call: The function.
            ended: Called, in any thread, when the call has ended or will never begin.

        Raises:
            ServerBusy: Too many callers wait already.
        """
        with self._lock:
            if self._most is not None and self._held >= self._most:
                ended()
                raise ServerBusy("queue-full", "too many requests of this kind are waiting")
            self._held += 1

        def release(_: object) -> None:
            with self._lock:
                self._held -= 1
            ended()

        future = self._executor.submit(call)
        future.add_done_callback(release)
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Take no more calls, and drop those that have not begun."""
        self._executor.shutdown(wait=False, cancel_futures=True)
