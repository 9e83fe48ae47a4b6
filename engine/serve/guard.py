r"""Refuse requests of wrong hosts and origins, without a key, too fast or too large.

Pure ASGI: it sees every request, those to mounted applications too, and hides no disconnect.

- The Host must be one of the server's own names, or another site could point its own name here (DNS
  rebinding) and read the answers.
- Requests that a browser sends for another site are refused; only pages may be linked to, and they
  are told (`Visit.is_foreign`) so that they ask nothing by themselves.
- What a request asks for decides, not its address alone: TEXT2SPARQL at ``/`` is no page.
- Bodies are read here, whole, within limits of size and time.
- Each client has a bucket of requests, which fills again as time passes.

API keys are in a file of names, SHA-256 sums and rates; the keys themselves are nowhere:

    [alice]
    sha256 = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"
    requests_a_minute = 60

A new key, and its sum:

    openssl rand -hex 32 | tee key | tr -d '\n' | sha256sum

`Metrics` counts requests for Prometheus, in a registry of the server's own.
"""

import asyncio
import hashlib
import hmac
import ipaddress
import re
import secrets
import time
import tomllib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated
from urllib.parse import parse_qsl

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kbqa.engine.files import invalid_field
from kbqa.engine.serve.problems import Problem, problem_response
from kbqa.engine.serve.served import CacheResult, Observer, Served
from kbqa.sparql.errors import InputError


class ApiKey(BaseModel):
    """An API key: its hash, and the rate that it allows."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    requests_a_minute: Annotated[float, Field(gt=0)] | None = None
    """None for the server's own rate."""


_FILE: TypeAdapter[dict[str, ApiKey]] = TypeAdapter(dict[str, ApiKey])


@dataclass(frozen=True, slots=True)
class ApiKeys:
    """The API keys, by the names of their owners."""

    by_name: Mapping[str, ApiKey]

    @classmethod
    def read(cls, file: Path) -> "ApiKeys":
        """Read a file of keys; raise an `InputError` if it has no valid ones."""
        try:
            keys = _FILE.validate_python(tomllib.loads(file.read_text(encoding="utf-8-sig")))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
            raise InputError(f"the API keys in {file} cannot be read: {error}") from None
        except ValidationError as error:
            raise InputError(
                f"the API keys in {file} are not valid: {invalid_field(error)}. A key is a table "
                '[name] with sha256 = "…" and, if you like, requests_a_minute = N.'
            ) from None
        if not keys:
            raise InputError(f"{file} holds no API keys; nobody could ask")
        return cls(keys)

    def owner(self, key: str) -> str | None:
        """Return the name of a key, or None if it is not known; each takes the same time."""
        found = None
        digest = hashlib.sha256(key.encode()).hexdigest()
        for name, known in self.by_name.items():
            if hmac.compare_digest(known.sha256, digest):
                found = name
        return found


_MOST_CLIENTS = 10_000


