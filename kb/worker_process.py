"""The process that runs a store's queries: the child's side of `kbqa.kb.worker`.

    python -P kb/worker_process.py GRAPH SOCKET MEMORY_BYTES RESULT_BYTES NICENESS

It is run by its path and imports nothing of kbqa, or it would start with all of `kbqa.sparql`.

It sends the store's problem, or nothing, and then an answer to each request. Its standard input is
a lifeline: when that closes, it exits even in the middle of a query.

A result is cut here at its limit (0 for none), before the parent, which may be a server, has to
receive all of it.
"""

import itertools
import marshal
import os
import resource
import signal
import sys
import threading
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TypeAlias

import pyoxigraph

_Cell: TypeAlias = str | tuple[str, str, str | None] | None
_Table: TypeAlias = tuple[tuple[str, ...], tuple[tuple[_Cell, ...], ...], bool]

_CELL_BYTES = 32  # beside its text: a row of a thousand unbound variables is large, too


def main() -> None:
    """Serve the queries of the parent until it closes the connection."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle.
    if int(sys.argv[5]):
        _give_way()
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    with Connection(int(sys.argv[2])) as connection:
        try:
            _serve(sys.argv[1], connection, int(sys.argv[3]), int(sys.argv[4]))
        except (EOFError, BrokenPipeError):
            return  # The parent has closed the connection.
        except MemoryError:
            os.abort()


def _give_way() -> None:
    """Run only while other processes leave a core idle, where the system has that."""
    try:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    except (AttributeError, OSError):
        os.nice(19)


def _serve(
    graph_directory: str, connection: Connection, memory_bytes: int, result_bytes: int
) -> None:
    try:
        store = pyoxigraph.Store.read_only(graph_directory)
    except OSError as error:
        connection.send_bytes(str(error).encode())
        return
    _limit_memory(memory_bytes)
    connection.send_bytes(b"")
    while True:
        query, limit = marshal.loads(connection.recv_bytes())
        connection.send_bytes(marshal.dumps(_run(store, query, limit, result_bytes)))


def _run(
    store: pyoxigraph.Store, query: str, limit: int | None, result_bytes: int
) -> tuple[str, bool | str | _Table]:
    try:
        result = store.query(query)
        if isinstance(result, pyoxigraph.QueryBoolean):
            return "value", bool(result)
        if not isinstance(result, pyoxigraph.QuerySolutions):
            return "failed", "it is neither SELECT nor ASK"
        rows: list[tuple[_Cell, ...]] = []
        left_bytes = result_bytes
        for solution in result if limit is None else itertools.islice(result, limit):
            row = tuple(None if node is None else _cell(node) for node in solution)
            if result_bytes:
                left_bytes -= sum(map(_size, row))
                if left_bytes < 0:
                    break
            rows.append(row)
        is_cut = left_bytes < 0
        if is_cut and (limit is None or not rows):
            return "large", f"more than {result_bytes / 1e6:g} MB"
        truncated = is_cut or (limit is not None and next(result, None) is not None)
        variables = tuple(variable.value for variable in result.variables)
        return "value", (variables, tuple(rows), truncated)
    except SyntaxError as error:
        return "syntax", str(error)
    except (OSError, RuntimeError, TypeError, ValueError) as error:
        return "failed", str(error)


def _size(cell: _Cell) -> int:
    text = cell[0] if isinstance(cell, tuple) else cell or ""
    return _CELL_BYTES + (len(text) if text.isascii() else len(text.encode()))


def _cell(node: object) -> _Cell:
    match node:
        case pyoxigraph.NamedNode():
            return node.value
        case pyoxigraph.Literal():
            return node.value, node.datatype.value, node.language
        case pyoxigraph.BlankNode():
            return f"_:{node.value}"
        case _:
            raise TypeError(f"not a resource or literal: {node}")


def _limit_memory(size_bytes: int) -> None:
    """Let this process allocate this much more, and let it end at once when it needs more."""
    # RLIMIT_DATA counts what a process allocates and not the files that it maps: for a sort of the
    # whole slice, which takes 850 MB, it counts 900 MB.
    most = _allocated_bytes() + size_bytes
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    soft = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # no gigabytes of core dump
    _die_of_messages()


def _die_of_messages() -> None:
    """End this process at the first byte that is written to standard error."""
    # Out of memory, Rust reports it and only then aborts, and between the two it can wait forever.
    # When Python has no memory for a text that pyoxigraph returns, PyO3 panics. The panic's message
    # ends with a list of the running functions if RUST_BACKTRACE is set, or if it is the second
    # panic. To make that list, Rust needs memory while it holds the lock of its messages. It gets
    # none, and wants to report that too, for which it waits for the lock that it holds.
    #
    # The message comes before the list. So standard error is a pipe that nobody reads, and the
    # kernel ends the process with SIGPIPE, which needs no memory. Any other panic ends it, too.
    reader, writer = os.pipe()
    os.close(reader)
    os.dup2(writer, 2)
    os.close(writer)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it


def _allocated_bytes() -> int:
    """Return what RLIMIT_DATA counts by now: an open store has read its file indexes."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:  # not Linux
        return 0
    return int(status.partition("VmData:")[2].split()[0]) * 1024


def _exit_with_parent() -> None:
    while os.read(0, 1):
        pass
    os._exit(0)


if __name__ == "__main__":
    main()
