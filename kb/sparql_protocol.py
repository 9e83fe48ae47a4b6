"""Send one query to a SPARQL endpoint, and name whatever goes wrong.

- Down, refusing, or an HTTP error: `EndpointError` with the server's own words.
- The server cannot parse the query: `QuerySyntaxError`.
- Slow, stalled or trickling: `QueryTimeout`, at the limit and not later. SPARQLWrapper's own
  timeout bounds each read from the socket: a trickling server could hold a query for ever.
- Cut off in the middle: oxigraph, when it cancels a query, has sent ``200 OK`` already and ends its
  JSON with a message; Virtuoso sends the rows it has, and says so in a header. Both are
  `QueryTimeout`; other broken JSON is `MalformedResult`.
- HTML and the like with ``200 OK``: `EndpointError`, as this is no SPARQL endpoint.

Not here: retries, keep-alive connections, authentication.
"""

import ast
import contextlib
import http.client
import json
import os
import socket
import threading
import time
import urllib.error
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

from kbqa.sparql.errors import (
    EndpointError,
    KbqaError,
    MalformedResult,
    QuerySyntaxError,
    QueryTimeout,
)

_BAD_REQUEST = 400
_TIMEOUT_CODES = (408, 504)
_VIRTUOSO_TIMEOUT = "S1T00"
_VIRTUOSO_PARTIAL = "S1TAT"
_TIMEOUT_WORDS = ("cancel", "timeout", "timed out", "time out")


@dataclass(frozen=True, slots=True)
class _Reply:
    body: bytes
    content_type: str
    is_partial: bool


def post_query(url: str, query: str, timeout_s: float) -> dict[str, object]:
    """Send a SELECT or ASK query and decode the JSON object of its result.

    Args:
        url: The endpoint.
        query: SPARQL that the endpoint's parser accepts.
        timeout_s: Seconds from sending to the last byte.

    Raises:
        EndpointError: The endpoint is down, refuses the query, or does not speak SPARQL.
        QuerySyntaxError: The endpoint says that the query does not parse.
        QueryTimeout: The limit passed, here or on the server.
        MalformedResult: The answer is broken JSON, or no JSON object.
    """
    reply = _send(url, query, timeout_s)
    if reply.is_partial:
        raise QueryTimeout(query, timeout_s, _where(url))
    try:
        answer = json.loads(reply.body)
    except ValueError as error:
        raise _undecodable(url, query, timeout_s, reply) from error
    if not isinstance(answer, dict):
        raise MalformedResult(f"{_where(url)} answered with JSON that is no SPARQL result")
    return cast(dict[str, object], answer)


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
            return _Reply(
                response.read(),
                response.headers.get("Content-Type", ""),
                response.headers.get("X-SQL-State") == _VIRTUOSO_PARTIAL,
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
        raise EndpointError(
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
    if code in _TIMEOUT_CODES or _VIRTUOSO_TIMEOUT in text:
        return QueryTimeout(query, timeout_s, _where(url))
    words = _excerpt(text)
    # Virtuoso answers 400 to everything that goes wrong; 37000 is its code for syntax errors.
    if code == _BAD_REQUEST and (not words.startswith("Virtuoso") or "37000" in words):
        return QuerySyntaxError(f"{_where(url)} cannot parse the query: {words}")
    return EndpointError(f"{_where(url)} refuses the query with HTTP status {code}: {words}")


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
    if any(word in end.lower() for word in _TIMEOUT_WORDS):
        return QueryTimeout(query, timeout_s, _where(url))
    return MalformedResult(f"{_where(url)} broke off in the middle of its answer: …{_excerpt(end)}")


def _where(url: str) -> str:
    return f"endpoint {url}"


def _excerpt(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= 200 else words[:199] + "…"
