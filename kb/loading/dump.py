"""Read dumps as blocks of whole lines, compressed or not, from files or standard input.

A file is refused if its first lines show that it is no Freebase dump. A file that is cut short or
followed by something else raises.
"""

import bz2
import hashlib
import lzma
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol, cast

import pyoxigraph
import zstandard
from isal import igzip_threaded
from isal.igzip_lib import IsalError

from kbqa.kb.loading.cleaning import (
    DIRECTIVE,
    FOUR_TERMS,
    TURTLE_LIST,
    Rejected,
    Repaired,
    Skipped,
    clean_line,
)
from kbqa.sparql.errors import DumpError, InputError
from kbqa.sparql.terms import FREEBASE_NS

READ_ERRORS: tuple[type[Exception], ...] = (
    EOFError,
    OSError,
    cast(type[Exception], IsalError),  # its stubs make an instance of it
    lzma.LZMAError,
    zstandard.ZstdError,
)
"""Errors from reading a damaged file."""

_MAGIC_BYTES = 6
_PIECE_BYTES = 1 << 20
_GZIP_BYTES = 256 << 10
_PACKED_BYTES = 128 << 10  # read at once; at a ratio of 13 they unpack to 1.7 MB
_ARCHIVES = (b"PK\x03\x04", b"7z\xbc\xaf")

STDIN = "-"

BLOCK_BYTES = 16 << 20  # some 125,000 lines of Freebase

_PROBED_LINES = 1000
_FREEBASE = b"freebase.com/"
_IDS = re.compile(rb"[^\s<>\":]+(?:\t[^\t\n<>]+){2}\s*")
_PREFIXED = re.compile(rb"\s(?:ns|fb):[a-z]")  # the prefixes of the Turtle dumps and of papers

_ONLY_FREEBASE = "kbqa loads only Freebase."
_OTHER_DATA_SETS = {
    b"dbpedia.org/": "DBpedia",
    b"wikidata.org/": "Wikidata",
    b"yago-knowledge.org/": "YAGO",
}
# Far above any Freebase literal; the longest seen has 56,153 characters.
_LONGEST_LINE_BYTES = 64 << 20