class RateLimiter:
    """The buckets of all clients. Each holds the tokens of a minute, but at least one."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # The tokens that each had, when, and how many a minute brings.
        self._buckets: dict[str, tuple[float, float, float]] = {}
        self._most = _MOST_CLIENTS

    def take(self, client: str, a_minute: float) -> float:
        """Take a token of a client; return the seconds to wait if there is none, else 0."""
        now = self._clock()
        most = max(a_minute, 1.0)
        left, seen_at, _ = self._buckets.get(client, (most, now, a_minute))
        left = min(most, left + (now - seen_at) * a_minute / 60)
        if left < 1:
            return (1 - left) * 60 / a_minute
        self._buckets[client] = left - 1, now, a_minute
        if len(self._buckets) > self._most:
            self._forget_full(now)
        return 0.0

    def __len__(self) -> int:
        """Return how many clients are remembered."""
        return len(self._buckets)

    def _forget_full(self, now: float) -> None:
        """Forget full buckets, and look again only when there are twice as many as are left."""
        self._buckets = {
            client: (left, seen_at, a_minute)
            for client, (left, seen_at, a_minute) in self._buckets.items()
            if left + (now - seen_at) * a_minute / 60 < max(a_minute, 1.0)
        }
        self._most = max(_MOST_CLIENTS, 2 * len(self._buckets))


MAX_BODY_BYTES = 64_000
_DROPPED_BYTES, _DROP_S = 1_000_000, 0.5
"""The bytes of a body that is too large that are read, and the seconds, before it is refused."""

BODY_TIMEOUT_S = 20.0
"""Seconds until the whole body must have come."""

_SECURITY = [
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
"""Paths that need no key, besides the pages: they only show that there is a server."""

_TEXT2SPARQL = frozenset({"dataset", "question"})
"""Parameters that make ``/`` TEXT2SPARQL, as some register it; its own route answers then."""

_UNLIMITED = ("/static/", "/healthz", "/readyz", "/metrics")
_JSON = ("application/json",)
_SPARQL = ("application/sparql-query", "application/x-www-form-urlencoded")
"""Types of the bodies that may be sent to ``/sparql``, and elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The rules by which requests are let in."""

    hosts: frozenset[str] = frozenset()  # names of the server, besides this machine's own
    # Host may also be an IP address. No other site can make its name an address, so this is safe.
    allows_addresses: bool = False
    keys: ApiKeys | None = None  # None if no key is needed
    rate: float | None = None  # requests a minute of a client whose key has none; None: any number


@dataclass(frozen=True, slots=True)
class Visit:
    """The guard's knowledge of a request; ``scope["state"]["visit"]`` holds it."""

    request_id: str  # for the log, and in the response
    # The name of the key, or else the address; of IPv6 the network of 64 bits, all of one client.
    client: str
    is_known: bool = True  # it has shown a key, or needs none
    is_foreign: bool = False  # a link or form of another site led here


class _Refused(Exception):
    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem


class Guard:
    """A filter of requests before an application; the metrics count those let in and refused."""

    def __init__(self, app: ASGIApp, access: Access, metrics: "Metrics") -> None:
        self._app, self._access, self._metrics = app, access, metrics
        self._rates = RateLimiter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it with a problem."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # there are no WebSockets
            await send({"type": "websocket.close", "code": 1008})
            return
        request_id, status = secrets.token_hex(8), 500

        async def send_guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                # Browsers ask whether a script is still the same: a new kbqa has new ones at the
                # old addresses.
                kept = b"no-cache" if scope["path"].startswith("/static/") else b"no-store"
                own = [(b"x-request-id", request_id.encode()), (b"cache-control", kept)]
                message["headers"] = [*message["headers"], *_SECURITY, *own]
            await send(message)

        try:
            visit = self._admit(scope, request_id)
            body = await _read_body(scope, receive)
        except _Refused as refused:
            self._metrics.rejected(refused.problem.code)
            await problem_response(refused.problem, request_id)(scope, receive, send_guarded)
            return
        if body is None:  # the client left
            return
        scope.setdefault("state", {})["visit"] = visit
        began = time.monotonic()
        try:
            await self._app(scope, _replay(body, receive), send_guarded)
        finally:
            # Paths of no route are one label: a client can make up any number of them.
            route = getattr(scope.get("route"), "path", "none")
            self._metrics.requested(route, status, time.monotonic() - began)

    def _admit(self, scope: Scope, request_id: str) -> Visit:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        asked = parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
        if scope["path"] == "/" and dict(asked).keys() >= _TEXT2SPARQL:
            scope["path"], scope["raw_path"] = "/text2sparql", b"/text2sparql"
        path = scope["path"]
        host = headers.get(b"host", "")
        # `[::1]:8080` is ``::1``; a malformed name is none.
        found = _HOST.fullmatch(host)
        name = "" if found is None else (found["address"] or found["name"]).lower()
        is_own = name in _LOOPBACK or name in self._access.hosts
        if not (is_own or (self._access.allows_addresses and _address(name) is not None)):
            raise _Refused(_WRONG_HOST)
        is_shown = path in ("/", "/docs") or path.startswith(_PAGES)
        is_page = is_shown and scope["method"] in ("GET", "HEAD")
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
                detail = f"{a_minute:g} requests a minute are allowed."
                title = "Too many requests"
                raise _Refused(Problem(429, "too-fast", title, detail, retry_after_s=wait_s))
        return Visit(request_id, client, is_known, is_foreign)


