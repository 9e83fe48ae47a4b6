"""Batches and flights: clients share the small model's thread, and equal questions share one run.

There is no waiting window: while a batch runs, questions gather, and the next batch takes as many
of them as it may. A question leaves its batch as soon as it is written for, or its client leaves.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from kbqa.engine.asked import Asked
from kbqa.engine.serve.served import THREAD_PREFIX, Event, Served, Watch
from kbqa.engine.writing.generate import fails_all
from kbqa.sparql.errors import DeadlineExceeded


class Write(Protocol):
    """A function such as `Engine.write_each`."""

    def __call__(
        self,
        asked: Sequence[Asked],
        written: Callable[[int, Asked], object],
        is_wanted: Callable[[int], bool],
    ) -> None:
        """Write for questions, and pass on each as soon as it is done."""


class Written(NamedTuple):
    """A question with its candidates, and how many questions were written for with it."""

    asked: Asked
    batch_size: int


@dataclass(eq=False, slots=True)
class _Job:
    """A question that waits, or is written for."""

    asked: Asked
    begun: Callable[[], None]
    written: "asyncio.Future[Written]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    def end(self, outcome: Written | BaseException) -> None:
        """Tell the waiting caller, unless it knows already or has left."""
        if self.written.done():
            return
        if isinstance(outcome, BaseException):
            self.written.set_exception(outcome)
        else:
            self.written.set_result(outcome)


class Batcher:
    """The queue of the small model. All methods belong to the event loop.

    `observe` is called with the size and seconds of each batch.
    """

    def __init__(self, batch_size: int, observe: Callable[[int, float], None]) -> None:
        self._batch_size, self._observe = batch_size, observe
        self.thread = ThreadPoolExecutor(1, THREAD_PREFIX + "model")
        """The model is loaded here, too."""
        self._write: Write | None = None
        self._waiting: deque[_Job] = deque()
        self._is_writing = False

    def serve(self, write: Write) -> None:
        """Begin to write by this function."""
        self._write = write

    @property
    def waiting(self) -> int:
        """Questions that are in no batch yet."""
        return len(self._waiting)

    async def write(self, asked: Asked, begun: Callable[[], None]) -> Written:
        """Write for a question, and call `begun` when its batch begins.

        A caller that is cancelled gives up its place. Errors of the small model and of the graph
        that constrains it are raised, or `DeadlineExceeded`.
        """
        job = _Job(asked, begun)
        self._waiting.append(job)
        self._begin()
        try:
            return await job.written
        finally:
            if job in self._waiting:
                self._waiting.remove(job)

    def close(self) -> None:
        """Begin no other batch."""
        self._write = None
        self.thread.shutdown(wait=False, cancel_futures=True)

    def _begin(self) -> None:
        """Begin a batch if none is under way."""
        if self._is_writing or not self._waiting or self._write is None:
            return
        size = min(len(self._waiting), self._batch_size)
        jobs = [self._waiting.popleft() for _ in range(size)]
        loop, began = asyncio.get_running_loop(), time.monotonic()
        batch = loop.run_in_executor(self.thread, _write_batch, self._write, jobs, loop)
        self._is_writing = True

        def end(ended: "asyncio.Future[None]") -> None:
            self._is_writing = False
            self._observe(size, time.monotonic() - began)
            # What was neither written for nor failed was dropped at its deadline.
            error = None if ended.cancelled() else ended.exception()
            outcome = error or DeadlineExceeded("no path was written before the deadline")
            for job in jobs:
                job.end(outcome)
            self._begin()

        batch.add_done_callback(end)
        for job in jobs:
            job.begun()


def _write_batch(write: Write, jobs: Sequence[_Job], loop: asyncio.AbstractEventLoop) -> None:
    """Write for questions; if that fails for one of them, for each alone."""
    passed_on: set[int] = set()

    def end(at: int, outcome: Written | BaseException) -> None:
        passed_on.add(at)
        loop.call_soon_threadsafe(jobs[at].end, outcome)

    def written(at: int, asked: Asked) -> None:
        end(at, Written(asked, len(jobs)))

    def is_wanted(at: int) -> bool:
        return not jobs[at].written.done()

    try:
        write([job.asked for job in jobs], written, is_wanted)
    except Exception as failure:
        if fails_all(failure) or len(jobs) == 1:
            raise
        for at, job in enumerate(jobs):
            if at not in passed_on:
                try:
                    _write_batch(write, [job], loop)
                except Exception as error:  # noqa: BLE001 – one question's failure is its own
                    end(at, error)


class Flight:
    """A question under way, and the clients that wait for it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._told: list[Event] = []
        self._watchers: list[Watch] = []
        self._askers = 0
        self.is_abandoned = False
        """Nobody waits for the answer any more: the run ends at its next stage."""
        self.task: asyncio.Task[Served]

    async def wait(self, watch: Watch | None) -> Served:
        """Wait for the answer, and first tell a late client what the others were told."""
        self._askers += 1
        if watch is not None:
            for event in self._told:
                watch(event)
            self._watchers.append(watch)
        try:
            return await asyncio.shield(self.task)
        finally:
            self._askers -= 1
            if watch is not None:
                self._watchers.remove(watch)
            if self._askers == 0:
                self.abandon()

    def tell(self, event: Event) -> None:
        """Report progress to everyone who waits; call it in the event loop."""
        self._told.append(event)
        for watch in self._watchers:
            watch(event)

    def hear(self, stage: str) -> None:
        """Report a stage of the engine, in any thread; end the run if nobody waits any more."""
        if self.is_abandoned:
            raise DeadlineExceeded("all who asked have left")
        self._loop.call_soon_threadsafe(self.tell, Event("stage", {"stage": stage}))

    def abandon(self) -> None:
        """End the run, unless it has ended."""
        if not self.task.done():
            self.is_abandoned = True
            self.task.cancel()


