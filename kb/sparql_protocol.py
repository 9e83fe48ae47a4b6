"""Send one query to a SPARQL endpoint, and name whatever goes wrong.

- Down, refusing, or an HTTP error: `EndpointError` with the server's own words.
- The server cannot parse the query: `QuerySyntaxError`.
- Slow, stalled or trickling: `QueryTimeout`, at the limit and not later. SPARQLWrapper's own
  timeout bounds each read from the socket: a trickling server could hold a query for ever.
- Cut off in the middle: oxigraph, when it cancels a query, has sent ``200 OK`` already and ends its
  JSON with a message: `QueryTimeout`; other broken JSON is `MalformedResult`.
- HTML and the like with ``200 OK``: `EndpointError`, as this is no SPARQL endpoint.

Virtuoso has limits of its own, told here as release 7.2.5 keeps them:

- ``MaxQueryExecutionTime`` ends a query with status 500 and SQL state S1T00: `QueryTimeout`.
- ``timeout=`` in the URL asks for what is found by then. Groups come with status 200 and S1TAT in a
  header, other rows with status 500 and S1TAT after them: `PartialResult`. But the rows of a SELECT
  DISTINCT may come with status 200 and no word; so a URL with ``timeout=`` is an `EndpointError`.
- ``MaxQueryCostEstimationTime`` refuses with status 500 and SQL state 42000: `QueryTooCostly`.
- ``ResultSetMaxRows`` is named in a header where a result has just so many rows. Whether rows are
  missing is for the caller to find out.

Not here: retries, keep-alive connections, authentication.
"""

import ast
import contextlib
import http.client
import json
import os
import re
import socket
import threading
import time
import urllib.error
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, cast
from urllib.parse import parse_qs, urlsplit

from kbqa.sparql.errors import (
    EndpointDown,
    EndpointError,
    KbqaError,
    MalformedResult,
    PartialResult,
    QuerySyntaxError,
    QueryTimeout,
    QueryTooCostly,
)

_PARTIAL_CONTENT = 206
_BAD_REQUEST = 400
_TOO_MANY_REQUESTS = 429
_TIMEOUT_CODES = (408, 504)
_VIRTUOSO_ERROR = re.compile(r"Virtuoso (?P<state>[0-9A-Z]{5}) Error (?P<words>.*)")
_VIRTUOSO_TIMEOUT = "S1T00"
_VIRTUOSO_PARTIAL = "S1TAT"
_VIRTUOSO_SYNTAX = "37000"
_VIRTUOSO_COST = re.compile(r"estimated execution time .* exceeds the limit of (\d+)")
_TIMEOUT_WORDS = ("cancel", "timeout", "timed out", "time out")


@dataclass(frozen=True, slots=True)
class _Reply:
    body: bytes
    content_type: str
    is_partial: bool
    is_virtuoso: bool
    max_rows: int | None


class Answer(NamedTuple):
    """What an endpoint says to a query.

    Attributes:
        json: The object of the result.
        max_rows: The server's limit on rows, where it says that the result has just so many.
    """

    json: dict[str, object]
    max_rows: int | None


def post_query(url: str, query: str, timeout_s: float) -> Answer:
    """Send a SELECT or ASK query and decode the JSON object of its result.

    Args:
        url: The endpoint.
        query: SPARQL that the endpoint's parser accepts.
        timeout_s: Seconds from sending to the last byte.

    Raises:
        EndpointError: The endpoint is down, refuses the query, or does not speak SPARQL; or it is
            a Virtuoso whose URL asks for partial results.
        QuerySyntaxError: The endpoint says that the query does not parse.
        QueryTimeout: A time limit passed, here or on the server, or would by the server's guess.
        MalformedResult: The answer is broken JSON, or no JSON object.
    """
    reply = _send(url, query, timeout_s)
    if reply.is_partial:
        raise PartialResult(query, timeout_s, _where(url))
    if reply.is_virtuoso and "timeout" in parse_qs(urlsplit(url).query):
        raise EndpointError(
            f"{_where(url)} is a Virtuoso, which may leave out rows without a word where timeout= "
            "is given. Take that out of the URL; --timeout limits each query."
        )
    try:
        answer = json.loads(reply.body)
    except ValueError as error:
        raise _undecodable(url, query, timeout_s, reply) from error
    if not isinstance(answer, dict):
        raise MalformedResult(f"{_where(url)} answered with JSON that is no SPARQL result")
    return Answer(cast(dict[str, object], answer), reply.max_rows)


