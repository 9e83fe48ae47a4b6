"""The file of a run's rows: each is in it whole or not at all, however the run ends."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from kbqa.engine.evaluation.runs.rows import Row, read_row
from kbqa.engine.files.json_lines import drop_unfinished_line, read_rows
from kbqa.sparql.errors import InputError, OutputError


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

    def append(self, row: Row) -> None:
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


def take_over(path: Path) -> dict[str, Row]:
    """Read the rows that a resumed run keeps, by id, and remove all else from the file.

    Removed are rows of questions that failed, and a last line that was being written when the run
    was killed.

    Raises:
        InputError: The file is broken elsewhere than at its end.
        OutputError: It cannot be written.
    """
    drop_unfinished_line(path)
    records = list(read_rows(path))
    kept = [(record, read_row(record, f"{path}, line {n}")) for n, record in records]
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


def _line(record: Mapping[str, object]) -> bytes:
    # Half of a surrogate pair, which a JSON text may hold, has no UTF-8, so it stays an escape.
    return (json.dumps(record, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")
