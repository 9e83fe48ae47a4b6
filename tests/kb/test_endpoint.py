"""What a server can do wrong, done by a small real one."""

import http.server
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from kbqa.kb.endpoint import SparqlEndpoint
from kbqa.kb.graph import Graph
from kbqa.sparql.errors import (
    EndpointError,
    GraphError,
    InputError,
    MalformedResult,
    QuerySyntaxError,
    QueryTimeout,
)

QUERY = "SELECT ?x { ?x ?y ?z }"
JSON = "application/sparql-results+json"
ROWS = {
    "head": {"vars": ["x", "y"]},
    "results": {
        "bindings": [
            {"x": {"type": "typed-literal", "value": "3", "datatype": "http://x/d"}},
            {"x": {"type": "bnode", "value": "b0"}, "y": {"type": "uri", "value": "http://x/y"}},
        ]
    },
}

Answer = Callable[[http.server.BaseHTTPRequestHandler], None]


class _Server:
    """A server that answers every POST in the way that a test sets."""

    def __init__(self) -> None:
        self.answer: Answer = _reply(200, JSON, "{}")
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                outer.answer(self)

            def log_message(self, *args: object) -> None:
                """Keep quiet."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/sparql"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _reply(status: int, kind: str, body: str, **headers: str) -> Answer:
    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        data = body.encode()
        handler.send_response(status)
        handler.send_header("Content-Type", kind)
        handler.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(data)

    return answer


def _trickle(handler: http.server.BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Type", JSON)
    handler.end_headers()
    try:
        for _ in range(100):
            handler.wfile.write(b" ")
            time.sleep(0.05)
    except OSError:
        return  # the client has hung up, as it should


def _stall(handler: http.server.BaseHTTPRequestHandler) -> None:
    time.sleep(1)


def _break_off(handler: http.server.BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Type", JSON)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"head": {"vars"')


@pytest.fixture
def server() -> Iterator[_Server]:
    running = _Server()
    yield running
    running.close()


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        pytest.param(
            _reply(200, "text/html", "<html>hello</html>"),
            EndpointError,
            "does not speak SPARQL: it sends text/html",
            id="a web page",
        ),
        pytest.param(
            _reply(200, JSON, '{"head":{"vars":["x"]},"results":{"bindings":[{"x":{"type":"u'),
            MalformedResult,
            "broke off",
            id="JSON that is cut off",
        ),
        pytest.param(
            _reply(200, JSON, '{"head":{"vars":["x"]},"results":{"bindings":[ Query was cancelled'),
            QueryTimeout,
            "within 5 s",
            id="oxigraph's cancelled query",
        ),
        pytest.param(
            _reply(200, JSON, json.dumps(ROWS), X_SQL_State="S1TAT"),
            QueryTimeout,
            "within 5 s",
            id="Virtuoso's partial result",
        ),
        pytest.param(_reply(200, JSON, "[]"), MalformedResult, "no SPARQL result", id="a list"),
        pytest.param(_reply(200, JSON, "{}"), MalformedResult, "no SPARQL result", id="no rows"),
        pytest.param(
            _reply(200, JSON, '{"head": {}, "boolean": true}'),
            MalformedResult,
            "no SPARQL result",
            id="a boolean",
        ),
        pytest.param(
            _reply(400, "text/plain", "Parse error: 'x' at line 1"),
            QuerySyntaxError,
            "cannot parse the query: Parse error: 'x' at line 1$",
            id="a syntax error",
        ),
        pytest.param(
            _reply(400, "text/plain", "Virtuoso 42000 Error The estimated execution time 900"),
            EndpointError,
            "HTTP status 400: Virtuoso 42000",
            id="Virtuoso's refusal",
        ),
        pytest.param(
            _reply(500, "text/plain", "Virtuoso S1T00 Error SR171: Transaction timed out"),
            QueryTimeout,
            "within 5 s",
            id="Virtuoso's time-out",
        ),
        pytest.param(
            _reply(404, "text/plain", "nothing here"),
            EndpointError,
            "HTTP status 404: nothing here",
            id="not found",
        ),
        pytest.param(
            _reply(503, "text/plain", "too busy"),
            EndpointError,
            "HTTP status 503: too busy",
            id="overloaded",
        ),
        pytest.param(_reply(504, "text/plain", ""), QueryTimeout, "within 5 s", id="gateway"),
        pytest.param(_break_off, EndpointError, "does not answer", id="connection lost"),
    ],
)
def test_wrong_answers_are_told_apart(
    server: _Server, answer: Answer, error: type[GraphError], message: str
) -> None:
    server.answer = answer
    with pytest.raises(error, match=message):
        SparqlEndpoint(server.url).select(QUERY, timeout_s=5)


@pytest.mark.parametrize("answer", [_trickle, _stall], ids=["trickling", "stalling"])
def test_the_time_limit_is_real(server: _Server, answer: Answer) -> None:
    server.answer = answer
    started = time.monotonic()
    with pytest.raises(QueryTimeout):
        SparqlEndpoint(server.url).select(QUERY, timeout_s=0.3)
    assert time.monotonic() - started < 0.9


def test_search_has_the_time_limit_of_the_endpoint(server: _Server) -> None:
    server.answer = _stall
    with pytest.raises(QueryTimeout):
        SparqlEndpoint(server.url, timeout_s=0.2).relations("m.03_r3", "out")


def test_an_ask_answered_with_rows_is_malformed(server: _Server) -> None:
    server.answer = _reply(200, JSON, json.dumps(ROWS))
    with pytest.raises(MalformedResult):
        SparqlEndpoint(server.url).ask("ASK {}")


def test_rows_of_every_kind_of_term(server: _Server) -> None:
    server.answer = _reply(200, JSON, json.dumps(ROWS))
    graph: Graph = SparqlEndpoint(server.url)
    first, second = graph.select(QUERY).rows
    assert [str(first[1]), second] == ["None", ("_:b0", "http://x/y")]


def test_endpoint_that_is_down() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(EndpointError, match=r"does not answer .*refused"):
        SparqlEndpoint(f"http://127.0.0.1:{port}/query").ask("ASK {}")


def test_not_a_url() -> None:
    with pytest.raises(InputError, match="http"):
        SparqlEndpoint("localhost:7878")
