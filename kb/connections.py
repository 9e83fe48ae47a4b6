"""HTTP requests over connections that stay open, each within one deadline and a size limit.

The time limit of a socket bounds each read, so a server that sends a byte now and then could hold a
request for ever. Here every read gets the rest of the request's time.

The proxies of the environment (``HTTPS_PROXY``, ``NO_PROXY``) are used, but not for this machine's
own addresses. Redirects are not followed: a posted query would be lost on the way.

A URL may hold a password or an access key. Neither belongs in an error, a log or a manifest.
"""

import base64
import functools
import http.client
import io
import ipaddress
import os
import re
import select
import socket
import ssl
import time
import urllib.request
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import Message
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from kbqa.sparql.errors import InputError, QueryTooLarge

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


_USER = re.compile(r"(?<=//)[^/?#]*@|^[^/?#]*@")
_KEY = re.compile(
    r"(?<=[?&;])([^=&;#]*(?:key|token|secret|passw|pwd|auth|credential|signature)[^=&;#]*)=[^&;#]+",
    re.IGNORECASE,
)
_HIDDEN = "***"
_PORTS = {"http": 80, "https": 443}
_SHORT = 4  # a shorter secret may be part of any word

MAX_BODY_BYTES = 256 * 2**20
"""The largest answer that is read: about a million rows, and five times as much in Python."""

_PIECE_BYTES = 2**20
_LONGEST_IDLE_S = 30.0  # routers silently forget connections that are idle for longer


@dataclass(frozen=True, slots=True)
class Address:
    """The address of an endpoint."""

    scheme: str  # http or https
    host: str
    port: int
    url: str  # for requests, without user and password
    login: str  # user and password as basic authentication sends them, or empty
    shown: str  # the URL for messages
    secrets: tuple[str, ...]  # what no message may show

    @property
    def description(self) -> str:
        """The endpoint in messages: ``endpoint http://localhost:7878/query``."""
        return f"endpoint {self.shown}"

    def hide(self, text: str) -> str:
        """Replace the secrets in a text, such as a server's message."""
        for secret in self.secrets:
            text = text.replace(secret, _HIDDEN)
        return text


def read_address(url: str) -> Address:
    """Read the URL of an endpoint, or raise `InputError`.

    >>> read_address("https://ann:secret@example.org/sparql?apikey=12345&format=json").shown
    'https://***@example.org/sparql?apikey=***&format=json'
    """
    shown = hide_secrets(url)
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise InputError(f"the endpoint {shown!r} is not a valid URL") from None
    if parts.scheme not in _PORTS or not host:
        raise InputError(
            f"an endpoint is an http:// or https:// URL such as http://localhost:8890/sparql, "
            f"not {shown!r}"
        )
    if not url.isascii() or not url.isprintable() or " " in url:
        raise InputError(
            f"the endpoint {shown!r} holds a blank or a character that is not ASCII. "
            "Percent-encode it."
        )
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    keys = {match.group().partition("=")[2] for match in _KEY.finditer(url)}
    login = encode_login(user, password) if user or password else ""
    secrets = {password, login, *keys, *map(unquote, keys)}
    return Address(
        parts.scheme,
        host,
        port or _PORTS[parts.scheme],
        urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], fragment="")),
        login,
        shown,
        tuple(sorted((each for each in secrets if len(each) >= _SHORT), key=len, reverse=True)),
    )


def encode_login(user: str, password: str) -> str:
    """Write a user and password as basic authentication sends them."""
    return base64.b64encode(f"{user}:{password}".encode()).decode()


def hide_secrets(url: str) -> str:
    """Return a URL without its user, password and access keys."""
    return _KEY.sub(rf"\1={_HIDDEN}", _USER.sub(f"{_HIDDEN}@", url))


class Response(NamedTuple):
    """A server's answer to a request."""

    status: int
    headers: Message
    body: bytes


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine, by its name or address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def through_proxy(url: str) -> str:
    """Write `` through the proxy http://proxy:3128``, or nothing, to follow a URL in messages."""
    proxy = _proxy_url(url)
    return "" if proxy is None else f" through the proxy {hide_secrets(proxy)}"


