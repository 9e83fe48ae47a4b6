"""Fuzz what reads the replies of servers: SPARQL endpoints, general and small language models."""

import json
import socketserver
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from http.client import parse_headers
from pathlib import Path
from random import Random
from typing import Any

from kbqa.engine.chat.model import Message
from kbqa.engine.chat.openai import OpenAIChat
from kbqa.engine.chat.server import Retrying
from kbqa.engine.writing.generate import PLAIN, Request
from kbqa.engine.writing.server import ServerGenerator
from kbqa.kb.open import open_graph
from tools.fuzz.mutation import HOSTILE, mutated_bytes, mutated_json
from tools.fuzz.trying import Try, reported

_TIMEOUT_S = 2.0

_VALUES = (
    {"type": "uri", "value": "http://rdf.freebase.com/ns/m.03yl7"},
    {"type": "literal", "value": "Kingston", "xml:lang": "en"},
    {"type": "typed-literal", "value": "12", "datatype": "http://www.w3.org/2001/XMLSchema#int"},
    {"type": "bnode", "value": "b0"},
)
_ROWS = [{"x": value, "r": value, "n": value} for value in _VALUES]
_RESULTS: Sequence[Any] = (
    {"head": {"vars": ["x", "r", "n"]}, "results": {"bindings": _ROWS}},
    {"head": {"vars": ["n"]}, "results": {"bindings": [{"n": _VALUES[2]}]}},
    {"head": {}, "boolean": True},
)
_USAGE = {"prompt_tokens": 12, "completion_tokens": 3}
_CHOICE = {"message": {"role": "assistant", "content": "1. Kingston"}, "finish_reason": "stop"}
_CHATS: Sequence[Any] = (
    {"choices": [_CHOICE], "usage": _USAGE},
    {"error": {"message": "no such model", "code": "model_not_found"}},
    {"object": "list", "data": [{"id": "smol", "owned_by": "me"}]},
)
_LOGPROBS = {"token_logprobs": [-0.5, None, -1.0]}
_COMPLETIONS: Sequence[Any] = (
    {"choices": [{"text": "Kenya -> a.b", "finish_reason": "stop", "logprobs": _LOGPROBS}]},
    {"object": "list", "data": [{"id": "smol", "owned_by": "vllm"}]},
)
_HEADERS = (
    *("Content-Type: application/sparql-results+json", "Content-Type: text/html; charset=x"),
    *("Content-Type: application/json", "Content-Encoding: gzip", "Content-Encoding: x, deflate"),
    *("Transfer-Encoding: chunked", "Content-Length: 99999", "Content-Length: -1"),
    "Retry-After: 0",
    *("Location: http://127.0.0.1:9/", "Set-Cookie: \xff=\0", "X" * 70_000 + ": y", "no header"),
    *("Retry-After: Sun, 99 Nov 9999 99:99:99 GMT", "Connection: close", "Content-Length: 5"),
)
_STATUSES = (*[200] * 12, 204, 206, 301, 400, 401, 404, 408, 413, 429, 500, 503, 504, 999, 100, 0)


class _Handler(socketserver.StreamRequestHandler):
    timeout = _TIMEOUT_S

    def handle(self) -> None:
        """Read a request as far as its length says, and send the bytes."""
        with suppress(OSError):  # clients hang up when they have read enough
            self.rfile.readline()
            headers = parse_headers(self.rfile)
            self.rfile.read(int(headers.get("Content-Length", 0)))
            self.wfile.write(self.server.reply)


class RawServer(socketserver.TCPServer):
    """A server on loopback that answers each request with the same bytes, and hangs up."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.reply = b""
        self.address = f"127.0.0.1:{self.server_address[1]}"
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving."""
        self.shutdown()
        self.server_close()
        self._thread.join()


@contextmanager
def endpoint_replies(_: Path) -> Iterator[Try]:
    """Replies of a SPARQL endpoint."""
    with closing(RawServer()) as server:
        url = f"http://{server.address}/sparql"

        def try_one(random: Random) -> None:
            server.reply = _reply(random, _RESULTS)
            with closing(open_graph(endpoint=url, timeout_s=_TIMEOUT_S)) as graph:
                query = "SELECT ?x ?r ?n { ?x ?r ?n }"
                searches = (
                    lambda: graph.select(query, timeout_s=_TIMEOUT_S, limit=10),
                    lambda: graph.ask("ASK { ?s ?p ?o }", timeout_s=_TIMEOUT_S),
                    lambda: graph.relations("m.0a", "out"),
                    lambda: graph.neighbours("m.0a", "a.b", "out"),
                    lambda: graph.labels(["m.0a"]),
                )
                with reported(server.reply):
                    random.choice(searches)()

        yield try_one


@contextmanager
def model_replies(_: Path) -> Iterator[Try]:
    """Replies of servers of general and of small models."""
    with closing(RawServer()) as server:
        url = f"http://{server.address}/v1"
        once = Retrying(retries=0)

        def try_one(random: Random) -> None:
            is_general = random.random() < 0.5
            server.reply = _reply(random, _CHATS if is_general else _COMPLETIONS)
            with reported(server.reply):
                if is_general:
                    name = random.choice((None, "smol"))
                    chat = OpenAIChat(url, name, timeout_s=_TIMEOUT_S, retrying=once)
                    chat.complete([Message("user", "capital of Jamaica?")])
                else:
                    writer = ServerGenerator(url, PLAIN, "smol", timeout_s=_TIMEOUT_S, retries=0)
                    writer.generate([Request("capital of Jamaica?")], 1)

        yield try_one


def _reply(random: Random, bodies: Sequence[Any]) -> bytes:
    """Write a reply: headers that may lie, and a body that may be damaged."""
    value = random.choice(bodies)
    if random.random() < 0.6:
        value = mutated_json(random, value)
    body = json.dumps(value).encode()
    if random.random() < 0.2:
        body = random.choice(HOSTILE).encode("utf-8", "surrogatepass") * random.choice((1, 200))
    if random.random() < 0.3:
        body = mutated_bytes(random, body)
    if random.random() < 0.1:
        body = body[: random.randint(0, len(body))]
    headers = random.sample(_HEADERS, random.choice((0, 0, 1, 2)))
    if random.random() < 0.8:
        headers += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    head = "\r\n".join([f"HTTP/1.1 {random.choice(_STATUSES)} OK", *headers, "", ""])
    reply = head.encode("latin-1") + body
    return mutated_bytes(random, reply) if random.random() < 0.1 else reply
