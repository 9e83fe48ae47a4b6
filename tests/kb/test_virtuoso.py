"""How a real Virtuoso fails, and which error each failure becomes."""

import pytest

from kbqa.kb.endpoint import SparqlEndpoint
from kbqa.sparql.errors import EndpointError, QuerySyntaxError, QueryTimeout

SLOW = """SELECT ?a { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i . ?j ?k ?l
FILTER (CONCAT(STR(?a), STR(?d), STR(?g), STR(?j)) = "none") }"""


def test_a_partial_result_is_a_timeout(virtuoso_endpoint: str) -> None:
    # Virtuoso's own limit, in milliseconds: it then answers 200 with the rows that it has.
    graph = SparqlEndpoint(f"{virtuoso_endpoint}&timeout=1000")
    with pytest.raises(QueryTimeout):
        graph.select(SLOW, timeout_s=30)


def test_a_query_that_fails_on_the_server_is_no_syntax_error(virtuoso_endpoint: str) -> None:
    with pytest.raises(EndpointError, match="HTTP status 500: Virtuoso 22012"):
        SparqlEndpoint(virtuoso_endpoint).select("SELECT (1/0 AS ?x) {}")


def test_a_syntax_error_carries_the_words_of_the_server(virtuoso_endpoint: str) -> None:
    with pytest.raises(QuerySyntaxError, match="Virtuoso 37000 Error SP030"):
        SparqlEndpoint(virtuoso_endpoint).ask("ASK { ?x }")