class Connections:
    """Connections to one server, kept for the next request. Any number of threads may send."""

    def __init__(self, address: Address, max_body_bytes: int | None = None) -> None:
        self._address, self._max_body_bytes = address, max_body_bytes
        self._idle: list[_Connection] = []
        self._process = os.getpid()
        weakref.finalize(self, _close_all, self._idle)

    def send(self, url: str, headers: Mapping[str, str], body: bytes, deadline: float) -> Response:
        """Post to a URL of the server, and read the whole answer before the deadline.

        Raises `OSError`, `http.client.HTTPException`, or `QueryTooLarge` for a too large answer.
        """
        while (kept := self._take()) is not None:
            try:
                return self._exchange(kept, url, headers, body, deadline)
            except ConnectionError:  # the server had closed it, and another may do
                continue
        opened = _Connection(self._address, deadline)
        return self._exchange(opened, url, headers, body, deadline)

    def close(self) -> None:
        """Close the connections that no thread uses."""
        _close_all(self._idle)

    def _take(self) -> "_Connection | None":
        if self._process != os.getpid():
            # A forked process must not use the connections of the other.
            _close_all(self._idle)
            self._process = os.getpid()
        while True:
            try:
                kept = self._idle.pop()
            except IndexError:
                return None
            if kept.is_usable:
                return kept
            kept.close()

    def _exchange(
        self,
        connection: "_Connection",
        url: str,
        headers: Mapping[str, str],
        body: bytes,
        deadline: float,
    ) -> Response:
        is_kept = False
        try:
            with connection.send(url, headers, body, deadline) as response:
                answer = self._body(response)
                is_kept = not response.will_close
        finally:
            if is_kept:
                connection.used_at = time.monotonic()
                self._idle.append(connection)
            else:
                connection.close()
        return Response(response.status, response.headers, answer)

    def _body(self, response: http.client.HTTPResponse) -> bytes:
        pieces: list[bytes] = []
        size, most = response.length or 0, self._max_body_bytes or MAX_BODY_BYTES
        while size <= most and (piece := response.read(_PIECE_BYTES)):
            pieces.append(piece)
            size = max(size, sum(map(len, pieces)))
        if size > most:
            raise QueryTooLarge(
                f"{self._address.description} sends more than {most // 10**6} MB. "
                "Ask for fewer rows, with LIMIT or --limit."
            )
        body = b"".join(pieces)
        if response.length:
            raise http.client.IncompleteRead(body, response.length)
        return body


class _Connection:
    def __init__(self, address: Address, deadline: float) -> None:
        proxy = _proxy_url(address.url)
        self._proxy = None if proxy is None else urlsplit(proxy)
        self._is_tunnel = self._proxy is not None and address.scheme == "https"
        self.used_at = time.monotonic()
        where = (address.host, address.port)
        if self._proxy is not None:
            where = (self._proxy.hostname or "", self._proxy.port or 80)
        self._socket = socket.create_connection(where, timeout=_left_s(deadline))
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._is_tunnel:
                self._open_tunnel(address, deadline)
            if address.scheme == "https":
                self._socket.settimeout(_left_s(deadline))
                self._socket = _tls().wrap_socket(self._socket, server_hostname=address.host)
        except BaseException:
            self.close()
            raise

    @property
    def is_usable(self) -> bool:
        """Whether the server has not closed the connection, as far as is known here."""
        if time.monotonic() - self.used_at > _LONGEST_IDLE_S:
            return False
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return not poll.poll(0)

    def send(
        self, url: str, headers: Mapping[str, str], body: bytes, deadline: float
    ) -> http.client.HTTPResponse:
        """Send a request, and read the head of the answer."""
        parts = urlsplit(url)
        own = {
            "Host": parts.netloc,
            "Accept-Encoding": "identity",
            "Content-Length": str(len(body)),
        }
        target = urlunsplit(("", "", parts.path or "/", parts.query, ""))
        if self._proxy is not None and not self._is_tunnel:
            target = url
            own |= _proxy_headers(self._proxy)
        return self._exchange(f"POST {target}", {**own, **headers}, body, deadline)

    def close(self) -> None:
        self._socket.close()

    def _exchange(
        self, command: str, headers: dict[str, str], body: bytes, deadline: float
    ) -> http.client.HTTPResponse:
        lines = [f"{command} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        head = "\r\n".join([*lines, "", ""]).encode("latin-1")
        self._socket.settimeout(_left_s(deadline))
        self._socket.sendall(head + body)
        response = _Response(self._socket, deadline, command.partition(" ")[0])
        try:
            response.begin()
        except BaseException:
            response.close()
            raise
        return response

    def _open_tunnel(self, address: Address, deadline: float) -> None:
        assert self._proxy is not None
        goal = f"{address.host}:{address.port}"
        headers = {"Host": goal, **_proxy_headers(self._proxy)}
        with self._exchange(f"CONNECT {goal}", headers, b"", deadline) as response:
            if response.status != http.HTTPStatus.OK:
                raise OSError(f"the proxy answers with HTTP status {response.status}")


class _Response(http.client.HTTPResponse):
    """A response whose reads all end at one deadline."""

    def __init__(self, connected: socket.socket, deadline: float, method: str) -> None:
        super().__init__(connected, method=method)
        self.fp = io.BufferedReader(_DeadlineReader(self.fp.detach(), connected, deadline))


class _DeadlineReader(io.RawIOBase):
    def __init__(self, raw: io.RawIOBase, connected: socket.socket, deadline: float) -> None:
        self._raw, self._socket, self._deadline = raw, connected, deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int | None:
        self._socket.settimeout(_left_s(self._deadline))
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


def _left_s(deadline: float) -> float:
    left_s = deadline - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("the deadline has passed")
    return min(left_s, 1e6)


def _close_all(idle: list[_Connection]) -> None:
    while idle:
        idle.pop().close()


@functools.cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()


def _proxy_url(url: str) -> str | None:
    """Choose the proxy as urllib does, from the environment; this machine needs none."""
    parts = urlsplit(url)
    proxy, host = urllib.request.getproxies().get(parts.scheme), parts.hostname or ""
    port = parts.port or _PORTS.get(parts.scheme)
    if not proxy or is_loopback(host) or urllib.request.proxy_bypass(f"{host}:{port}"):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _proxy_headers(proxy: SplitResult) -> dict[str, str]:
    if not proxy.username:
        return {}
    login = encode_login(unquote(proxy.username), unquote(proxy.password or ""))
    return {"Proxy-Authorization": f"Basic {login}"}
