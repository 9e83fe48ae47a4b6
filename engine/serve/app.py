"""The application: routes over the service, behind the guard."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from importlib.metadata import version

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException

from kbqa.engine.serve.access.guard import Access, App, Guard, Visit
from kbqa.engine.serve.mcp_server.server import make_mcp_server, mcp_routes
from kbqa.engine.serve.metrics import Metered, Metrics
from kbqa.engine.serve.page.pages import STATIC, show_problem
from kbqa.engine.serve.page.pages import router as page_routes
from kbqa.engine.serve.problems import MEDIA_TYPE, Problem, log_problem, problem_of
from kbqa.engine.serve.routes.ask import router as ask_routes
from kbqa.engine.serve.routes.docs import router as docs_routes
from kbqa.engine.serve.routes.entities import router as entity_routes
from kbqa.engine.serve.routes.health import router as health_routes
from kbqa.engine.serve.routes.openai_chat import openai_error
from kbqa.engine.serve.routes.openai_chat import router as openai_routes
from kbqa.engine.serve.routes.parts import read_accept
from kbqa.engine.serve.routes.sparql import router as sparql_routes
from kbqa.engine.serve.service import Service
from kbqa.sparql.errors import KbqaError

DEFAULT_DATASET = "urn:kbqa:freebase"
"""What TEXT2SPARQL calls the graph, by default."""

_REFUSED = {
    404: ("not-found", "No such thing here"),
    405: ("method", "No such method here"),
    406: ("not-acceptable", "No such format"),
}
_LAG_EVERY_S = 1.0


def make_app(
    service: Service,
    metrics: Metrics,
    access: Access,
    *,
    openai: bool = False,
    dataset: str = DEFAULT_DATASET,
) -> App:
    """Make the application, whose lifespan is that of the service.

    Args:
        service: Answers; it is started with the application and closed with it.
        metrics: What the service tells its observer is counted here.
        access: Who may send requests.
        openai: Whether to offer OpenAI's chat protocol.
        dataset: What TEXT2SPARQL calls the graph.
    """
    mcp = make_mcp_server(service)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        lag = asyncio.create_task(_measure_lag(metrics))
        # A mounted application has no lifespan of its own.
        async with service, mcp.session_manager.run():
            yield
        lag.cancel()

    app = FastAPI(
        title="kbqa",
        version=version("kbqa"),
        summary="Question answering over Freebase, exactly and with proof.",
        docs_url=None,  # FastAPI's own page loads scripts of another host
        redoc_url=None,
        lifespan=lifespan,
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    app.state.service, app.state.metrics, app.state.dataset = service, metrics, dataset
    for routes in (
        ask_routes,
        entity_routes,
        sparql_routes,
        health_routes,
        docs_routes,
        page_routes,
    ):
        app.include_router(routes)
    app.mount("/static", StaticFiles(directory=STATIC))
    if openai:
        app.include_router(openai_routes)
    app.router.routes.extend(mcp_routes(mcp))
    app.add_exception_handler(Exception, _answer_error)
    for kind in (KbqaError, HTTPException, RequestValidationError):
        app.add_exception_handler(kind, _answer_error)
    return Guard(Metered(app, metrics), access, metrics)


async def _answer_error(request: Request, error: Exception) -> Response:
    """Answer a request with what went wrong."""
    visit: Visit = request.scope["state"]["visit"]
    problem = _problem(error, request.app.state.service.graph.description)
    if isinstance(error, KbqaError):  # uvicorn logs all others
        log_problem(error, problem, visit.request_id)
    if request.method == "GET" and read_accept(request).get("text/html", 0.0) > 0:
        return await show_problem(request.app.state.service, visit, problem)
    record = problem.to_dict(visit.request_id)
    headers = dict(getattr(error, "headers", None) or {})
    if problem.retry_after is not None:
        headers["Retry-After"] = str(problem.retry_after)
    if request.url.path.startswith("/v1/"):
        record = openai_error(problem)
        return Response(json.dumps(record), problem.status, headers, "application/json")
    return Response(json.dumps(record, ensure_ascii=False), problem.status, headers, MEDIA_TYPE)


def _problem(error: Exception, graph: str) -> Problem:
    if isinstance(error, HTTPException):
        code, title = _REFUSED.get(error.status_code, ("invalid", "The request is not valid"))
        is_plain = error.detail == HTTPStatus.NOT_FOUND.phrase
        detail = "There is nothing at this address; /docs lists those there are."
        return Problem(error.status_code, code, title, detail if is_plain else error.detail)
    if isinstance(error, RequestValidationError):
        found = [
            f"{'.'.join(str(part) for part in each['loc'])}: {each['msg']}"
            for each in error.errors()[:5]
        ]
        return Problem(422, "invalid", "The request is not valid", "; ".join(found))
    return problem_of(error, graph)


async def _measure_lag(metrics: Metrics) -> None:
    """Measure how late the event loop is, again and again."""
    while True:
        due = time.monotonic() + _LAG_EVERY_S
        await asyncio.sleep(_LAG_EVERY_S)
        metrics.loop_lag.set(time.monotonic() - due)
