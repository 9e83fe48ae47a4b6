"""Run queries in a separate process, which can be killed.

pyoxigraph can neither time a query out nor cancel it, so a query of unknown origin runs in a child
process that opens the same store read-only. `QueryWorker` is the parent's side; run as a module,
this file is the child's. The child is a fresh interpreter rather than a fork, because callers hold
torch's threads.

The child reads one request after the other from a socket pair. Its standard input is a lifeline:
when the parent ends, however it ends, the pipe closes and the child exits in the middle of a query.

A process that forks shares the socket pair with its copy, and each would read the other's answers.
So the copy gives up its parent's child and starts its own at its first query.

The child limits its own memory (`memory_limit_bytes`), or one query could take all of the
machine's. The limit is RLIMIT_DATA, which counts what a process allocates and not the files that it
maps: for a sort of the whole slice, which takes 850 MB, it counts 900 MB. A query that needs more
is not run again. If something else kills its process, the query is run once more.
"""

import itertools
import marshal
import os
import resource
import signal
import subprocess
import sys
import threading
import time
import weakref
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import TypeAlias, cast

import pyoxigraph

from kbqa.kb.graph import Table
from kbqa.kb.queries import syntax_error
from kbqa.kb.rows import Cell, pack, term_from_oxigraph, unpack
from kbqa.kb.store.query_memory import MEMORY_VARIABLE, memory_limit_bytes
from kbqa.sparql.errors import GraphError, QuerySyntaxError, QueryTimeout, StoreError

_Rows: TypeAlias = tuple[tuple[str, ...], tuple[tuple[Cell, ...], ...], bool]

START_TIMEOUT_S = 60.0
"""Seconds until the child must have opened the store; it takes 0.1–0.2 s on a quiet machine."""

_LONGEST_WAIT_S = 1e6  # the operating system's waits take no more than 24 days

_OUT_OF_MEMORY = (-signal.SIGABRT, -signal.SIGPIPE)
"""How a process ends that gets no more memory: Python aborts it, or see `_die_of_messages`."""

_WORKERS: "weakref.WeakSet[QueryWorker]" = weakref.WeakSet()


class QueryWorker:
    """A killable process that answers queries over one store, started at the first of them.

    Queries run one after the other. Any thread may ask, and so may a forked process, which gets its
    own child.

    Args:
        graph_directory: Directory of a pyoxigraph store.
        description: The graph's name in messages.
    """

    def __init__(self, graph_directory: Path, description: str) -> None:
        self._graph_directory = graph_directory
        self._description = description
        self._lock = threading.Lock()
        self._child: _Child | None = None
        _WORKERS.add(self)

    def select(self, query: str, timeout_s: float, limit: int | None) -> Table:
        """Run a SELECT query; see `Graph.select`."""
        variables, packed, truncated = cast(_Rows, self._answer(query, timeout_s, limit))
        rows = tuple(tuple(unpack(cell) for cell in row) for row in packed)
        return Table(variables, rows, truncated)

    def ask(self, query: str, timeout_s: float) -> bool:
        """Run an ASK query; see `Graph.ask`."""
        return cast(bool, self._answer(query, timeout_s, None))

    def close(self) -> None:
        """End the child; a later query would start a new one."""
        with self._lock:
            self._stop()

    def forget(self) -> None:
        """Give up a child that belongs to the process which this one was forked from."""
        self._lock = threading.Lock()  # a thread that was not forked may hold the other
        if self._child is not None:
            self._child.forget()
            self._child = None

    def _answer(self, query: str, timeout_s: float, limit: int | None) -> object:
        deadline = time.monotonic() + timeout_s
        too_late = QueryTimeout(query, timeout_s, self._description)
        if not self._lock.acquire(timeout=min(timeout_s, _LONGEST_WAIT_S)):
            raise too_late
        try:
            answer = self._run(query, limit, deadline)
        finally:
            self._lock.release()
        if answer is None:
            raise too_late
        kind, value = answer
        if kind == "syntax":
            raise syntax_error(query, str(value))
        if kind == "failed":
            raise GraphError(f"{self._description} could not run the query: {value}")
        return value

    def _run(
        self, query: str, limit: int | None, deadline: float, *, again: bool = True
    ) -> tuple[str, object] | None:
        """Have the child run a query; None if the deadline passes.

        A child that something else has killed is replaced, and the query run once more.
        """
        request = marshal.dumps((query, limit))
        if self._child is not None and self._child.has_ended:
            self._stop()
        if self._child is None:
            self._child = _Child(self._graph_directory, self._description)
        try:
            # A child that starts late is left to finish starting: it serves the next query.
            if not self._child.wait_until_ready(deadline):
                return None
            self._child.connection.send_bytes(request)
            if not self._child.connection.poll(_left_s(deadline)):
                self._stop()
                return None
            return cast(tuple[str, object], marshal.loads(self._child.connection.recv_bytes()))
        except (EOFError, OSError) as error:
            code = self._stop()
            if again and code == -signal.SIGKILL:
                return self._run(query, limit, deadline, again=False)
            raise self._death(code) from error
        except BaseException:
            # Interrupted: the next query must not read this one's answer.
            self._stop()
            raise

    def _death(self, code: int) -> GraphError | QuerySyntaxError:
        if code in _OUT_OF_MEMORY:
            limit_gb = memory_limit_bytes() / 2**30
            return GraphError(
                f"{self._description} stopped the query, which needs more than {limit_gb:.3g} GB "
                f"of memory. Add a LIMIT, or raise {MEMORY_VARIABLE}."
            )
        if code == -signal.SIGSEGV:
            return QuerySyntaxError(
                f"{self._description} cannot parse the query: it is nested too deeply"
            )
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return GraphError(
            f"the query process of {self._description} died ({how}). "
            "The machine may be short of memory. Run the query again, or add a LIMIT."
        )

    def _stop(self) -> int:
        """End the child, and return its exit code."""
        child, self._child = self._child, None
        return 0 if child is None else child.stop()


