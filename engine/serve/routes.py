"""The routes of the HTTP API, and the `Caller` that all routes use.

An answer is sent as its record, or as server-sent events: progress as it happens, then exactly one
`answer` or `error`.
"""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping
from contextlib import aclosing
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from typing import Annotated, Any, Literal, TypeVar, cast

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse

from kbqa.engine.serve import browsing, records
from kbqa.engine.serve.guard import Metrics, Visit
from kbqa.engine.serve.problems import Problem, for_clients, log_problem, problem_of
from kbqa.engine.serve.served import (
    DEFAULT_MAX_ANSWERS,
    MAX_HOPS,
    MAX_PATH,
    MAX_QUERY,
    MAX_QUESTION,
    MAX_ROWS,
    Event,
    Served,
    Watch,
)
from kbqa.engine.serve.service import Ask, Service
from kbqa.kb.graph import Direction

MEDIA_TYPE = "text/event-stream"
_PING = b": ping\n\n"
_PING_S = 15.0

PROBLEMS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": records.ProblemRecord, "description": "The request is at fault."},
    "5XX": {"model": records.ProblemRecord, "description": "The server is at fault, or busy."},
}
"""Responses that every route may give."""

CLIENT_LEFT = 499
"""The status, for the metrics, if the client left before the response."""

_WEIGHT = re.compile(r"q\s*=\s*(1(?:\.0*)?|0(?:\.\d*)?)")
_Result = TypeVar("_Result")


class ClientLeft(Exception):
    """A client has left before its request was answered."""


