"""Every error as clients see it: problem details (RFC 9457), made in one place.

Errors that a client can act on are passed on. Of others it learns the kind only: the message, which
may hold paths or other servers' words, goes to the log.
"""

import json
import logging
import math
import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from http import HTTPStatus
from typing import Any, TypeVar

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from kbqa.kb.graph import Table
from kbqa.sparql import errors
from kbqa.sparql.crp import Crp

logger = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"

_Record = TypeVar("_Record")

_OPTIONS = re.compile(r",? or raise KBQA_\w+|(?<=\.) Raise --[a-z-]+(?:, or (?P<other>\w)|\.)")
_SERVERS_WORDS = re.compile(r"(?<=refuses the query with HTTP status \d{3}): .*", re.DOTALL)
"""An endpoint's own words on its failure may hold its addresses and folders."""

_LINE = re.compile(r"\bline (\d+)")
_REFUSED = {
    404: ("not-found", "No such thing here"),
    405: ("method", "No such method here"),
    406: ("not-acceptable", "No such format"),
}
_BUSY_TITLES = {
    "queue-full": "Too many questions are waiting",
    "starting": "The server is starting",
    "stopping": "The server is stopping",
    "too-fast": "Too many requests",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """An error as clients see it."""

    status: int  # of HTTP
    code: str  # a short stable name, such as ``queue-full``
    title: str  # the kind of error, in a few words
    detail: str  # what happened, and what to try
    line: int | None = None  # of a path or query, that is at fault, 1-based
    reason: str | None = None  # why a query cannot be a path; see `CrpConversionError`
    retry_after_s: float | None = None

    def to_dict(self, request_id: str) -> dict[str, Any]:
        """Return the JSON of RFC 9457, with members of our own."""
        record = {
            "type": f"urn:kbqa:problem:{self.code}",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "code": self.code,
            "line": self.line,
            "reason": self.reason,
            "retry_after_s": self.retry_after,
            "request_id": request_id,
        }
        return {name: value for name, value in record.items() if value is not None}

    @property
    def retry_after(self) -> int | None:
        """Whole seconds after which to try again."""
        return None if self.retry_after_s is None else max(math.ceil(self.retry_after_s), 1)

    @property
    def headers(self) -> dict[str, str]:
        """The headers of a response that reports it."""
        headers = {}
        if self.retry_after is not None:
            headers["Retry-After"] = str(self.retry_after)
        if self.status == 401:
            headers["WWW-Authenticate"] = 'Bearer realm="kbqa"'
        if self.status in (408, 413):
            headers["Connection"] = "close"  # the rest of the body is not read
        return headers


def problem_response(
    problem: Problem, request_id: str, headers: Mapping[str, str] | None = None
) -> Response:
    """Answer a request with a problem."""
    text = json.dumps(problem.to_dict(request_id), ensure_ascii=False)
    return Response(text, problem.status, {**(headers or {}), **problem.headers}, MEDIA_TYPE)


def problem_of(error: Exception, graph: str = "") -> Problem:
    """Return an error as clients see it; those that are not known here are the server's fault.

    `graph` is how messages name the graph, such as ``store /data/fb``; clients read "the graph".
    """
    detail = for_clients(str(error), graph)
    match error:
        case errors.ServerBusy(reason=reason, retry_after_s=seconds):
            status = 429 if reason == "too-fast" else 503
            detail = f"{detail}. Try again later."
            return Problem(status, reason, _BUSY_TITLES[reason], detail, retry_after_s=seconds)
        case errors.CrpSyntaxError(line=line):
            return Problem(400, "path-syntax", "Not a path", detail, line or None)
        case errors.QuerySyntaxError():
            found = _LINE.search(detail)
            at = int(found[1]) if found else None
            return Problem(400, "query-syntax", "Not a SPARQL query", detail, at)
        case errors.QueryRefused():
            return Problem(403, "query-refused", "Only queries that read are allowed", detail)
        case errors.CrpConversionError(reason=reason):
            return Problem(422, "no-path", "No path says this query", detail, reason=reason)
        case errors.InputError():
            return Problem(422, "input", "Unusable input", detail)
        case errors.UnlinkedName():
            return Problem(404, "no-entity", "No such entity", detail)
        case errors.DeadlineExceeded():
            detail = "No answer came in time. Try again later, or a simpler question."
            return Problem(504, "deadline", "Out of time", detail)
        case errors.QueryTimeout(timeout_s=seconds):
            detail = f"The query took longer than {seconds:g} s. Make it more selective."
            return Problem(504, "query-timeout", "Out of time", detail)
        case errors.ResultTruncated(max_rows=rows):
            detail = f"The graph sends at most {rows} rows. Add a LIMIT."
            return Problem(502, "result-truncated", "The result is too long", detail)
        case errors.EndpointDown() | errors.StoreError():
            detail = "The graph does not respond. Try again later."
            return Problem(503, "graph-down", "The graph is down", detail, retry_after_s=10.0)
        case errors.QueryTooLarge():
            detail = (
                "The query needs more memory, or its result is larger, than allowed. "
                "Add a LIMIT, or ask for fewer or shorter texts."
            )
            return Problem(502, "query-memory", "The query is too large", detail)
        case errors.GraphError():
            detail = "The graph gave no usable result."
            return Problem(502, "graph-error", "The graph failed", detail)
        case HTTPException(status_code=status):
            code, title = _REFUSED.get(status, ("invalid", "The request is not valid"))
            is_plain = error.detail == HTTPStatus.NOT_FOUND.phrase
            nothing = "There is nothing at this address; /docs lists those there are."
            return Problem(status, code, title, nothing if is_plain else error.detail)
        case RequestValidationError():
            faults = (f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:5])
            return Problem(422, "invalid", "The request is not valid", "; ".join(faults))
        case _:
            detail = "Something went wrong in the server; its log says what."
            return Problem(500, "internal", "The server failed", detail)


