"""What works during a soak: each job is a process that does the same again and again.

A job adds a byte to `rounds` in its folder for each round, and ends with 0 on SIGTERM.
"""

import itertools
import json
import random
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import NoReturn

from kbqa.engine.engine import Engine
from kbqa.engine.evaluation.evaluate import EvaluationConfig, evaluate
from kbqa.engine.questions.question_sets import read_questions
from kbqa.engine.writing.generate import SavedBeams, read_beams, write_beams
from kbqa.kb.loading.load import load_freebase
from kbqa.kb.open import open_graph
from tools.fuzz.seeds import QUESTIONS, WRITTEN, ScriptedWriter, scripted_app, small_store

_QUESTIONS = 100
_HURRY = 0.1
"""The share of clients that hang up at once."""


def loads(folder: Path, _: bool) -> Iterator[None]:
    """Load a dump into a new store, ask it, and delete it."""
    store = folder / "loads" / "store"
    while True:
        load_freebase([folder / "dump.nt.gz"], store)
        with closing(open_graph(store)) as graph:
            assert graph.select("SELECT ?s { ?s ?p ?o }", limit=10).rows
        shutil.rmtree(store)
        yield


def runs(folder: Path, _: bool) -> Iterator[None]:
    """Answer questions from a file of candidates, with one engine all the time."""
    below = folder / "runs"
    source, beams, output = (below / f"{name}.jsonl" for name in ("questions", "beams", "run"))
    with source.open("w", encoding="utf-8") as rows:
        for number in range(_QUESTIONS):
            question = f"{QUESTIONS[number % len(QUESTIONS)]} no. {number}"
            rows.write(json.dumps({"id": str(number), "question": question}) + "\n")
    asked = read_questions(source)
    write = ScriptedWriter(*WRITTEN).generate
    write_beams(write, asked, beams, source=source, settings={}, gold_entities=False, batch_size=8)
    settings = {"judge": "confidence"}
    with (
        closing(open_graph(small_store(below))) as graph,
        Engine(graph, SavedBeams("beams"), settings=settings) as engine,
    ):
        while True:
            for path in below.glob("run.*"):
                path.unlink()
            evaluate(
                engine, asked, output, EvaluationConfig(), beams=read_beams(beams), concurrency=2
            )
            yield


def server(folder: Path, model: bool) -> Iterator[None]:
    """Serve until SIGTERM: the shipped model over the demo graph, or a scripted one."""
    from kbqa.engine.cli import main
    from kbqa.engine.serve.app import run_server

    if model:
        main(["serve", "--port", "0"])
    else:
        with scripted_app(small_store(folder / "server")) as (app, service):
            run_server(app, service, "127.0.0.1", 0, ())
    yield


def clients(folder: Path, model: bool) -> Iterator[None]:
    """Ask the server: ever new questions, queries and pages; some clients hang up at once."""
    import httpx

    url = _server_url(folder / "server" / "log")
    drawn = random.Random(1)
    with httpx.Client(base_url=url, timeout=120) as client:
        for number in itertools.count():
            question = f"{drawn.choice(QUESTIONS)} no. {number}"
            with suppress(httpx.TimeoutException):
                timeout_s = 0.001 if drawn.random() < _HURRY else 120
                body = {"question": question}
                client.post("/api/v1/ask", json=body, timeout=timeout_s)
            query = f"SELECT ?o {{ ns:m.0{number} ?p ?o }}"
            for path, parameters in (("/sparql", {"query": query}), ("/", {}), ("/metrics", {})):
                response = client.get(path, params=parameters)
                assert response.status_code == 200, response.text
            time.sleep(0.01)
            yield


def _server_url(log: Path) -> str:
    """Wait until the server says where it listens, and is ready."""
    while not (found := re.search(rb"Listening on (http://\S+)/;[\s\S]*Ready\.", log.read_bytes())):
        time.sleep(0.1)
    return found[1].decode()


JOBS: Mapping[str, Callable[[Path, bool], Iterator[None]]] = {
    "server": server,
    "clients": clients,
    "runs": runs,
    "loads": loads,
}


def main() -> None:
    """Do the rounds of a job until SIGTERM."""
    name, folder = sys.argv[1], Path(sys.argv[2])

    def stop(*_: object) -> NoReturn:
        sys.exit(0)

    signal.signal(signal.SIGTERM, stop)
    with (folder / name / "rounds").open("ab", buffering=0) as rounds:
        for _ in JOBS[name](folder, "--model" in sys.argv[3:]):
            rounds.write(b".")


if __name__ == "__main__":
    main()