class Caller:
    """The client behind a request, with its visit and the service."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self.service: Service = request.app.state.service
        self.visit: Visit = request.scope["state"]["visit"]

    @property
    def accepts(self) -> dict[str, float]:
        """The media types that it accepts, in order, each with its weight from 0 to 1."""
        weights: dict[str, float] = {}
        for wanted in ",".join(self._request.headers.getlist("accept")).lower().split(","):
            name, *parameters = (part.strip() for part in wanted.split(";"))
            if name:
                stated = (_WEIGHT.fullmatch(each) for each in parameters)
                weights[name] = next((float(found[1]) for found in stated if found), 1.0)
        return weights or {"*/*": 1.0}

    async def wait(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        """Do some work for the client, but drop it and raise `ClientLeft` if it leaves."""
        task = asyncio.create_task(work)
        gone = asyncio.create_task(self._gone())
        try:
            await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise ClientLeft
            return task.result()
        finally:
            gone.cancel()
            task.cancel()

    async def _gone(self) -> None:
        while (await self._request.receive())["type"] != "http.disconnect":
            pass

    def problem(self, error: Exception) -> Problem:
        """Log an error, and return it as the client sees it."""
        problem = problem_of(error, self.service.graph.description)
        log_problem(error, problem, self.visit.request_id)
        return problem

    async def answer(self, ask: Ask, max_answers: int, *, with_lines: bool = False) -> Response:
        """Ask, and answer with the record, or with events if the client wants them."""

        async def asked(*, watch: Watch | None = None) -> Served:
            served = await ask(watch=watch)
            return await self.service.with_lines(served) if with_lines else served

        if self.accepts.get(MEDIA_TYPE, 0.0) > 0:
            return await self.stream(asked, lambda served: served.to_dict(max_answers))
        return JSONResponse((await self.wait(asked())).to_dict(max_answers))

    async def stream(
        self, ask: Ask, to_record: Callable[[Served], Mapping[str, Any]]
    ) -> StreamingResponse:
        """Ask, and answer with events; if the client leaves, the question is dropped.

        The last event is the `answer`, with its record, or an `error`. A question that is refused
        at once, as when the queue is full, raises.
        """
        events = self._events(ask, to_record)
        first = await anext(events)

        async def stream() -> AsyncIterator[bytes]:
            async with aclosing(events):
                yield first
                async for event in events:
                    yield event

        headers = {"X-Accel-Buffering": "no"}
        return StreamingResponse(stream(), media_type=MEDIA_TYPE, headers=headers)

    async def _events(
        self, ask: Ask, to_record: Callable[[Served], Mapping[str, Any]]
    ) -> AsyncGenerator[bytes, None]:
        """Ask, and yield the events; an error before the first of them is raised."""
        heard: asyncio.Queue[Event | None] = asyncio.Queue()
        task = asyncio.ensure_future(ask(watch=heard.put_nowait))
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
                yield _event(number, told.name, told.data)
            try:
                record = to_record(await task)
            except Exception as error:
                if not number:
                    raise
                problem = self.problem(error).to_dict(self.visit.request_id)
                yield _event(number + 1, "error", problem)
            else:
                yield _event(number + 1, "answer", record)
        finally:
            task.cancel()


def _event(number: int, name: str, data: Mapping[str, Any]) -> bytes:
    """Write an event; JSON has no line breaks of its own."""
    text = json.dumps(data, ensure_ascii=False)
    return f"id: {number}\nevent: {name}\ndata: {text}\n\n".encode()


async def _caller(request: Request) -> Caller:
    return Caller(request)


async def _service(request: Request) -> Service:
    return cast(Service, request.app.state.service)


TheCaller = Annotated[Caller, Depends(_caller)]
TheService = Annotated[Service, Depends(_service)]


ask_routes = APIRouter(prefix="/api/v1", responses=PROBLEMS)

_ANSWER: dict[int | str, dict[str, Any]] = {
    200: {
        "model": records.AnswerRecord,
        "description": "The answer; or, with `Accept: text/event-stream`, events: `queued`, "
        "`linked`, `written` and `stage`, then one `answer` or `error`.",
    }
}


@ask_routes.post("/ask", tags=["questions"], responses=_ANSWER)
async def ask(body: records.AskBody, caller: TheCaller) -> Response:
    """Answer a question. That there is no answer is a result, not an error."""
    ask = partial(caller.service.ask, body.question, body.topics, deadline_s=body.timeout_s)
    return await caller.answer(ask, body.max_answers, with_lines=body.lines)


@ask_routes.get("/ask", tags=["questions"], responses=_ANSWER)
async def ask_by_url(
    q: Annotated[records.Question, Query()],
    caller: TheCaller,
    topic: Annotated[records.Topics, Query()] = [],  # noqa: B006 - FastAPI copies defaults
    timeout_s: Annotated[records.TimeoutS, Query()] = None,
    max_answers: Annotated[records.MaxAnswers, Query()] = DEFAULT_MAX_ANSWERS,
) -> Response:
    """Answer a question, for curl: as POST does."""
    body = records.AskBody(question=q, topics=topic, timeout_s=timeout_s, max_answers=max_answers)
    return await ask(body, caller)


@ask_routes.post("/paths/run", tags=["paths"], responses=_ANSWER)
async def run_path(body: records.RunPathBody, caller: TheCaller) -> Response:
    """Run a path that somebody wrote or edited, without the model; events as for a question."""
    run = partial(
        caller.service.run_path,
        body.path,
        body.question,
        body.topics,
        client=caller.visit.client,
        relax=body.relax,
        deadline_s=body.timeout_s,
    )
    return await caller.answer(run, body.max_answers)


@ask_routes.post("/paths/check", tags=["paths"])
async def check_path(body: records.PathBody, service: TheService) -> records.PathRecord:
    """Read a path and return it in all its forms; no graph is asked."""
    return await service.look_up(lambda *_: browsing.explain_path(body.path))


@ask_routes.post("/paths/from-sparql", tags=["paths"])
async def path_from_sparql(body: records.QueryBody, caller: TheCaller) -> records.PathRecord:
    """Return the path that says the same as a query."""
    convert = partial(browsing.path_of_query, body.query)
    return await caller.service.run_for(caller.visit.client, convert)


entity_routes = APIRouter(prefix="/api/v1", tags=["entities"], responses=PROBLEMS)

TheMid = Annotated[str, Path(max_length=200)]


@entity_routes.post("/link")
async def link(body: records.TextBody, service: TheService) -> list[records.LinkedRecord]:
    """Find the entities that a text mentions, best first."""
    found = await service.link(body.text)
    return [records.LinkedRecord(**asdict(each)) for each in found]


@entity_routes.get("/entities")
async def entities(
    q: Annotated[str, Query(min_length=1, max_length=200)],
    service: TheService,
    limit: Annotated[int, Query(ge=1, le=100)] = 10,
) -> list[records.FoundEntity]:
    """Find entities by a name that may be incomplete or mistyped, best first."""
    return await service.look_up(browsing.find_entities, q, limit)


@entity_routes.get("/entities/{mid}")
async def entity(mid: TheMid, service: TheService) -> records.EntityRecord:
    """Return an entity's name and types, and how many triples it has."""
    return await service.look_up(browsing.describe_entity, mid)


