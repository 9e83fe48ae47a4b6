"""Turn away what must not reach the routes: wrong hosts and origins, no key, too fast, too large.

Pure ASGI: it sees every request, those to mounted applications too, and hides no disconnect.

- The Host must be one of the server's own names, or another site could point its own name here (DNS
  rebinding) and read the answers.
- Requests that a browser sends for another site are refused; only pages may be linked to, and they
  are told (`Visit.is_foreign`) so that they ask nothing by themselves.
- What a request asks for decides, not its address alone: TEXT2SPARQL at ``/`` is no page.
- Bodies are read here, whole, within limits of size and time.
"""

import asyncio
import ipaddress
import json
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from kbqa.engine.serve.access.api_keys import ApiKeys
from kbqa.engine.serve.access.rates import RateLimiter
from kbqa.engine.serve.asking.observer import Observer
from kbqa.engine.serve.problems import MEDIA_TYPE, Problem

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = Sequence[tuple[bytes, bytes]]

MAX_BODY_BYTES = 64_000
_DROPPED_BYTES, _DROP_S = 1_000_000, 0.5
"""How much of a body that is too large is read, and for how many seconds, before it is refused."""

BODY_TIMEOUT_S = 20.0
"""Seconds until the whole body must have come."""

_SECURITY: Headers = [
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        b"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
        b"require-trusted-types-for 'script'; trusted-types kbqa",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
]

_HOST = re.compile(r"(?:\[(?P<address>[^\[\]]+)\]|(?P<name>[^:\[\]]+))(?::\d*)?")
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_PAGES = ("/entity/", "/static/")
_OPEN = frozenset({"/", "/docs", "/openapi.json", "/healthz", "/readyz"})
"""Paths that need no key, besides the pages: they show no more than that there is a server."""

_TEXT2SPARQL = frozenset({"dataset", "question"})
"""Parameters that make ``/`` TEXT2SPARQL, as some register it; its own route answers then."""

