"""What a server can do wrong, done by a small real one."""

import http.server
import json
import re
import socket
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbqa.kb.commands.graph import format_rows
from kbqa.kb.endpoint import SparqlEndpoint
from kbqa.kb.graph import Graph
from kbqa.kb.open import open_graph
from kbqa.sparql.dialect import row_limit
from kbqa.sparql.errors import (
    EndpointError,
    GraphError,
    InputError,
    KbqaError,
    MalformedResult,
    PartialResult,
    QuerySyntaxError,
    QueryTimeout,
    QueryTooCostly,
    QueryTooLarge,
    ResultTruncated,
)
from kbqa.sparql.terms import FREEBASE_NS, XSD_NS, LiteralTerm

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
TOO_COSTLY = (
    "Virtuoso 42000 Error The estimated execution time 41 (sec) exceeds the limit of 1 (sec).\n\n"
    "SPARQL query:\nSELECT ?x { ?x ?y ?z }"
)

Answer = Callable[[http.server.BaseHTTPRequestHandler], None]


class _Server:
    """A server that answers every POST in the way that a test sets, and keeps the last query."""

    def __init__(self) -> None:
        self.answer: Answer = _reply(200, JSON, "{}")
        self.query = ""
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                (outer.query,) = urllib.parse.parse_qs(body)["query"]
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


def _reply(status: int, kind: str, body: str, code: str = "utf-8", **headers: str) -> Answer:
    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        data = body.encode(code)
        handler.send_response_only(status)
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


