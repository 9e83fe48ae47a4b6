"""The one tree of errors that kbqa raises on purpose.

    KbqaError
    ├── InputError              what was handed in cannot be used (exit code 2)
    │   ├── CrpSyntaxError      a CRP text that cannot be read
    │   ├── CrpConversionError  a SPARQL query that cannot be said as a CRP
    │   ├── QuerySyntaxError    a SPARQL query that does not parse
    │   └── QueryRefused        a query that would write, or reach outside the graph
    ├── GraphError              the graph did not answer
    │   ├── StoreError          an embedded store that is missing, empty, unfinished or locked
    │   ├── EndpointError       an endpoint that refuses, or does not speak SPARQL
    │   │   └── EndpointDown    an endpoint that nobody answers at
    │   ├── QueryTimeout        no result within the time limit
    │   │   ├── PartialResult   the server's time limit passed, and it sent what it had by then
    │   │   └── QueryTooCostly  the server guesses that it would take too long, and does not try
    │   ├── ResultTruncated     the server sends only so many rows, and there are more
    │   └── MalformedResult     an answer that is not a SPARQL result
    ├── DumpError               a dump that cannot be read or loaded
    ├── AnsweringError          a question that got no answer, though the graph and model work
    │   ├── UnlinkedName        no entity of the graph bears the name
    │   └── UnreachablePath     no candidate's main path exists in the graph
    ├── ModelError              a language model is missing, broken or failed
    │   └── SpendingLimitReached  what may be spent on a general model is spent
    ├── OutputError             a result cannot be written, as where the disk is full
    └── TrainingError           training cannot start, resume or go on

An empty result is none of these: it is a result. Each message says what happened, to what,
and what to try.
"""


class KbqaError(Exception):
    """Base of every error that kbqa raises on purpose."""


class InputError(KbqaError):
    """What was handed in cannot be used; nothing was done."""


class CrpSyntaxError(InputError):
    """A CRP text cannot be read.

    Attributes:
        line: The line that could not be read, 1-based; 0 where no single line is at fault.
    """

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(f"line {line}: {message}" if line else message)
        self.line = line


class CrpConversionError(InputError):
    """A SPARQL query cannot be said as a CRP.

    Attributes:
        reason: A short stable name such as ``"aggregate"``, for counting.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason


class QuerySyntaxError(InputError):
    """A SPARQL query does not parse."""


class QueryRefused(InputError):
    """A query would write, or reach outside the graph it was sent to."""


class GraphError(KbqaError):
    """The graph did not answer."""


class StoreError(GraphError):
    """An embedded store is missing, empty, unfinished or locked."""


class EndpointError(GraphError):
    """An endpoint refuses the query, or does not speak SPARQL."""


class EndpointDown(EndpointError):
    """Nobody answers at an endpoint: not this query is at fault, and no other would fare better."""


class QueryTimeout(GraphError):
    """No result came within the time limit.

    Attributes:
        query: The query that was stopped.
        timeout_s: The limit in seconds.
    """

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
    """The server's own time limit passed, and what it sent is only a part of the result."""

    def __init__(self, query: str, timeout_s: float, where: str) -> None:
        message = (
            f"{where} reached a time limit of its own and sent a part of the result "
            f"({_head(query)}). Take timeout= out of the endpoint's URL, raise the server's "
            "limit, or make the query more selective."
        )
        super().__init__(query, timeout_s, where, message)


class QueryTooCostly(QueryTimeout):
    """The server guesses that a query would take too long, and does not try.

    Attributes:
        timeout_s: The server's limit for its guess, in seconds.
    """

    def __init__(self, query: str, timeout_s: float, where: str, words: str) -> None:
        message = (
            f"{where} does not try the query ({_head(query)}): {words} Such guesses are often far "
            "off: set MaxQueryCostEstimationTime = 0 in virtuoso.ini, or make the query more "
            "selective."
        )
        super().__init__(query, timeout_s, where, message)


class ResultTruncated(GraphError):
    """The server sends only so many rows of a result, and there are more.

    Attributes:
        query: The query.
        max_rows: The rows that the server sent, its limit.
    """

    def __init__(self, query: str, max_rows: int, where: str) -> None:
        super().__init__(
            f"{where} sends {max_rows} rows at most, and the result has more ({_head(query)}). "
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
    """No entity of the graph bears the name.

    Attributes:
        name: The name that was looked for.
    """

    def __init__(self, name: str, message: str | None = None) -> None:
        super().__init__(message or f"no entity of the graph is called {name!r}")
        self.name = name


class UnreachablePath(AnsweringError):
    """No candidate's main path exists in the graph."""


class ModelError(KbqaError):
    """A language model is missing, broken, or failed while it ran."""


class SpendingLimitReached(ModelError):
    """What may be spent on a general model is spent; nothing was asked any more."""


class OutputError(KbqaError):
    """A result cannot be written: the disk is full, or the file may not grow."""


class TrainingError(KbqaError):
    """Training cannot start, resume or go on."""


def _head(query: str) -> str:
    words = " ".join(query.split())
    return words if len(words) <= 120 else words[:117] + "…"