@entity_routes.get("/entities/{mid}/relations")
async def relations(
    mid: TheMid,
    service: TheService,
    direction: Literal["out", "in", "both"] = "both",
    contains: Annotated[str, Query(max_length=200)] = "",
    limit: Annotated[int, Query(ge=1, le=1000)] = 1000,
) -> records.RelationsRecord:
    """List the relations of an entity with their counts, those that leave it first."""
    way = None if direction == "both" else direction
    return await service.look_up(browsing.list_relations, mid, way, contains, limit)


@entity_routes.get("/entities/{mid}/neighbours")
async def neighbours(
    mid: TheMid,
    relation: Annotated[str, Query(max_length=200)],
    service: TheService,
    direction: Direction = "out",
    limit: Annotated[int, Query(ge=1, le=200)] = 20,
    offset: Annotated[int, Query(ge=0, le=browsing.MAX_OFFSET)] = 0,
) -> records.NeighboursRecord:
    """List some of what one relation leads to; `truncated` says that there are more."""
    return await service.look_up(browsing.list_neighbours, mid, relation, direction, limit, offset)


health_routes = APIRouter(tags=["server"])


@health_routes.get("/healthz")
async def healthz() -> dict[str, str]:
    """Say that the process is alive."""
    return {"status": "ok"}


@health_routes.get("/readyz")
async def readyz(service: TheService) -> JSONResponse:
    """Say whether questions can be asked; 503 while the model loads or the graph is down."""
    is_up = await service.is_graph_up()
    is_ready = is_up and service.state == "ready"
    record = {"model": service.state, "graph": "up" if is_up else "down"}
    headers = {} if is_ready else {"Retry-After": "5"}
    return JSONResponse(record, 200 if is_ready else 503, headers)


@health_routes.get("/metrics")
async def metrics(request: Request, service: TheService) -> Response:
    """Return metrics for Prometheus."""
    counted: Metrics = request.app.state.metrics
    counted.queue_depth.set(service.waiting)
    return Response(counted.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


@health_routes.get("/api/v1/info")
async def info(service: TheService) -> records.InfoRecord:
    """Say what the server is: its method, model, graph and limits."""
    engine = service.engine if service.state == "ready" else None
    settings = service.settings
    identity = await service.look_up(lambda graph, _: graph.identity())
    return records.InfoRecord(
        version=version("kbqa"),
        state=service.state,
        method=None if engine is None else engine.method.name,
        model=None if engine is None else engine.resources.generator_name,
        graph=for_clients(dict(identity.settings), service.graph.description),
        limits={
            "question_bytes": MAX_QUESTION,
            "path_characters": MAX_PATH,
            "path_hops": MAX_HOPS,
            "query_characters": MAX_QUERY,
            "rows": MAX_ROWS,
            "deadline_s": settings.deadline_s,
            "query_timeout_s": settings.query_timeout_s,
            "queue": settings.queue,
            "batch_size": settings.batch_size,
            "unsure_below": settings.unsure_below,
        },
    )