def for_clients(record: _Record, graph: str) -> _Record:
    """Remove the place of the graph from a text, or from all texts of a record.

    Errors of the graph may be anywhere in a record, such as the trace of an answer. Advice to
    change options goes too, as they are the operator's. `graph` is as for `problem_of`.
    """
    if not graph:
        return record
    named = _named(graph)

    def changed(value: Any) -> Any:
        match value:
            case str():
                told = _SERVERS_WORDS.sub("", named.sub("the graph", value))
                return _OPTIONS.sub(_without_option, told)
            case tuple() | list():
                items = [changed(each) for each in value]
                if all(map(operator.is_, items, value)):
                    return value
                is_named = isinstance(value, tuple) and type(value) is not tuple
                return type(value)(*items) if is_named else type(value)(items)
            case dict():
                return {key: changed(each) for key, each in value.items()}
            case Table() | Crp():  # they are large, and no error is in them
                return value
        if not is_dataclass(value) or isinstance(value, type):
            return value
        found = {each.name: getattr(value, each.name) for each in fields(value) if each.init}
        new = {name: changed(each) for name, each in found.items()}
        different = {name: each for name, each in new.items() if each is not found[name]}
        return replace(value, **different) if different else value

    result: _Record = changed(record)
    return result


def _without_option(found: re.Match[str]) -> str:
    return f" {found['other'].upper()}" if found["other"] else ""


@cache
def _named(graph: str) -> re.Pattern[str]:
    """Match the places of a graph: ``store /data/fb``, ``endpoints http://a/, http://b/``."""
    kind, _, places = graph.partition(" ")
    found = sorted(places.split(", "), key=len, reverse=True)
    # The name of a folder here may be any word; only with its kind it is the store.
    alone = [re.escape(place) for place in found if "/" in place]
    whole = rf"(?:the )?{kind.removesuffix('s')}s? (?:at )?(?:{'|'.join(map(re.escape, found))})"
    return re.compile("|".join([re.escape(graph), whole, *alone]))


def log_problem(error: Exception, problem: Problem, request_id: str) -> None:
    """Log an error inside the server, as the client is not told its message."""
    if problem.status < 500 or isinstance(error, errors.ServerBusy | errors.DeadlineExceeded):
        return
    # A query that takes too long is its writer's, and its text is nobody else's business.
    level = logging.INFO if isinstance(error, errors.QueryTimeout) else logging.WARNING
    trace = None if isinstance(error, errors.KbqaError) else error
    logger.log(level, "%s: %s: %s", request_id, type(error).__name__, error, exc_info=trace)
