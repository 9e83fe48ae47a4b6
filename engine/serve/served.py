"""An answer as the server gives it: the engine's record, and how it was served.

Beside it stands what serving needs. The server keeps its last answers and repeats them: what else
decides an answer, such as the graph and the model, does not change while it runs. It measures how
fast it answers, so that it can say how long to wait. Each kind of blocking work has threads of its
own, so that no kind can starve another. An `Observer` counts what happens.
"""

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeVar

from kbqa.engine.answer import UNSURE_BELOW, Answer, Line, Status
from kbqa.sparql.errors import ServerBusy

DEFAULT_MAX_ANSWERS = 100


class Event(NamedTuple):
    """A step of a question that is being answered.

    Attributes:
        name: ``queued`` with its position and waiting time, ``linked`` with entities, ``written``
            with paths, ``stage`` with the name of one that begins.
        data: As JSON has it.
    """

    name: Literal["queued", "linked", "written", "stage"]
    data: Mapping[str, Any]


Watch = Callable[[Event], None]
"""Called in the event loop."""


@dataclass(frozen=True, slots=True)
class Served:
    """An answer that the server gave.

    Attributes:
        id: Of this answer, for logs and links.
        answer: What the engine returned.
        seconds: Wall time by stage; ``queue`` is all waiting, for a place and for the others of its
            batch.
        batch_size: Questions that were written for together; 0 if nothing was written.
        is_cached: It was asked before, and remembered.
        lines: The answer for people to read, if the client wants it so.
    """

    id: str
    answer: Answer
    seconds: Mapping[str, float]
    batch_size: int = 0
    is_cached: bool = False
    lines: tuple[Line, ...] | None = None

    @property
    def status(self) -> Status:
        """Whether there is an answer, and whether it is sure."""
        return self.answer.status

    def to_dict(self, max_answers: int = DEFAULT_MAX_ANSWERS) -> dict[str, Any]:
        """Return the record of `Answer.to_dict` with what the server adds.

        Args:
            max_answers: Answers that are listed at most; `truncated` says if there are more.
        """
        record = self.answer.to_dict()
        answers = record["answers"]
        lines = None if self.lines is None else [line._asdict() for line in self.lines]
        return {
            "id": self.id,
            **record,
            "answers": answers[:max_answers],
            "truncated": record["truncated"] or len(answers) > max_answers,
            "trace": {
                **record["trace"],
                "batch_size": self.batch_size,
                "cached": self.is_cached,
            },
            "seconds": {stage: round(s, 4) for stage, s in self.seconds.items()},
            **({} if lines is None else {"lines": lines}),
        }


class AnswerCache:
    """Answers by question and topics; of too many, the one least lately asked for is forgotten.

    Args:
        size: Answers that are kept.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._answers: OrderedDict[Hashable, Served] = OrderedDict()

    def get(self, key: Hashable) -> Served | None:
        """Return an answer that is known."""
        if key not in self._answers:
            return None
        self._answers.move_to_end(key)
        return self._answers[key]

    def put(self, key: Hashable, served: Served) -> None:
        """Remember an answer; but not one that the graph failed, which may do better."""
        if served.answer.reason == "graph":
            return
        self._answers[key] = replace(served, is_cached=True)
        self._answers.move_to_end(key)
        if len(self._answers) > self._size:
            self._answers.popitem(last=False)


CacheResult = Literal["hit", "miss", "shared"]
"""``shared``: an equal question was under way."""


class Observer:
    """Hears what the service does. This one ignores it; `Metrics` counts it."""

    def answered(self, served: Served) -> None:
        """Hear of an answer that was worked out."""

    def looked_in_cache(self, result: CacheResult) -> None:
        """Hear where the answer to a question comes from."""

    def wrote(self, batch_size: int, seconds: float) -> None:
        """Hear of a batch of the small model."""

    def rejected(self, reason: str) -> None:
        """Hear of a request that was turned away."""


_FIRST_GUESS_S = 1.0
_KEPT = 0.95
"""Of what was measured before, at each further answer: about the last twenty count."""


class Pace:
    """Measures the seconds from one answer to the next while there are questions under way."""

    def __init__(self) -> None:
        self._under_way = 0
        self._since = 0.0
        self._seconds, self._answers = _FIRST_GUESS_S, 1.0

    @property
    def seconds_each(self) -> float:
        """Seconds that a question takes, given that others are worked on beside it."""
        return self._seconds / self._answers

    def begin(self) -> None:
        """Count a question that begins."""
        if not self._under_way:
            self._since = time.monotonic()
        self._under_way += 1

    def end(self, *, is_answered: bool) -> None:
        """Count a question that ends; one that was given up says nothing of the pace."""
        self._under_way -= 1
        if is_answered:
            now = time.monotonic()
            self._seconds = _KEPT * self._seconds + now - self._since
            self._answers = _KEPT * self._answers + 1
            self._since = now


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


MAX_QUESTION = 1000
"""Bytes of a question in UTF-8: the prompt of the shipped model takes no more. A rare character may
be as many tokens as it has bytes."""

MAX_PATH = 8000
"""Characters of a path."""

MAX_HOPS = 20
"""Hops of a path, those of its conditions included: no known question takes more than 7."""

MAX_QUERY = 20_000
"""Characters of somebody's SPARQL query."""

MAX_CONVERTED = 4000
"""Characters of a query that is to become a path: the parser takes up to a millisecond for each."""

MAX_ROWS = 10_000
"""Rows of its result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How the service answers.

    Attributes:
        queue: Questions that may be under way besides those of a batch; more are refused.
        batch_size: Questions that are written for at once, at most.
        answer_threads: Questions whose paths are run at once.
        deadline_s: Seconds that a question may take in all, waiting included.
        query_timeout_s: Seconds that somebody's own SPARQL query or path may take.
        query_workers: Such queries and paths that run at once.
        unsure_below: The confidence below which an answer is a guess, for `/api/v1/info`.
        cached_answers: Answers that are remembered.
    """

    queue: int = 12
    batch_size: int = 8
    answer_threads: int = 4
    deadline_s: float = 60.0
    query_timeout_s: float = 10.0
    query_workers: int = 1
    unsure_below: float = UNSURE_BELOW
    cached_answers: int = 500
