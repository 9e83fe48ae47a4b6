"""The file of a run's rows: each stands in it whole or not at all, whatever ends the run."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias

from kbqa.engine.json_lines import drop_unfinished_line, read_rows
from kbqa.sparql.errors import InputError, OutputError

Row: TypeAlias = Mapping[str, Any]


class RowFile:
    """Appends rows to a JSON Lines file. One thread at a time.

    Raises:
        InputError: The file cannot be opened for writing.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            # Unbuffered: what a full disk has refused must not be tried again when it is closed.
            self._file = path.open("ab", buffering=0)
        except OSError as error:
            raise InputError(f"{path} cannot be written: {error}") from error

    def append(self, row: Row) -> None:
        """Write a row; one that cannot be written whole is taken out again.

        Raises:
            OutputError: It cannot be written.
        """
        # Not where the last write ended: what it left of a row may have been taken out again.
        end = self._file.seek(0, os.SEEK_END)
        left = memoryview(_line(row))
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
    """Read the rows that stay when a run goes on, by id, and take all else out of the file.

    What goes: rows of questions that failed, and a last line that was being written when the run
    was killed.

    Raises:
        InputError: The file is broken elsewhere than at its end.
        OutputError: It cannot be written.
    """
    drop_unfinished_line(path)
    found = [row for _, row in read_rows(path)]
    rows = {row["id"]: row for row in found if row["error"] is None}
    if len(rows) < len(found):
        partial = path.with_name(f"{path.name}.partial")
        try:
            partial.write_bytes(b"".join(map(_line, rows.values())))
            partial.replace(path)
        except OSError as error:
            partial.unlink(missing_ok=True)
            raise OutputError(f"{path} cannot be written: {error}") from error
    return rows


def _line(row: Row) -> bytes:
    # Half of a surrogate pair, which a JSON text may hold, has no UTF-8; so it stays an escape.
    return (json.dumps(row, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")
