"""Run queries in a process of their own, which can be killed.

pyoxigraph can neither time a query out nor cancel it, so a query of unknown origin runs in a child
process that opens the same store read-only. `QueryWorker` is the parent's side; run as a module,
this file is the child's. The child is a fresh interpreter rather than a fork, because callers hold
torch's threads.

The child reads one request after the other from a socket pair. Its standard input is a lifeline:
when the parent ends, however it ends, the pipe closes and the child exits in the middle of a query.
"""

import itertools
import marshal
import os
import signal
import subprocess
import sys
import threading
import weakref
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import TypeAlias, cast

import pyoxigraph

from kbqa.kb.graph import Table
from kbqa.kb.queries import syntax_error
from kbqa.kb.rows import Cell, pack, term_from_oxigraph, unpack
from kbqa.sparql.errors import GraphError, QueryTimeout, StoreError

_Rows: TypeAlias = tuple[tuple[str, ...], tuple[tuple[Cell, ...], ...], bool]

_TRIES = 2
"""Runs of a query whose process dies: once that may be no fault of the query's."""

START_TIMEOUT_S = 60.0
"""Seconds until the child must have opened the store; it takes 0.1–0.2 s on a quiet machine."""


class QueryWorker:
    """A killable process that answers queries over one store, started at the first of them.

    Queries run one after the other; any thread may ask.

    Args:
        graph_directory: Directory of a pyoxigraph store.
        description: The graph's name in messages.
    """

    def __init__(self, graph_directory: Path, description: str) -> None:
        self._graph_directory = graph_directory
        self._description = description
        self._lock = threading.Lock()
        self._child: _Child | None = None

    def select(self, query: str, timeout_s: float, limit: int | None) -> Table:
        """Run a SELECT query; raises as `Graph.select` does."""
        variables, packed, truncated = cast(_Rows, self._answer(query, timeout_s, limit))
        rows = tuple(tuple(unpack(cell) for cell in row) for row in packed)
        return Table(variables, rows, truncated)

    def ask(self, query: str, timeout_s: float) -> bool:
        """Run an ASK query; raises as `Graph.ask` does."""
        return cast(bool, self._answer(query, timeout_s, None))

    def close(self) -> None:
        """End the child; a later query would start a new one."""
        with self._lock:
            self._stop()

    def _answer(self, query: str, timeout_s: float, limit: int | None) -> object:
        with self._lock:
            kind, value = self._run(query, timeout_s, limit)
        if kind == "syntax":
            raise syntax_error(query, str(value))
        if kind == "failed":
            raise GraphError(f"{self._description} could not run the query: {value}")
        return value

    def _run(self, query: str, timeout_s: float, limit: int | None) -> tuple[str, object]:
        """Have the child run a query, and a new one where that dies."""
        request = marshal.dumps((query, limit))
        death: Exception | None = None
        for _ in range(_TRIES):
            if self._child is None:
                self._child = _Child(self._graph_directory, self._description)
            connection = self._child.connection
            try:
                connection.send_bytes(request)
                if not connection.poll(timeout_s):
                    raise QueryTimeout(query, timeout_s, self._description)
                return cast(tuple[str, object], marshal.loads(connection.recv_bytes()))
            except (EOFError, OSError) as error:
                self._stop()
                death = error
            except BaseException:
                # Too late, or interrupted: the next query must not read this one's answer.
                self._stop()
                raise
        raise GraphError(
            f"the query process of {self._description} died {_TRIES} times; "
            "the query may need more memory than there is. Add a LIMIT."
        ) from death

    def _stop(self) -> None:
        if self._child is not None:
            self._child.stop()
            self._child = None


class _Child:
    """A running child that has opened its store."""

    def __init__(self, graph_directory: Path, description: str) -> None:
        self.connection, theirs = Pipe()
        with theirs:
            process = subprocess.Popen(
                # -P: the working directory is no place to import from.
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "kbqa.kb.worker",
                    graph_directory,
                    str(theirs.fileno()),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        # Also called when the graph was never closed and is collected, or the interpreter exits.
        self.stop = weakref.finalize(self, _end, process, self.connection)
        try:
            started = self.connection.poll(START_TIMEOUT_S)
            problem = self.connection.recv_bytes().decode() if started else "it does not start"
        except (EOFError, OSError):
            problem = f"it ended with code {process.wait()}"
        if problem:
            self.stop()
            raise StoreError(f"the query process of {description} failed: {problem}")


def _end(process: "subprocess.Popen[bytes]", connection: Connection) -> None:
    process.kill()
    process.wait()
    connection.close()
    if process.stdin is not None:
        process.stdin.close()


def _serve(graph_directory: str, connection: Connection) -> None:
    try:
        store = pyoxigraph.Store.read_only(graph_directory)
    except OSError as error:
        connection.send_bytes(str(error).encode())
        return
    connection.send_bytes(b"")
    while True:
        query, limit = marshal.loads(connection.recv_bytes())
        connection.send_bytes(marshal.dumps(_run(store, query, limit)))


def _run(store: pyoxigraph.Store, query: str, limit: int | None) -> tuple[str, bool | str | _Rows]:
    try:
        result = store.query(query)
        if isinstance(result, pyoxigraph.QueryBoolean):
            return "value", bool(result)
        if not isinstance(result, pyoxigraph.QuerySolutions):
            return "failed", "it is neither SELECT nor ASK"
        some = result if limit is None else itertools.islice(result, limit)
        rows = tuple(
            tuple(None if node is None else pack(term_from_oxigraph(node)) for node in solution)
            for solution in some
        )
        truncated = limit is not None and next(result, None) is not None
        return "value", (tuple(variable.value for variable in result.variables), rows, truncated)
    except SyntaxError as error:
        return "syntax", str(error)
    except (OSError, RuntimeError, TypeError, ValueError) as error:
        return "failed", str(error)


def _exit_with_parent() -> None:
    while os.read(0, 1):
        pass
    os._exit(0)


def main() -> None:
    """Serve as the child: ``python -m kbqa.kb.worker GRAPH_DIRECTORY FILE_DESCRIPTOR``."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle.
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    with Connection(int(sys.argv[2])) as connection:
        try:
            _serve(sys.argv[1], connection)
        except (EOFError, BrokenPipeError):
            return  # The parent has closed the connection.


if __name__ == "__main__":
    main()
