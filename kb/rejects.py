"""The file of rejected lines: where each stands, why it is no triple, and the line itself."""

import os
from collections.abc import Iterable
from pathlib import Path

from kbqa.kb.filter_block import RejectedLine

REFUSED = "refused by the store's parser"

_HEADER = b"dump\tline\treason\ttext\n"


class RejectsFile:
    """Tab-separated values, a row a line, in the order of the dumps.

    The text is the last column and stands as in the dump: it may hold tabs, or be no UTF-8.

    Args:
        path: The file.
        size_bytes: How much of it is known to be wanted; the rest is cut off.
    """

    def __init__(self, path: Path, size_bytes: int = 0) -> None:
        self._file = path.open("r+b" if size_bytes else "wb")
        self._file.truncate(size_bytes)
        self._file.seek(size_bytes)
        if not size_bytes:
            self._file.write(_HEADER)

    def add(self, dump: str, lines: Iterable[RejectedLine]) -> None:
        """Write down rejected lines of a dump."""
        for number, reason, text in lines:
            self._file.write(f"{dump}\t{number}\t{reason}\t".encode(errors="surrogateescape"))
            self._file.write(text + b"\n")

    def add_refused(self, lines: Iterable[str]) -> None:
        """Write down lines that passed for triples and that the store refused, in words."""
        self._file.writelines(f"\t\t{REFUSED}\t{line}\n".encode() for line in lines)

    def sync(self) -> int:
        """Have everything on the disk.

        Returns:
            The size of the file in bytes.
        """
        self._file.flush()
        os.fsync(self._file.fileno())
        return self._file.tell()

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()