@pytest.fixture(scope="module")
def steady_server() -> Iterator[_Server]:
    running = _Server()
    yield running
    running.close()


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
            PartialResult,
            "sent only part of the result",
            id="Virtuoso's partial groups",
        ),
        pytest.param(
            _reply(500, "text/plain", f"{json.dumps(ROWS)[:-9]}Virtuoso S1TAT Error RC...: Ret"),
            PartialResult,
            "sent only part of the result",
            id="Virtuoso's partial rows",
        ),
        pytest.param(_reply(206, JSON, json.dumps(ROWS)), PartialResult, "only part", id="206"),
        pytest.param(
            _reply(200, "application/sparql-results+xml", '<?xml version="1.0"?><sparql/>'),
            EndpointError,
            r"sends XML results \(application/sparql-results\+xml\) although it was asked for JSON",
            id="XML results",
        ),
        pytest.param(
            _reply(200, JSON, '{"head":{"vars":["x"]},"results":{"bindings":[{"x":{"type":'),
            MalformedResult,
            "broke off in the middle",
            id="JSON that is cut off between values",
        ),
        pytest.param(
            _reply(200, JSON, json.dumps(ROWS).replace('"3"', r'"\U0001B000"')),
            MalformedResult,
            r"answered with JSON that does not parse: Invalid \\escape: line 1",
            id="an escape that JSON does not have",
        ),
        pytest.param(
            _reply(200, JSON, json.dumps(ROWS).replace('"3"', '"\u00e9"'), "latin-1"),
            MalformedResult,
            "answered with JSON that does not parse: 'utf-8' codec can't decode byte 0xe9",
            id="JSON in Latin-1",
        ),
        pytest.param(
            _reply(200, JSON, '{"error": {"message": "Transaction deadlocked"}}'),
            MalformedResult,
            "not a SPARQL result: .*Transaction deadlocked",
            id="an error with the status of success",
        ),
        pytest.param(_reply(200, JSON, "[]"), MalformedResult, "not a SPARQL result", id="a list"),
        pytest.param(_reply(200, JSON, "{}"), MalformedResult, "not a SPARQL result", id="no rows"),
        pytest.param(
            _reply(200, JSON, '{"head": {}, "boolean": true}'),
            MalformedResult,
            "not a SPARQL result",
            id="a boolean",
        ),
        pytest.param(
            _reply(400, "text/plain", "Parse error: 'x' at line 1"),
            QuerySyntaxError,
            "cannot parse the query: Parse error: 'x' at line 1$",
            id="a syntax error",
        ),
        pytest.param(
            _reply(500, "text/plain", TOO_COSTLY),
            QueryTooCostly,
            r"time 41 \(sec\) exceeds the limit of 1 \(sec\)\. Such estimates",
            id="Virtuoso's refusal",
        ),
        pytest.param(
            _reply(500, "text/plain", "Virtuoso 42000 Error SR186: No permission"),
            EndpointError,
            "HTTP status 500: Virtuoso 42000 Error SR186",
            id="Virtuoso's other refusals",
        ),
        pytest.param(
            _reply(500, "text/plain", "Virtuoso S1T00 Error SR171: Transaction timed out"),
            QueryTimeout,
            "its own time limit: Virtuoso S1T00 Error SR171.*Raise MaxQueryExecutionTime",
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
        pytest.param(
            _reply(429, JSON, '{"exception": "Operation timed out."}'),
            QueryTimeout,
            "within 5 s",
            id="QLever's time-out",
        ),
        pytest.param(
            _reply(429, "text/plain", "slow down"),
            EndpointError,
            "HTTP status 429: slow down$",
            id="too many requests",
        ),
        pytest.param(
            _reply(429, "text/html", "<h1>429</h1> See our timeout policy.", Retry_After="7"),
            EndpointError,
            r"HTTP status 429: 429 See our timeout policy\. Ask again in 7 s\.$",
            id="too many requests, with words about time",
        ),
        pytest.param(
            _reply(405, "text/plain", "not here"),
            EndpointError,
            r"HTTP status 405: not here\. kbqa asks by POST\.",
            id="no POST",
        ),
        pytest.param(
            _reply(200, JSON, "[" * 300_000), MalformedResult, "nested too deeply", id="nested"
        ),
        pytest.param(
            _reply(200, JSON, json.dumps(ROWS).replace('"3"', '"\\ud800"')),
            MalformedResult,
            "half a surrogate pair",
            id="a lone surrogate",
        ),
        pytest.param(
            _reply(200, JSON, json.dumps(ROWS), Content_Encoding="gzip"),
            EndpointError,
            r"compresses its answer \(gzip\)",
            id="compressed",
        ),
        pytest.param(
            _reply(301, "text/html", "moved", Location="https://ann:pw@host/sparql"),
            EndpointError,
            r"has moved to https://\*\*\*@host/sparql\. Use that URL",
            id="moved",
        ),
        pytest.param(
            _reply(308, "text/html", "", Location="/sparql/"),
            EndpointError,
            r"has moved to http://127\.0\.0\.1:[0-9]+/sparql/\. Use that URL",
            id="moved to a relative URL",
        ),
        pytest.param(_break_off, MalformedResult, "broke off in the mid", id="connection lost"),
    ],
)
def test_wrong_answers_are_told_apart(
    server: _Server, answer: Answer, error: type[GraphError], message: str
) -> None:
    server.answer = answer
    with pytest.raises(error, match=message):
        SparqlEndpoint(server.url).select(QUERY, timeout_s=5)


