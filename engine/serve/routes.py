"""The routes of the HTTP API and of others' protocols, and the `Caller` that all routes use.

An answer is sent as its record, or as server-sent events: progress as it happens, then exactly one
`answer` or `error`.

The others' protocols are OpenAI's chat, the SPARQL 1.1 Protocol, read-only, and TEXT2SPARQL. A
chat's question is the last message of the user, which may go on from those before it. Its answer is
whole, with the record as ``kbqa``.
"""

import asyncio
import json
import re
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from dataclasses import asdict, replace
from functools import partial
from importlib.metadata import version
from typing import Annotated, Any, Literal, TypeVar, cast
from urllib.parse import parse_qsl

from fastapi import APIRouter, Depends, HTTPException, Path, Query, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, Field

from kbqa.engine.answer import Answer
from kbqa.engine.linking.ground import ungrounded_entities
from kbqa.engine.running.evidence import PathTrace
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
from kbqa.kb.commands.graph import format_rows
from kbqa.kb.graph import Direction, Table
from kbqa.sparql.compile import compile_crp
from kbqa.sparql.errors import InputError, QueryRefused, QuerySyntaxError, QueryTooLarge

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

        async def leave() -> None:
            while (await self._request.receive())["type"] != "http.disconnect":
                pass

        task, gone = asyncio.create_task(work), asyncio.create_task(leave())
        try:
            await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise ClientLeft
            return task.result()
        finally:
            gone.cancel()
            task.cancel()

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
    ask = partial(
        caller.service.ask,
        body.question,
        body.topics,
        history=body.history,
        deadline_s=body.timeout_s,
    )
    return await caller.answer(ask, body.max_answers, with_lines=body.lines)


@ask_routes.get("/ask", tags=["questions"], responses=_ANSWER)
async def ask_by_url(
    q: Annotated[records.Question, Query()],
    caller: TheCaller,
    topic: Annotated[records.Topics, Query()] = [],  # noqa: B006 - FastAPI copies defaults
    after: Annotated[records.History, Query()] = [],  # noqa: B006 - FastAPI copies defaults
    timeout_s: Annotated[records.TimeoutS, Query()] = None,
    max_answers: Annotated[records.MaxAnswers, Query()] = DEFAULT_MAX_ANSWERS,
) -> Response:
    """Answer a question, for curl: as POST does."""
    body = records.AskBody(
        question=q, topics=topic, history=after, timeout_s=timeout_s, max_answers=max_answers
    )
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


openai_routes = APIRouter(prefix="/v1", tags=["OpenAI"])

MODEL = "kbqa"
_LISTED = 20
_ADVICE = {"unlinked": " Use the name that the graph has."}
"""Advice by the reason why there is no answer."""


class _TextPart(BaseModel):
    type: str
    text: str = ""


class _Message(BaseModel):
    role: str
    content: str | list[_TextPart] | None = None

    def text(self) -> str:
        """Return the text of all parts."""
        if isinstance(self.content, list):
            return " ".join(part.text for part in self.content if part.type == "text")
        return self.content or ""


class ChatBody(BaseModel):
    """A conversation. Parameters of models, such as temperature, are ignored."""

    model: str = MODEL
    messages: Annotated[list[_Message], Field(min_length=1, max_length=200)]
    stream: bool = False
    n: Literal[1, None] = None
    tools: Annotated[list[dict[str, Any]] | None, Field(max_length=0)] = None


@openai_routes.get("/models")
async def models() -> dict[str, Any]:
    """List the one model there is."""
    return {"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": "kbqa"}]}


@openai_routes.post("/chat/completions")
async def chat(body: ChatBody, caller: TheCaller) -> Response:
    """Answer the last message of the user, which may go on from the user's messages before."""
    if body.model != MODEL:
        raise HTTPException(404, f"The only model is {MODEL}.")
    asked = [message.text() for message in body.messages if message.role == "user"]
    if not asked:
        raise InputError("no message is of the user")
    history = _recent([text for text in asked[:-1] if _can_be_asked(text)])
    served = await caller.wait(caller.service.ask(asked[-1], history=history))
    if body.stream:
        return StreamingResponse(_chunks(served), media_type=MEDIA_TYPE)
    message = {"role": "assistant", "content": content_of(served.answer)}
    usage = served.answer.usage
    return JSONResponse(
        {
            **_head(served, "chat.completion"),
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {
                "prompt_tokens": usage.input_tokens,
                "completion_tokens": usage.output_tokens,
                "total_tokens": usage.input_tokens + usage.output_tokens,
            },
            "kbqa": served.to_dict(),
        }
    )


