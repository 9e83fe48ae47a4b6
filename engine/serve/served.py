"""An answer as the server gives it, the events before it, and the limits of the server."""

import asyncio
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar

from kbqa.engine.answer import UNSURE_BELOW, Answer, Line
from kbqa.sparql.errors import ServerBusy

DEFAULT_MAX_ANSWERS = 100

MAX_QUESTION = 1000
"""Bytes of a question in UTF-8: the prompt of the shipped model takes no more. A rare character may
be as many tokens as it has bytes."""

MAX_PATH = 8000
"""Characters of a path."""

MAX_HOPS = 20
"""Hops of a path, those of its conditions included: no known question takes more than 7."""

MAX_QUERY = 20_000
"""Characters of a client's SPARQL query."""

MAX_CONVERTED = 4000
"""Characters of a query to convert to a path: the parser takes up to a millisecond for each."""

MAX_ROWS = 10_000
"""Rows of the result of a client's query."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of the service."""

    queue: int = 12  # questions under way beside those of a batch; more are refused
    batch_size: int = 8  # the most questions that are written for at once
    answer_threads: int = 4  # questions whose paths are run at once
    deadline_s: float = 60.0  # for a question in all, waiting included
    query_timeout_s: float = 10.0  # for a client's own query or path
    query_workers: int = 1  # such queries and paths that run at once
    unsure_below: float = UNSURE_BELOW  # for `/api/v1/info`; the engine judges
    cached_answers: int = 500  # beyond them, the least recently used is forgotten


class Event(NamedTuple):
    """A step of a question that is being answered, with its data.

    ``queued`` has a position and a waiting time, ``linked`` entities, ``written`` paths, and
    ``stage`` the name of a stage that begins.
    """

    name: Literal["queued", "linked", "written", "stage"]
    data: Mapping[str, Any]


Watch = Callable[[Event], None]  # called in the event loop


@dataclass(frozen=True, slots=True)
class Served:
    """An answer that the server gave, and how."""

    id: str  # of this answer, for logs and links
    answer: Answer
    seconds: Mapping[str, float]  # by stage; ``queue`` is all waiting
    batch_size: int = 0  # questions that were written for together; 0 if nothing was written
    is_cached: bool = False  # it was asked before, and remembered
    lines: tuple[Line, ...] | None = None  # for people to read, if the client wants them

    def to_dict(self, max_answers: int = DEFAULT_MAX_ANSWERS) -> dict[str, Any]:
        """Return the record of `Answer.to_dict` with fields of the server.

        At most `max_answers` answers are listed; `truncated` says if there are more.
        """
        record = self.answer.to_dict()
        answers = record["answers"]
        for part in record.get("parts") or ():
            part["truncated"] = part["truncated"] or len(part["answers"]) > max_answers
            part["answers"] = part["answers"][:max_answers]
        served = {
            "id": self.id,
            **record,
            "answers": answers[:max_answers],
            "truncated": record["truncated"] or len(answers) > max_answers,
            "trace": {**record["trace"], "batch_size": self.batch_size, "cached": self.is_cached},
            "seconds": {stage: round(s, 4) for stage, s in self.seconds.items()},
        }
        if self.lines is not None:
            served["lines"] = [line._asdict() for line in self.lines]
        return served


CacheResult = Literal["hit", "miss", "shared"]
"""``shared``: an equal question was under way."""


class Observer:
    """A listener to the service, which ignores all; `Metrics` counts it."""

    def answered(self, served: Served) -> None:
        """Hear of an answer that was worked out."""

    def looked_in_cache(self, result: CacheResult) -> None:
        """Hear where the answer to a question comes from."""

    def wrote(self, batch_size: int, seconds: float) -> None:
        """Hear of a batch of the small model."""

    def rejected(self, reason: str) -> None:
        """Hear of a request that was turned away."""


THREAD_PREFIX = "kbqa-"
"""The beginning of the names of the service's threads."""

_Result = TypeVar("_Result")


class Lane:
    """Threads for one kind of blocking work, so that no kind can starve another.

    At most `waiting` callers wait for a thread; None is any number.
    """

    def __init__(self, name: str, threads: int, waiting: int | None = None) -> None:
        self._most = None if waiting is None else threads + waiting
        self._executor = ThreadPoolExecutor(threads, THREAD_PREFIX + name)
        self._held, self._lock = 0, threading.Lock()

    async def run(
        self, call: Callable[[], _Result], ended: Callable[[], None] = lambda: None
    ) -> _Result:
        """Call a function in a thread; it runs to its end even if its caller leaves.

        `ended` is called, in any thread, when the call has ended or will never begin. If too many
        callers wait already, `ServerBusy` is raised.
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