def _trickle_headers(handler: http.server.BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
    try:
        for number in range(100):
            handler.wfile.write(f"X-Header-{number}: x\r\n".encode())
            time.sleep(0.05)
    except OSError:
        return  # the client has hung up, as it should


@pytest.mark.parametrize("answer", [_trickle, _trickle_headers, _stall])
def test_the_time_limit_is_real(server: _Server, answer: Answer) -> None:
    server.answer = answer
    started = time.monotonic()
    with pytest.raises(QueryTimeout):
        SparqlEndpoint(server.url).select(QUERY, timeout_s=0.3)
    assert time.monotonic() - started < 0.9


def _capped(server: _Server, rows: int, cap: int, **headers: str) -> Answer:
    """Answer as a server does that has so many rows and sends at most `cap` of them."""

    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        asked = row_limit(server.query)
        skipped = int((re.search(r"OFFSET (\d+)", server.query) or ["", "0"])[1])
        count = min(max(rows - skipped, 0), cap if asked is None else min(cap, asked))
        bindings = [{"x": {"type": "uri", "value": "http://x/y"}}] * count
        body = json.dumps({"head": {"vars": ["x"]}, "results": {"bindings": bindings}})
        _reply(200, JSON, body, **(headers if count == cap else {}))(handler)

    return answer


CAPS = pytest.mark.parametrize(
    ("cap", "headers"),
    [(7, {"X_SPARQL_MaxRows": "7"}), (1000, {})],
    ids=["Virtuoso's header", "without a word"],
)


@CAPS
def test_rows_that_the_server_keeps_back_are_an_error(
    server: _Server, cap: int, headers: dict[str, str]
) -> None:
    graph = SparqlEndpoint(server.url)
    server.answer = _capped(server, cap + 1, cap, **headers)
    for query, limit in [
        (QUERY, None),
        (QUERY, cap + 1),
        (f"{QUERY} LIMIT {cap + 1}", None),
        (f"{QUERY} ORDER BY ?x LIMIT {cap + 5}", cap + 3),
    ]:
        with pytest.raises(ResultTruncated, match=f"at most {cap} rows") as caught:
            graph.select(query, limit=limit)
        assert caught.value.max_rows == cap


@CAPS
def test_rows_that_nobody_asked_for_are_not_missed(
    server: _Server, cap: int, headers: dict[str, str]
) -> None:
    graph = SparqlEndpoint(server.url)
    server.answer = _capped(server, cap + 1, cap, **headers)
    table = graph.select(QUERY, limit=cap)
    assert (len(table.rows), table.truncated) == (cap, True)
    assert len(graph.select(f"{QUERY} LIMIT {cap}").rows) == cap
    server.answer = _capped(server, cap, cap, **headers)
    for limit in (None, cap, cap + 1):
        table = graph.select(QUERY, limit=limit)
        assert (len(table.rows), table.truncated) == (cap, False)


def test_a_virtuoso_is_not_asked_for_parts(server: _Server) -> None:
    server.answer = _reply(200, JSON, json.dumps(ROWS), Server="Virtuoso/07.20.3229 (Linux)")
    with pytest.raises(EndpointError, match=r"leave out rows .* Take that out of the URL"):
        SparqlEndpoint(f"{server.url}?timeout=30000").select(QUERY)


def test_search_has_the_time_limit_of_the_endpoint(server: _Server) -> None:
    server.answer = _stall
    with pytest.raises(QueryTimeout):
        SparqlEndpoint(server.url, timeout_s=0.2).relations("m.03_r3", "out")


def test_an_ask_answered_with_rows_is_malformed(server: _Server) -> None:
    server.answer = _reply(200, JSON, json.dumps(ROWS))
    with pytest.raises(MalformedResult):
        SparqlEndpoint(server.url).ask("ASK {}")


@pytest.mark.parametrize("columns", [[], ["x", "y", "z", "w"]], ids=["none", "four"])
def test_other_columns_than_asked_for_are_malformed(server: _Server, columns: list[str]) -> None:
    found = {"head": {"vars": columns}, "results": ROWS["results"]}
    server.answer = _reply(200, JSON, json.dumps(found))
    endpoint = SparqlEndpoint(server.url)
    for search in (
        lambda: endpoint.relations("m.0a", "out"),
        lambda: endpoint.labels(["m.0a"]),
        lambda: endpoint.edges(["m.0a"], "out", limit=999),
    ):
        with pytest.raises(MalformedResult, match="columns"):
            search()


def test_rows_of_every_kind_of_term(server: _Server) -> None:
    server.answer = _reply(200, JSON, json.dumps(ROWS))
    graph: Graph = SparqlEndpoint(server.url)
    first, second = graph.select(QUERY).rows
    assert [str(first[1]), second] == ["None", ("_:b0", "http://x/y")]


def test_control_characters_and_nan_are_read_as_virtuoso_writes_them(server: _Server) -> None:
    cells = '{"x":{"type":"literal","value":"a\tb\x1a"}},{"x":{"type":"literal","value":NaN}}'
    cells += ',{"x":{"type":"literal","value":-Infinity}}'
    server.answer = _reply(
        200, JSON, f'{{"head":{{"vars":["x"]}},"results":{{"bindings":[{cells}]}}}}'
    )
    rows = SparqlEndpoint(server.url).select(QUERY).rows
    assert rows == tuple((LiteralTerm(text),) for text in ("a\tb\x1a", "NaN", "-INF"))


def _result(*rows: Sequence[object]) -> str:
    names = "xyz"[: len(rows[0])]
    bindings = [dict(zip(names, row, strict=True)) for row in rows]
    return json.dumps({"head": {"vars": list(names)}, "results": {"bindings": bindings}})


@pytest.mark.parametrize(
    ("binding", "shown"),
    [
        ({"type": "literal", "value": None}, r"\{'type': 'literal', 'value': None\}"),
        ({"type": "literal", "value": 5}, r"\{'type': 'literal', 'value': 5\}"),
        ({"type": "literal", "value": "a", "xml:lang": 7}, "'xml:lang': 7"),
        ({"type": "literal", "value": "a", "datatype": "b"}, "'datatype': 'b'"),
        ({"value": "a"}, r"\{'value': 'a'\}"),
        ({"type": "triple", "value": {}}, "'type': 'triple'"),
        ({"type": "uri", "value": ""}, r"\{'type': 'uri', 'value': ''\}"),
        (None, "None"),
    ],
)
def test_a_value_that_is_no_term_is_named_with_its_endpoint(
    server: _Server, binding: object, shown: str
) -> None:
    server.answer = _reply(200, JSON, _result([binding]))
    expected = f"^endpoint {server.url} answered with a value that is not an RDF term: .*{shown}"
    with pytest.raises(MalformedResult, match=expected):
        SparqlEndpoint(server.url).select(QUERY)


def test_a_literal_where_an_iri_must_be_is_named(server: _Server) -> None:
    server.answer = _reply(200, JSON, _result([{"type": "literal", "value": "a.b"}]))
    with pytest.raises(MalformedResult, match=r"answered with 'a\.b' where an IRI must be$"):
        SparqlEndpoint(server.url).relations("m.0a", "out")


ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=3),
    st.just([]),
    st.just({}),
)
IDS = st.sampled_from(
    ["http://rdf.freebase.com/ns/m.0a", "http://rdf.freebase.com/ns/a.b", "urn:c"]
)
TERMS = st.one_of(
    st.fixed_dictionaries({"type": st.just("uri"), "value": IDS}),
    st.fixed_dictionaries({"type": st.just("bnode"), "value": st.just("b0")}),
    st.fixed_dictionaries(
        {"type": st.sampled_from(["literal", "typed-literal"]), "value": st.sampled_from("ab3")},
        optional={"datatype": IDS, "xml:lang": st.sampled_from(["", "en", "de"])},
    ),
)
BINDINGS = st.one_of(
    TERMS,
    TERMS,
    ODD,
    st.fixed_dictionaries(
        {},
        optional={
            "type": st.one_of(st.sampled_from(["uri", "literal", "bnode"]), ODD),
            "value": st.one_of(IDS, ODD),
            "datatype": ODD,
            "xml:lang": ODD,
        },
    ),
)
RESULTS = st.integers(0, 4).flatmap(
    lambda width: st.fixed_dictionaries(
        {
            "head": st.just({"vars": list("wxyz"[:width])}),
            "results": st.fixed_dictionaries(
                {
                    "bindings": st.lists(
                        st.one_of(
                            st.fixed_dictionaries(dict.fromkeys("wxyz"[:width], BINDINGS)),
                            st.dictionaries(st.sampled_from("wxyz"), BINDINGS),
                            ODD,
                        ),
                        max_size=4,
                    )
                }
            ),
        }
    )
)


