"""Run queries in separate processes, which can be killed.

pyoxigraph can neither time a query out nor cancel it, so a query of unknown origin runs in a child
process that opens the same store read-only (`worker_process.py`). A child is a fresh interpreter
rather than a fork, because callers hold torch's threads.

The parent sends a child one request after the other over a socket pair. The child's standard input
is a lifeline: when the parent ends, the pipe closes and the child ends, too.

A process that forks shares the socket pairs with its copy, and each would read the other's answers.
So the copy gives up its parent's children and starts its own.

A child limits its own memory (`memory_limit_bytes`). A query that needs more is not run again. If
something else kills its process, the query is run once more.
"""

import logging
import marshal
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from queue import Empty, LifoQueue
from typing import NamedTuple, TypeAlias, cast

from kbqa.kb.graph import RESULT_BYTES, Table, syntax_error
from kbqa.sparql.errors import (
    GraphError,
    InputError,
    QuerySyntaxError,
    QueryTimeout,
    QueryTooLarge,
    StoreError,
)
from kbqa.sparql.terms import Term, read_literal, resource_id

MEMORY_VARIABLE = "KBQA_QUERY_MEMORY_GB"

# The heaviest ordinary queries, such as a DISTINCT over all triples of a slice (0.85 GB), allocate
# some 0.2 GB a second, so none reaches this limit within the default 30 s.
_DEFAULT_GB = 8.0

# The limit of a container, in control groups of version 2 and 1.
_CONTAINER_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)

logger = logging.getLogger(__name__)

# A cell of a store's rows in built-in types; a literal is (text, datatype's IRI, language).
_Cell: TypeAlias = str | tuple[str, str, str | None] | None
_Rows: TypeAlias = tuple[tuple[str, ...], tuple[tuple[_Cell, ...], ...], bool]

_START_TIMEOUT_S = 60.0  # to open the store, which takes some 0.1 s on a quiet machine

_PROGRAM = Path(__file__).with_name("worker_process.py")

_LONGEST_WAIT_S = 1e6  # the operating system's waits take no more than 24 days

# Exit codes of a process that gets no more memory: Python aborts it, or see `worker_process.py`.
_OUT_OF_MEMORY = (-signal.SIGABRT, -signal.SIGPIPE)


def memory_limit_bytes(processes: int = 1, *, beside_another: bool = False) -> int:
    """Return the bytes that a query process may allocate, or raise `InputError`.

    `MEMORY_VARIABLE` sets it. Otherwise it is 8 GB, or less where the processes share half of the
    machine's memory; a quarter, if they run beside a server's own (`beside_another`).
    """
    configured = os.environ.get(MEMORY_VARIABLE)
    if not configured:
        share = _machine_bytes() / (4 if beside_another else 2)
        return int(min(_DEFAULT_GB * 2**30, share / processes))
    try:
        limit_gb = float(configured)
    except ValueError:
        limit_gb = 0.0
    if not 0 < limit_gb < 2**30:
        raise InputError(
            f"{MEMORY_VARIABLE} is {configured!r}: set it to a number of gigabytes, such as 8"
        )
    return int(limit_gb * 2**30)


def _machine_bytes() -> int:
    """Return the memory of the machine, or of the container if that is less."""
    sizes = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in _CONTAINER_LIMITS:
        try:
            sizes.append(int(path.read_text()))
        except (OSError, ValueError):  # there is none, or it reads "max"
            continue
    return min(sizes)


_ALL: "weakref.WeakSet[QueryWorkers]" = weakref.WeakSet()


