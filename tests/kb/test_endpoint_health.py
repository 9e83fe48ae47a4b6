import http.server
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyoxigraph import NamedNode, Quad, RdfFormat, Store

from kbqa.kb.health import Finding, check_endpoint, check_endpoints
from kbqa.sparql.errors import InputError
from tools.graph_servers import MissingServer, oxigraph_server, virtuoso_server


def _wrong(url: str, timeout_s: float = 10) -> Finding:
    """The one finding that is not ok."""
    [wrong] = [finding for finding in check_endpoint(url, timeout_s) if finding.status != "ok"]
    return wrong


@pytest.mark.parametrize("fixture", ["small_endpoint", "virtuoso_endpoint"])
def test_nothing_is_wrong_with_a_good_endpoint(
    fixture: str, request: pytest.FixtureRequest
) -> None:
    findings = list(check_endpoint(request.getfixturevalue(fixture)))
    assert {finding.status for finding in findings} == {"ok"}
    assert {finding.check for finding in findings} >= {"endpoint", "vocabulary", "rows"}


def test_each_copy_is_checked_and_one_may_be_down(small_endpoint: str) -> None:
    dead = "http://127.0.0.1:9/query"
    findings = {finding.check: finding for finding in check_endpoints([small_endpoint, dead])}
    assert {"endpoint 1", "vocabulary 1", "rows 1", "endpoint 2"} <= set(findings)
    assert findings["endpoint 1"].status == "ok"
    assert findings["endpoint 2"].status == "warning"
    assert "start the server" in findings["endpoint 2"].advice
    assert {finding.status for finding in check_endpoints([dead, dead])} == {"problem"}


@contextmanager
def _server(status: int, kind: str, body: bytes, stall: threading.Event) -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            if status == 0:
                stall.wait(10)
                return
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            """Keep quiet."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/sparql"
    finally:
        stall.set()
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("status", "kind", "body", "finding", "advice"),
    [
        (404, "text/plain", b"nothing here", "HTTP status 404", "/sparql or /query"),
        (401, "text/plain", b"who are you?", "HTTP status 401", "user and password in the URL"),
        (403, "text/plain", b"go away", "HTTP status 403", "rules of access"),
        (503, "text/plain", b"too busy", "too busy", "look into its log"),
        (200, "text/html", b"<html>hello</html>", "does not speak SPARQL", "/sparql or /query"),
        (200, "application/json", b"[]", "not a SPARQL result", "Is it a SPARQL endpoint?"),
        (0, "", b"", "no answer", "raise --timeout"),
    ],
    ids=["404", "401", "403", "503", "a web page", "other JSON", "stalls"],
)
def test_what_is_no_endpoint_is_told(
    status: int, kind: str, body: bytes, finding: str, advice: str
) -> None:
    with _server(status, kind, body, threading.Event()) as url:
        wrong = _wrong(url, timeout_s=10 if status else 0.3)
    assert (wrong.check, wrong.status) == ("endpoint", "problem")
    assert finding in wrong.finding
    assert advice in wrong.advice


def test_a_server_that_is_down() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    wrong = _wrong(f"http://127.0.0.1:{port}/query")
    assert "refused" in wrong.finding
    assert "start the server" in wrong.advice


def test_a_host_that_does_not_exist() -> None:
    assert "No host has that name" in _wrong("http://nohost.invalid/sparql").advice


def test_what_is_no_url_is_misuse() -> None:
    with pytest.raises(InputError):
        list(check_endpoint("localhost:7878"))


def test_an_endpoint_without_triples(empty_endpoint: str) -> None:
    wrong = _wrong(empty_endpoint)
    assert "holds no triples" in wrong.finding
    assert "Load Freebase" in wrong.advice


@contextmanager
def _oxigraph(location: Path) -> Iterator[str]:
    try:
        with oxigraph_server(location, timeout_s=5) as url:
            yield url
    except MissingServer as error:
        pytest.skip(str(error))


def test_an_endpoint_with_other_data(tmp_path: Path) -> None:
    node = NamedNode("http://example.org/thing")
    Store(tmp_path).add(Quad(node, node, node))
    with _oxigraph(tmp_path) as url:
        wrong = _wrong(url)
    assert wrong.check == "vocabulary"
    assert "such as http://example.org/thing" in wrong.finding


def test_data_in_a_named_graph_are_found(tmp_path: Path, small_dump: Path) -> None:
    Store(tmp_path).load(
        path=small_dump,
        format=RdfFormat.N_TRIPLES,
        lenient=True,
        to_graph=NamedNode("http://example.org/fb"),
    )
    with _oxigraph(tmp_path) as url:
        wrong = _wrong(url)
        named = f"{url}?default-graph-uri=http://example.org/fb"
        assert named in wrong.advice
        assert {finding.status for finding in check_endpoint(named)} == {"ok"}


def test_virtuoso_without_a_default_graph_shows_its_own_triples(virtuoso_endpoint: str) -> None:
    wrong = _wrong(virtuoso_endpoint.partition("?")[0])
    assert (wrong.check, wrong.status) == ("default graph", "warning")
    assert virtuoso_endpoint in wrong.advice


def test_virtuoso_with_a_wrong_default_graph_is_empty(virtuoso_endpoint: str) -> None:
    wrong = _wrong(virtuoso_endpoint.replace("rdf.freebase.com", "wrong.example"))
    assert wrong.check == "empty"
    assert virtuoso_endpoint in wrong.advice


@pytest.mark.parametrize(
    ("limits", "check", "finding"),
    [
        ({"ResultSetMaxRows": 20}, "rows", "at 20 rows"),
        ({"MaxQueryCostEstimationTime": 1}, "cost", "over 1 s"),
    ],
    ids=["rows", "cost"],
)
def test_limits_of_virtuoso_are_told(
    small_dump: Path, limits: Mapping[str, int], check: str, finding: str
) -> None:
    try:
        with virtuoso_server([small_dump], limits) as url:
            wrong = _wrong(url)
    except MissingServer as error:
        pytest.skip(str(error))
    assert (wrong.check, wrong.status) == (check, "warning")
    assert finding in wrong.finding
    assert next(iter(limits)) in wrong.advice
