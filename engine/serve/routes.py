"""The routes of the HTTP API, and what the routes of the page and of protocols share with them.

An answer is sent as its record, or as server-sent events: progress as it happens, then exactly one
`answer` or `error`.
"""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import aclosing
from dataclasses import asdict
from importlib.metadata import version
from typing import Annotated, Any, Literal, TypeVar, cast

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, StreamingResponse
from jinja2 import Environment, PackageLoader

from kbqa.engine.serve.browsing import (
    MAX_OFFSET,
    describe_entity,
    explain_path,
    find_entities,
    list_neighbours,
    list_relations,
    path_of_query,
)
from kbqa.engine.serve.guard import Metrics, Visit
from kbqa.engine.serve.problems import for_clients, log_problem, problem_of
from kbqa.engine.serve.records import (
    AnswerRecord,
    AskBody,
    EntityRecord,
    FoundEntity,
    InfoRecord,
    LinkedRecord,
    MaxAnswers,
    NeighboursRecord,
    PathBody,
    PathRecord,
    ProblemRecord,
    QueryBody,
    Question,
    RelationsRecord,
    RunPathBody,
    TextBody,
    TimeoutS,
    Topics,
)
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
from kbqa.engine.serve.service import Service
from kbqa.kb.graph import Direction

MEDIA_TYPE = "text/event-stream"
_PING = b": ping\n\n"
_PING_S = 15.0


async def stream_answer(
    ask: Callable[[Watch], Awaitable[Served]],
    to_record: Callable[[Served], Mapping[str, Any]],
    request_id: str,
    graph: str,
) -> StreamingResponse:
    """Ask, and answer with events of what becomes of it; a client that leaves gives it up.

    `to_record` makes the data of the `answer`. `graph` is as for `problem_of`.

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


_WEIGHT = re.compile(r"q\s*=\s*(1(?:\.0*)?|0(?:\.\d*)?)")
_Result = TypeVar("_Result")

PROBLEMS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": ProblemRecord, "description": "The request is at fault."},
    "5XX": {"model": ProblemRecord, "description": "The server is at fault, or busy."},
}
"""What every route may answer besides."""

CLIENT_LEFT = 499
"""The status of what nobody reads any more, for the metrics."""


class ClientLeft(Exception):
    """A client has left before its request was answered."""


async def _service(request: Request) -> Service:
    return cast(Service, request.app.state.service)


async def _visit(request: Request) -> Visit:
    return cast(Visit, request.scope["state"]["visit"])


async def _metrics(request: Request) -> Metrics:
    return cast(Metrics, request.app.state.metrics)


TheService = Annotated[Service, Depends(_service)]
TheVisit = Annotated[Visit, Depends(_visit)]


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


async def until_gone(request: Request, work: Coroutine[Any, Any, _Result]) -> _Result:
    """Do some work, but drop it and raise `ClientLeft` if the client leaves."""
    task = asyncio.create_task(work)
    gone = asyncio.create_task(_gone(request))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientLeft
        return task.result()
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
    return JSONResponse(served.to_dict(max_answers))


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


ask_routes = APIRouter(prefix="/api/v1", responses=PROBLEMS)

_ANSWER: dict[int | str, dict[str, Any]] = {
    200: {
        "model": AnswerRecord,
        "description": "The answer; or, with `Accept: text/event-stream`, events: `queued`, "
        "`linked`, `written` and `stage`, then one `answer` or `error`.",
    }
}


@ask_routes.post("/ask", tags=["questions"], responses=_ANSWER)
async def ask(body: AskBody, request: Request, service: TheService, visit: TheVisit) -> Response:
    """Answer a question. That there is no answer is a result, not an error."""
    return await answer_response(
        request,
        service,
        visit,
        lambda watch: service.ask(
            body.question, body.topics, deadline_s=body.timeout_s, watch=watch
        ),
        body.max_answers,
        with_lines=body.lines,
    )


@ask_routes.get("/ask", tags=["questions"], responses=_ANSWER)
async def ask_by_url(
    q: Annotated[Question, Query()],
    request: Request,
    service: TheService,
    visit: TheVisit,
    topic: Annotated[Topics, Query()] = [],  # noqa: B006 - FastAPI copies defaults
    timeout_s: Annotated[TimeoutS, Query()] = None,
    max_answers: Annotated[MaxAnswers, Query()] = DEFAULT_MAX_ANSWERS,
) -> Response:
    """Answer a question, for curl: as POST does."""
    body = AskBody(question=q, topics=topic, timeout_s=timeout_s, max_answers=max_answers)
    return await ask(body, request, service, visit)


@ask_routes.post("/paths/run", tags=["paths"], responses=_ANSWER)
async def run_path(
    body: RunPathBody, request: Request, service: TheService, visit: TheVisit
) -> Response:
    """Run a path that somebody wrote or edited, without the model; events as for a question."""
    return await answer_response(
        request,
        service,
        visit,
        lambda watch: service.run_path(
            body.path,
            body.question,
            body.topics,
            client=visit.client,
            relax=body.relax,
            deadline_s=body.timeout_s,
            watch=watch,
        ),
        body.max_answers,
    )


@ask_routes.post("/paths/check", tags=["paths"])
async def check_path(body: PathBody, service: TheService) -> PathRecord:
    """Read a path and return it in all its forms; no graph is asked."""
    return await service.look_up(lambda *_: explain_path(body.path))


@ask_routes.post("/paths/from-sparql", tags=["paths"])
async def path_from_sparql(body: QueryBody, service: TheService, visit: TheVisit) -> PathRecord:
    """Return the path that says the same as a query."""
    return await service.run_for(visit.client, lambda: path_of_query(body.query))


entity_routes = APIRouter(prefix="/api/v1", tags=["entities"], responses=PROBLEMS)

TheMid = Annotated[str, Path(max_length=200)]


@entity_routes.post("/link")
async def link(body: TextBody, service: TheService) -> list[LinkedRecord]:
    """Find the entities that a text mentions, best first."""
    found = await service.link(body.text)
    return [LinkedRecord(**asdict(each)) for each in found]


@entity_routes.get("/entities")
async def entities(
    q: Annotated[str, Query(min_length=1, max_length=200)],
    service: TheService,
    limit: Annotated[int, Query(ge=1, le=100)] = 10,
) -> list[FoundEntity]:
    """Find entities by a name that may be incomplete or mistyped, best first."""
    return await service.look_up(find_entities, name=q, limit=limit)


@entity_routes.get("/entities/{mid}")
async def entity(mid: TheMid, service: TheService) -> EntityRecord:
    """Return an entity's name and types, and how many triples it has."""
    return await service.look_up(describe_entity, mid=mid)


