"""Bound what one HTTP request may take: a deadline for all of it, and a size for its answer.

An HTTP client's time-out is for each read, so a server that sends a byte now and then holds it for
ever, and a client reads an answer of any size into memory. Here every operation on the network gets
only the time that is left of the request, from the connection to the last byte.
"""

import ssl
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import httpcore2
import httpx2

_SocketOption = (
    tuple[int, int, int] | tuple[int, int, bytes | bytearray] | tuple[int, int, None, int]
)


class AnswerTooLong(Exception):
    """A server sends more than an answer can need."""


@dataclass(slots=True)
class _Bounds:
    ends_at: float
    bytes_left: int

    def left_s(self, timeout_s: float | None) -> float:
        left_s = self.ends_at - time.monotonic()
        if left_s <= 0:
            raise httpcore2.ReadTimeout
        return left_s if timeout_s is None else min(left_s, timeout_s)


_bounds: ContextVar[_Bounds | None] = ContextVar("bounds", default=None)


@contextmanager
def request_bounds(ends_at: float, max_bytes: int) -> Iterator[None]:
    """Bound the requests that this thread sends inside the block by a `bounded` client.

    Args:
        ends_at: When they must be over, as `time.monotonic` counts.
        max_bytes: What may be received.

    Raises:
        AnswerTooLong: More was sent, or it is compressed, so that its size is not known.
    """
    token = _bounds.set(_Bounds(ends_at, max_bytes))
    try:
        yield
    finally:
        _bounds.reset(token)


def bounded(client: httpx2.Client) -> httpx2.Client:
    """Make a new client respect `request_bounds`, and ask for answers that are not compressed."""
    client.headers["Accept-Encoding"] = "identity"
    client.event_hooks["response"].append(_refuse_compressed)
    # The pool's public parameter cannot be given to a client that also finds the proxies of the
    # environment, so it is set afterwards.
    for transport in (client._transport, *client._mounts.values()):
        if isinstance(transport, httpx2.HTTPTransport):
            pool = transport._pool
            pool._network_backend = _BoundedBackend(pool._network_backend)
    return client


def _refuse_compressed(response: httpx2.Response) -> None:
    encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise AnswerTooLong(f"it is compressed ({encoding}), which was not asked for")


class _BoundedBackend(httpcore2.NetworkBackend):
    """Connects in the time that is left; without bounds, as the backend behind it does."""

    def __init__(self, backend: httpcore2.NetworkBackend) -> None:
        self._backend = backend

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[_SocketOption] | None = None,
    ) -> httpcore2.NetworkStream:
        return _BoundedStream(
            self._backend.connect_tcp(host, port, _left_s(timeout), local_address, socket_options)
        )

    def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,
        socket_options: Iterable[_SocketOption] | None = None,
    ) -> httpcore2.NetworkStream:
        return _BoundedStream(
            self._backend.connect_unix_socket(path, _left_s(timeout), socket_options)
        )

    def sleep(self, seconds: float) -> None:
        self._backend.sleep(seconds)


class _BoundedStream(httpcore2.NetworkStream):
    def __init__(self, stream: httpcore2.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        part = self._stream.read(max_bytes, _left_s(timeout))
        if (bounds := _bounds.get()) is not None:
            bounds.bytes_left -= len(part)
            if bounds.bytes_left < 0:
                raise AnswerTooLong("it has no end")
        return part

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, _left_s(timeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore2.NetworkStream:
        return _BoundedStream(
            self._stream.start_tls(ssl_context, server_hostname, _left_s(timeout))
        )

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


def _left_s(timeout_s: float | None) -> float | None:
    bounds = _bounds.get()
    return timeout_s if bounds is None else bounds.left_s(timeout_s)
