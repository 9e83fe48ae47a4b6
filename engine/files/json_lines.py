"""Read JSON Lines files, and repair one whose writer was killed."""

import gzip
import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from kbqa.sparql.errors import InputError

BadRow: TypeAlias = Callable[[int, str], None]
"""Called with the number of an unusable record and what is wrong with it."""


def read_rows(path: Path, bad: BadRow | None = None) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Read the records of a JSON Lines file, gzipped or not, each with its line number.

    Args:
        path: The file.
        bad: Called with each line that is not a JSON object; without it, the first one raises.

    Raises:
        InputError: The file is missing or unreadable, or a line is not a JSON object.
    """
    opener = gzip.open if path.suffix == ".gz" else open
    number = 0
    try:
        with opener(path, "rt", encoding="utf-8-sig") as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                try:
                    row = _object(line)
                except ValueError as error:
                    if bad is None:
                        raise InputError(f"{path}, line {number}: {error}") from None
                    bad(number, str(error))
                    continue
                yield number, row
    except FileNotFoundError:
        raise InputError(f"there is no file {path}") from None
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise InputError(f"{path}, after line {number}, cannot be read: {error}") from None


def _object(line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON ({error})") from None
    if not isinstance(row, dict):
        raise ValueError("not a JSON object")
    return row


def drop_unfinished_line(path: Path) -> None:
    """Remove an unfinished last line, left by a process that was killed.

    Raises:
        InputError: The file cannot be changed.
    """
    try:
        with path.open("r+b") as file:
            file.truncate(file.read().rfind(b"\n") + 1)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error}") from error
