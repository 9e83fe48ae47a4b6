"""Read dumps as blocks of whole lines, compressed or not, from files or standard input.

What a line says is not looked at here (`kbqa.kb.filter_block` does); only a file whose first lines
hold nothing that could be mended into a triple is refused.
"""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kbqa.kb.cleaning import Mended, Rejected, Skipped, clean_line
from kbqa.kb.compression import READ_ERRORS, HashedFile, decompress
from kbqa.sparql.errors import DumpError, InputError

STDIN = "-"

BLOCK_BYTES = 16 << 20
"""Usual size of a block: some 125,000 lines of Freebase."""

_PROBED_LINES = 1000
_LONGEST_LINE_BYTES = 64 << 20
"""No Freebase literal comes near it (the longest seen has 56,153 characters): binary data does."""


@dataclass(frozen=True, slots=True)
class Block:
    r"""Whole lines of a dump, in order.

    Attributes:
        dump: The file, as it was called.
        first_line: Number of the first line, 1-based.
        data: The lines, each with its ``\n``; the last of a file may lack it.
        end: Where the block ends in the content, in bytes of it, decompressed.
        bytes_read: How far the file has been read, in bytes as they lie on disk.
    """

    dump: str
    first_line: int
    data: bytes
    end: int
    bytes_read: int


def dump_size_bytes(dump: str) -> int | None:
    """Return the size of a dump on disk; None where it is standard input or not a plain file.

    Raises:
        InputError: There is no such file.
    """
    if dump == STDIN:
        return None
    path = Path(dump)
    if path.is_dir():
        raise InputError(f"{dump} is a folder. Name the dump file in it.")
    if not path.exists():
        raise InputError(f"there is no dump at {dump}.")
    return path.stat().st_size if path.is_file() else None


class DumpReader:
    """A dump that is open: read its blocks, then ask for its size and hash, then close it."""

    def __init__(self, dump: str) -> None:
        """Open a dump.

        Args:
            dump: A path, or ``-`` for standard input.

        Raises:
            InputError: There is no such file.
            DumpError: It cannot be read.
        """
        dump_size_bytes(dump)
        self._dump = dump
        try:
            # Closed by `close`.
            self._raw = sys.stdin.buffer if dump == STDIN else Path(dump).open("rb")  # noqa: SIM115
            self._file = HashedFile(self._raw)
        except OSError as error:
            raise DumpError(f"{dump} cannot be read: {error.strerror}.") from error

    @property
    def sha256(self) -> str:
        """SHA-256 of the file as it lies on disk, once all blocks have been read."""
        return self._file.sha256

    @property
    def size_bytes(self) -> int:
        """Size of the file as it lies on disk, once all blocks have been read."""
        return self._file.size_bytes

    def close(self) -> None:
        """Close the file, read to its end or not."""
        self._file.close()
        if self._dump != STDIN:
            self._raw.close()

    def blocks(
        self, *, block_bytes: int = BLOCK_BYTES, skip_bytes: int = 0, skip_lines: int = 0
    ) -> Iterator[Block]:
        """Read the dump, once. The compression is told by the content, not by the name.

        Args:
            block_bytes: Size at which a block ends, with the line that reaches it. Where the blocks
                after one end does not depend on whether those before were read or passed over.
            skip_bytes: Pass over the blocks up to the one with this `Block.end`.
            skip_lines: The number of lines in them.

        Raises:
            DumpError: It is damaged or cut short, is empty, holds no triple in its first lines, or
                ends before `skip_bytes`.
        """
        if self._file.is_archive:
            raise DumpError(f"{self._dump} is an archive. Unpack it and load the file inside.")
        line, end = skip_lines + 1, skip_bytes
        gathered: list[bytes] = []
        size = 0
        try:
            for piece in self._skip(skip_bytes):
                start = 0
                while (newline := piece.find(b"\n", start + max(block_bytes - size - 1, 0))) >= 0:
                    gathered.append(piece[start : newline + 1])
                    block = self._block(line, gathered, end)
                    yield block
                    line, end = line + block.data.count(b"\n"), block.end
                    gathered, size, start = [], 0, newline + 1
                gathered.append(piece[start:])
                size += len(piece) - start
                if size > block_bytes + _LONGEST_LINE_BYTES:
                    line += _count_lines(gathered)
                    raise DumpError(f"{self._dump}, line {line}: no line ends here.")
        except READ_ERRORS as error:
            # Lines that are passed over are not counted.
            is_counted = gathered or not skip_bytes
            line += _count_lines(gathered)
            place = f"after line {line - 1}" if is_counted else f"before line {line}"
            raise DumpError(
                f"{self._dump} is damaged or cut short {place}: {error}. "
                "Download it again, or compare its checksum."
            ) from error
        if size:
            yield self._block(line, gathered, end)
        elif not end:
            raise DumpError(f"{self._dump} is empty.")

    def _skip(self, skip_bytes: int) -> Iterator[bytes]:
        left = skip_bytes
        for piece in decompress(self._file):
            if left < len(piece):
                yield piece[left:]
            left = max(left - len(piece), 0)
        if left:
            raise DumpError(
                f"{self._dump} ends {left} bytes before the place that was reached in it: "
                "it changed since the load began. Load it anew with --overwrite."
            )

    def _block(self, line: int, gathered: list[bytes], start: int) -> Block:
        data = b"".join(gathered)
        if not start:
            _check_is_ntriples(data, self._dump)
        return Block(self._dump, line, data, start + len(data), self._file.size_bytes)


def _count_lines(pieces: Iterable[bytes]) -> int:
    return sum(piece.count(b"\n") for piece in pieces)


def _check_is_ntriples(data: bytes, dump: str) -> None:
    rejected: list[tuple[int, bytes, str]] = []
    lines = data.split(b"\n", _PROBED_LINES)[:_PROBED_LINES]
    for number, line in enumerate(lines, start=1):
        match clean_line(line):
            case Mended():
                return
            case Rejected(reason):
                rejected.append((number, line, reason))
            case Skipped():
                pass
    if rejected:
        number, line, reason = rejected[0]
        start = line.strip()[:60].decode("utf-8", "replace")
        raise DumpError(
            f"{dump}, line {number}: not N-Triples ({start!r}). {_advice(line, reason)}"
        )


def _advice(line: bytes, reason: str) -> str:
    start = line.lstrip(b"\xef\xbb\xbf \t").lower()
    if start.startswith((b"<!doctype", b"<html")):
        return "It is a web page: was the download refused or redirected?"
    if start.startswith((b"<?xml", b"<rdf")):
        return "It is XML: turn RDF/XML into N-Triples first."
    if start.startswith((b"{", b"[")):
        return "It looks like JSON; a dump has one `<subject> <predicate> <object> .` a line."
    if reason == "Turtle list":
        return "It is Turtle with lists of `;` or `,`: turn it into N-Triples first."
    if reason.endswith("not RDF"):
        return (
            f"It is one of the data sets made from Freebase ({reason}), "
            "or a dump from before 2012: load one of the RDF dumps of 2013 to 2015."
        )
    return f"A dump has one `<subject> <predicate> <object> .` a line; here: {reason}."