def _is_foreign(headers: Mapping[bytes, str], host: str) -> bool:
    """Return whether a browser sends a request for another site; programs send neither header."""
    origin = headers.get(b"origin")
    if origin is not None and origin.lower() not in (f"http://{host}", f"https://{host}"):
        return True
    # `same-site` is another port or sub-domain: not this page either.
    return headers.get(b"sec-fetch-site", "none") not in ("none", "same-origin")


def _check_type(method: str, path: str, content_type: str) -> None:
    """Check a body's type: a plain form of another site can send some without asking."""
    allowed = _SPARQL if path == "/sparql" else _JSON
    if (
        method in ("POST", "PUT", "PATCH")
        and content_type.partition(";")[0].strip().lower() not in allowed
    ):
        detail = f"Send the body as {' or '.join(allowed)}."
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
    """Read on for a moment: a client that still sends would see a reset instead of the answer."""
    left = _DROPPED_BYTES
    with suppress(TimeoutError):
        async with asyncio.timeout(_DROP_S):
            while left > 0 and (message := await receive()).get("more_body", False):
                left -= len(message.get("body", b""))


def _replay(body: bytes, receive: Receive) -> Receive:
    """Hand out a body that was read, and then all other messages: the disconnect."""
    is_read = False

    async def replay() -> Message:
        nonlocal is_read
        if is_read:
            return await receive()
        is_read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


def _client_at(address: str) -> str:
    found = _address(address)
    if not isinstance(found, ipaddress.IPv6Address):
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(found) >> 64 << 64, 64)))


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


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


_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics(Observer):
    """The counters and histograms of the server."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        counter = partial(Counter, registry=self._registry)
        gauge = partial(Gauge, registry=self._registry)
        histogram = partial(Histogram, registry=self._registry)
        self._requests = counter("kbqa_requests", "Requests, by route.", ["route", "status"])
        self._request_seconds = histogram(
            "kbqa_request_seconds",
            "Seconds until the end of the response.",
            ["route"],
            buckets=_SECONDS,
        )
        self._stage_seconds = histogram(
            "kbqa_stage_seconds",
            "Seconds of each stage of a question; `queue` is all waiting.",
            ["stage"],
            buckets=_SECONDS,
        )
        self.queue_depth = gauge("kbqa_queue_depth", "Questions that wait for the model.")
        self.loop_lag = gauge("kbqa_loop_lag_seconds", "How late the event loop was lately.")
        self._batch_size = histogram(
            "kbqa_batch_size",
            "Questions that were written for at once.",
            buckets=(1, 2, 4, 8, 16, 32, 64),
        )
        self._answers = counter(
            "kbqa_answers",
            "Answers that were worked out, by status and relaxation.",
            ["status", "level"],
        )
        tenths = [n / 10 for n in range(1, 11)]
        self._confidence = histogram("kbqa_confidence", "Confidence of answers.", buckets=tenths)
        self._cache = counter("kbqa_cache", "Where answers came from.", ["result"])
        self._rejected = counter("kbqa_rejected", "Requests that were turned away.", ["reason"])

    def text(self) -> bytes:
        """Return all metrics in the format of Prometheus."""
        return generate_latest(self._registry)

    def requested(self, route: str, status: int, seconds: float) -> None:
        """Count a request by the template of its route."""
        self._requests.labels(route, str(status)).inc()
        self._request_seconds.labels(route).observe(seconds)

    def answered(self, served: Served) -> None:
        """Count an answer that was worked out."""
        level = served.answer.trace.to_dict().get("level") or "none"
        self._answers.labels(served.answer.status, level).inc()
        if served.answer.confidence is not None:
            self._confidence.observe(served.answer.confidence)
        for stage, seconds in served.seconds.items():
            self._stage_seconds.labels(stage).observe(seconds)

    def looked_in_cache(self, result: CacheResult) -> None:
        """Count where an answer comes from."""
        self._cache.labels(result).inc()

    def wrote(self, batch_size: int, seconds: float) -> None:
        """Measure a batch of the small model."""
        self._batch_size.observe(batch_size)

    def rejected(self, reason: str) -> None:
        """Count a request that was turned away."""
        self._rejected.labels(reason).inc()
