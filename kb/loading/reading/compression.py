"""Read a file that may be compressed; measure its size and SHA-256 on the way.

The content determines the format. No part of a file is skipped in silence: a file that is cut short
or followed by something else raises.
"""

import bz2
import hashlib
import lzma
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import BinaryIO, Protocol, cast

import zstandard
from isal import igzip_threaded
from isal.igzip_lib import IsalError

READ_ERRORS: tuple[type[Exception], ...] = (
    EOFError,
    OSError,
    # Its stubs make an instance of it.
    cast(type[Exception], IsalError),
    lzma.LZMAError,
    zstandard.ZstdError,
)
"""Errors from reading a damaged file."""

_MAGIC_BYTES = 6
_PIECE_BYTES = 1 << 20
_GZIP_BYTES = 256 << 10
_PACKED_BYTES = 128 << 10
"""Bytes of a compressed file read at once; at a ratio of 13 they unpack to 1.7 MB."""

_ARCHIVES = (b"PK\x03\x04", b"7z\xbc\xaf")


class HashedFile:
    """A file that is hashed while it is read, in a separate thread; it can be read once.

    Attributes:
        magic: Its first bytes; `read` returns them too.
        size_bytes: How far it has been read.
    """

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self._sha256 = hashlib.sha256()
        self._hasher = ThreadPoolExecutor(1)
        self._hashing: Future[None] | None = None
        self.magic = raw.read(_MAGIC_BYTES)
        self._unread = self.magic
        self.size_bytes = 0

    @property
    def is_archive(self) -> bool:
        """Whether it is an archive of several files."""
        return self.magic.startswith(_ARCHIVES)

    @property
    def sha256(self) -> str:
        """The hash of what has been read, as hexadecimal digits."""
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

    Formats: gzip, bzip2, xz and Zstandard, also with several members in a row. Anything else is
    returned unchanged.

    Raises:
        EOFError, or another of `READ_ERRORS`: The file is damaged or cut short, or something
            else follows its end.
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
