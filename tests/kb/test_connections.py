"""Connections that stay open, to a real HTTP/1.1 server that counts them."""

import http.server
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from kbqa.kb.endpoint import SparqlEndpoint
from kbqa.kb.health import check_endpoint
from kbqa.sparql.errors import EndpointDown, QueryTimeout

YES = json.dumps({"head": {}, "boolean": True}).encode()


class _CountingServer(http.server.ThreadingHTTPServer):
    def __init__(self) -> None:
        self.connections: list[socket.socket] = []
        self.requests: list[str] = []
        self.delay_s = 0.0

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            server: _CountingServer

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self.server.requests.append(self.path)
                time.sleep(self.server.delay_s)
                self.send_response_only(200)
                self.send_header("Content-Type", "application/sparql-results+json")
                self.send_header("Content-Length", str(len(YES)))
                self.end_headers()
                self.wfile.write(YES)

            def log_message(self, *args: object) -> None:
                """Keep quiet."""

        super().__init__(("127.0.0.1", 0), Handler)
        self.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server_address[1]}/sparql"

    def get_request(self) -> tuple[socket.socket, object]:
        accepted, client = super().get_request()
        self.connections.append(accepted)
        return accepted, client

    def hang_up(self) -> None:
        for connection in self.connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # it was closed


@pytest.fixture
def server() -> Iterator[_CountingServer]:
    with _CountingServer() as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.02,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()
        running.hang_up()


def test_a_connection_is_used_again(server: _CountingServer) -> None:
    with SparqlEndpoint(server.url) as graph:
        for _ in range(5):
            assert graph.ask("ASK {}")
    assert len(server.connections) == 1


def test_a_url_without_a_path_is_asked_at_its_root(server: _CountingServer) -> None:
    root = server.url.removesuffix("/sparql")
    assert SparqlEndpoint(root).ask("ASK {}")
    assert SparqlEndpoint(f"{root}?default-graph-uri=urn:a").ask("ASK {}")
    assert server.requests == ["/", "/?default-graph-uri=urn:a"]


def test_threads_have_connections_of_their_own(server: _CountingServer) -> None:
    server.delay_s = 0.05
    with SparqlEndpoint(server.url) as graph, ThreadPoolExecutor(3) as pool:
        assert all(pool.map(lambda _: graph.ask("ASK {}"), range(12)))
    assert len(server.connections) <= 3


def test_a_connection_that_the_server_closed_is_replaced(server: _CountingServer) -> None:
    with SparqlEndpoint(server.url) as graph:
        for _ in range(2):
            assert graph.ask("ASK {}")
            server.hang_up()
        assert graph.ask("ASK {}")
    assert len(server.connections) == 3


def test_a_late_answer_is_not_taken_for_the_next_one(server: _CountingServer) -> None:
    with SparqlEndpoint(server.url) as graph:
        assert graph.ask("ASK {}")
        server.delay_s = 0.5
        with pytest.raises(QueryTimeout):
            graph.ask("ASK {}", timeout_s=0.1)
        server.delay_s = 0
        assert graph.ask("ASK {}")
    assert len(server.connections) == 2


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_opens_its_own_connection(server: _CountingServer) -> None:
    with SparqlEndpoint(server.url) as graph:
        assert graph.ask("ASK {}")
        forked = os.fork()
        if not forked:
            code = 1
            try:
                code = 0 if graph.ask("ASK {}") else 1
            finally:  # What is raised must not come back as a second process of the tests.
                os._exit(code)
        assert os.waitpid(forked, 0)[1] == 0
        assert graph.ask("ASK {}")
    assert len(server.connections) == 2


def test_a_proxy_of_the_environment_is_used(
    server: _CountingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", server.url.replace("/sparql", ""))
    monkeypatch.setenv("https_proxy", server.url.replace("/sparql", ""))
    with SparqlEndpoint("http://far.invalid/sparql") as far, SparqlEndpoint(server.url) as near:
        assert far.ask("ASK {}")
        assert near.ask("ASK {}")
    assert server.requests == ["http://far.invalid/sparql", "/sparql"]
    with pytest.raises(EndpointDown, match=r"through the proxy .*answers with HTTP status 501"):
        SparqlEndpoint("https://far.invalid/sparql").ask("ASK {}")


def test_a_failure_through_a_proxy_names_the_proxy_without_its_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    monkeypatch.setenv("http_proxy", f"http://ann:secret@127.0.0.1:{port}")
    with pytest.raises(EndpointDown) as caught:
        SparqlEndpoint("http://far.invalid/sparql").ask("ASK {}")
    through = (
        f"http://far.invalid/sparql through the proxy http://***@127.0.0.1:{port} does not answer"
    )
    assert str(caught.value).startswith(f"endpoint {through} (")
    assert "The variable NO_PROXY lists hosts" in str(caught.value)
    (finding,) = check_endpoint("http://far.invalid/sparql")
    assert "through the proxy" in finding.finding
    assert finding.advice.startswith("Are the proxy and the server up")
