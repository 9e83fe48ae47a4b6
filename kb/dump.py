"""Read dumps as blocks of raw lines: gzip, bzip2, xz or plain, from files or standard input.

What a line says is not looked at here (`kbqa.kb.triples` does); only a file that is no N-Triples
at all is refused, at its first lines.
"""

import bz2
import gzip
import lzma
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol, cast

from kbqa.kb.triples import is_blank_or_comment, parse_line
from kbqa.sparql.errors import DumpError, InputError

STDIN = "-"

_BLOCK_BYTES = 1 << 20
_MAGIC_BYTES = 6
_PROBED_LINES = 100
_LONGEST_LINE_BYTES = 64 << 20
"""No Freebase literal comes near it (the longest seen has 56,153 characters): binary data does."""


@dataclass(frozen=True, slots=True)
class Block:
    """Whole lines of a dump, in order.

    Attributes:
        dump: The file, as it was called.
        first_line: Number of the first line, 1-based.
        lines: The lines, each with its end of line; the last of a file may lack it.
        bytes_read: How far the file has been read, in bytes as they lie on disk.
    """

    dump: str
    first_line: int
    lines: list[bytes]
    bytes_read: int


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


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


def read_blocks(dump: str) -> Iterator[Block]:
    """Read a dump block by block. The compression is told by the content, not by the name.

    Args:
        dump: A path, or ``-`` for standard input.

    Raises:
        InputError: There is no such file.
        DumpError: It cannot be read, is cut short, is empty, or holds no N-Triples.
    """
    dump_size_bytes(dump)
    try:
        if dump == STDIN:
            yield from _read(sys.stdin.buffer, dump)
        else:
            with Path(dump).open("rb") as raw:
                yield from _read(raw, dump)
    except PermissionError as error:
        raise DumpError(f"{dump} cannot be read: {error.strerror}.") from error


def _read(raw: BinaryIO, dump: str) -> Iterator[Block]:
    counted = _Counted(raw)
    content = _decompressed(counted, dump)
    line_number = 1
    for lines in _whole_lines(content, dump):
        if line_number == 1:
            _check_is_ntriples(lines, dump)
        yield Block(dump, line_number, lines, counted.bytes_read)
        line_number += len(lines)
    if line_number == 1:
        raise DumpError(f"{dump} is empty.")


def _whole_lines(content: _Readable, dump: str) -> Iterator[list[bytes]]:
    count = 0
    rest = b""
    while True:
        try:
            chunk = content.read(_BLOCK_BYTES)
        except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
            raise DumpError(
                f"{dump} is damaged or cut short after line {count}: {error}. "
                "Download it again, or compare its checksum."
            ) from error
        if not chunk:
            break
        head, newline, rest = (rest + chunk).rpartition(b"\n")
        if newline:
            # Not splitlines: it would also cut at a carriage return inside a literal.
            lines = [line + b"\n" for line in head.split(b"\n")]
            count += len(lines)
            yield lines
        elif len(rest) > _LONGEST_LINE_BYTES:
            raise DumpError(f"{dump}, line {count + 1}: no line ends here. Is it N-Triples?")
    if rest:
        yield [rest]


class _Counted:
    """A file that knows its first bytes and how far it was read; standard input tells neither."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self.magic = raw.read(_MAGIC_BYTES)
        self.bytes_read = len(self.magic)
        self._unread = self.magic

    def read(self, size: int, /) -> bytes:
        head, self._unread = self._unread[:size], self._unread[size:]
        tail = self._raw.read(size - len(head)) if size > len(head) else b""
        self.bytes_read += len(tail)
        return head + tail


def _decompressed(counted: _Counted, dump: str) -> _Readable:
    # The three modules ask a file object for `read` alone, though their types say more.
    file = cast(BinaryIO, counted)
    if counted.magic.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(fileobj=file)
    if counted.magic.startswith(b"BZh"):
        return bz2.BZ2File(file)
    if counted.magic.startswith(b"\xfd7zXZ\x00"):
        return lzma.LZMAFile(file)
    if counted.magic.startswith(b"\x28\xb5\x2f\xfd"):
        raise DumpError(
            f"{dump} is compressed with Zstandard, which this version does not read. "
            f"Try `zstd -dc {dump} | kbqa load-freebase - --store DIR`."
        )
    if counted.magic.startswith((b"PK\x03\x04", b"7z\xbc\xaf")):
        raise DumpError(f"{dump} is an archive. Unpack it and load the file inside.")
    return counted


def _check_is_ntriples(lines: list[bytes], dump: str) -> None:
    content = [line for line in lines if not is_blank_or_comment(line)][:_PROBED_LINES]
    if not content or any(parse_line(line) is not None for line in content):
        return
    number = lines.index(content[0]) + 1
    start = content[0].strip()[:60].decode("utf-8", "replace")
    raise DumpError(f"{dump}, line {number}: not N-Triples ({start!r}). {_advice(content)}")


def _advice(content: list[bytes]) -> str:
    start = content[0].lstrip(b"\xef\xbb\xbf \t").lower()
    if start.startswith((b"<!doctype", b"<html")):
        return "It is a web page: was the download refused or redirected?"
    if start.startswith((b"<?xml", b"<rdf")):
        return "It is XML: turn RDF/XML into N-Triples first."
    if start.startswith((b"{", b"[")):
        return "It looks like JSON; a dump has one `<subject> <predicate> <object> .` a line."
    if any(line.lstrip().lower().startswith((b"@prefix", b"prefix", b"@base")) for line in content):
        return "It is Turtle, as the dumps before November 2013: turn it into N-Triples first."
    return "A dump has one `<subject> <predicate> <object> .` a line."
