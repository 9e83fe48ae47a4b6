"""All errors that kbqa raises on purpose, in one tree.

    KbqaError
    ├── InputError          exit code 2
    │   └── CrpSyntaxError, CrpConversionError, QuerySyntaxError, QueryRefused
    ├── GraphError
    │   ├── EndpointError
    │   │   └── EndpointDown
    │   ├── QueryTimeout
    │   │   └── PartialResult, QueryTooCostly
    │   └── StoreError, QueryTooLarge, ResultTruncated, MalformedResult
    ├── AnsweringError
    │   └── UnlinkedName, DeadlineExceeded
    ├── ModelError
    │   └── PromptTooLong, SpendingLimitReached
    └── DumpError, ServerBusy, ServerError, OutputError, TrainingError

An empty result is not an error. Each message says what happened, to what, and what to try.
"""

from typing import Literal

BusyReason = Literal["queue-full", "starting", "stopping", "too-fast"]  # the client is too fast


class KbqaError(Exception):
    """Base of all errors that kbqa raises on purpose. Processes can send them to each other."""

    def __reduce__(self) -> tuple[object, ...]:
        # By default, pickle calls the class with the message alone, whatever `__init__` takes.
        return _restored, (type(self), self.args, self.__dict__)


class InputError(KbqaError):
    """The input cannot be used; nothing was done."""


class CrpSyntaxError(InputError):
    """A text cannot be read as a CRP, at this line; 0 if no single line is at fault."""

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(f"line {line}: {message}" if line else message)
        self.line = line


class CrpConversionError(InputError):
    """No CRP can express a SPARQL query; `reason` is a short stable name such as "aggregate"."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason


class QuerySyntaxError(InputError):
    """A query does not parse."""


class QueryRefused(InputError):
    """A query would write, or reach outside the graph it was sent to."""


class GraphError(KbqaError):
    """The graph did not answer."""


class StoreError(GraphError):
    """An embedded store is missing, empty, unfinished or locked."""


class EndpointError(GraphError):
    """An endpoint refuses the query, or does not speak SPARQL."""


class EndpointDown(EndpointError):
    """An endpoint does not respond; other queries would fail as well."""


class QueryTimeout(GraphError):
    """No result came within the time limit."""

    def __init__(
        self, query: str, timeout_s: float, where: str, message: str | None = None
    ) -> None:
        super().__init__(
            message
            or f"no result from {where} within {timeout_s:g} s ({_head(query)}). "
            "Raise --timeout, or make the query more selective."
        )
        self.query = query
        self.timeout_s = timeout_s


class PartialResult(QueryTimeout):
    """The server reached its own time limit and sent only part of the result."""

    def __init__(self, query: str, timeout_s: float, where: str) -> None:
        message = (
            f"{where} reached its own time limit and sent only part of the result "
            f"({_head(query)}). Take timeout= out of the endpoint's URL, raise the server's "
            "limit, or make the query more selective."
        )
        super().__init__(query, timeout_s, where, message)


class QueryTooCostly(QueryTimeout):
    """The server estimates that a query would take longer than its limit, and does not run it."""

    def __init__(self, query: str, timeout_s: float, where: str, words: str) -> None:
        message = (
            f"{where} refuses to run the query ({_head(query)}): {words} Such estimates are often "
            "wrong: set MaxQueryCostEstimationTime = 0 in virtuoso.ini, or make the query more "
            "selective."
        )
        super().__init__(query, timeout_s, where, message)


class QueryTooLarge(GraphError):
    """A query needs more memory, or returns more bytes, than it may."""


class ResultTruncated(GraphError):
    """A result has more rows than the server sends."""

    def __init__(self, query: str, max_rows: int, where: str) -> None:
        super().__init__(
            f"{where} sends at most {max_rows} rows, and the result has more ({_head(query)}). "
            "Raise the server's limit (ResultSetMaxRows in virtuoso.ini), or ask for fewer rows: "
            "with --limit, or page by page with ORDER BY, LIMIT and OFFSET."
        )
        self.query = query
        self.max_rows = max_rows


class MalformedResult(GraphError):
    """The answer is not a SPARQL result."""


class DumpError(KbqaError):
    """A dump cannot be read or loaded."""


class AnsweringError(KbqaError):
    """A question got no answer, though the graph and the model work."""


class UnlinkedName(AnsweringError):
    """No entity of the graph has the name."""

    def __init__(self, name: str, message: str | None = None) -> None:
        super().__init__(message or f"no entity of the graph is called {name!r}")
        self.name = name


class DeadlineExceeded(AnsweringError):
    """A question took longer than allowed."""


class ModelError(KbqaError):
    """A language model is missing, broken, or failed while it ran."""


class PromptTooLong(ModelError):
    """A prompt does not fit into the general model's context; shorter ones may."""


class SpendingLimitReached(ModelError):
    """The spending limit for a general model is reached; no further request was sent."""


class ServerBusy(KbqaError):
    """A server is too busy for a request; the same request may succeed later."""

    def __init__(self, reason: BusyReason, message: str, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.reason = reason
        self.retry_after_s = retry_after_s


class ServerError(KbqaError):
    """A `kbqa serve` does not respond, does not speak as one, or fails."""


class OutputError(KbqaError):
    """A result cannot be written: the disk is full, or a size limit is reached."""


class TrainingError(KbqaError):
    """Training cannot start, resume or continue."""


def _restored(
    kind: type[KbqaError], args: tuple[object, ...], state: dict[str, object]
) -> KbqaError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


def _head(query: str) -> str:
    words = " ".join(query.split())
    return words if len(words) <= 120 else words[:117] + "…"
