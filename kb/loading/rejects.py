"""The file of rejected lines: where each is, why it is not a triple, and the line itself."""

import os
from collections.abc import Iterable
from pathlib import Path

from kbqa.kb.loading.reading.filter_block import RejectedLine

REFUSED = "refused by the store's parser"

_HEADER = b"dump\tline\treason\ttext\n"


class RejectsFile:
    """Tab-separated values, one row for each line, in the order of the dumps.

    The text is the last column, as in the dump: it may contain tabs or bytes that are not UTF-8.

    Args:
        path: The file.
        size_bytes: The size that the checkpoint names; the rest is cut off.
    """

    def __init__(self, path: Path, size_bytes: int = 0) -> None:
        self._file = path.open("r+b" if size_bytes else "wb")
        self._file.truncate(size_bytes)
        self._file.seek(size_bytes)
        if not size_bytes:
            self._file.write(_HEADER)

    def add(self, dump: str, lines: Iterable[RejectedLine]) -> None:
        """Add rejected lines of a dump."""
        for number, reason, text in lines:
            self._file.write(f"{dump}\t{number}\t{reason}\t".encode(errors="surrogateescape"))
            self._file.write(text + b"\n")

    def add_refused(self, lines: Iterable[str]) -> None:
        """Add lines that the store's parser refused, as text."""
        self._file.writelines(f"\t\t{REFUSED}\t{line}\n".encode() for line in lines)

    def sync(self) -> int:
        """Flush everything to disk.

        Returns:
            The size of the file in bytes.
        """
        self._file.flush()
        os.fsync(self._file.fileno())
        return self._file.tell()

    def close(self) -> None:
        """Close the file."""
        self._file.close()
