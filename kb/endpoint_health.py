"""Check a SPARQL endpoint and report what is wrong with it, by small read-only queries."""

import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from urllib.parse import urlencode, urlsplit, urlunsplit

from kbqa.kb.connections import hide_secrets, through_proxy
from kbqa.kb.endpoint import SparqlEndpoint
from kbqa.kb.graph import DEFAULT_TIMEOUT_S
from kbqa.kb.health import Finding, from_error, ok, problem, warning
from kbqa.kb.protocol import HttpStatus
from kbqa.sparql.errors import (
    EndpointDown,
    GraphError,
    InputError,
    KbqaError,
    MalformedResult,
    PartialResult,
    QueryTimeout,
    QueryTooCostly,
    ResultTruncated,
)
from kbqa.sparql.terms import FREEBASE_NS, NAME, iri

_ANY = "ASK { ?s ?p ?o }"
_NAMED = f"ASK {{ ?s {iri(NAME)} ?name }}"
_ROWS_WANTED = 20_000  # more than Virtuoso's default limit of 10,000; still a small answer

# Virtuoso expects this to take for ever, but answers at once if allowed; other servers take long.
_SEEMS_LONG = "SELECT ?a { ?a ?p ?b . ?c ?q ?d . ?e ?r ?f FILTER (1 = 2) }"
_SLOW_S = 0.5
# Virtuoso mixes its own triples into the data unless a default graph is named.
_VIRTUOSO_OWN = "ASK { ?s a <http://www.openlinksw.com/schemas/virtrdf#QuadMap> }"

_STATUS_ADVICE = {
    401: "Give the user and password in the URL: http://USER:PASSWORD@HOST/…",
    403: "The server does not let this machine read: change its rules of access.",
    404: "The URL of an endpoint often ends in /sparql or /query.",
}


def check_endpoints(urls: Sequence[str], timeout_s: float = DEFAULT_TIMEOUT_S) -> Iterator[Finding]:
    """Check an endpoint, or each of several that hold copies of one graph.

    A copy that does not answer is a problem only if none does. `timeout_s` is for each query. A URL
    that is not an HTTP URL raises `InputError`.
    """
    if len(urls) == 1:
        yield from check_endpoint(urls[0], timeout_s)
        return
    copies = [list(check_endpoint(url, timeout_s)) for url in urls]
    is_any_up = any(findings[0].status != "problem" for findings in copies)
    for number, findings in enumerate(copies, 1):
        for found in findings:
            is_down = found.check == "endpoint" and found.status == "problem"
            status = "warning" if is_down and is_any_up else found.status
            yield replace(found, check=f"{found.check} {number}", status=status)


def check_endpoint(url: str, timeout_s: float = DEFAULT_TIMEOUT_S) -> Iterator[Finding]:
    """Check one endpoint."""
    graph = SparqlEndpoint(url, timeout_s)
    started = time.monotonic()
    try:
        holds_any = graph.ask(_ANY, timeout_s=timeout_s)
    except (GraphError, InputError) as error:
        yield _no_answer(error, through_proxy(url))
        return
    seconds = time.monotonic() - started
    yield _speed(graph, seconds)
    try:
        if not holds_any:
            yield _without_data("empty", f"{graph.description} holds no triples", url, timeout_s)
            return
        if not graph.ask(_NAMED, timeout_s=timeout_s):
            finding = f"{graph.description} holds no names of Freebase ({NAME})"
            if example := _example(graph, timeout_s):
                finding += f", but triples such as {example}"
            yield _without_data("vocabulary", finding, url, timeout_s)
            return
        yield ok("vocabulary", "it holds names of Freebase's entities")
        yield from _check_default_graph(graph, url, timeout_s)
        yield _check_row_cap(graph, timeout_s)
        yield from _check_cost(graph, url, timeout_s)
    except (GraphError, InputError) as error:
        yield from_error("endpoint", error)


