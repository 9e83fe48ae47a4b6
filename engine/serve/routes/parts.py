"""What routes share: the service, the visit, answers as responses, and clients that leave."""

import asyncio
import re
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, TypeVar, cast

from fastapi import Depends, Request, Response
from fastapi.responses import JSONResponse

from kbqa.engine.serve.access.guard import Visit
from kbqa.engine.serve.asking.served import Served, Watch
from kbqa.engine.serve.records import ProblemRecord
from kbqa.engine.serve.service import Service
from kbqa.engine.serve.streaming import MEDIA_TYPE, stream_answer

_WEIGHT = re.compile(r"q\s*=\s*(1(?:\.0*)?|0(?:\.\d*)?)")
_Result = TypeVar("_Result")

PROBLEMS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": ProblemRecord, "description": "The request is at fault."},
    "5XX": {"model": ProblemRecord, "description": "The server is at fault, or busy."},
}
"""What every route may answer besides."""

CLIENT_LEFT = 499
"""The status of what nobody reads any more, for the metrics."""


async def service_of(request: Request) -> Service:
    """Return the service of the application."""
    return cast(Service, request.app.state.service)


async def visit_of(request: Request) -> Visit:
    """Return what the guard knows of the request."""
    return cast(Visit, request.scope["state"]["visit"])


TheService = Annotated[Service, Depends(service_of)]
TheVisit = Annotated[Visit, Depends(visit_of)]


def read_accept(request: Request) -> dict[str, float]:
    """Return the media types that a client accepts, each with its weight from 0 to 1, in order.

    Without the header, it accepts all.
    """
    weights: dict[str, float] = {}
    for wanted in ",".join(request.headers.getlist("accept")).lower().split(","):
        name, *parameters = (part.strip() for part in wanted.split(";"))
        if name:
            stated = (_WEIGHT.fullmatch(each) for each in parameters)
            weights[name] = next((float(found[1]) for found in stated if found), 1.0)
    return weights or {"*/*": 1.0}


async def until_gone(request: Request, work: Coroutine[Any, Any, _Result]) -> _Result | None:
    """Do some work, but drop it if the client leaves; return None then."""
    task = asyncio.create_task(work)
    gone = asyncio.create_task(_gone(request))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        gone.cancel()
        task.cancel()


async def answer_response(
    request: Request,
    service: Service,
    visit: Visit,
    ask: Callable[[Watch | None], Coroutine[Any, Any, Served]],
    max_answers: int,
    *,
    with_lines: bool = False,
) -> Response:
    """Ask, and answer with the record, or with events if the client wants them."""

    async def asked(watch: Watch | None) -> Served:
        served = await ask(watch)
        return await service.with_lines(served) if with_lines else served

    if read_accept(request).get(MEDIA_TYPE, 0.0) > 0:
        return await stream_answer(
            asked,
            lambda served: served.to_dict(max_answers),
            visit.request_id,
            service.graph.description,
        )
    served = await until_gone(request, asked(None))
    if served is None:
        return Response(status_code=CLIENT_LEFT)
    return JSONResponse(served.to_dict(max_answers))


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