@settings(max_examples=150)
@given(RESULTS)
def test_any_result_is_read_right_or_is_an_error_of_ours(
    steady_server: _Server, result: dict[str, object]
) -> None:
    steady_server.answer = _reply(200, JSON, json.dumps(result))
    endpoint = SparqlEndpoint(steady_server.url)
    start, relation = "m.0a", "a.b"
    found: dict[str, Any] = {}
    searches: dict[str, Callable[[], object]] = {
        "select": lambda: endpoint.select("SELECT DISTINCT * { ?x ?y ?z }"),
        "relations": lambda: endpoint.relations(start, "out"),
        "frontier relations": lambda: endpoint.frontier_relations([start], "in"),
        "relations of each": lambda: endpoint.relations_of_each([start, "m.0b"], "in"),
        "neighbours": lambda: endpoint.neighbours(start, relation, "out"),
        "neighbours of each": lambda: endpoint.neighbours_of_each(
            [(start, relation), ("m.0b", relation)], "out"
        ),
        "edges": lambda: endpoint.edges([start], "out", 10),
        "labels": lambda: endpoint.labels([start]),
        "types": lambda: endpoint.types(start),
        "count": lambda: endpoint.first_neighbours(start, relation, "out", 0),
        "all relations": endpoint.all_relations,
    }
    for name, search in searches.items():
        with suppress(KbqaError):
            found[name] = search()
    if (table := found.get("select")) is not None:
        assert table.variables == tuple(result["head"]["vars"])
        assert len(set(table.rows)) == len(table.rows)
        assert all(isinstance(t, str | LiteralTerm | None) for row in table.rows for t in row)
        for style in ("table", "csv", "tsv"):
            format_rows(table, style)
        json.loads(format_rows(table, "json"), parse_constant=pytest.fail)
    relations = [*found.get("relations", ()), *found.get("frontier relations", ())]
    relations += found.get("relations of each", {}).get(start, ())
    relations += found.get("edges", {}).get(start, {})
    assert set(relations) <= {"m.0a", "a.b", "urn:c"}
    ends = [*found.get("neighbours", ()), *found.get("neighbours of each", {}).values()]
    assert all(isinstance(end, str | LiteralTerm | Sequence) for end in ends)
    assert all(isinstance(name, str) for name in found.get("labels", {}).values())
    if "count" in found:
        assert found["count"].hidden >= 0