_UNLIMITED = ("/static/", "/healthz", "/readyz", "/metrics")
_BODY_TYPES: Mapping[str, frozenset[str]] = {
    "/sparql": frozenset({"application/x-www-form-urlencoded", "application/sparql-query"})
}
_JSON = frozenset({"application/json"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Who may send requests.

    Attributes:
        hosts: Names that the server goes by, besides this machine's own.
        allows_addresses: Whether an IP address may stand in its place. No other site can make its
            name an address, so this opens nothing.
        keys: Who may ask; None if anybody may.
        rate: Requests a minute of a client whose key does not say; None for any number.
    """

    hosts: frozenset[str] = field(default_factory=frozenset)
    allows_addresses: bool = False
    keys: ApiKeys | None = None
    rate: float | None = None


@dataclass(frozen=True, slots=True)
class Visit:
    """What the guard knows of a request; ``scope["state"]["visit"]`` holds it.

    Attributes:
        request_id: For the log, and in the response.
        client: The name of the key, or else the address; of IPv6 its network of 64 bits, as a
            client has all of its addresses.
        is_known: It may ask: it has shown a key, or needs none.
        is_foreign: A link or form of another site led here.
    """

    request_id: str
    client: str
    is_known: bool = True
    is_foreign: bool = False


class _Refused(Exception):
    """A request is turned away."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem


class Guard:
    """Turns away what must not reach an application.

    Args:
        app: The application.
        access: Who may send requests.
        observer: Hears what is turned away.
    """

    def __init__(self, app: App, access: Access, observer: Observer) -> None:
        self._app, self._access, self._observer = app, access, observer
        self._rates = RateLimiter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it with a problem."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # there are no WebSockets
            await send({"type": "websocket.close", "code": 1008})
            return
        request_id = secrets.token_hex(8)

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_headers(scope["path"], request_id)]
            await send(message)

        try:
            visit = self._admit(scope, request_id)
            body = await _read_body(scope, receive)
        except _Refused as refused:
            self._observer.rejected(refused.problem.code)
            await send_problem(send_guarded, refused.problem, request_id)
            return
        if body is None:  # the client left
            return
        scope.setdefault("state", {})["visit"] = visit
        await self._app(scope, _replay(body, receive), send_guarded)

    def _admit(self, scope: Scope, request_id: str) -> Visit:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        if scope["path"] == "/" and _parameters(scope) >= _TEXT2SPARQL:
            scope["path"], scope["raw_path"] = "/text2sparql", b"/text2sparql"
        path = scope["path"]
        host = headers.get(b"host", "")
        if not self._is_own(host):
            raise _Refused(_WRONG_HOST)
        is_page = scope["method"] in ("GET", "HEAD") and _is_page(path)
        is_foreign = _is_foreign(headers, host)
        # A link opens a document; an image or a frame of another site does not.
        is_link = is_page and headers.get(b"sec-fetch-dest", "document") == "document"
        if is_foreign and not is_link:
            raise _Refused(_CROSS_SITE)
        _check_type(scope["method"], path, headers.get(b"content-type", ""))
        client = _client_at((scope.get("client") or ("local", 0))[0])
        a_minute = self._access.rate
        is_known = True
        if self._access.keys is not None:
            scheme, _, key = headers.get(b"authorization", "").partition(" ")
            owner = self._access.keys.owner(key.strip()) if scheme.lower() == "bearer" else None
            is_known = owner is not None
            if owner is not None:
                client = owner
                a_minute = self._access.keys.by_name[owner].requests_a_minute or a_minute
            elif not (path in _OPEN or is_page):
                raise _Refused(_NO_KEY)
        if a_minute is not None and not path.startswith(_UNLIMITED):
            wait_s = self._rates.take(client, a_minute)
            if wait_s > 0:
                raise _Refused(_too_fast(a_minute, wait_s))
        return Visit(request_id, client, is_known, is_foreign)

    def _is_own(self, host: str) -> bool:
        name = _without_port(host).lower()
        if name in _LOOPBACK or name in self._access.hosts:
            return True
        return self._access.allows_addresses and _is_address(name)


async def send_problem(send: Send, problem: Problem, request_id: str) -> None:
    """Answer a request with a problem."""
    body = json.dumps(problem.to_dict(request_id), ensure_ascii=False).encode()
    headers = [
        (b"content-type", MEDIA_TYPE.encode()),
        (b"content-length", str(len(body)).encode()),
    ]
    if problem.retry_after is not None:
        headers.append((b"retry-after", str(problem.retry_after).encode()))
    if problem.status == 401:
        headers.append((b"www-authenticate", b'Bearer realm="kbqa"'))
    if problem.status in (408, 413):
        headers.append((b"connection", b"close"))  # the rest of the body is not read
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _headers(path: str, request_id: str) -> Headers:
    own = [*_SECURITY, (b"x-request-id", request_id.encode())]
    # Browsers ask whether a script is still the same: a new kbqa has new ones at the old addresses.
    is_kept = path.startswith("/static/")
    own.append((b"cache-control", b"no-cache" if is_kept else b"no-store"))
    return own


def _parameters(scope: Scope) -> set[str]:
    query = scope.get("query_string", b"").decode("latin-1")
    return {name for name, _ in parse_qsl(query, keep_blank_values=True)}


def _is_page(path: str) -> bool:
    return path in ("/", "/docs") or path.startswith(_PAGES)


def _is_foreign(headers: Mapping[bytes, str], host: str) -> bool:
    """Whether a browser sends the request for another site; others send neither header."""
    origin = headers.get(b"origin")
    if origin is not None and origin.lower() not in (f"http://{host}", f"https://{host}"):
        return True
    # `same-site` is another port or sub-domain: not this page either.
    return headers.get(b"sec-fetch-site", "none") not in ("none", "same-origin")


def _check_type(method: str, path: str, content_type: str) -> None:
    """Check a body's type: a plain form of another site can send some without asking."""
    if method not in ("POST", "PUT", "PATCH"):
        return
    allowed = _BODY_TYPES.get(path, _JSON)
    if content_type.partition(";")[0].strip().lower() not in allowed:
        detail = f"Send the body as {' or '.join(sorted(allowed))}."
        raise _Refused(Problem(415, "content-type", "Wrong type of body", detail))


async def _read_body(scope: Scope, receive: Receive) -> bytes | None:
    """Read the whole body; None if the client left before its end."""
    declared = dict(scope["headers"]).get(b"content-length", b"0")
    if declared.isdigit() and int(declared) > MAX_BODY_BYTES:
        await _drop_rest(receive)
        raise _Refused(_TOO_LARGE)
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            while (message := await receive())["type"] == "http.request":
                body += message.get("body", b"")
                if len(body) > MAX_BODY_BYTES:
                    await _drop_rest(receive)
                    raise _Refused(_TOO_LARGE)
                if not message.get("more_body", False):
                    return bytes(body)
    except TimeoutError:
        raise _Refused(_TOO_SLOW) from None
    return None


async def _drop_rest(receive: Receive) -> None:
    """Read on for a moment: a client that still sends would see a reset and not the answer."""
    left = _DROPPED_BYTES
    with suppress(TimeoutError):
        async with asyncio.timeout(_DROP_S):
            while left > 0 and (message := await receive()).get("more_body", False):
                left -= len(message.get("body", b""))


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return what hands out a body that was read, and then what else comes: the disconnect."""
    is_read = False

    async def replay() -> Message:
        nonlocal is_read
        if is_read:
            return await receive()
        is_read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


def _without_port(host: str) -> str:
    """Return the name of a Host header: ``[::1]:8080`` is ``::1``; empty if it is malformed."""
    found = _HOST.fullmatch(host)
    return "" if found is None else found["address"] or found["name"] or ""


def _client_at(address: str) -> str:
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(found) >> 64 << 64, 64)))


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _too_fast(a_minute: float, wait_s: float) -> Problem:
    detail = f"{a_minute:g} requests a minute are allowed."
    return Problem(429, "too-fast", "Too many requests", detail, retry_after_s=wait_s)


_WRONG_HOST = Problem(
    421,
    "wrong-host",
    "Not the name of this server",
    "The Host of the request is not a name of this server. Its operator can add one with "
    "--allowed-host.",
)
_CROSS_SITE = Problem(
    403, "cross-site", "Sent by another site", "Requests of other sites' pages are refused."
)
_NO_KEY = Problem(
    401, "no-key", "A key is needed", "Send a key that the server knows: Authorization: Bearer KEY."
)
_TOO_LARGE = Problem(
    413, "too-large", "The body is too large", f"Bodies may have {MAX_BODY_BYTES:,} bytes."
)
_TOO_SLOW = Problem(
    408, "too-slow", "The body did not come", f"It must come within {BODY_TIMEOUT_S:g} s."
)