class _Child:
    """A child process that opens its store and then serves queries."""

    def __init__(self, graph_directory: Path, description: str) -> None:
        self._description = description
        self._must_be_ready_at = time.monotonic() + START_TIMEOUT_S
        self._is_ready = False
        self.connection, theirs = Pipe()
        with theirs:
            self._process = subprocess.Popen(
                # -P: nothing is imported from the working directory.
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "kbqa.kb.store.worker",
                    graph_directory,
                    str(theirs.fileno()),
                    str(memory_limit_bytes()),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        # Also called when the graph was never closed and is collected, or the interpreter exits.
        self._end = weakref.finalize(self, _end, self._process, self.connection)

    @property
    def has_ended(self) -> bool:
        """Whether the process is gone."""
        return self._process.poll() is not None

    def wait_until_ready(self, deadline: float) -> bool:
        """Return whether the child has opened the store by the deadline."""
        if self._is_ready:
            return True
        is_last_chance = self._must_be_ready_at <= deadline
        try:
            if self.connection.poll(_left_s(min(deadline, self._must_be_ready_at))):
                problem = self.connection.recv_bytes().decode()
            elif is_last_chance:
                problem = f"it has not started within {START_TIMEOUT_S:g} s"
            else:
                return False
        except (EOFError, OSError):
            code = self.stop()
            if code == -signal.SIGKILL:
                raise  # not of its own doing: the query is run once more
            problem = f"it ended with code {code}"
        if problem:
            self.stop()
            raise StoreError(f"the query process of {self._description} failed: {problem}")
        self._is_ready = True
        return True

    def stop(self) -> int:
        """End the process if it still runs, and return its exit code."""
        self._end()
        return self._process.returncode or 0

    def forget(self) -> None:
        """Close this process's copy of what another process holds, and leave the child to it."""
        self._end.detach()
        self._process.returncode = 0  # not this process's child: nothing to wait for
        _hang_up(self._process, self.connection)


def _end(process: "subprocess.Popen[bytes]", connection: Connection) -> None:
    process.kill()
    process.wait()
    _hang_up(process, connection)


def _hang_up(process: "subprocess.Popen[bytes]", connection: Connection) -> None:
    connection.close()
    if process.stdin is not None:
        process.stdin.close()


def _left_s(deadline: float) -> float:
    return min(max(deadline - time.monotonic(), 0.0), _LONGEST_WAIT_S)


def _forget_children() -> None:
    for worker in list(_WORKERS):
        worker.forget()


os.register_at_fork(after_in_child=_forget_children)


def _serve(graph_directory: str, connection: Connection, memory_bytes: int) -> None:
    try:
        store = pyoxigraph.Store.read_only(graph_directory)
    except OSError as error:
        connection.send_bytes(str(error).encode())
        return
    _limit_memory(memory_bytes)
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


def _limit_memory(size_bytes: int) -> None:
    """Let this process allocate this much more, and let it end at once when it needs more."""
    most = _allocated_bytes() + size_bytes
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    soft = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # no gigabytes of core dump
    _die_of_messages()


def _die_of_messages() -> None:
    """Make the first byte that anything writes to standard error end this process.

    Out of memory, Rust reports it and only then aborts, and between the two it can wait forever.
    When Python has no memory for a text that pyoxigraph returns, PyO3 panics. The panic's message
    ends with a list of the running functions if RUST_BACKTRACE is set, or if it is the second
    panic. To make that list, Rust needs memory while it holds the lock of its messages. It gets
    none, and wants to report that too, for which it waits for the lock that it holds.

    The message comes before the list. So standard error is a pipe that nobody reads, and the kernel
    ends the process with SIGPIPE, which needs no memory. A panic for another reason ends it, too.
    """
    reader, writer = os.pipe()
    os.close(reader)
    os.dup2(writer, 2)
    os.close(writer)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it


def _allocated_bytes() -> int:
    """Return what RLIMIT_DATA counts; a store that is open has already read its file indexes."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:  # not Linux
        return 0
    return int(status.partition("VmData:")[2].split()[0]) * 1024


def _exit_with_parent() -> None:
    while os.read(0, 1):
        pass
    os._exit(0)


def main() -> None:
    """Serve as the child: ``python -m kbqa.kb.store.worker GRAPH SOCKET MEMORY_BYTES``."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle.
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    with Connection(int(sys.argv[2])) as connection:
        try:
            _serve(sys.argv[1], connection, int(sys.argv[3]))
        except (EOFError, BrokenPipeError):
            return  # The parent has closed the connection.
        except MemoryError:
            os.abort()


if __name__ == "__main__":
    main()
