"""Several endpoints that hold copies of one graph: where one fails, another is asked.

A request goes to the first listed copy that works. If that copy is down, hangs up, answers with
HTTP status 5xx or broken JSON, or takes more than half of the time that is left, the request goes
to the next. A copy that failed where another answered is left alone for a while, and then tried
with a small query, so that a server which hangs costs little.

A query that a server refuses as wrong (HTTP status 4xx), or stops at a limit of its own, is not
sent to another copy: that would say the same.
"""

import http.client
import logging
import time
from collections.abc import Iterable, Sequence

from kbqa.kb.endpoint.address import Address
from kbqa.kb.endpoint.protocol import EndpointReply, HttpStatus, QuerySender
from kbqa.sparql.errors import (
    EndpointDown,
    EndpointError,
    GraphError,
    MalformedResult,
    PartialResult,
    QueryTimeout,
    QueryTooCostly,
)

logger = logging.getLogger(__name__)

PAUSE_S = 10.0
"""How long a copy that failed is left alone."""

_TRY = "ASK { ?s ?p ?o }"
_TRY_TIMEOUT_S = 2.0
_SERVER_ERROR = 500
_GATEWAY_TIMEOUT = 504


class Copies:
    """Sends queries to copies of one graph. Any number of threads may use it.

    Args:
        addresses: The endpoints, the one that is preferred first.
        max_body_bytes: As for `Connections`.
    """

    def __init__(self, addresses: Iterable[Address], max_body_bytes: int | None = None) -> None:
        self._copies = [_Copy(address, max_body_bytes) for address in addresses]

    def post(self, query: str, timeout_s: float) -> EndpointReply:
        """Send a SELECT or ASK query to the copies in turn, until one answers.

        Args:
            query: SPARQL that the endpoints' parsers accept.
            timeout_s: Seconds for all copies together.

        Raises:
            EndpointDown: No copy responds.
            QueryTimeout: The time is up, or a server stopped the query.
            EndpointError: The copies refuse the query.
            QuerySyntaxError: A copy says that the query does not parse.
            MalformedResult: The copies send broken JSON.
        """
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
        """Return the copies that work as listed, then those that were set aside."""
        for copy in self._copies:
            copy.try_again()
        return sorted(self._copies, key=lambda copy: copy.is_aside)

    def _error(self, errors: Sequence[GraphError], query: str, timeout_s: float) -> GraphError:
        """Choose what to report if no copy has answered."""
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
        """Find out whether a copy that has been left alone long enough works again."""
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