Run = Callable[[Flight], Coroutine[Any, Any, Served]]

_FIRST_GUESS_S = 1.0
_KEPT = 0.95
"""The share of earlier measurements that stays at each answer: about the last twenty count."""


class Flights:
    """All questions that are under way, and the pace of answers; equal questions have one key."""

    def __init__(self) -> None:
        self._under_way: dict[Hashable, Flight] = {}
        self._count = 0
        self._since = 0.0
        self._seconds, self._answers = _FIRST_GUESS_S, 1.0

    def __len__(self) -> int:
        return self._count

    @property
    def eta_s(self) -> float:
        """Seconds until a question that comes now would be answered, as far as is known."""
        return (self._count + 1) * self._seconds / self._answers

    def find(self, key: Hashable) -> Flight | None:
        """Return the flight of an equal question."""
        flight = self._under_way.get(key)
        return None if flight is None or flight.is_abandoned else flight

    def begin(self, key: Hashable, run: Run) -> Flight:
        """Begin a run that other clients may join."""
        flight = self._under_way[key] = Flight()
        if not self._count:
            self._since = time.monotonic()
        self._count += 1

        def end(task: "asyncio.Task[Served]") -> None:
            # Looking at its error also says that it was seen: those who asked may all have left.
            is_answered = not task.cancelled() and task.exception() is None
            self._count -= 1
            if is_answered:  # a question that was given up says nothing of the pace
                now = time.monotonic()
                self._seconds = _KEPT * self._seconds + now - self._since
                self._answers = _KEPT * self._answers + 1
                self._since = now
            if self._under_way.get(key) is flight:
                del self._under_way[key]

        flight.task = asyncio.create_task(run(flight))
        flight.task.add_done_callback(end)
        return flight

    def abandon_all(self) -> None:
        """End all runs."""
        for flight in list(self._under_way.values()):
            flight.abandon()