def _can_be_asked(text: str) -> bool:
    """Return whether a message was answered: one that was refused does not end a chat."""
    return 0 < len(" ".join(text.split()).encode("utf-8", "surrogatepass")) <= MAX_QUESTION


def _recent(history: Sequence[str]) -> Sequence[str]:
    """Return the last 10 to 19 questions.

    Where they begin moves in steps: only with the same questions before it is an answer in memory.
    """
    return history[max(len(history) // 10 - 1, 0) * 10 :]


def content_of(answer: Answer) -> str:
    """Write an answer as text: the names, how sure they are, and the path in words."""
    if answer.parts:
        return "\n\n".join(
            f"{number}. {part.understood or part.question}\n\n"
            f"{content_of(replace(part, understood=None))}"
            for number, part in enumerate(answer.parts, 1)
        )
    if answer.understood is not None:
        said = content_of(replace(answer, understood=None))
        return f"{said}\n\nUnderstood as: {answer.understood}"
    if answer.status == "none":
        advice = _ADVICE.get(answer.reason or "", "")
        return f"No answer: {(answer.problem or '').removesuffix('.')}.{advice}"
    if answer.boolean is not None:
        found = "Yes" if answer.boolean else "No"
    elif answer.count is not None:
        found = str(answer.count)
    elif answer.value is not None:
        found = f"{answer.value.number:.12g}"
    else:
        found = ", ".join(each.name for each in answer.answers[:_LISTED])
        if len(answer.answers) > _LISTED:
            more = "or more others" if answer.truncated else "more"
            found = f"{found} and {len(answer.answers) - _LISTED:,} {more}"
    sure = ""
    if answer.status == "unsure":
        found = f"Not sure ({answer.confidence:.2f}): {answer.doubt}. Best guess: {found}"
    elif answer.confidence is not None:
        sure = f"Confidence: {answer.confidence:.2f}"
    path = "\n".join(answer.trace.to_dict().get("crp_words") or ())
    return "\n\n".join(filter(None, (found, path, sure)))


def openai_error(problem: Problem, headers: Mapping[str, str] | None) -> Response:
    """Answer a request with a problem, as OpenAI's clients read errors."""
    kind = "invalid_request_error" if problem.status < 500 else "server_error"
    if problem.status == 429:
        kind = "rate_limit_error"
    error = {"message": problem.detail, "type": kind, "param": None, "code": problem.code}
    sent = {**(headers or {}), **problem.headers}
    return Response(json.dumps({"error": error}), problem.status, sent, "application/json")


def _head(served: Served, kind: str) -> dict[str, Any]:
    return {"id": served.id, "object": kind, "created": int(time.time()), "model": MODEL}


def _chunks(served: Served) -> Iterator[bytes]:
    head = _head(served, "chat.completion.chunk")
    delta = {"role": "assistant", "content": content_of(served.answer)}
    for choice, more in (
        ({"index": 0, "delta": delta, "finish_reason": None}, {}),
        ({"index": 0, "delta": {}, "finish_reason": "stop"}, {"kbqa": served.to_dict()}),
    ):
        chunk = json.dumps({**head, "choices": [choice], **more}, ensure_ascii=False)
        yield f"data: {chunk}\n\n".encode()
    yield b"data: [DONE]\n\n"


sparql_routes = APIRouter(tags=["SPARQL"], responses=PROBLEMS)

_ResultFormat = Literal["json", "csv", "tsv"]

_TYPES: Mapping[str, _ResultFormat] = {
    "application/sparql-results+json": "json",
    "application/json": "json",
    "text/csv": "csv",
    "text/tab-separated-values": "tsv",
}
"""Of types that a client likes equally well and names no more exactly, the first is sent."""
_SENT_AS: Mapping[_ResultFormat, str] = {
    "json": "application/sparql-results+json",
    "csv": "text/csv; charset=utf-8",
    "tsv": "text/tab-separated-values; charset=utf-8",
}
_MAX_RESULT_BYTES = 5_000_000
_NOTHING = "SELECT ?x WHERE { ?x ?relation ?value FILTER(false) }"
"""A valid query without results, for questions that no query answers."""


@sparql_routes.get("/sparql")
async def query_by_url(
    request: Request,
    caller: TheCaller,
    query: Annotated[str, Query(description="A SELECT or ASK.")] = "",
) -> Response:
    """Run a query of your own: the SPARQL 1.1 Protocol, read-only.

    SELECT is answered as JSON, CSV or TSV, by `Accept`; ASK as JSON. If a result is cut off, the
    header `X-Kbqa-Truncated` says so.
    """
    return await _answer_query(query, [*request.query_params.multi_items()], caller)


@sparql_routes.post(
    "/sparql",
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                "application/sparql-query": {"schema": {"type": "string"}},
                "application/x-www-form-urlencoded": {
                    "schema": {"type": "object", "properties": {"query": {"type": "string"}}}
                },
            },
        }
    },
)
async def query_by_body(request: Request, caller: TheCaller) -> Response:
    """Run a query of your own, as GET does: from a form, or as the body itself."""
    try:
        body = (await request.body()).decode()
    except UnicodeDecodeError:
        raise InputError("the body is not UTF-8") from None
    if request.headers["content-type"].lower().startswith("application/sparql-query"):
        given = [("query", body), *request.query_params.multi_items()]
        return await _answer_query(body, given, caller)
    form = parse_qsl(body, keep_blank_values=True)
    return await _answer_query(dict(form).get("query", ""), form, caller)


