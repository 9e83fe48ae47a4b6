"""How a real Virtuoso fails, and which error each failure becomes."""

from collections.abc import Iterator

import pytest

from kbqa.kb.endpoint import SparqlEndpoint
from kbqa.sparql.errors import (
    EndpointError,
    PartialResult,
    QuerySyntaxError,
    QueryTimeout,
    QueryTooCostly,
    ResultTruncated,
)
from tools.graph_servers import MissingServer, virtuoso_server

CAP = 20
NS = "http://rdf.freebase.com/ns/"


def _cross(times: int, relation: str = "") -> str:
    """Write the pattern of so many edges side by side; all rows are looked at, one by one."""
    edges = " . ".join(f"?s{at} {relation or f'?p{at}'} ?o{at}" for at in range(times))
    texts = ", ".join(f"STR(?s{at})" for at in range(times))
    return f'{{ {edges} FILTER (CONCAT({texts}) != "x") }}'


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a real Virtuoso with low limits of every kind.

    Its graph has 60 edges of one relation, 20,000 of another, and two names of each of 60 nodes.
    """
    dump = tmp_path_factory.mktemp("limited") / "edges.nt"
    few, many, name = (f"<{NS}{end}>" for end in ("a.b.few", "a.b.many", "type.object.name"))
    lines = [f"<{NS}m.0{at}> {many} <{NS}m.1{at % 7}> ." for at in range(20_000)]
    for at in range(60):
        lines.append(f"<{NS}m.0{at}> {few} <{NS}m.1{at % 7}> .")
        lines += [f'<{NS}m.0{at}> {name} "name {at}"@{language} .' for language in ("en", "de")]
    dump.write_text("\n".join(lines) + "\n", encoding="utf-8")
    limits = {
        "ResultSetMaxRows": CAP,
        "MaxQueryCostEstimationTime": 60,
        "MaxQueryExecutionTime": 2,
    }
    try:
        with virtuoso_server([dump], limits) as url:
            yield url
    except MissingServer as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(
    ("query", "limit"),
    [
        ("SELECT ?x { ?x ns:a.b.few ?y }", None),
        ("SELECT ?x { ?x ns:a.b.few ?y }", 21),
        ("SELECT ?x { ?x ns:a.b.few ?y } ORDER BY ?x LIMIT 40", None),
        ("SELECT DISTINCT ?x { ?x ns:a.b.few ?y } LIMIT 21", 5000),
    ],
)
def test_rows_that_are_kept_back_are_an_error(limited: str, query: str, limit: int | None) -> None:
    with pytest.raises(ResultTruncated) as caught:
        SparqlEndpoint(limited).select(query, limit=limit)
    assert caught.value.max_rows == CAP


def test_as_many_rows_as_asked_for_are_no_error(limited: str) -> None:
    graph = SparqlEndpoint(limited)
    query = "SELECT ?x { ?x ns:a.b.few ?y }"
    assert len(graph.select(f"{query} LIMIT 20").rows) == CAP
    table = graph.select(query, limit=CAP)
    assert (len(table.rows), table.truncated) == (CAP, True)
    mids = " ".join(f"ns:m.0{at}" for at in range(CAP))
    table = graph.select(f"SELECT ?x {{ VALUES ?x {{ {mids} }} ?x ns:a.b.few ?y }}")
    assert (len(table.rows), table.truncated) == (CAP, False)


def test_labels_come_in_parts_where_they_are_too_many(limited: str) -> None:
    labels = SparqlEndpoint(limited).labels([f"m.0{at}" for at in range(60)])
    assert labels == {f"m.0{at}": f"name {at}" for at in range(60)}


def test_names_come_in_parts_where_they_are_too_many(limited: str) -> None:
    tokens = [f"name {at}" for at in range(40)]
    spans = SparqlEndpoint(limited).names().match_spans(tokens, max_tokens=1)
    assert [span.matches[0].mid for span in spans] == [f"m.0{at}" for at in range(40)]


def test_a_question_of_a_hundred_words_is_not_too_many_arguments(virtuoso_endpoint: str) -> None:
    tokens = [f"word{at}" for at in range(100)]
    tokens[3], tokens[38:40], tokens[90] = "jamaica", ["Justin", "bieber's"], "Kingston"
    spans = SparqlEndpoint(virtuoso_endpoint).names().match_spans(tokens, max_tokens=12)
    found = [(span.start, span.end, span.matches[0].name) for span in spans]
    # At an endpoint, the first 40 words are looked at.
    assert found == [(3, 4, "Jamaica"), (38, 40, "Justin Bieber")]


def test_a_query_that_is_guessed_to_be_slow(limited: str) -> None:
    query = f"SELECT (COUNT(*) AS ?n) {_cross(3, 'ns:a.b.many')}"
    with pytest.raises(QueryTooCostly, match=r"exceeds the limit of 60 \(sec\)") as caught:
        SparqlEndpoint(limited).select(query)
    assert caught.value.timeout_s == 60


def test_the_time_limit_of_the_server(limited: str) -> None:
    query = f"SELECT (COUNT(*) AS ?n) {_cross(4, 'ns:a.b.few')}"
    with pytest.raises(QueryTimeout, match=r"S1T00 .* Raise MaxQueryExecutionTime"):
        SparqlEndpoint(limited).select(query)


@pytest.mark.parametrize(
    "query",
    [
        pytest.param(
            f"SELECT ?s0 (COUNT(*) AS ?n) {_cross(4)} GROUP BY ?s0", id="named in a header"
        ),
        pytest.param(f"SELECT ?s0 ?s1 ?s2 {_cross(3)}", id="named after the rows"),
    ],
)
def test_a_partial_result(virtuoso_endpoint: str, query: str) -> None:
    # On a busy machine Virtuoso may cut the rows and not say so; then `timeout=` is refused.
    with pytest.raises((PartialResult, EndpointError), match="timeout"):
        SparqlEndpoint(f"{virtuoso_endpoint}&timeout=1000").select(query)


def test_partial_results_are_not_asked_for(virtuoso_endpoint: str) -> None:
    # Virtuoso may say nothing where it cuts the rows of a SELECT DISTINCT.
    with pytest.raises(EndpointError, match="Take that out of the URL"):
        SparqlEndpoint(f"{virtuoso_endpoint}&timeout=1000").select(
            "SELECT DISTINCT ?x { ?x ?y ?z }"
        )


def test_a_query_that_fails_on_the_server_is_no_syntax_error(virtuoso_endpoint: str) -> None:
    with pytest.raises(EndpointError, match="HTTP status 500: Virtuoso 22012"):
        SparqlEndpoint(virtuoso_endpoint).select("SELECT (1/0 AS ?x) {}")


def test_a_syntax_error_carries_the_words_of_the_server(virtuoso_endpoint: str) -> None:
    with pytest.raises(QuerySyntaxError, match="Virtuoso 37000 Error SP030"):
        SparqlEndpoint(virtuoso_endpoint).ask("ASK { ?x }")