class HashedFile:
    """A file that is hashed while it is read, in a separate thread; it can be read once."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self._sha256 = hashlib.sha256()
        self._hasher = ThreadPoolExecutor(1)
        self._hashing: Future[None] | None = None
        self.magic = raw.read(_MAGIC_BYTES)  # `read` returns these bytes too
        self._unread = self.magic
        self.size_bytes = 0  # how far it has been read

    @property
    def sha256(self) -> str:
        """The hash of what has been read, as it is on disk, in hexadecimal digits."""
        self._wait()
        return self._sha256.hexdigest()

    def read(self, size: int, /) -> bytes:
        """Read up to `size` bytes; none at the end."""
        data, self._unread = self._unread[:size], self._unread[size:]
        data += self._raw.read(size - len(data))
        self.size_bytes += len(data)
        # At most one piece waits to be hashed, so that they do not fill the memory.
        self._wait()
        self._hashing = self._hasher.submit(self._sha256.update, data)
        return data

    def readinto(self, buffer: bytearray | memoryview, /) -> int:
        """Read into a buffer, and return how many bytes."""
        view = memoryview(buffer).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """End the thread; the caller closes the file."""
        self._hasher.shutdown()

    def _wait(self) -> None:
        if self._hashing is not None:
            self._hashing.result()


def decompress(file: HashedFile) -> Iterator[bytes]:
    """Read a file's content in pieces of about a megabyte.

    It may be gzip, bzip2, xz or Zstandard, also with several members in a row; any other content is
    returned unchanged. Raises one of `READ_ERRORS`.
    """
    if file.magic.startswith(b"\x1f\x8b"):
        return _gzip(file)
    if file.magic.startswith(b"BZh"):
        return _frames(file, bz2.BZ2Decompressor)
    if file.magic.startswith(b"\xfd7zXZ\x00"):
        return _frames(file, lzma.LZMADecompressor)
    if file.magic.startswith((b"\x28\xb5\x2f\xfd", b"\x50\x2a\x4d\x18")):
        # Long windows (`zstd --long=31`) too. The second is the header that pzstd writes.
        largest = 1 << zstandard.WINDOWLOG_MAX
        decompressor = zstandard.ZstdDecompressor(max_window_size=largest)
        return _frames(file, decompressor.decompressobj)
    return iter(lambda: file.read(_PIECE_BYTES), b"")


def _gzip(file: HashedFile) -> Iterator[bytes]:
    # It decompresses in its own thread, two or three pieces ahead, and reads 8 at once.
    opened = igzip_threaded.open(file, "rb", block_size=_GZIP_BYTES)  # type: ignore[no-untyped-call]
    with opened as content:
        while piece := content.read(_PIECE_BYTES):
            yield piece
    # That thread stops silently when the thread that opened the file has ended.
    if file.read(1):
        raise EOFError("it was not read to its end")


class _Frame(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /) -> bytes: ...


def _frames(file: HashedFile, begin: Callable[[], _Frame]) -> Iterator[bytes]:
    # The modules' own file objects ignore a missing end and what follows the first stream.
    frame: _Frame | None = None
    while packed := file.read(_PACKED_BYTES):
        while packed:
            if frame is None:
                packed = packed.lstrip(b"\x00")  # xz pads with them
                if not packed:
                    break
                frame = begin()
            if piece := frame.decompress(packed):
                yield piece
            packed = frame.unused_data if frame.eof else b""
            if frame.eof:
                frame = None
    if frame is not None:
        raise EOFError("the compressed data has no end")


@dataclass(frozen=True, slots=True)
class Block:
    """Whole lines of a dump, in order."""

    dump: str  # the file, as the user gave it
    first_line: int  # 1-based
    data: bytes  # each line with its `\n`; the last of a file may lack it
    end: int  # where the block ends in the decompressed content, in bytes
    bytes_read: int  # how far the file has been read, in bytes as they are on disk


def dump_size_bytes(dump: str) -> int | None:
    """Return the size of a dump on disk, or None for a stream; raises `InputError`."""
    if dump == STDIN:
        return None
    path = Path(dump)
    try:
        if path.is_dir():
            raise InputError(f"{dump} is a folder. Give the dump file in it.")
        if not path.exists():
            raise InputError(f"there is no dump at {dump}.")
        return path.stat().st_size if path.is_file() else None
    except OSError as error:
        raise InputError(f"{dump} cannot be read: {error.strerror}.") from error


class DumpReader(HashedFile):
    """An open dump: read its blocks, then ask for its size and hash, then close it."""

    def __init__(self, dump: str) -> None:
        dump_size_bytes(dump)
        self._dump = dump
        try:
            raw = sys.stdin.buffer if dump == STDIN else Path(dump).open("rb")  # noqa: SIM115 (`close` does)
            super().__init__(raw)
        except OSError as error:
            raise DumpError(f"{dump} cannot be read: {error.strerror}.") from error

    def close(self) -> None:
        """Close the file, read to its end or not."""
        super().close()
        if self._dump != STDIN:
            self._raw.close()

    def blocks(
        self, *, block_bytes: int = BLOCK_BYTES, skip_bytes: int = 0, skip_lines: int = 0
    ) -> Iterator[Block]:
        """Read the dump, once; raises `DumpError` if it is damaged or no Freebase dump.

        A block ends with the line that reaches `block_bytes`. Those up to the one whose `Block.end`
        is `skip_bytes`, which hold `skip_lines`, are skipped; the others end at the same places.
        """
        if self.magic.startswith(_ARCHIVES):
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
            # Lines that are skipped are not counted.
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
        for piece in decompress(self):
            if left < len(piece):
                yield piece[left:]
            left = max(left - len(piece), 0)
        if left:
            raise DumpError(
                f"{self._dump} ends {left} bytes before the place that the load had reached: "
                "it changed since the load started. Use --overwrite to start again."
            )

    def _block(self, line: int, gathered: list[bytes], start: int) -> Block:
        data = b"".join(gathered)
        if not start:
            _check_is_freebase(data, self._dump)
        return Block(self._dump, line, data, start + len(data), self.size_bytes)


def _count_lines(pieces: Iterable[bytes]) -> int:
    return sum(piece.count(b"\n") for piece in pieces)


def _check_is_freebase(data: bytes, dump: str) -> None:
    """Refuse a file whose first lines are mostly not triples of Freebase, or mostly Turtle."""
    triples: list[bytes] = []
    rejected: list[tuple[int, bytes, str]] = []
    is_turtle = False
    lines = data.split(b"\n", _PROBED_LINES)[:_PROBED_LINES]
    for number, line in enumerate(lines, start=1):
        match clean_line(line):
            case Repaired(triple):
                triples.append(triple)
            case Rejected(reason):
                rejected.append((number, line, reason))
                is_turtle |= reason == TURTLE_LIST
            case Skipped(reason):
                is_turtle |= reason == DIRECTIVE
    head = b"\n" + b"\n".join(lines)
    is_freebase = _FREEBASE in head or _PREFIXED.search(head) is not None
    if is_turtle and len(rejected) > len(triples):
        number, line, _ = rejected[0]
        raise _not_ntriples(dump, number, line, _to_convert("It seems to be Turtle", is_freebase))
    found = sum(_FREEBASE in b"".join(triple.split(b"\t", 2)[:2]) for triple in triples)
    if 2 * found < len(triples):
        raise DumpError(
            f"{dump} is not a Freebase dump: {found:,} of its first {len(triples):,} triples have "
            f"a subject or relation of Freebase. It seems to be {_data_set(triples)}. "
            f"{_ONLY_FREEBASE}"
        )
    if rejected and not triples:
        number, line, reason = rejected[0]
        raise _not_ntriples(dump, number, line, _advice(line, reason, is_freebase))


def _not_ntriples(dump: str, number: int, line: bytes, advice: str) -> DumpError:
    start = line.strip()[:60].decode("utf-8", "replace")
    return DumpError(f"{dump}, line {number}: not N-Triples ({start!r}). {advice}")


def _data_set(triples: Sequence[bytes]) -> str:
    subjects = [triple.partition(b"\t")[0] for triple in triples]
    for host, name in _OTHER_DATA_SETS.items():
        if 2 * sum(host in subject for subject in subjects) > len(subjects):
            return name
    other = next(subject for subject in subjects if _FREEBASE not in subject)
    return f"RDF about something else ({other.decode()})"


def _to_convert(what: str, is_freebase: bool) -> str:
    if is_freebase:
        return f"{what}: convert it to N-Triples first."
    return f"{what}, and nothing in its first lines is of Freebase. {_ONLY_FREEBASE}"


def _advice(line: bytes, reason: str, is_freebase: bool) -> str:
    start = line.lstrip(b"\xef\xbb\xbf \t").lower()
    if start.startswith((b"<!doctype", b"<html")):
        return "It is a web page: was the download refused or redirected?"
    if start.startswith((b"<?xml", b"<rdf")):
        return _to_convert("It is XML", is_freebase)
    if start.startswith((b"{", b"[")):
        return "It looks like JSON. A dump has one `<subject> <predicate> <object> .` on each line."
    if reason.endswith("not RDF"):
        return (
            f"It is a data set derived from Freebase ({reason}) or a dump from before 2012. "
            "Load one of the RDF dumps of 2013 to 2015."
        )
    if _IDS.fullmatch(start):
        return (
            "It is rows of ids without IRIs, as in the subset of FreebaseQA. Write each id in full "
            f"(<{FREEBASE_NS}m.0abc>), each text in quotes, and a dot at the end."
        )
    if reason == FOUR_TERMS:
        return _to_convert("It may be N-Quads", is_freebase)
    return f"A dump has one `<subject> <predicate> <object> .` on each line; here: {reason}."


class LiteralParts(NamedTuple):
    """A literal's text, and its language tag in lower case."""

    text: str
    language: str | None


def literal_parts(term: bytes) -> LiteralParts | None:
    """Split a literal of N-Triples into text and language; None for an IRI."""
    if not term.startswith(b'"'):
        return None
    line = b"<a:s> <a:p> %b ." % term
    [quad] = pyoxigraph.parse(line, pyoxigraph.RdfFormat.N_TRIPLES, lenient=True)
    assert isinstance(quad.object, pyoxigraph.Literal)
    return LiteralParts(quad.object.value, quad.object.language)
