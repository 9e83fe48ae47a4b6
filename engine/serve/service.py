"""The service: one engine for many clients. HTTP, the page and MCP all ask through it.

    question → cached? → under way? → link → queue → write in batches → run, prove → answer

Linking, writing, running and clients' look-ups each have threads of their own. All methods belong
to one event loop.

Clients share the small model's thread, and equal questions share one run. There is no waiting
window: while a batch runs, questions gather, and the next batch takes as many of them as it may. A
question leaves its batch as soon as it is written for, or its client leaves.
"""

import asyncio
import logging
import secrets
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Coroutine, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Thread
from typing import Any, Concatenate, Literal, NamedTuple, ParamSpec, Protocol, TypeVar

from kbqa.engine.answer import Answer, answer_lines, literal_forms
from kbqa.engine.asked import Asked
from kbqa.engine.conversation import Completed, split
from kbqa.engine.engine import Engine
from kbqa.engine.linking.linker import LinkedEntity
from kbqa.engine.serve.browsing import read_path
from kbqa.engine.serve.problems import for_clients
from kbqa.engine.serve.served import (
    MAX_QUESTION,
    THREAD_PREFIX,
    Event,
    Lane,
    Observer,
    Served,
    Settings,
    Watch,
)
from kbqa.engine.writing.generate import fails_all
from kbqa.kb.graph import Graph, Table
from kbqa.kb.names import Names
from kbqa.sparql import errors
from kbqa.sparql.crp import Entity
from kbqa.sparql.dialect import check_read_only
from kbqa.sparql.terms import is_mid

logger = logging.getLogger(__name__)

State = Literal["starting", "ready", "stopping", "failed"]

_Result = TypeVar("_Result")
_Arguments = ParamSpec("_Arguments")


class Ask(Protocol):
    """A call of `Service.ask` or `Service.run_path` that only lacks the watcher."""

    def __call__(self, *, watch: Watch | None = None) -> Coroutine[Any, Any, Served]:
        """Answer, and pass events to the watcher."""


_LINK_THREADS = 2
_LOOK_UP_THREADS = 4
_LOOK_UPS_WAITING = 64
_QUERIES_WAITING = 8
CLOSING_S = 3.0
"""Seconds that closing the engine may take; then its running queries are abandoned."""

_STARTS_IN_S = 10.0
_READINESS_TIMEOUT_S = 2.0
_READINESS_KEPT_S = 5.0


Write = Callable[[Sequence[Asked], Callable[[int, Asked], object], Callable[[int], bool]], None]
"""A function such as `Engine.write_each`."""


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
        self.write_each: Write | None = None
        """What writes for a batch; None before the model is loaded, and at the end."""
        self._waiting: deque[_Job] = deque()
        self._is_writing = False

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
        self.write_each = None
        self.thread.shutdown(wait=False, cancel_futures=True)

    def _begin(self) -> None:
        """Begin a batch if none is under way."""
        if self._is_writing or not self._waiting or self.write_each is None:
            return
        size = min(len(self._waiting), self._batch_size)
        jobs = [self._waiting.popleft() for _ in range(size)]
        loop, began = asyncio.get_running_loop(), time.monotonic()
        batch = loop.run_in_executor(self.thread, _write_batch, self.write_each, jobs, loop)
        self._is_writing = True

        def end(ended: "asyncio.Future[None]") -> None:
            self._is_writing = False
            self._observe(size, time.monotonic() - began)
            # What was neither written for nor failed was dropped at its deadline.
            error = None if ended.cancelled() else ended.exception()
            outcome = error or errors.DeadlineExceeded("no path was written before the deadline")
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
            raise errors.DeadlineExceeded("all who asked have left")
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


