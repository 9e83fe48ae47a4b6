"""The file of a run's rows: each is in it whole or not at all, however the run ends."""

import json
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, TypeVar

from kbqa.engine.files.json_lines import drop_unfinished_line, read_rows
from kbqa.sparql.errors import InputError, OutputError


class WrittenRow(Protocol):
    """The row of a question, in any kind of run."""

    @property
    def id(self) -> str:
        """The question's."""

    @property
    def error(self) -> str | None:
        """Why the question failed; None if it did not."""

    def to_dict(self) -> dict[str, Any]:
        """Return it as a JSON record."""


_R = TypeVar("_R", bound=WrittenRow)


class RowFile:
    """Appends rows to a JSON Lines file. One thread at a time.

    Raises:
        InputError: The file cannot be opened for writing.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            # Unbuffered: what a full disk has refused must not be tried again on closing.
            self._file = path.open("ab", buffering=0)
        except OSError as error:
            raise InputError(f"{path} cannot be written: {error}") from error

    def append(self, row: WrittenRow) -> None:
        """Write a row; one that cannot be written whole is removed again.

        Raises:
            OutputError: It cannot be written.
        """
        # Not where the last write ended: what it left of a row may have been removed since.
        end = self._file.seek(0, os.SEEK_END)
        left = memoryview(_line(row.to_dict()))
        try:
            while left:
                left = left[self._file.write(left) :]
        except OSError as error:
            self._file.truncate(end)
            raise OutputError(f"{self._path} cannot be written: {error}") from error

    def __enter__(self) -> "RowFile":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()


def write_rows(
    path: Path,
    jobs: Iterable[Callable[[], _R]],
    report: Callable[[_R], object],
    *,
    concurrency: int,
) -> None:
    """Make rows and append each to a file, in the order in which they are done.

    On any error, the rows of jobs in progress are written first if possible.

    Args:
        path: The file.
        jobs: Each makes a row, in any thread. The next job is taken, in this thread, once fewer
            than `concurrency` are running.
        report: Called with each row that was written; by one thread at a time.
        concurrency: Jobs to run at once.

    Raises:
        InputError: The file cannot be opened for writing.
        OutputError: A row cannot be written.
    """
    with RowFile(path) as file, ThreadPoolExecutor(concurrency) as pool:
        writing = threading.Lock()

        def write(job: Callable[[], _R]) -> None:
            row = job()
            with writing:
                file.append(row)
                report(row)

        running: set[Future[None]] = set()
        for job in jobs:
            running.add(pool.submit(write, job))
            running = _wait(running, concurrency - 1)
        _wait(running, 0)


def take_over(path: Path, read: Callable[[Mapping[str, object], str], _R]) -> dict[str, _R]:
    """Read the rows that a resumed run keeps, by id, and remove all else from the file.

    Removed are rows of questions that failed, and a last line that was being written when the run
    was killed.

    Args:
        path: The file.
        read: Reads a row from a record and its place, which is for messages.

    Raises:
        InputError: The file is broken elsewhere than at its end.
        OutputError: It cannot be written.
    """
    drop_unfinished_line(path)
    records = list(read_rows(path))
    kept = [(record, read(record, f"{path}, line {n}")) for n, record in records]
    kept = [(record, row) for record, row in kept if row.error is None]
    if len(kept) < len(records):
        partial = path.with_name(f"{path.name}.partial")
        try:
            partial.write_bytes(b"".join(_line(record) for record, _ in kept))
            partial.replace(path)
        except OSError as error:
            partial.unlink(missing_ok=True)
            raise OutputError(f"{path} cannot be written: {error}") from error
    return {row.id: row for _, row in kept}


def _wait(running: set[Future[None]], at_most: int) -> set[Future[None]]:
    """Wait until at most this many are running; raise what one of the others raised."""
    while len(running) > at_most:
        done, running = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            future.result()
    return running


def _line(record: Mapping[str, object]) -> bytes:
    # Half of a surrogate pair, which a JSON text may hold, has no UTF-8, so it stays an escape.
    return (json.dumps(record, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")
