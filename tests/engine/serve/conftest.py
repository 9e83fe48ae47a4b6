"""A real server on loopback, over a real store, with a scripted model."""

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from kbqa.engine.setup import Engine
from kbqa.engine.writing.generate import Candidate, Request
from kbqa.kb.open import open_graph

for package in ("fastapi", "uvicorn", "jinja2", "prometheus_client", "httpx"):
    pytest.importorskip(package, reason="needs the serve extra")

import httpx
import uvicorn

from kbqa.engine.serve.access.guard import Access
from kbqa.engine.serve.app import make_app
from kbqa.engine.serve.metrics import Metrics
from kbqa.engine.serve.service import Service
from kbqa.engine.serve.settings import Settings

MONEY = "what is jamaican money called?"
CAPITAL = "capital of jamaica?"
NOTHING = "what is the area of jamaica?"

PATHS = {
    MONEY: "Main Path:\n Jamaica -[location , country , currency used]-> ?x",
    CAPITAL: "Main Path:\n Jamaica -[location , country , capital]-> ?x",
    NOTHING: "Main Path:\n Jamaica -[location , location , area]-> ?x",
}


class PacedGenerator:
    """The small model: it knows a few paths, and writes when it may."""

    name = "paced"

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.begun = threading.Semaphore(0)
        """Counts batches that have begun."""
        self.may_write = threading.Event()
        self.may_write.set()
        self.failure: Exception | None = None

    def generate(
        self, requests: Sequence[Request], n: int = 5, *, ends_at: float | None = None
    ) -> list[list[Candidate]]:
        self.batches.append([request.question for request in requests])
        self.begun.release()
        assert self.may_write.wait(20)
        if self.failure is not None:
            raise self.failure
        written = (PATHS.get(request.question, PATHS[MONEY]) for request in requests)
        return [[Candidate(text, -0.5, 10)] for text in written]


@dataclass
class Running:
    """A server that runs, and its parts."""

    url: str
    client: httpx.Client
    model: PacedGenerator
    service: Service
    metrics: Metrics


@contextmanager
def _running(
    store: Path,
    settings: Settings | None = None,
    access: Access | None = None,
    open_engine: Callable[[], AbstractContextManager[Engine]] | None = None,
    **options: object,
) -> Iterator[Running]:
    model, metrics = PacedGenerator(), Metrics()

    @contextmanager
    def opened() -> Iterator[Engine]:
        with open_graph(store) as graph, Engine(graph, model) as engine:
            yield engine

    with closing(open_graph(store)) as aside, socket.create_server(("127.0.0.1", 0)) as listening:
        service = Service(open_engine or opened, aside, settings or Settings(), metrics)
        app = make_app(service, metrics, access or Access(), **options)
        config = uvicorn.Config(app, log_config=None, lifespan="on", timeout_graceful_shutdown=5)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        try:
            with httpx.Client(base_url=url, timeout=30) as client:
                for _ in range(200):
                    if open_engine is not None or client.get("/readyz").status_code == 200:
                        break
                yield Running(url, client, model, service, metrics)
        finally:
            model.may_write.set()
            server.should_exit = True
            thread.join(20)
            assert not thread.is_alive()


@pytest.fixture(scope="session")
def running() -> Callable[..., AbstractContextManager[Running]]:
    """Runs a server over a store, with settings of one's own."""
    return _running


@pytest.fixture(scope="module")
def server(small_store: Path) -> Iterator[Running]:
    """A server over `SMALL_GRAPH` that several tests share."""
    with _running(small_store, openai=True) as running:
        yield running