class Service:
    """One engine that answers the questions of many clients.

        async with Service(open_engine, graph, Settings(), Observer()) as service:
            await service.ready()
            served = await service.ask("what is the largest city in Kenya?")

    `open_engine` is called once, in a thread. `graph` is the same graph opened once more, for
    everything but questions, so that clients' queries and look-ups cannot hold up answers. It needs
    a name index, and the caller closes it.
    """

    def __init__(
        self,
        open_engine: Callable[[], AbstractContextManager[Engine]],
        graph: Graph,
        settings: Settings,
        observer: Observer,
    ) -> None:
        self.settings, self.graph = settings, graph
        self.names: Names = graph.names(settings.query_timeout_s)
        self.state: State = "starting"
        self.failure: BaseException | None = None
        """Why the engine could not be opened."""
        self._open_engine, self._observer = open_engine, observer
        self._engine: Engine | None = None
        self._held = ExitStack()
        self._batcher = Batcher(settings.batch_size, observer.wrote)
        self._linking = Lane("link", _LINK_THREADS)
        self._answering = Lane("answer", settings.answer_threads)
        self._looking = Lane("look-up", _LOOK_UP_THREADS, _LOOK_UPS_WAITING)
        self._querying = Lane("query", settings.query_workers, _QUERIES_WAITING)
        self._querying_clients: set[str] = set()
        # By question, topics and history: all else that decides an answer stays the same.
        self._cache: OrderedDict[Hashable, Served] = OrderedDict()
        self._flights = Flights()
        self._loading: asyncio.Task[None] | None = None
        self._graph_seen = (float("-inf"), False)

    async def __aenter__(self) -> "Service":
        self._loading = asyncio.get_running_loop().create_task(self._load())
        return self

    async def ready(self) -> None:
        """Wait until questions can be asked, or raise the error that prevents it."""
        assert self._loading is not None, "enter it first"
        await asyncio.shield(self._loading)
        if self.failure is not None:
            raise self.failure

    def stop(self) -> None:
        """Refuse new questions, and let those under way end."""
        if self.state != "failed":
            self.state = "stopping"

    def give_up(self) -> None:
        """End the running questions, and tell their clients that the server stops."""
        self.stop()
        self._flights.abandon_all()

    async def __aexit__(self, *_: object) -> None:
        self.give_up()
        for lane in (self._linking, self._answering, self._looking, self._querying):
            lane.close()
        self._batcher.close()
        if self._loading is not None:
            self._loading.cancel()
        # The engine's graph waits for the queries that still run.
        closing = Thread(target=self._held.close, name=THREAD_PREFIX + "close")
        closing.start()
        ends_at = time.monotonic() + CLOSING_S
        while closing.is_alive() and time.monotonic() < ends_at:
            await asyncio.sleep(0.02)
        self.names.close()

    async def is_graph_up(self) -> bool:
        """Return whether the graph answers; the reply is remembered for some seconds."""
        seen_at, is_up = self._graph_seen
        if time.monotonic() - seen_at > _READINESS_KEPT_S:
            try:
                async with asyncio.timeout(_READINESS_TIMEOUT_S):
                    # A search, as a query would wait for the queries of others.
                    await self._looking.run(lambda: self.graph.types("m.0"))
                is_up = True
            except (errors.GraphError, TimeoutError) as error:
                logger.warning("the graph is not ready: %s", error or "it takes too long")
                is_up = False
            self._graph_seen = (time.monotonic(), is_up)
        return is_up

    async def _load(self) -> None:
        began = time.monotonic()
        # In the model's own thread: what a library keeps for a thread is there when it runs.
        loop = asyncio.get_running_loop()
        opening = loop.run_in_executor(self._batcher.thread, self._open)
        await asyncio.wait([opening])
        self.failure = opening.exception()
        if self.failure is not None:
            self.state = "failed"
            return
        self._engine = opening.result()
        self._batcher.write_each = self._engine.write_each
        if self.state == "starting":
            self.state = "ready"
        logger.info("ready after %.1f s", time.monotonic() - began)

    def _open(self) -> Engine:
        engine = self._held.enter_context(self._open_engine())
        if self.state == "stopping":  # and closed meanwhile
            self._held.close()
        return engine

    @property
    def waiting(self) -> int:
        """Questions that wait for the model."""
        return self._batcher.waiting

    @property
    def engine(self) -> Engine:
        """The engine; `ServerBusy` is raised before it is open and once the server stops."""
        if self.state == "stopping":
            raise self._busy("stopping", "the server is stopping", _STARTS_IN_S)
        if self._engine is None:
            raise self._busy("starting", "the server is still loading its model", _STARTS_IN_S)
        return self._engine

    async def ask(
        self,
        question: str,
        topics: Sequence[str] = (),
        *,
        history: Sequence[str] = (),
        deadline_s: float | None = None,
        watch: Watch | None = None,
    ) -> Served:
        """Answer a question; cancel this if the client leaves.

        Equal questions that are under way share one run, and later ones get its answer. `topics`
        are mids, `history` the questions before it, oldest first: their answers are in the cache,
        or each is answered again. The deadline of each includes waiting; it is at most the
        server's own.
        """
        text, entities = _checked(question), _topics(topics)
        before, limit_s = tuple(map(_checked, history)), self._limit(deadline_s)
        turns = list[Answer]()
        for at, earlier in enumerate(before):
            try:
                served = await self._ask_after(before[:at], turns, earlier, [], limit_s, watch)
            except errors.DeadlineExceeded:
                continue  # Nothing is known of it.
            turns += served.answer.parts or (served.answer,)
        return await self._ask_after(before, turns, text, entities, limit_s, watch)

    async def _ask_after(
        self,
        before: tuple[str, ...],
        turns: Sequence[Answer],
        text: str,
        topics: Sequence[Entity],
        limit_s: float,
        watch: Watch | None,
    ) -> Served:
        """Answer a question after those before it, whose answers are `turns`."""
        engine = self.engine
        key = (text, tuple(topics), before)
        cached = self._cache.get(key)
        if cached is not None:
            self._cache.move_to_end(key)
            self._observer.looked_in_cache("hit")
            return cached
        run = partial(self._answer, engine, text, tuple(turns), topics, limit_s)
        served = await self._share((key, limit_s), run, limit_s, watch)
        if all(each.reason != "graph" for each in (served.answer, *served.answer.parts)):
            # Else it may answer next time.
            self._cache[key] = replace(served, is_cached=True)
            self._cache.move_to_end(key)
            if len(self._cache) > self.settings.cached_answers:
                self._cache.popitem(last=False)
        return served

    async def run_path(
        self,
        path: str,
        question: str = "",
        topics: Sequence[str] = (),
        *,
        client: str,
        relax: bool = True,
        deadline_s: float | None = None,
        watch: Watch | None = None,
    ) -> Served:
        """Run a path that a client wrote or edited, without the model; one at a time, as `sparql`.

        Names in the path may mean the topics or the entities of the question. `relax` drops
        conditions if nothing satisfies all of them. The rest is as for `ask`.
        """
        entities, limit_s, engine = _topics(topics), self._limit(deadline_s), self.engine
        run_s = min(limit_s, self.settings.query_timeout_s)

        def call(flight: Flight) -> Answer:
            read_path(path)
            try:
                answer = engine.run_path(
                    path,
                    question.strip(),
                    entities,
                    relax=relax,
                    graph=self.graph,
                    timeout_s=run_s,
                    deadline_s=run_s,
                    watch=flight.hear,
                )
                return self._told(answer)
            except errors.DeadlineExceeded:
                raise errors.QueryTimeout(path, run_s, self.graph.description) from None

        async def run(flight: Flight) -> Served:
            began = time.monotonic()
            begun = partial(flight.tell, self._queued())
            return self._served(await self.run_for(client, partial(call, flight), begun), began)

        key = ("path", path, question, tuple(topics), relax, limit_s)
        return await self._share(key, run, limit_s, watch)

    async def with_lines(self, served: Served) -> Served:
        """Add the answer as `kbqa ask` prints it."""
        answer = served.answer
        forms = await self.look_up(lambda graph, _: literal_forms(answer, graph))
        return replace(served, lines=tuple(answer_lines(answer, forms)))

    async def _share(self, key: Hashable, run: Run, limit_s: float, watch: Watch | None) -> Served:
        """Join the run of an equal question, or begin one; wait until it or the time ends."""
        flight = self._flights.find(key)
        if flight is not None:
            self._observer.looked_in_cache("shared")
        elif len(self._flights) >= self.settings.queue + self.settings.batch_size:
            message = f"{len(self._flights)} questions are under way already"
            raise self._busy("queue-full", message, self._flights.eta_s)
        else:
            self._observer.looked_in_cache("miss")
            flight = self._flights.begin(key, run)
        try:
            async with asyncio.timeout(limit_s):
                return await flight.wait(watch)
        except TimeoutError:
            raise errors.DeadlineExceeded(f"no answer within {limit_s:g} s") from None
        except asyncio.CancelledError:
            if self.state == "stopping" and flight.task.cancelled():
                raise self._busy("stopping", "the server stops", _STARTS_IN_S) from None
            raise

    async def _answer(
        self,
        engine: Engine,
        question: str,
        turns: Sequence[Answer],
        topics: Sequence[Entity],
        limit_s: float,
        flight: Flight,
    ) -> Served:
        """Answer a question, or each of several in one, in the way of `Conversation.ask`."""
        began = time.monotonic()
        flight.tell(self._queued())
        parts, batch_size = list[Answer](), 0
        for text in split(question):

            def link(text: str = text, at_once: bool = bool(parts)) -> tuple[Completed, Asked]:
                earlier = [] if topics else [*turns, *parts]
                completed = engine.complete(text, earlier, at_once=at_once)
                deadline_s = limit_s - (time.monotonic() - began)
                asked = engine.prepare(completed, topics, deadline_s=deadline_s, watch=flight.hear)
                return completed, asked

            completed, asked = await self._linking.run(link)
            flight.tell(Event("linked", {"linked": [each.to_dict() for each in asked.linked]}))
            written = await self._batcher.write(
                asked, partial(flight.tell, Event("stage", {"stage": "write"}))
            )
            beams = [{"text": each.text} for each in written.asked.candidates or ()]
            flight.tell(Event("written", {"beams": beams}))
            batch_size = written.batch_size if beams else 0

            def answer(asked: Asked = written.asked, completed: Completed = completed) -> Answer:
                return self._told(engine.leave_out(engine.answer(asked), completed.without))

            parts.append(await self._answering.run(answer))
        whole = parts[0] if len(parts) == 1 else Answer.of_parts(question, parts)
        return self._served(whole, began, batch_size)

    def _told(self, answer: Answer) -> Answer:
        """Return an answer for clients, without the place of the graph, which is logged instead."""
        if answer.reason == "graph":
            logger.info("no answer: %s", answer.problem)
        graph = self.graph.description
        problem, trace = for_clients((answer.problem, answer.trace), graph)
        return replace(answer, problem=problem, trace=trace)

    def _served(self, answer: Answer, began: float, batch_size: int = 0) -> Served:
        seconds = dict(answer.seconds)
        seconds["queue"] = max(time.monotonic() - began - sum(seconds.values()), 0.0)
        served = Served(f"q_{secrets.token_hex(8)}", answer, seconds, batch_size)
        self._observer.answered(served)
        return served

    def _queued(self) -> Event:
        """Say how many questions are before a new one, and how long it waits."""
        eta_s = round(self._flights.eta_s, 1)
        return Event("queued", {"position": len(self._flights) - 1, "eta_s": eta_s})

    def _busy(
        self, reason: errors.BusyReason, message: str, retry_after_s: float = 1.0
    ) -> errors.ServerBusy:
        self._observer.rejected(reason)
        return errors.ServerBusy(reason, message, retry_after_s)

    def _limit(self, deadline_s: float | None) -> float:
        return min(deadline_s or self.settings.deadline_s, self.settings.deadline_s)

    async def link(self, text: str, limit: int = 10) -> list[LinkedEntity]:
        """Find the entities that a text mentions, best first; fails as `ask` does."""
        linker = self.engine.resources.linker
        return await self._looking.run(partial(linker.link, _checked(text), limit))

    async def look_up(
        self,
        find: Callable[Concatenate[Graph, Names, _Arguments], _Result],
        *arguments: _Arguments.args,
        **named: _Arguments.kwargs,
    ) -> _Result:
        """Call a function of `browsing` with the graph, unless too many wait."""
        return await self._looking.run(lambda: find(self.graph, self.names, *arguments, **named))

    async def sparql(self, query: str, limit: int, client: str) -> Table | bool:
        """Run a client's own SELECT or ASK; one at a time for each client."""
        graph, timeout_s = self.graph, self.settings.query_timeout_s

        def run() -> Table | bool:
            if check_read_only(query) == "ask":
                return graph.ask(query, timeout_s=timeout_s)
            return graph.select(query, timeout_s=timeout_s, limit=limit)

        return await self.run_for(client, run)

    async def run_for(
        self, client: str, call: Callable[[], _Result], begun: Callable[[], None] = lambda: None
    ) -> _Result:
        """Run a client's own query or path in a thread; a client may have one at a time.

        `begun` is called once the client has its place; without one, `ServerBusy` is raised.
        """
        if client in self._querying_clients:
            raise self._busy("too-fast", "your query or path before this one is still running")
        self._querying_clients.add(client)
        begun()
        return await self._querying.run(call, partial(self._querying_clients.discard, client))


def _checked(question: str) -> str:
    """Return a question with single blanks between its words."""
    text = " ".join(question.split())
    if not text:
        raise errors.InputError("the question is empty; ask something in words")
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_QUESTION:
        raise errors.InputError(
            f"the question is too long: it has {size:,} bytes, and {MAX_QUESTION:,} are allowed"
        )
    return text


def _topics(mids: Sequence[str]) -> list[Entity]:
    for mid in mids:
        if not is_mid(mid):
            raise errors.InputError(f"the topic {mid[:40]!r} is not a mid such as m.06w2sn5")
    return [Entity(mid=mid) for mid in mids]
