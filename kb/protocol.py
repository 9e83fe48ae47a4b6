"""Send one query to a SPARQL endpoint or to one of its copies, and name the error if it fails.

- Down, refusing, or an HTTP error: `EndpointError` with the server's own words.
- The server cannot parse the query: `QuerySyntaxError`.
- Slow, stalled or trickling: `QueryTimeout`, at the limit and not later.
- Broken JSON is `MalformedResult`. But oxigraph, when it cancels a query, has sent ``200 OK``
  already and ends its JSON with a message: `QueryTimeout`. NaN, infinities and control characters,
  which Virtuoso and others write as they are, are read.
- HTML and the like with ``200 OK``: `EndpointError`, as this is not a SPARQL endpoint.

Virtuoso 7.2.5 has limits of its own:

- ``MaxQueryExecutionTime`` ends a query with status 500 and SQL state S1T00: `QueryTimeout`.
- ``timeout=`` in the URL asks for the rows found by then. Groups come with status 200 and S1TAT in
  a header, other rows with status 500 and S1TAT after them: `PartialResult`. But the rows of a
  SELECT DISTINCT may come with status 200 and no sign, so such a URL is an `EndpointError`.
- ``MaxQueryCostEstimationTime`` refuses with status 500 and SQL state 42000: `QueryTooCostly`.
- ``ResultSetMaxRows`` is named in a header if a result has exactly that many rows. The caller must
  find out whether rows are missing.

Of several copies of a graph, a request goes to the first listed one that works. If that is down,
ends the connection, answers with HTTP status 5xx or broken JSON, or takes more than half of the
time left, the request goes to the next. A copy that failed where another answered is left alone for
a while, and then tried with a small query. A query that a server refuses as wrong (HTTP status
4xx), or stops at its own limit, is not sent to another copy, which would do the same.
"""

import http.client
import json
import logging
import re
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple, cast
from urllib.parse import parse_qs, urlencode, urljoin, urlsplit

from SPARQLWrapper import JSON, POST, SPARQLWrapper

from kbqa.kb.connections import Address, Connections, Response, hide_secrets, through_proxy
from kbqa.sparql.errors import (
    EndpointDown,
    EndpointError,
    GraphError,
    KbqaError,
    MalformedResult,
    PartialResult,
    QuerySyntaxError,
    QueryTimeout,
    QueryTooCostly,
)

_OK = 200
_PARTIAL_CONTENT = 206
_REDIRECTS = (301, 302, 303, 307, 308)
_BAD_REQUEST = 400
_METHOD_NOT_ALLOWED = 405
_TOO_MANY_REQUESTS = 429
_TIMEOUT_CODES = (408, 504)
_VIRTUOSO_ERROR = re.compile(r"Virtuoso (?P<state>[0-9A-Z]{5}) Error (?P<words>.*)")
_VIRTUOSO_TIMEOUT = "S1T00"
_VIRTUOSO_PARTIAL = "S1TAT"
_VIRTUOSO_SYNTAX = "37000"
_VIRTUOSO_COST = re.compile(r"estimated execution time .* exceeds the limit of (\d+)")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_TAG = re.compile(r"<[^<>]*>")
# Values that JSON does not have, and their texts in XML Schema.
_CONSTANTS = {"NaN": "NaN", "Infinity": "INF", "-Infinity": "-INF"}
_JSON_RESULTS = (
    "application/sparql-results+json,application/json,text/javascript,application/javascript"
)
# Servers' names for the parameter of the format. Virtuoso reads it rather than the header.
_FORMAT_PARAMETERS = ("format", "output", "results")
_TIMEOUT_WORDS = ("cancel", "timeout", "timed out", "time out")

logger = logging.getLogger(__name__)

PAUSE_S = 10.0  # a copy that failed is left alone for so long
_TRY = "ASK { ?s ?p ?o }"
_TRY_TIMEOUT_S = 2.0
_SERVER_ERROR = 500
_GATEWAY_TIMEOUT = 504


class EndpointReply(NamedTuple):
    """An endpoint's answer to a query."""

    json: dict[str, object]  # the result
    max_rows: int | None  # the server's limit on rows, if it says that the result has that many