@entity_routes.get("/entities/{mid}/relations")
async def relations(
    mid: TheMid,
    service: TheService,
    direction: Literal["out", "in", "both"] = "both",
    contains: Annotated[str, Query(max_length=200)] = "",
    limit: Annotated[int, Query(ge=1, le=1000)] = 1000,
) -> RelationsRecord:
    """List the relations of an entity with their counts, those that leave it first."""
    way = None if direction == "both" else direction
    return await service.look_up(
        list_relations, mid=mid, direction=way, contains=contains, limit=limit
    )


@entity_routes.get("/entities/{mid}/neighbours")
async def neighbours(
    mid: TheMid,
    relation: Annotated[str, Query(max_length=200)],
    service: TheService,
    direction: Direction = "out",
    limit: Annotated[int, Query(ge=1, le=200)] = 20,
    offset: Annotated[int, Query(ge=0, le=MAX_OFFSET)] = 0,
) -> NeighboursRecord:
    """List some of what one relation leads to; `truncated` says that there are more."""
    return await service.look_up(
        list_neighbours,
        mid=mid,
        relation=relation,
        direction=direction,
        limit=limit,
        offset=offset,
    )


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
async def metrics(service: TheService, counted: Annotated[Metrics, Depends(_metrics)]) -> Response:
    """Return metrics for Prometheus."""
    counted.queue_depth.set(service.waiting)
    return Response(counted.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


@health_routes.get("/api/v1/info")
async def info(service: TheService) -> InfoRecord:
    """Say what the server is: its method, model, graph and limits."""
    engine = service.engine if service.state == "ready" else None
    settings = service.settings
    identity = await service.look_up(lambda graph, _: graph.identity())
    return InfoRecord(
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


docs_routes = APIRouter(include_in_schema=False)

_TEMPLATES = Environment(
    loader=PackageLoader("kbqa.engine.serve", "templates"),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
)


@docs_routes.get("/docs")
async def docs(request: Request) -> HTMLResponse:
    """List the routes, with what they take and return."""
    template = _TEMPLATES.get_template("docs.html")
    return HTMLResponse(template.render(api=request.app.openapi()))