def _no_answer(error: KbqaError, through: str) -> Finding:
    """Report why an endpoint does not answer the simplest query; `through` names the proxy."""
    if through and isinstance(error, EndpointDown):
        return from_error("endpoint", error)  # the proxy may be down as well as the endpoint
    for cause in _causes(error):
        if isinstance(cause, HttpStatus) and cause.code in _STATUS_ADVICE:
            return problem("endpoint", str(error), _STATUS_ADVICE[cause.code])
        if isinstance(cause, ConnectionRefusedError):
            advice = "Nothing listens there: start the server, or correct the URL."
            return problem("endpoint", _first_sentence(error), advice)
        if isinstance(cause, socket.gaierror):
            return problem("endpoint", _first_sentence(error), "No host has that name: correct it.")
    if isinstance(error, QueryTimeout) and not isinstance(error, PartialResult | QueryTooCostly):
        return problem(
            "endpoint",
            f"it gives no answer{through} to {_ANY} within {error.timeout_s:g} s",
            "It may still be starting or loading. If not, raise --timeout.",
        )
    if isinstance(error, MalformedResult):
        advice = "Is it a SPARQL endpoint? Its URL often ends in /sparql or /query."
        return problem("endpoint", str(error), advice)
    return from_error("endpoint", error, "The message is the server's: look into its log.")


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes."""
    left: BaseException | None = error
    while left is not None:
        yield left
        left = left.__cause__ or left.__context__


def _first_sentence(error: KbqaError) -> str:
    return str(error).partition(". ")[0]


def _speed(graph: SparqlEndpoint, seconds: float) -> Finding:
    finding = f"{graph.description} answers in {seconds:.2f} s"
    if seconds > _SLOW_S:
        return warning(
            "endpoint",
            finding,
            "A question takes tens of queries: a server on this machine answers in a millisecond.",
        )
    return ok("endpoint", finding)


def _without_data(check: str, finding: str, url: str, timeout_s: float) -> Finding:
    """Report that the default graph lacks the data, and the named graph that has them."""
    if (found := _graph_of_names(url, timeout_s)) is not None:
        return problem(
            check,
            f"{finding} in its default graph; its data are in the graph {found}",
            f"Name that: --endpoint '{hide_secrets(_with_default_graph(url, found))}'.",
        )
    advice = f"Load Freebase into it, with ids that begin with {FREEBASE_NS}; or correct the URL."
    return problem(check, finding, advice)


def _graph_of_names(url: str, timeout_s: float) -> str | None:
    """Find a named graph that holds names; None if the server names none."""
    query = f"SELECT ?g {{ GRAPH ?g {{ ?s {iri(NAME)} ?name }} }} LIMIT 1"
    try:
        rows = _whole_server(url, timeout_s).select(query, timeout_s=timeout_s).rows
    except (GraphError, InputError):
        return None
    return str(rows[0][0]) if rows else None


def _whole_server(url: str, timeout_s: float) -> SparqlEndpoint:
    """Open the endpoint without the choice of graphs in its URL."""
    return SparqlEndpoint(urlunsplit(urlsplit(url)._replace(query="")), timeout_s)


def _with_default_graph(url: str, graph: str) -> str:
    query = urlencode({"default-graph-uri": graph}, safe=":/")
    return urlunsplit(urlsplit(url)._replace(query=query))


def _example(graph: SparqlEndpoint, timeout_s: float) -> str:
    rows = graph.select("SELECT ?s ?p { ?s ?p ?o } LIMIT 1", timeout_s=timeout_s).rows
    return " ".join(str(term) for term in rows[0]) if rows else ""


def _check_default_graph(graph: SparqlEndpoint, url: str, timeout_s: float) -> Iterator[Finding]:
    if not graph.ask(_VIRTUOSO_OWN, timeout_s=timeout_s):
        return
    found = _graph_of_names(url, timeout_s) or "GRAPH"
    yield warning(
        "default graph",
        "Virtuoso's own triples are among the data, as no default graph is named",
        f"Name the data's: --endpoint '{hide_secrets(_with_default_graph(url, found))}'.",
    )


def _check_row_cap(graph: SparqlEndpoint, timeout_s: float) -> Finding:
    """Check whether the server cuts a result of many rows."""
    query = f"SELECT ?s {{ ?s ?p ?o }} LIMIT {_ROWS_WANTED}"
    try:
        n = len(graph.select(query, timeout_s=timeout_s).rows)
        rest = f"SELECT ?s {{ ?s ?p ?o }} OFFSET {n} LIMIT 1"
        is_capped = n < _ROWS_WANTED and bool(graph.select(rest, timeout_s=timeout_s).rows)
    except ResultTruncated as error:
        n, is_capped = error.max_rows, True
    if is_capped:
        return warning(
            "rows",
            f"the server cuts results at {n:,} rows",
            "Raise its limit: ResultSetMaxRows in the section [SPARQL] of virtuoso.ini.",
        )
    return ok("rows", f"{n:,} rows come in one answer")


def _check_cost(graph: SparqlEndpoint, url: str, timeout_s: float) -> Iterator[Finding]:
    """Check whether a Virtuoso refuses queries that it expects to be slow."""
    if not _whole_server(url, timeout_s).ask(_VIRTUOSO_OWN, timeout_s=timeout_s):
        return
    try:
        graph.select(_SEEMS_LONG, timeout_s=timeout_s)
    except QueryTooCostly as error:
        yield warning(
            "cost",
            f"the server refuses queries that it expects to take over {error.timeout_s:g} s",
            "Its estimates are often far off: set MaxQueryCostEstimationTime = 0 in virtuoso.ini.",
        )