class HttpStatus(Exception):
    """The HTTP status with which a server refused a query; the cause of an `EndpointError`."""

    def __init__(self, code: int) -> None:
        super().__init__(f"HTTP status {code}")
        self.code = code


class _EndpointCall(SPARQLWrapper):  # type: ignore[misc]  # it is not followed by mypy
    """SPARQLWrapper, with its query sent over connections that stay open."""

    # Its own `query` opens a connection each time, limits each read but not the whole answer, and
    # follows a redirect without the query.

    def __init__(self, address: Address, connections: Connections) -> None:
        super().__init__(address.url, returnFormat=JSON)
        self.setMethod(POST)
        if address.login:
            self.addCustomHttpHeader("Authorization", f"Basic {address.login}")
        self._connections = connections

    def send(self) -> Response:
        formats = dict.fromkeys(_FORMAT_PARAMETERS, self.returnFormat)
        fields = self.parameters | {"query": self.queryString} | formats
        headers = {
            "Content-Type": "application/x-www-form-urlencoded",
            "User-Agent": self.agent,
            "Accept": _JSON_RESULTS,
            **self.customHttpHeaders,
        }
        body = urlencode(fields, doseq=True, safe="/").encode()
        deadline = time.monotonic() + self.timeout
        return self._connections.send(self.endpoint, headers, body, deadline)