@given(st.lists(TERMS, max_size=4))
def test_rows_of_terms_are_read_as_they_were_sent(
    steady_server: _Server, terms: list[dict[str, str]]
) -> None:
    bindings = [{"x": term} for term in terms]
    result = {"head": {"vars": ["x"]}, "results": {"bindings": bindings}}
    steady_server.answer = _reply(200, JSON, json.dumps(result))
    table = SparqlEndpoint(steady_server.url).select(QUERY)
    read = json.loads(format_rows(table, "json"))["results"]["bindings"]
    for term in terms:
        term["type"] = term["type"].removeprefix("typed-")
        if term["type"] == "literal" and not term.get("xml:lang"):
            term.pop("xml:lang", None)
        elif "xml:lang" in term:
            term.pop("datatype", None)
    assert read == bindings


def test_rows_that_the_server_repeats_come_once(server: _Server) -> None:
    graph = SparqlEndpoint(server.url)
    number = {"type": "typed-literal", "value": "43.7746", "datatype": f"{XSD_NS}float"}
    ids = [{"type": "uri", "value": f"{FREEBASE_NS}{each}"} for each in ("m.0a", "a.b")]
    server.answer = _reply(200, JSON, _result([number], [number], [ids[0]]))
    terms = [LiteralTerm("43.7746", "float"), "m.0a"]
    assert graph.select("SELECT DISTINCT ?x { ?x ?y ?z }").rows == tuple((t,) for t in terms)
    assert len(graph.select(QUERY).rows) == 3
    assert graph.neighbours("m.0a", "a.b", "out") == terms
    assert graph.first_neighbours("m.0a", "a.b", "out").terms == (terms[0], "m.0a")
    server.answer = _reply(200, JSON, _result([*ids, number], [*ids, number]))
    starts = [("m.0a", "a.b"), ("m.0b", "a.b")]
    found = graph.neighbours_of_each(starts, "out")
    assert found == {starts[0]: terms[:1], starts[1]: []}
    assert graph.edges(["m.0a"], "out") == {"m.0a": {"a.b": terms[:1]}}
    server.answer = _reply(200, JSON, _result([ids[1]], [ids[1]]))
    assert graph.relations("m.0a", "out") == ["a.b"]


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        ({"de": "Farbe", "en-GB": "Colour"}, "Colour"),
        ({"de": "Farbe", "en-GB": "Colour", "": "Tint"}, "Colour"),
        ({"en-US": "Truck", "en-GB": "Lorry", "en": "HGV"}, "HGV"),
        ({"en-US": "Truck", "en-GB": "Lorry", "zh-Hant": "Zed"}, "Lorry"),
        ({"EN-gb": "Colour", "de": "Farbe"}, "Colour"),
        ({"en": "", "de": "Name"}, "Name"),
        ({"en": " \n"}, None),
    ],
)
def test_a_name_is_english_of_any_country_and_not_blank(
    server: _Server, names: dict[str, str], shown: str | None
) -> None:
    mid = {"type": "uri", "value": f"{FREEBASE_NS}m.0a"}
    texts = [{"type": "literal", "value": text, "xml:lang": tag} for tag, text in names.items()]
    server.answer = _reply(200, JSON, _result(*([mid, text] for text in texts)))
    assert SparqlEndpoint(server.url).labels(["m.0a", "http://a b"]).get("m.0a") == shown