@sparql_routes.get("/text2sparql")
async def text2sparql(
    dataset: Annotated[str, Query(max_length=500)],
    question: Annotated[str, Query(min_length=1, max_length=MAX_QUESTION)],
    request: Request,
    caller: TheCaller,
) -> Response:
    """Return a query that answers a question, as the TEXT2SPARQL challenge asks for it.

    Where nothing answers, it is the best candidate's, or else one without results.
    """
    if dataset != request.app.state.dataset:
        raise HTTPException(404, f"The only data set is {request.app.state.dataset}.")
    served = await caller.wait(caller.service.ask(question))
    query = _query_of(served.answer)
    return JSONResponse({"dataset": dataset, "question": question, "query": query})


def _query_of(answer: Answer) -> str:
    """Return the query that answered, or that of the best candidate, or one without results.

    Of several questions in one it is that of the first that has an answer.
    """
    if answer.parts:
        return _query_of(next((part for part in answer.parts if part.sparql), answer.parts[0]))
    if answer.sparql is not None:
        return answer.sparql
    tried = answer.trace.tried if isinstance(answer.trace, PathTrace) else ()
    for crp in (each.crp for each in tried):
        if crp is not None and not ungrounded_entities(crp):
            return compile_crp(crp)
    return _NOTHING


async def _answer_query(query: str, given: Sequence[tuple[str, str]], caller: Caller) -> Response:
    parameters = [name for name, _ in given]
    if not query.strip():
        raise QuerySyntaxError("there is no query: send it as the parameter `query`")
    if parameters.count("query") > 1:
        raise QuerySyntaxError("there is more than one query: send them one by one")
    if len(query) > MAX_QUERY:
        raise InputError(f"the query has {len(query):,} characters; {MAX_QUERY:,} are allowed")
    if any(name.endswith("-graph-uri") for name in parameters):
        raise QueryRefused("there is one graph only; leave out the parameters that name others")
    style = _chosen_format(caller.accepts)
    result = await caller.wait(caller.service.sparql(query, MAX_ROWS, caller.visit.client))
    if isinstance(result, bool):
        text = json.dumps({"head": {}, "boolean": result})
        return Response(text, media_type=_SENT_AS["json"])
    body, is_cut = await caller.service.look_up(lambda *_: _body(result, style))
    headers = {"X-Kbqa-Truncated": "true"} if is_cut else {}
    return Response(body, media_type=_SENT_AS[style], headers=headers)


def _chosen_format(accepted: Mapping[str, float]) -> _ResultFormat:
    """Choose the type that a client likes best; of several, the one that it names first."""
    order = list(accepted)
    found: dict[tuple[float, int], _ResultFormat] = {}
    for name, style in _TYPES.items():
        ranges = (name, f"{name.partition('/')[0]}/*", "*/*")  # RFC 9110: the most exact one counts
        named = next((each for each in ranges if each in accepted), None)
        if named is not None and accepted[named] > 0:
            found.setdefault((-accepted[named], order.index(named)), style)
    if not found:
        raise HTTPException(406, f"Results are sent as {', '.join(_SENT_AS.values())}.")
    return found[min(found)]


def _body(table: Table, style: _ResultFormat) -> tuple[bytes, bool]:
    """Write a result within the limit of bytes, and say whether rows are missing."""
    rows, is_cut = table.rows, table.truncated
    while True:
        body = format_rows(replace(table, rows=rows), style).encode("utf-8", "replace")
        if len(body) <= _MAX_RESULT_BYTES:
            return body, is_cut
        if len(rows) <= 1:
            raise QueryTooLarge(f"a row of the result is larger than {_MAX_RESULT_BYTES:,} bytes")
        # Rows differ in length, so it may take more than one cut.
        rows = rows[: max(len(rows) * _MAX_RESULT_BYTES * 9 // (len(body) * 10), 1)]
        is_cut = True
