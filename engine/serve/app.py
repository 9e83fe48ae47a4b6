"""The application: routes over the service, behind the guard; and the server that runs it.

The server runs in uvicorn until a signal ends it, and lets questions under way end first.
"""

import asyncio
import logging
import os
import resource
import signal
import socket
import threading
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from importlib.metadata import version

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from kbqa.engine.serve.guard import Access, Guard, Metrics
from kbqa.engine.serve.mcp import make_mcp_server, mcp_routes
from kbqa.engine.serve.pages import STATIC, show_problem
from kbqa.engine.serve.pages import router as page_routes
from kbqa.engine.serve.problems import log_problem, problem_of, problem_response
from kbqa.engine.serve.routes import (
    CLIENT_LEFT,
    Caller,
    ClientLeft,
    ask_routes,
    entity_routes,
    health_routes,
    openai_error,
    openai_routes,
    sparql_routes,
)
from kbqa.engine.serve.served import THREAD_PREFIX
from kbqa.engine.serve.service import CLOSING_S, Service
from kbqa.kb.commands.options import print_note
from kbqa.sparql.errors import KbqaError

logger = logging.getLogger(__name__)

DEFAULT_DATASET = "urn:kbqa:freebase"
"""The name of the graph in TEXT2SPARQL, by default."""

GRACE_S = 12.0
"""Seconds that running questions may take after a signal. Then their clients get an error."""

_LAG_EVERY_S = 1.0
_OPEN_FILES = 65_536


def make_app(
    service: Service,
    metrics: Metrics,
    access: Access,
    *,
    openai: bool = False,
    dataset: str = DEFAULT_DATASET,
) -> ASGIApp:
    """Make the application, which starts the service and closes it.

    The service has the metrics as its observer. `openai` offers OpenAI's chat protocol, and
    `dataset` is the name of the graph in TEXT2SPARQL.
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
    for router in (ask_routes, entity_routes, sparql_routes, health_routes, page_routes):
        app.include_router(router)
    app.mount("/static", StaticFiles(directory=STATIC))
    if openai:
        app.include_router(openai_routes)
    app.router.routes.extend(mcp_routes(mcp))
    for kind in (Exception, KbqaError, HTTPException, RequestValidationError):
        app.add_exception_handler(kind, _answer_error)
    app.add_exception_handler(ClientLeft, lambda *_: Response(status_code=CLIENT_LEFT))
    return Guard(app, access, metrics)


async def _answer_error(request: Request, error: Exception) -> Response:
    caller = Caller(request)
    problem = problem_of(error, caller.service.graph.description)
    if isinstance(error, KbqaError):  # uvicorn logs all others
        log_problem(error, problem, caller.visit.request_id)
    if request.method == "GET" and caller.accepts.get("text/html", 0.0) > 0:
        return await show_problem(caller, problem)
    headers: Mapping[str, str] | None = getattr(error, "headers", None)
    if request.url.path.startswith("/v1/"):
        return openai_error(problem, headers)
    return problem_response(problem, caller.visit.request_id, headers)


async def _measure_lag(metrics: Metrics) -> None:
    """Measure how late the event loop is, again and again."""
    while True:
        due = time.monotonic() + _LAG_EVERY_S
        await asyncio.sleep(_LAG_EVERY_S)
        metrics.loop_lag.set(time.monotonic() - due)


class _Server(uvicorn.Server):
    """A server that refuses new questions from the first signal on."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service
        self._is_announced = False

    async def on_tick(self, counter: int) -> bool:
        if self._service.state == "ready" and not self._is_announced:
            self._is_announced = True
            print_note("Ready.")
        return await super().on_tick(counter) or self._service.state == "failed"

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._service.stop()
        giving_up = asyncio.get_running_loop().call_later(GRACE_S, self._service.give_up)
        await super().shutdown(sockets)
        giving_up.cancel()


def run_server(
    app: ASGIApp, service: Service, host: str, port: int, proxies: Sequence[str]
) -> None:
    """Listen and answer until SIGTERM or Ctrl-C.

    Port 0 is any that is free. `proxies` are addresses whose X-Forwarded-For is believed.
    """
    _raise_open_files()
    listening = listen(host, port)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,  # addresses hold questions
        server_header=False,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=list(proxies),
        timeout_graceful_shutdown=int(GRACE_S + CLOSING_S),
        lifespan="on",
    )
    name = f"[{host}]" if ":" in host else host
    print_note(f"Listening on http://{name}:{listening.getsockname()[1]}/; loading the model.")
    for number in (signal.SIGTERM, signal.SIGINT):
        # uvicorn raises a signal again once it has stopped: that is no failure.
        signal.signal(number, lambda *_: None)
    _Server(config, service).run(sockets=[listening])
    if service.failure is not None:
        raise service.failure
    _end_threads()


def listen(host: str, port: int) -> socket.socket:
    """Open the port; connections wait until the server runs."""
    try:
        host.encode("idna")
    except UnicodeError:
        raise KbqaError(f"cannot listen on {host!r}: it is not the name of a machine.") from None
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise KbqaError(
            f"cannot listen on {host} port {port}: {error.strerror}. Choose another --port."
        ) from None


def _end_threads() -> None:
    """Wait a little for threads that are still busy; Python itself would wait until they end."""
    ends_at = time.monotonic() + CLOSING_S
    busy = [each for each in threading.enumerate() if each.name.startswith(THREAD_PREFIX)]
    for each in busy:
        each.join(max(ends_at - time.monotonic(), 0.0))
    if any(each.is_alive() for each in busy):
        logger.info("leaving threads that are still busy")
        logging.shutdown()
        os._exit(0)


def _raise_open_files() -> None:
    """Allow as many connections as the system lets a process have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