def test_a_user_without_a_password_is_sent(server: _Server) -> None:
    sent: list[str | None] = []

    def note(handler: http.server.BaseHTTPRequestHandler) -> None:
        sent.append(handler.headers["Authorization"])
        _reply(200, JSON, json.dumps(ROWS))(handler)

    server.answer = note
    SparqlEndpoint(server.url.replace("http://", "http://ann@")).select(QUERY)
    SparqlEndpoint(server.url).select(QUERY)
    assert sent == ["Basic YW5uOg==", None]


def test_endpoint_that_is_down() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(EndpointError, match=r"does not answer .*refused"):
        SparqlEndpoint(f"http://127.0.0.1:{port}/query").ask("ASK {}")


def test_not_a_url() -> None:
    with pytest.raises(InputError, match="http"):
        SparqlEndpoint("localhost:7878")


def _endless(handler: http.server.BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Type", JSON)
    handler.end_headers()
    try:
        while True:
            handler.wfile.write(b" " * 100_000)
    except OSError:
        return  # the client has hung up, as it should


def _huge(handler: http.server.BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", str(10**12))
    handler.end_headers()


@pytest.mark.parametrize("answer", [_endless, _huge])
def test_an_answer_of_any_size_does_not_fill_the_memory(
    server: _Server, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kbqa.kb.connections.MAX_BODY_BYTES", 2 * 10**6)
    server.answer = answer
    with pytest.raises(QueryTooLarge, match=r"sends more than 2 MB\. Ask for fewer"):
        SparqlEndpoint(server.url).select(QUERY)


def test_a_client_of_a_server_cannot_have_an_endpoint_send_it_hundreds_of_megabytes(
    server: _Server,
) -> None:
    server.answer = _endless
    graph = open_graph(endpoint=server.url, low_priority=True)
    with pytest.raises(QueryTooLarge, match=r"sends more than 16 MB"):
        graph.select(QUERY)


def test_credentials_of_the_url_are_sent_and_never_shown(server: _Server) -> None:
    seen: list[tuple[str, str]] = []

    def refuse(handler: http.server.BaseHTTPRequestHandler) -> None:
        sent = handler.headers["Authorization"]
        seen.append((sent, handler.path))
        _reply(500, "text/plain", f"I was sent s3cr/et and 12345: {sent} {handler.path}")(handler)

    server.answer = refuse
    url = server.url.replace("http://", "http://ann:s3cr%2Fet@")
    graph = SparqlEndpoint(f"{url}?apikey=12345&format=json")
    with pytest.raises(EndpointError) as caught:
        graph.select(QUERY)
    assert seen == [("Basic YW5uOnMzY3IvZXQ=", "/sparql?apikey=12345&format=json")]
    expected = server.url.replace("http://", "endpoint http://***@")
    assert graph.description == f"{expected}?apikey=***&format=json"
    for text in (str(caught.value), repr(graph.identity()), graph.description):
        assert "s3cr" not in text
        assert "12345" not in text
        assert "YW5uOnMzY3IvZXQ=" not in text


@pytest.mark.parametrize(
    "url",
    [
        "http://ann:secret@host:port/sparql",
        "ftp://ann:secret@host/sparql",
        "ann:secret@host/sparql",
        "http://ann:secret@/sparql",
        "http://ann:secret@host/spar ql?token=secret",
        "http://host/spårql?access_token=secret",
    ],
)
def test_an_url_that_cannot_be_used_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(InputError) as caught:
        SparqlEndpoint(url)
    assert "secret" not in str(caught.value)