class QueryWorkers:
    """At most `size` killable processes, started as needed, which answer queries over one store.

    Each runs one query at a time. Any thread may ask, and so may a forked process.

    Args:
        graph_directory: Directory of a pyoxigraph store.
        description: The graph's name in messages.
        size: The most processes.
        low_priority: As for `OxigraphStore.open`.
        check: Called when a process has opened the store; raises if it was replaced.
    """

    def __init__(
        self,
        graph_directory: Path,
        description: str,
        size: int = 1,
        low_priority: bool = False,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        setup = _Setup(graph_directory, description, size, low_priority, check)
        self._description = description
        self._workers = [_Worker(setup) for _ in range(size)]
        self._idle = self._all_idle()
        self._closing = threading.Lock()
        _ALL.add(self)

    def select(self, query: str, timeout_s: float, limit: int | None) -> Table:
        """Run a SELECT query as `Graph.select` does."""
        variables, packed, truncated = cast(_Rows, self._answer(query, timeout_s, limit))
        rows = tuple(tuple(map(_term, row)) for row in packed)
        return Table(variables, rows, truncated)

    def ask(self, query: str, timeout_s: float) -> bool:
        """Run an ASK query as `Graph.ask` does."""
        return cast(bool, self._answer(query, timeout_s, None))

    def close(self) -> None:
        """End each child once its query is done; a later query starts a new one."""
        with self._closing:
            ended: list[_Worker] = []
            try:
                while len(ended) < len(self._workers):
                    ended.append(self._idle.get())
                    ended[-1].stop()
            finally:
                for worker in ended:
                    self._idle.put(worker)

    def forget(self) -> None:
        """Give up the children of the process that this one was forked from."""
        for worker in self._workers:
            worker.forget()
        # Threads that were not forked may hold the others.
        self._idle, self._closing = self._all_idle(), threading.Lock()

    def _all_idle(self) -> "LifoQueue[_Worker]":
        """Queue all workers, the last to be busy first, so that few need to start."""
        idle: LifoQueue[_Worker] = LifoQueue()
        for worker in self._workers:
            idle.put(worker)
        return idle

    def _answer(self, query: str, timeout_s: float, limit: int | None) -> object:
        logger.debug("asking %s: %s", self._description, query)
        deadline = time.monotonic() + timeout_s
        too_late = QueryTimeout(query, timeout_s, self._description)
        try:
            worker = self._idle.get(timeout=_left_s(deadline))
        except Empty:
            raise too_late from None
        try:
            answer = worker.run(query, limit, deadline)
        finally:
            self._idle.put(worker)
        if answer is None:
            raise too_late
        kind, value = answer
        if kind == "syntax":
            raise syntax_error(query, str(value))
        if kind == "large":
            raise QueryTooLarge(
                f"{self._description} stopped the query, whose result is {value}. "
                "Ask for fewer rows, or for shorter texts."
            )
        if kind == "failed":
            raise GraphError(f"{self._description} could not run the query: {value}")
        return value


class _Setup(NamedTuple):
    """The settings that the children of a graph share."""

    graph_directory: Path
    description: str
    size: int
    low_priority: bool
    check: Callable[[], None]

    @property
    def memory_bytes(self) -> int:
        """The limit of each child; the environment may change it between two."""
        return memory_limit_bytes(self.size, beside_another=self.low_priority)


class _Worker:
    """Runs one query at a time in a child, and replaces the child when it has ended."""

    def __init__(self, setup: _Setup) -> None:
        self._setup, self._description = setup, setup.description
        self._child: _Child | None = None

    def run(
        self, query: str, limit: int | None, deadline: float, *, again: bool = True
    ) -> tuple[str, object] | None:
        """Have the child run a query, once more if it is killed; None if the deadline passes."""
        request = marshal.dumps((query, limit))
        if self._child is not None and self._child.has_ended:
            self.stop()
        if self._child is None:
            self._child = _Child(self._setup)
        try:
            # A child that starts late is left to finish starting: it serves the next query.
            if not self._child.wait_until_ready(deadline):
                return None
            self._child.connection.send_bytes(request)
            if not self._child.connection.poll(_left_s(deadline)):
                self.stop()
                return None
            return cast(tuple[str, object], marshal.loads(self._child.connection.recv_bytes()))
        except (EOFError, OSError) as error:
            code = self.stop()
            if code is None:  # a thread outlives the graph, or the interpreter
                raise StoreError(f"{self._description} was closed while it ran a query") from error
            if again and code == -signal.SIGKILL:
                return self.run(query, limit, deadline, again=False)
            raise self._death(code) from error
        except BaseException:
            # Interrupted: the next query must not read this one's answer.
            self.stop()
            raise

    def stop(self) -> int | None:
        """End the child; return its exit code, or None if the interpreter's exit has ended it."""
        child, self._child = self._child, None
        return 0 if child is None else child.stop()

    def forget(self) -> None:
        """Give up a child of the process that this one was forked from."""
        child, self._child = self._child, None
        if child is not None:
            child.forget()

    def _death(self, code: int) -> GraphError | QuerySyntaxError:
        if code in _OUT_OF_MEMORY:
            limit_gb = self._setup.memory_bytes / 2**30
            return QueryTooLarge(
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


class _Child:
    """A child process that opens its store and then serves queries."""

    def __init__(self, setup: _Setup) -> None:
        self._description, self._check = setup.description, setup.check
        self._must_be_ready_at = time.monotonic() + _START_TIMEOUT_S
        self._is_ready = False
        self._code: int | None = None
        self.connection, theirs = Pipe()
        with theirs:
            self._process = subprocess.Popen(
                # -P: nothing is imported from the working directory, or from beside the program.
                [
                    sys.executable,
                    "-P",
                    _PROGRAM,
                    setup.graph_directory,
                    str(theirs.fileno()),
                    str(setup.memory_bytes),
                    str(RESULT_BYTES if setup.low_priority else 0),
                    str(int(setup.low_priority)),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        # Also called when the graph was never closed and is collected, or the interpreter exits.
        self._end = weakref.finalize(self, _end, self._process, self.connection)

    @property
    def has_ended(self) -> bool:
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
                problem = f"it has not started within {_START_TIMEOUT_S:g} s"
            else:
                return False
        except (EOFError, OSError):
            code = self.stop()
            if code == -signal.SIGKILL:
                raise  # not of its own doing: the query is run once more
            problem = f"it ended with code {code}"
        if problem:
            self.stop()
            self._check()
            raise StoreError(f"the query process of {self._description} failed: {problem}")
        self._check()
        self._is_ready = True
        return True

    def stop(self) -> int | None:
        """End the process; return its exit code, or None if the interpreter's exit has ended it."""
        if self._end.alive:
            self._end()
            self._code = self._process.returncode
        return self._code

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
    for workers in list(_ALL):
        workers.forget()


os.register_at_fork(after_in_child=_forget_children)


def _term(cell: _Cell) -> Term | None:
    if cell is None:
        return None
    return resource_id(cell) if isinstance(cell, str) else read_literal(*cell)
