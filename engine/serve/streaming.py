"""Server-sent events: progress as it happens, then exactly one `answer` or `error`."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from kbqa.engine.serve.asking.served import Event, Served, Watch
from kbqa.engine.serve.problems import log_problem, problem_of

MEDIA_TYPE = "text/event-stream"
_PING = b": ping\n\n"
_PING_S = 15.0


async def stream_answer(
    ask: Callable[[Watch], Awaitable[Served]], max_answers: int, request_id: str, graph: str
) -> AsyncIterator[bytes]:
    """Ask, and yield what becomes of it as events.

    Closing the iterator, as happens when the client leaves, gives the question up.

    Args:
        ask: Asks, and tells a watcher of progress.
        max_answers: Answers to list at most.
        request_id: For errors.
        graph: How messages name the graph; see `problem_of`.
    """
    heard: asyncio.Queue[Event | None] = asyncio.Queue()
    task = asyncio.ensure_future(ask(heard.put_nowait))
    task.add_done_callback(lambda _: heard.put_nowait(None))
    number = 0
    try:
        while True:
            try:
                async with asyncio.timeout(_PING_S):
                    told = await heard.get()
            except TimeoutError:
                yield _PING
                continue
            if told is None:
                break
            number += 1
            yield write_event(number, told.name, told.data)
        try:
            record = (await task).to_dict(max_answers)
        except Exception as error:  # noqa: BLE001 - the stream has begun: an error is an event
            problem = problem_of(error, graph)
            log_problem(error, problem, request_id)
            yield write_event(number + 1, "error", problem.to_dict(request_id))
        else:
            yield write_event(number + 1, "answer", record)
    finally:
        task.cancel()


def write_event(number: int, name: str, data: Mapping[str, Any]) -> bytes:
    """Write an event; JSON has no line breaks of its own."""
    text = json.dumps(data, ensure_ascii=False)
    return f"id: {number}\nevent: {name}\ndata: {text}\n\n".encode()
