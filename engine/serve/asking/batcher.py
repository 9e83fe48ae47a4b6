"""Write paths for the questions of many clients together, in the one thread of the small model.

There is no waiting window: while a batch runs, questions gather, and the next batch takes as many
of them as it may. An idle server begins at once.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

from kbqa.engine.method import Asked
from kbqa.engine.serve.asking.lane import THREAD_PREFIX
from kbqa.engine.writing.generate import write_apart
from kbqa.sparql.errors import DeadlineExceeded, KbqaError

Write = Callable[[Sequence[Asked]], list[Asked]]
"""Writes for several questions at once, as `Engine.write` does."""

_Outcomes = list[Asked | KbqaError]


class Written(NamedTuple):
    """A question with its candidates, and how many questions were written for with it."""

    asked: Asked
    batch_size: int


class _Place(NamedTuple):
    """The batch that a question is in, and which of its questions it is."""

    batch: "asyncio.Future[_Outcomes]"
    number: int
    size: int


@dataclass(eq=False, slots=True)
class _Waiting:
    asked: Asked
    place: "asyncio.Future[_Place]"


class Batcher:
    """The queue of the small model. All methods but `run` belong to the event loop.

    Args:
        batch_size: Questions that are written for at once, at most.
        observe: Called with the size and seconds of each batch.
    """

    def __init__(self, batch_size: int, observe: Callable[[int, float], None]) -> None:
        self._batch_size, self._observe = batch_size, observe
        self.thread = ThreadPoolExecutor(1, THREAD_PREFIX + "model")
        """The model is loaded here, too."""
        self._write: Write | None = None
        self._waiting: deque[_Waiting] = deque()
        self._is_writing = False

    def serve(self, write: Write) -> None:
        """Begin to write by this function."""
        self._write = write

    @property
    def waiting(self) -> int:
        """Questions that are in no batch yet."""
        return len(self._waiting)

    async def write(self, asked: Asked, begun: Callable[[], None]) -> Written:
        """Write for a question; a caller that leaves gives up its place in the queue.

        Args:
            asked: The question.
            begun: Called when its batch begins.

        Raises:
            ModelError: The small model failed.
            GraphError: The graph, which constrains the writing, does not answer.
            DeadlineExceeded: The question's deadline passed.
        """
        waiting = _Waiting(asked, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._begin()
        try:
            place = await waiting.place
        except asyncio.CancelledError:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
            raise
        begun()
        outcome = (await asyncio.shield(place.batch))[place.number]
        if isinstance(outcome, KbqaError):
            raise outcome
        return Written(outcome, place.size)

    def close(self) -> None:
        """Begin no other batch."""
        self._write = None
        self.thread.shutdown(wait=False, cancel_futures=True)

    def _begin(self) -> None:
        """Begin a batch if none is under way."""
        if self._is_writing or not self._waiting or self._write is None:
            return
        size = min(len(self._waiting), self._batch_size)
        taken = [self._waiting.popleft() for _ in range(size)]
        loop, began = asyncio.get_running_loop(), time.monotonic()
        asked = [each.asked for each in taken]
        batch = loop.run_in_executor(self.thread, _write_batch, self._write, asked)
        self._is_writing = True
        for number, each in enumerate(taken):
            if not each.place.done():  # its caller left in this very moment
                each.place.set_result(_Place(batch, number, size))

        def end(ended: "asyncio.Future[_Outcomes]") -> None:
            self._is_writing = False
            self._observe(size, time.monotonic() - began)
            if not ended.cancelled():
                ended.exception()  # all who asked may have left
            self._begin()

        batch.add_done_callback(end)


def _write_batch(write: Write, asked: Sequence[Asked]) -> _Outcomes:
    """Write for questions; what ends only one of them is its outcome."""
    outcomes: dict[int, Asked | KbqaError] = {}
    while left := {n: each for n, each in enumerate(asked) if n not in outcomes}:
        late = {n: error for n, each in left.items() if (error := _lateness(each)) is not None}
        if not late:
            try:
                written = write_apart(write, list(left.values()))
            except DeadlineExceeded:
                # The first deadline of any ends the writing for all: who has time left begins anew.
                late = {n: e for n, each in left.items() if (e := _lateness(each)) is not None}
                if not late:
                    raise
            else:
                outcomes.update(zip(left, written, strict=True))
        outcomes.update(late)
    return [outcomes[number] for number in range(len(asked))]


def _lateness(asked: Asked) -> DeadlineExceeded | None:
    """Return the error of a question whose deadline has passed."""
    try:
        asked.clock.check()
    except DeadlineExceeded as error:
        return error
    return None
