"""A real server on loopback, over a real store, with a scripted model.

As a program it is `kbqa serve` with that model: `python scripted_server.py STORE SECONDS [PORT]`,
where each batch of the model takes so many seconds.
"""

import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx
import uvicorn

from kbqa.engine.engine import Engine
from kbqa.engine.serve.app import make_app, run_server
from kbqa.engine.serve.guard import Access, Metrics
from kbqa.engine.serve.served import Settings
from kbqa.engine.serve.service import Service
from kbqa.engine.writing.generate import Candidate, Progress, Request
from kbqa.kb.open import open_graph

MONEY = "what is jamaican money called?"
CAPITAL = "capital of jamaica?"
NOTHING = "what is the area of jamaica?"
AREA = "how large is kingston?"

PATHS = {
    MONEY: "Main Path:\n Jamaica -[location , country , currency used]-> ?x",
    CAPITAL: "Main Path:\n Jamaica -[location , country , capital]-> ?x",
    NOTHING: "Main Path:\n Jamaica -[location , location , area]-> ?x",
    AREA: "Main Path:\n Kingston -[location , location , area]-> ?x",
    # As questions that go on from others, and halves of two in one, are completed.
    "how large is Kingston?": "Main Path:\n Kingston -[location , location , area]-> ?x",
    "how large is Jamaica?": "Main Path:\n Jamaica -[location , location , area]-> ?x",
    "what is the capital of jamaica?": "Main Path:\n Jamaica -[location , country , capital]-> ?x",
}


class PacedGenerator:
    """The small model: it knows a few paths, and writes when it may."""

    name = "paced"
    suggested_relations = 0

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.begun = threading.Semaphore(0)
        """Counts batches that have begun."""
        self.may_write = threading.Event()
        self.may_write.set()
        self.seconds = 0.0
        self.failure: Exception | None = None
        self.failing: str | None = None
        """The question that it cannot write for."""

    def generate(
        self,
        requests: Sequence[Request],
        n: int = 5,
        *,
        progress: Progress | None = None,
    ) -> list[list[Candidate]]:
        self.batches.append([request.question for request in requests])
        self.begun.release()
        assert self.may_write.wait(20)
        time.sleep(self.seconds)
        if self.failure is not None:
            raise self.failure
        if self.failing in self.batches[-1]:
            raise TypeError("not a text")
        written = (PATHS.get(request.question, PATHS[MONEY]) for request in requests)
        return [[Candidate(text, -0.5, 10)] for text in written]


@contextmanager
def scripted_engine(
    store: Path, model: PacedGenerator, unsure_below: float = 0.0
) -> Iterator[Engine]:
    settings = {"judge": "confidence"}  # what is written answers, and no searched path
    with open_graph(store) as graph, Engine(graph, model, settings=settings) as engine:
        engine.resources.unsure_below = unsure_below
        yield engine


@dataclass
class Running:
    """A server that runs, and its parts."""

    url: str
    client: httpx.Client
    model: PacedGenerator
    service: Service
    metrics: Metrics


@contextmanager
def running_server(
    store: Path,
    settings: Settings | None = None,
    access: Access | None = None,
    open_engine: Callable[[], AbstractContextManager[Engine]] | None = None,
    **options: object,
) -> Iterator[Running]:
    model, metrics = PacedGenerator(), Metrics()
    graph = open_graph(store, workers=2, low_priority=True)  # as `kbqa serve` does
    with closing(graph) as aside, socket.create_server(("127.0.0.1", 0)) as listening:
        opened = open_engine or partial(scripted_engine, store, model)
        service = Service(opened, aside, settings or Settings(), metrics)
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


def main(store: Path, seconds: float, port: int) -> None:
    model, metrics = PacedGenerator(), Metrics()
    model.seconds = seconds
    with closing(open_graph(store, workers=2, low_priority=True)) as aside:
        service = Service(partial(scripted_engine, store, model), aside, Settings(), metrics)
        run_server(make_app(service, metrics, Access()), service, "127.0.0.1", port, ())


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]) if sys.argv[3:] else 0)
