"""Server-sent events: progress as it happens, then exactly one `answer` or `error`."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any

from fastapi.responses import StreamingResponse

from kbqa.engine.serve.asking.served import Event, Served, Watch
from kbqa.engine.serve.problems import log_problem, problem_of

MEDIA_TYPE = "text/event-stream"
_PING = b": ping\n\n"
_PING_S = 15.0


async def stream_answer(
    ask: Callable[[Watch], Awaitable[Served]],
    to_record: Callable[[Served], Mapping[str, Any]],
    request_id: str,
    graph: str,
) -> StreamingResponse:
    """Ask, and answer with events of what becomes of it.

    A client that leaves gives the question up.

    Args:
        ask: Asks, and tells a watcher of progress.
        to_record: Makes the data of the `answer`.
        request_id: For errors.
        graph: How messages name the graph; see `problem_of`.

    Raises:
        KbqaError: The question was refused before anything happened, as when the queue is full.
    """
    events = _events(ask, to_record, request_id, graph)
    first = await anext(events)

    async def stream() -> AsyncIterator[bytes]:
        async with aclosing(events):
            yield first
            async for event in events:
                yield event

    return StreamingResponse(stream(), media_type=MEDIA_TYPE, headers={"X-Accel-Buffering": "no"})


async def _events(
    ask: Callable[[Watch], Awaitable[Served]],
    to_record: Callable[[Served], Mapping[str, Any]],
    request_id: str,
    graph: str,
) -> AsyncGenerator[bytes, None]:
    """Ask, and yield the events; an error before the first of them is raised."""
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
            record = to_record(await task)
        except Exception as error:
            if not number:
                raise
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