def _send(url: str, query: str, timeout_s: float) -> _Reply:
    from SPARQLWrapper import JSON, POST, SPARQLWrapper
    from SPARQLWrapper.SPARQLExceptions import SPARQLWrapperException

    wrapper = SPARQLWrapper(url)
    wrapper.setMethod(POST)
    wrapper.setReturnFormat(JSON)
    wrapper.setQuery(query)
    wrapper.timeout = timeout_s  # setTimeout would cut it to whole seconds
    deadline = time.monotonic() + timeout_s
    try:
        response = wrapper.query().response
        with response, _hang_up_at(deadline, response):
            headers = response.headers
            max_rows = headers.get("X-SPARQL-MaxRows", "")
            return _Reply(
                response.read(),
                headers.get("Content-Type", ""),
                response.status == _PARTIAL_CONTENT
                or headers.get("X-SQL-State") == _VIRTUOSO_PARTIAL,
                headers.get("Server", "").startswith("Virtuoso"),
                int(max_rows) if max_rows.isdecimal() else None,
            )
    except SPARQLWrapperException as error:
        # SPARQLWrapper raises its own class for some statuses; the HTTP error is underneath.
        cause = error.__context__
        code = cause.code if isinstance(cause, urllib.error.HTTPError) else _BAD_REQUEST
        raise _refused(url, query, timeout_s, code, _server_text(str(error))) from error
    except urllib.error.HTTPError as error:
        with error:
            text = error.read().decode(errors="replace")
        raise _refused(url, query, timeout_s, error.code, text) from error
    except (OSError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        if isinstance(reason, TimeoutError) or time.monotonic() >= deadline:
            raise QueryTimeout(query, timeout_s, _where(url)) from error
        raise EndpointDown(
            f"{_where(url)} does not answer ({reason}). Is the server up, and the URL right?"
        ) from error


@contextlib.contextmanager
def _hang_up_at(deadline: float, response: http.client.HTTPResponse) -> Iterator[None]:
    """Shut the connection down at the deadline, which ends a read that is waiting for more.

    Raises:
        TimeoutError: That has happened.
    """
    connection = socket.socket(fileno=os.dup(response.fileno()))

    def hang_up() -> None:
        with contextlib.suppress(OSError):  # the other side was faster
            connection.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(max(deadline - time.monotonic(), 0), hang_up)
    timer.daemon = True
    with connection:
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()
    if time.monotonic() >= deadline:
        raise TimeoutError("the answer came too late to be whole")


def _refused(url: str, query: str, timeout_s: float, code: int, text: str) -> KbqaError:
    where, words = _where(url), _excerpt(text)
    # QLever says 429 where it has cancelled a query, see ad-freiburg/qlever issue 2957.
    if code in _TIMEOUT_CODES or (code == _TOO_MANY_REQUESTS and _speaks_of_time(text)):
        return QueryTimeout(query, timeout_s, where)
    is_syntax = code == _BAD_REQUEST
    # Searched, as rows may stand before it.
    if (error := _VIRTUOSO_ERROR.search(text)) is not None:
        state, words = error["state"], _excerpt(text[error.start() :])
        if state == _VIRTUOSO_TIMEOUT:
            return QueryTimeout(
                query,
                timeout_s,
                where,
                f"{where} stopped the query at a time limit of its own: {words}. "
                "Raise MaxQueryExecutionTime in virtuoso.ini, or make the query more selective.",
            )
        if state == _VIRTUOSO_PARTIAL:
            return PartialResult(query, timeout_s, where)
        if (cost := _VIRTUOSO_COST.search(error["words"])) is not None:
            return QueryTooCostly(query, float(cost[1]), where, error["words"])
        # Virtuoso answers 400 to much else that goes wrong.
        is_syntax = is_syntax and state == _VIRTUOSO_SYNTAX
    if is_syntax:
        return QuerySyntaxError(f"{where} cannot parse the query: {words}")
    return EndpointError(f"{where} refuses the query with HTTP status {code}: {words}")


def _server_text(message: str) -> str:
    """Take the server's words out of SPARQLWrapper's message, which ends in the repr of bytes."""
    shown = message.partition("Response:\n")[2]
    return cast(bytes, ast.literal_eval(shown)).decode(errors="replace") if shown else message


def _undecodable(url: str, query: str, timeout_s: float, reply: _Reply) -> KbqaError:
    if "json" not in reply.content_type:
        kind = reply.content_type or "nothing that is named"
        return EndpointError(
            f"{_where(url)} does not speak SPARQL: it sends {kind}. "
            "The URL of an endpoint often ends in /sparql or /query."
        )
    end = reply.body[-200:].decode(errors="replace")
    if _speaks_of_time(end):
        return QueryTimeout(query, timeout_s, _where(url))
    return MalformedResult(f"{_where(url)} broke off in the middle of its answer: …{_excerpt(end)}")


def _speaks_of_time(text: str) -> bool:
    return any(word in text.lower() for word in _TIMEOUT_WORDS)


def _where(url: str) -> str:
    return f"endpoint {url}"


def _excerpt(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= 200 else words[:199] + "…"
