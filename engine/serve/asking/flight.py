"""Single flight: equal questions that are asked at the same time share one run."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any

from kbqa.engine.serve.asking.pace import Pace
from kbqa.engine.serve.asking.served import Event, Served, Watch
from kbqa.sparql.errors import DeadlineExceeded


class Flight:
    """A question under way, and the clients that wait for it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._told: list[Event] = []
        self._watchers: list[Watch] = []
        self._askers = 0
        self.is_abandoned = False
        """Nobody waits for it any more, so it ends at its next stage."""
        self.task: asyncio.Task[Served]

    async def wait(self, watch: Watch | None) -> Served:
        """Wait for the answer; being cancelled means that the client has left.

        A client that comes late is first told what the others were told.
        """
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
        """Watch the engine's stages, in any thread.

        Raises:
            DeadlineExceeded: Nobody waits for the answer any more.
        """
        if self.is_abandoned:
            raise DeadlineExceeded("all who asked have left")
        self._loop.call_soon_threadsafe(self.tell, Event("stage", {"stage": stage}))

    def abandon(self) -> None:
        """End the run, unless it has ended."""
        if not self.task.done():
            self.is_abandoned = True
            self.task.cancel()


Run = Callable[[Flight], Coroutine[Any, Any, Served]]


class Flights:
    """All questions that are under way, by what makes them equal."""

    def __init__(self) -> None:
        self._under_way: dict[Hashable, Flight] = {}
        self._count = 0
        self._pace = Pace()

    def __len__(self) -> int:
        return self._count

    @property
    def eta_s(self) -> float:
        """Seconds until a question that comes now would be answered, as far as is known."""
        return (self._count + 1) * self._pace.seconds_each

    def find(self, key: Hashable) -> Flight | None:
        """Return the flight of an equal question."""
        flight = self._under_way.get(key)
        return None if flight is None or flight.is_abandoned else flight

    def begin(self, key: Hashable, run: Run) -> Flight:
        """Begin a run that other clients may join."""
        flight = self._under_way[key] = Flight()
        self._count += 1
        self._pace.begin()

        def end(task: "asyncio.Task[Served]") -> None:
            # Looking at its error also says that it was seen: those who asked may all have left.
            is_answered = not task.cancelled() and task.exception() is None
            self._count -= 1
            self._pace.end(is_answered=is_answered)
            if self._under_way.get(key) is flight:
                del self._under_way[key]

        flight.task = asyncio.create_task(run(flight))
        flight.task.add_done_callback(end)
        return flight

    def abandon_all(self) -> None:
        """End all runs."""
        for flight in list(self._under_way.values()):
            flight.abandon()
