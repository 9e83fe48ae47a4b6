"""Fuzz `kbqa serve`: requests to every route, with damaged bodies and addresses."""

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote

from kbqa.engine.serve.app import listen
from tools.fuzz.mutation import HOSTILE, mutated_bytes, mutated_json, mutated_text
from tools.fuzz.seeds import PATHS, QUERIES, QUESTIONS, scripted_app, small_store
from tools.fuzz.trying import Try, Wrong

_BUSY = (503, 504)
"""What a server may answer that has too much to do; any other status from 500 on is a defect."""

_BODIES: dict[str, Any] = {
    "/api/v1/ask": {"question": QUESTIONS[0], "topics": [], "timeout_s": 5, "max_answers": 3},
    "/api/v1/paths/run": {"path": PATHS[4], "question": "", "relax": True},
    "/api/v1/paths/check": {"path": PATHS[6]},
    "/api/v1/paths/from-sparql": {"query": QUERIES[0]},
    "/api/v1/link": {"text": QUESTIONS[1]},
    "/page/ask": {"question": QUESTIONS[0]},
    "/page/path": {"path": PATHS[4]},
    "/page/relations": {"path": PATHS[4]},
    "/v1/chat/completions": {
        "model": "kbqa",
        "messages": [{"role": "user", "content": QUESTIONS[0]}],
        "stream": False,
    },
    "/mcp": {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "ask", "arguments": {"question": QUESTIONS[0]}},
    },
}
_ADDRESSES = (
    *("/", "/?q=", "/entity/", "/api/v1/ask?q=", "/api/v1/ask?timeout_s=5&q=", "/api/v1/entities"),
    *("/api/v1/entities?q=", "/api/v1/entities/", "/api/v1/entities/m.03_r3/relations?limit="),
    *("/api/v1/entities/m.03_r3/neighbours?relation=", "/sparql?query=", "/api/v1/info", "/docs"),
    *("/text2sparql?dataset=urn:kbqa:freebase&question=", "/metrics", "/static/", "/v1/models"),
)
_VALUES = (*QUESTIONS, *QUERIES, "m.03_r3", "m.0none", "location.country.capital", "../../etc/x")
_TYPES = (
    *("application/json", "application/sparql-query", "application/x-www-form-urlencoded"),
    *("text/event-stream", "text/html", "text/csv", "*/*;q=nan", "\xff", ""),
)


@contextmanager
def requests(folder: Path) -> Iterator[Try]:
    """Requests to a running server with a scripted model."""
    import httpx

    with _serving(small_store(folder)) as url, httpx.Client(base_url=url, timeout=30) as client:

        def try_one(random: Random) -> None:
            request = _request(random, client)
            try:
                response = client.send(request)
            except httpx.RemoteProtocolError:
                return  # uvicorn refuses the request itself, and the next one shows it is alive
            if response.status_code >= 500 and response.status_code not in _BUSY:
                said = f"{request.method} {request.url} {request.headers} {request.content!r:.2000}"
                raise Wrong(f"{response.status_code}: {response.text[:500]}; asked {said}")

        yield try_one
        if client.get("/healthz").status_code != 200:
            raise Wrong("the server is not well")


def _request(random: Random, client: Any) -> Any:
    headers = {}
    for name in ("accept", "content-type"):
        if random.random() < 0.3:
            headers[name] = random.choice(_TYPES).encode("latin-1")
    if random.random() < 0.3:
        value = mutated_text(random, _VALUES)[:3000]
        address = random.choice(_ADDRESSES) + quote(value.encode("utf-8", "surrogatepass"))
        return client.build_request("GET", address, headers=headers)
    if random.random() < 0.15:
        query = mutated_text(random, QUERIES).encode("utf-8", "surrogatepass")
        headers.setdefault("content-type", b"application/sparql-query")
        return client.build_request("POST", "/sparql", content=query, headers=headers)
    path = random.choice(list(_BODIES))
    headers.setdefault("content-type", b"application/json")
    headers.setdefault("accept", b"application/json, text/event-stream")
    content = _content(random, _BODIES[path])
    return client.build_request("POST", path, content=content, headers=headers)


def _content(random: Random, body: Any) -> bytes:
    """Write a body, in which texts, values or bytes may be others."""
    changed = dict(body)
    for name, value in body.items():
        if isinstance(value, str) and random.random() < 0.6:
            texts: Sequence[str] = PATHS if name == "path" else (value, *HOSTILE)
            changed[name] = mutated_text(random, texts)
    if random.random() < 0.4:
        changed = mutated_json(random, changed)
    content = json.dumps(changed).encode()
    return mutated_bytes(random, content) if random.random() < 0.2 else content


@contextmanager
def _serving(store: Path) -> Iterator[str]:
    """Run a server in a thread; its URL."""
    import uvicorn

    with scripted_app(store) as (app, _), closing(listen("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="on"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()
