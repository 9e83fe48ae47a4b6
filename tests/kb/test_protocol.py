"""What becomes of a request if one of several copies of a graph fails."""

import http.server
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kbqa.kb import protocol
from kbqa.kb.endpoint import SparqlEndpoint
from kbqa.kb.open import open_graph
from kbqa.sparql.errors import (
    EndpointDown,
    EndpointError,
    InputError,
    QuerySyntaxError,
    QueryTimeout,
)
from tools.graph_servers import MissingServer, OxigraphServer, mortal_oxigraph_servers

YES = '{"head": {}, "boolean": true}'
QUERY = "ASK { ?s ?p ?o }"
DEAD = "http://127.0.0.1:9/query"  # nobody listens to the port of the discard service
JAMAICA = "SELECT ?x { ns:m.03_r3 ns:type.object.name ?x } ORDER BY ?x"


class _Server:
    """A server that counts requests, and answers them with a status and a text."""

    def __init__(self) -> None:
        self.status, self.text, self.is_cut = 200, YES, False
        self.requests = 0
        self.goes_on = threading.Event()
        self.goes_on.set()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                outer.requests += 1
                outer.goes_on.wait()
                body = outer.text.encode()
                self.send_response(outer.status)
                self.send_header("Content-Type", "application/sparql-results+json")
                self.send_header("Content-Length", str(len(body) + outer.is_cut))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Keep quiet."""

        class Http(http.server.ThreadingHTTPServer):
            def handle_error(self, *_: object) -> None:
                """Keep quiet: the client hung up, as it does where it is made to wait."""

        self._http = Http(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}/query"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,))
        self._thread.start()

    def close(self) -> None:
        self.goes_on.set()
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()


@pytest.fixture
def make_server() -> Iterator[Callable[[], _Server]]:
    with ExitStack() as stack:

        def make() -> _Server:
            server = _Server()
            stack.callback(server.close)
            return server

        yield make


@pytest.fixture
def first(make_server: Callable[[], _Server]) -> _Server:
    return make_server()


@pytest.fixture
def second(make_server: Callable[[], _Server]) -> _Server:
    return make_server()


def test_the_first_copy_that_works_answers(first: _Server, second: _Server) -> None:
    graph = SparqlEndpoint([first.url, second.url])
    assert all(graph.ask(QUERY) for _ in range(3))
    assert (first.requests, second.requests) == (3, 0)


def test_a_dead_copy_is_left_alone(second: _Server, caplog: pytest.LogCaptureFixture) -> None:
    graph = SparqlEndpoint([DEAD, second.url])
    assert all(graph.ask(QUERY) for _ in range(3))
    assert second.requests == 3
    assert caplog.text.count("Asking another copy of the graph") == 1


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_a_server_error_goes_to_the_next_copy(first: _Server, second: _Server, status: int) -> None:
    first.status, first.text = status, "out of order"
    graph = SparqlEndpoint([first.url, second.url])
    assert all(graph.ask(QUERY) for _ in range(3))
    assert (first.requests, second.requests) == (1, 3)


def test_an_answer_that_breaks_off_is_asked_for_again(first: _Server, second: _Server) -> None:
    first.is_cut = True
    assert SparqlEndpoint([first.url, second.url]).ask(QUERY)
    first.is_cut, first.text = False, YES[:10]
    assert SparqlEndpoint([first.url, second.url]).ask(QUERY)


def test_a_copy_that_hangs_leaves_time_for_the_next(first: _Server, second: _Server) -> None:
    first.goes_on.clear()
    graph = SparqlEndpoint([first.url, second.url])
    assert graph.ask(QUERY, timeout_s=1)
    assert graph.ask(QUERY)
    assert (first.requests, second.requests) == (1, 2)


def test_a_query_that_is_too_slow_for_all_costs_no_copy(first: _Server, second: _Server) -> None:
    graph = SparqlEndpoint([first.url, second.url])
    for server in (first, second):
        server.goes_on.clear()
    with pytest.raises(QueryTimeout, match=r"endpoints http.*, http.* within 0\.4 s"):
        graph.ask(QUERY, timeout_s=0.4)
    first.goes_on.set()
    assert graph.ask(QUERY)
    assert (first.requests, second.requests) == (2, 1)


@pytest.mark.parametrize(
    ("status", "text", "error"),
    [
        (400, "Parse error", QuerySyntaxError),
        (404, "no such page", EndpointError),
        (500, "Virtuoso S1T00 Error SR171: Transaction timed out", QueryTimeout),
    ],
)
def test_a_query_that_is_refused_goes_to_no_other_copy(
    first: _Server, second: _Server, status: int, text: str, error: type[Exception]
) -> None:
    first.status, first.text = status, text
    with pytest.raises(error):
        SparqlEndpoint([first.url, second.url]).ask(QUERY)
    assert second.requests == 0


def test_a_copy_that_works_again_is_used_again(
    first: _Server,
    second: _Server,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(protocol, "PAUSE_S", 0.0)
    graph = SparqlEndpoint([first.url, second.url])
    first.status = 503
    assert all(graph.ask(QUERY) for _ in range(2))
    assert (first.requests, second.requests) == (2, 2)
    first.status = 200
    assert graph.ask(QUERY)
    assert (first.requests, second.requests) == (4, 2)  # once to try it
    assert "answers again" in caplog.text


def test_if_no_copy_answers_the_error_names_each() -> None:
    secret = "http://ann:geheim@localhost:9/query"
    with pytest.raises(EndpointDown) as raised:
        SparqlEndpoint([DEAD, secret]).ask(QUERY)
    message = str(raised.value)
    assert message.startswith("none of the 2 copies of the graph answers:\n")
    assert DEAD in message
    assert "http://***@localhost:9/query" in message
    assert "geheim" not in message
    assert message.endswith("kbqa doctor checks each.")


def test_if_all_copies_refuse_the_server_is_quoted(first: _Server, second: _Server) -> None:
    first.status = second.status = 500
    first.text = second.text = "disk full"
    graph = SparqlEndpoint([first.url, DEAD, second.url])
    with pytest.raises(EndpointError, match="HTTP status 500: disk full") as raised:
        graph.ask(QUERY)
    assert not isinstance(raised.value, EndpointDown)


def test_the_identity_is_that_of_all_copies() -> None:
    one, other = "http://a/query", "http://ann:secret@b/query"
    graph, reverse = SparqlEndpoint([one, other]), SparqlEndpoint([other, one])
    assert graph.identity() == reverse.identity()
    assert graph.description == "endpoints http://***@b/query, http://a/query"
    assert SparqlEndpoint([one]).identity() == SparqlEndpoint(one).identity()


@pytest.mark.parametrize("urls", [[], ["http://a/query", "b"]])
def test_copies_that_are_no_urls(urls: list[str]) -> None:
    with pytest.raises(InputError):
        open_graph(endpoint=urls)


@pytest.fixture
def servers(small_store: Path) -> Iterator[list[OxigraphServer]]:
    with ExitStack() as stack:
        try:
            running = stack.enter_context(mortal_oxigraph_servers(small_store / "graph", 2))
        except MissingServer as missing:
            pytest.skip(str(missing))
        yield running


def test_real_servers_die_and_come_back(
    servers: list[OxigraphServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "PAUSE_S", 0.0)
    with open_graph(endpoint=[server.url for server in servers]) as graph:
        rows = graph.select(JAMAICA).rows
        assert len(rows) == 2
        for dies, lives in (servers, servers[::-1]):
            dies.kill()
            assert graph.select(JAMAICA).rows == rows
            dies.start()
            lives.kill()
            assert graph.select(JAMAICA).rows == rows
            lives.start()
        for server in servers:
            server.kill()
        with pytest.raises(EndpointDown, match="none of the 2 copies"):
            graph.select(JAMAICA)