class QuerySender:
    """Sends queries to an endpoint. Any number of threads may use one sender."""

    def __init__(self, address: Address, max_body_bytes: int | None = None) -> None:
        self._address = address
        self._connections = Connections(address, max_body_bytes)

    def post(self, query: str, timeout_s: float) -> EndpointReply:
        """Send a SELECT or ASK query and decode the JSON object of its result.

        `timeout_s` is for everything from connecting to the last byte. The module names the errors.
        """
        address = self._address
        response = self._send(query, timeout_s)
        headers = response.headers
        if response.status == _PARTIAL_CONTENT or headers.get("X-SQL-State") == _VIRTUOSO_PARTIAL:
            raise PartialResult(query, timeout_s, self._where)
        is_virtuoso = headers.get("Server", "").startswith("Virtuoso")
        if is_virtuoso and "timeout" in parse_qs(urlsplit(address.url).query):
            raise EndpointError(
                f"{self._where} is a Virtuoso, which may silently leave out rows if its URL holds "
                "timeout=. Take that out of the URL; --timeout limits each query."
            )
        encoding = headers.get("Content-Encoding", "identity")
        if encoding != "identity":
            raise EndpointError(
                f"{self._where} compresses its answer ({encoding}) although it was asked not to. "
                "Switch that off on the server."
            )
        max_rows = headers.get("X-SPARQL-MaxRows", "")
        return EndpointReply(
            self._decode(query, timeout_s, response),
            int(max_rows) if max_rows.isdecimal() else None,
        )

    def close(self) -> None:
        """Close the connections."""
        self._connections.close()

    def _send(self, query: str, timeout_s: float) -> Response:
        deadline = time.monotonic() + timeout_s
        call = _EndpointCall(self._address, self._connections)
        call.setQuery(query)
        call.timeout = timeout_s  # `setTimeout` would cut off its fraction
        try:
            response = call.send()
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, TimeoutError) or time.monotonic() >= deadline:
                raise QueryTimeout(query, timeout_s, self._where) from error
            if isinstance(error, http.client.IncompleteRead):
                raise MalformedResult(
                    f"{self._where} broke off in the middle of its answer ({error})"
                ) from error
            advice = "Is the server up, and the URL right?"
            if through_proxy(self._address.url):
                advice = (
                    "Are the proxy and the server up, and the URL right? "
                    "The variable NO_PROXY lists hosts that are asked without a proxy."
                )
            raise EndpointDown(f"{self._where} does not answer ({error}). {advice}") from error
        if response.status in (_OK, _PARTIAL_CONTENT):
            return response
        text = self._address.hide(response.body.decode(errors="replace"))
        if response.status in _REDIRECTS:
            target = urljoin(self._address.url, response.headers.get("Location", ""))
            raise EndpointError(
                f"{self._where} has moved to {hide_secrets(target)}. Use that URL."
            ) from None
        refusal = _refused(self._where, query, timeout_s, response, text)
        raise refusal from HttpStatus(response.status)

    def _decode(self, query: str, timeout_s: float, response: Response) -> dict[str, object]:
        try:
            answer = json.loads(response.body, strict=False, parse_constant=_CONSTANTS.__getitem__)
            if _SURROGATE.search(response.body) is not None:
                json.dumps(answer, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise MalformedResult(
                f"{self._where} answered with half a surrogate pair, which is not valid text"
            ) from error
        except ValueError as error:
            raise self._undecodable(query, timeout_s, response, error) from error
        except RecursionError as error:
            raise MalformedResult(
                f"{self._where} answered with JSON that is nested too deeply for a SPARQL result"
            ) from error
        if not isinstance(answer, dict) or not answer.keys() & {"results", "boolean"}:
            words = _excerpt(self._address.hide(response.body[:400].decode(errors="replace")))
            raise MalformedResult(
                f"{self._where} answered with JSON that is not a SPARQL result: {words}"
            )
        return cast(dict[str, object], answer)

    def _undecodable(
        self, query: str, timeout_s: float, response: Response, error: ValueError
    ) -> KbqaError:
        """Return the error of an answer that is not JSON."""
        content_type, body = response.headers.get("Content-Type", ""), response.body
        if b"<sparql" in body[:1000]:
            return EndpointError(
                f"{self._where} sends XML results ({content_type}) although it was asked for JSON, "
                "which is all that kbqa reads. Switch JSON results on at the server."
            )
        if "json" not in content_type:
            kind = content_type or "an answer without a content type"
            return EndpointError(
                f"{self._where} does not speak SPARQL: it sends {kind}. "
                "The URL of an endpoint often ends in /sparql or /query."
            )
        end = self._address.hide(body[-200:].decode(errors="replace"))
        if _speaks_of_time(end):
            return QueryTimeout(query, timeout_s, self._where)
        if isinstance(error, json.JSONDecodeError) and _is_cut(error):
            return MalformedResult(
                f"{self._where} broke off in the middle of its answer: …{_excerpt(end)}"
            )
        return MalformedResult(f"{self._where} answered with JSON that does not parse: {error}")

    @property
    def _where(self) -> str:
        """The endpoint, and its proxy, in messages."""
        return f"{self._address.description}{through_proxy(self._address.url)}"


def _refused(where: str, query: str, timeout_s: float, response: Response, text: str) -> KbqaError:
    code, words = response.status, _excerpt(text)
    # QLever answers 429 if it has cancelled a query, see ad-freiburg/qlever issue 2957.
    is_cancelled = code == _TOO_MANY_REQUESTS and '"exception"' in text and _speaks_of_time(text)
    if code in _TIMEOUT_CODES or is_cancelled:
        return QueryTimeout(query, timeout_s, where)
    is_syntax = code == _BAD_REQUEST
    # Searched for, because rows may come before it.
    if (error := _VIRTUOSO_ERROR.search(text)) is not None:
        state, words = error["state"], _excerpt(text[error.start() :])
        if state == _VIRTUOSO_TIMEOUT:
            return QueryTimeout(
                query,
                timeout_s,
                where,
                f"{where} stopped the query at its own time limit: {words}. "
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
    refusal = f"{where} refuses the query with HTTP status {code}: {words}"
    if (wait := response.headers.get("Retry-After")) is not None:
        when = f"in {wait} s" if wait.isdecimal() else f"after {wait}"
        refusal = f"{refusal.rstrip('.')}. Ask again {when}."
    elif code == _METHOD_NOT_ALLOWED:
        refusal = f"{refusal.rstrip('.')}. kbqa asks by POST. Is it the URL of a SPARQL endpoint?"
    return EndpointError(refusal)


def _is_cut(error: json.JSONDecodeError) -> bool:
    """Return whether JSON is right as far as it goes."""
    is_at_end = not error.doc[error.pos :].strip()
    return is_at_end or error.msg.startswith("Unterminated string")


def _speaks_of_time(text: str) -> bool:
    return any(word in text.lower() for word in _TIMEOUT_WORDS)


def _excerpt(text: str) -> str:
    if text.lstrip().startswith("<"):  # a web page
        text = _TAG.sub(" ", text)
    words = " ".join(text.split())
    return words if len(words) <= 200 else words[:199] + "…"


class Copies:
    """Sends queries to copies of one graph. Any number of threads may use one object."""

    def __init__(self, addresses: Iterable[Address], max_body_bytes: int | None = None) -> None:
        self._copies = [_Copy(address, max_body_bytes) for address in addresses]

    def post(self, query: str, timeout_s: float) -> EndpointReply:
        """Send a query to the copies in turn; `timeout_s` is for all of them together."""
        ends_at = time.monotonic() + timeout_s
        failed: list[tuple[_Copy, GraphError]] = []
        copies = self._in_order()
        for at, copy in enumerate(copies):
            left_s = ends_at - time.monotonic()
            if failed and left_s <= 0:
                break
            is_last = all(other.is_aside for other in copies[at + 1 :])
            share_s = left_s if is_last else left_s / 2
            try:
                reply = copy.sender.post(query, share_s)
            except GraphError as error:
                if not _may_succeed_elsewhere(error):
                    raise
                failed.append((copy, error))
            else:
                copy.is_aside = False
                for other, why in failed:
                    other.set_aside(why)
                return reply
        raise self._error([error for _, error in failed], query, timeout_s)

    def close(self) -> None:
        """Close the connections to all copies."""
        for copy in self._copies:
            copy.sender.close()

    def _in_order(self) -> Sequence["_Copy"]:
        """Return the copies that work, as listed, and then those that were set aside."""
        for copy in self._copies:
            copy.try_again()
        return sorted(self._copies, key=lambda copy: copy.is_aside)

    def _error(self, errors: Sequence[GraphError], query: str, timeout_s: float) -> GraphError:
        """Choose the error to report if no copy has answered."""
        if all(isinstance(error, EndpointDown) for error in errors):
            each = "\n".join(f"  {error}" for error in errors)
            return EndpointDown(
                f"none of the {len(errors)} copies of the graph answers:\n{each}\n"
                "Start one of the servers, or correct its URL; kbqa doctor checks each."
            )
        said = (e for e in errors if not isinstance(e, EndpointDown | QueryTimeout))
        if (refusal := next(said, None)) is not None:
            return refusal
        where = describe_copies([copy.address for copy in self._copies])
        return QueryTimeout(query, timeout_s, where)


class _Copy:
    def __init__(self, address: Address, max_body_bytes: int | None) -> None:
        self.address, self.sender = address, QuerySender(address, max_body_bytes)
        self.is_aside = False
        self._until = 0.0

    def set_aside(self, error: GraphError) -> None:
        if not self.is_aside:
            logger.warning("%s. Asking another copy of the graph.", str(error).partition(". ")[0])
        self.is_aside = True
        self._until = time.monotonic() + PAUSE_S

    def try_again(self) -> None:
        """Ask a copy that has been left alone long enough whether it works again."""
        if not self.is_aside or time.monotonic() < self._until:
            return
        self._until = time.monotonic() + PAUSE_S  # before it is tried: one thread does it
        try:
            self.sender.post(_TRY, _TRY_TIMEOUT_S)
        except GraphError:
            return
        self.is_aside = False
        logger.warning("%s answers again.", self.address.description)


def describe_copies(addresses: Sequence[Address]) -> str:
    """Name one endpoint or several, for messages: ``endpoints http://a/query, http://b/query``."""
    if len(addresses) == 1:
        return addresses[0].description
    return f"endpoints {', '.join(sorted({address.shown for address in addresses}))}"


def _may_succeed_elsewhere(error: GraphError) -> bool:
    """Return whether the server is at fault rather than the query."""
    status = error.__cause__.code if isinstance(error.__cause__, HttpStatus) else None
    match error:
        case EndpointDown() | MalformedResult():
            return True
        case PartialResult() | QueryTooCostly():
            return False
        case QueryTimeout():  # here, or at a gateway before the server
            is_ours = isinstance(error.__cause__, OSError | http.client.HTTPException)
            return is_ours or status == _GATEWAY_TIMEOUT
        case EndpointError():
            return status is not None and status >= _SERVER_ERROR
    return False
