"""One request to a server that speaks OpenAI's protocol, and its retries.

The general model and the small model may be behind such a server. A request ends in the body of an
answer or in a `RequestFailed`, which says in the user's terms what happened and whether to try
again. `Retrying` does that. The `openai` client's own retries are switched off: it accepts empty
and malformed replies, and waits silently.

`request_bounds` limits the time and size of one request. An HTTP client's time-out is for each
read, so a server that sends a byte now and then would hold it for ever. Here every operation on the
network gets only the time that is left of the request.
"""

import difflib
import importlib.util
import itertools
import json
import logging
import os
import random
import re
import ssl
import time
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import httpcore2
import httpx2
from pydantic import BaseModel

from kbqa.kb.deadline import bound, check_deadline
from kbqa.sparql.errors import InputError, ModelError, PromptTooLong

if TYPE_CHECKING:
    from openai import APIStatusError, OpenAI


_Reply = TypeVar("_Reply")
_Body = TypeVar("_Body", bound=BaseModel)

_LONG_PAUSE_S = 10.0

logger = logging.getLogger(__name__)


class RequestFailed(Exception):
    """A request got no usable reply. If every try fails, the call raises `ModelError`."""

    def __init__(
        self,
        words: str,
        advice: str = "",
        *,
        may_pass: bool,
        wait_s: float | None = None,
        raised_as: type[ModelError] = ModelError,
        refusal: str = "",
    ) -> None:
        super().__init__(words)
        self.advice = advice  # for the user
        self.may_pass = may_pass  # whether the request may succeed later
        self.wait_s = wait_s  # that the server asks for
        self.raised_as = raised_as  # by the call
        self.refusal = refusal  # what the server says of a request that it does not take


@dataclass(frozen=True, slots=True)
class Retrying:
    """The tries of a failed request, and the pauses between them.

    Each pause is twice as long as the one before, up to `longest_wait_s`. If a server asks to wait
    longer, the call fails at once.
    """

    retries: int = 5
    first_pause_s: float = 0.5
    longest_wait_s: float = 120.0

    def pause_s(self, tries: int) -> float:
        """Return the seconds to wait after some tries, at least one."""
        pause_s = self.first_pause_s * 2.0 ** min(tries - 1, 20)
        # Shortened at random, so that requests that failed together are not sent together again.
        return min(pause_s, self.longest_wait_s) * random.uniform(0.75, 1.0)

    def call(self, ask: Callable[[], _Reply], name: str) -> _Reply:
        """Call `ask`, which sends one request, until there is a reply.

        Raises:
            ModelError: The last try failed, or one that cannot succeed later.
            DeadlineExceeded: The deadline passed.
        """
        for tries in itertools.count(1):
            try:
                return ask()
            except RequestFailed as failure:
                check_deadline()
                wait_s = self._wait_s(failure, tries)
                logger.log(
                    logging.WARNING if wait_s > _LONG_PAUSE_S else logging.INFO,
                    # Without the failure's words: they are the server's, which may quote a prompt.
                    "%s gave no usable reply; asking again in %.1f s (try %d of %d)",
                    name,
                    wait_s,
                    tries + 1,
                    self.retries + 1,
                )
                logger.debug("the failure: %s", failure)
            time.sleep(bound(wait_s))
            check_deadline()
        raise AssertionError  # pragma: no cover

    def _wait_s(self, failure: RequestFailed, tries: int) -> float:
        """Return the seconds to wait before another try; raise `ModelError` if there is none."""
        asked = "" if tries == 1 else f", asked {tries} times"
        if not failure.may_pass or tries > self.retries:
            raise failure.raised_as(f"{failure}{asked}. {failure.advice}".rstrip()) from None
        wait_s = max(self.pause_s(tries), failure.wait_s or 0.0)
        if wait_s > self.longest_wait_s:
            raise ModelError(
                f"{failure}{asked}. It asks to wait {wait_s:.0f} s, and kbqa waits at most "
                f"{self.longest_wait_s:g} s. Run the command again later."
            ) from None
        return wait_s


def read_retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Return the seconds that a server asks to wait; None if it does not say.

    >>> noon = datetime(2026, 2, 14, 12, tzinfo=UTC)
    >>> read_retry_after({"retry-after": "7"}, noon)
    7.0
    >>> read_retry_after({"retry-after": "Sat, 14 Feb 2026 12:00:30 GMT"}, noon)
    30.0

    Source: RFC 9110, §10.2.3; `retry-after-ms` is OpenAI's own.
    """
    for name, unit_s in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name, "").strip()
        if value.replace(".", "", 1).isdecimal():
            return float(value) * unit_s
    try:
        date = parsedate_to_datetime(headers.get("retry-after", ""))
    except ValueError:
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return max(0.0, (date - now).total_seconds())


OPENAI_URL = "https://api.openai.com/v1"

OPENAI_KEY_VARIABLE = "OPENAI_API_KEY"  # sent to OpenAI and to no other server

MAX_ANSWER_BYTES = 16 << 20  # the longest, a list of some hundred models, has under two megabytes

_MODELS_SHOWN = 10
_WORDS_SHOWN = 300

# "Context length" is OpenAI's and vLLM's word, "context size" llama.cpp's, "context window"
# llama-cpp-python's. Old versions of vLLM only said that nothing is left for the reply.
_SAYS_TOO_LONG = re.compile(
    r"context[ _](?:length|size|window)|max_tokens must be at least 1, got -|prompt is too long",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Purpose:
    """The use of a server, which decides its key and the advice in errors."""

    key_variable: str
    is_general: bool = False  # and so maybe on OpenAI's own server
    if_slow: str = ""
    if_busy: str = ""


GENERAL_MODEL = Purpose(
    "KBQA_LLM_KEY",
    is_general=True,
    if_slow="Raise --llm-timeout.",
    if_busy="Lower --llm-concurrency.",
)
SMALL_MODEL = Purpose("KBQA_SERVER_API_KEY")


class OpenAIServer:
    """A server, to which any number of threads may send requests.

    The URL is the API's root, such as ``http://127.0.0.1:8000/v1``. The time-out is for one
    request, from the connection to the last byte of the answer.

    Raises:
        InputError: The URL or the key is not valid.
        ModelError: The `llm` extra is missing.
    """

    def __init__(self, url: str, timeout_s: float, purpose: Purpose = GENERAL_MODEL) -> None:
        self._key = check_server(url, purpose)
        from openai import DefaultHttpxClient, OpenAI

        from kbqa.kb.connections import is_loopback

        self.url = url.rstrip("/")
        self._timeout_s, self._purpose = timeout_s, purpose
        self._client = OpenAI(
            base_url=self.url,
            api_key=self._key or "none",  # The client needs one; a server without keys ignores it.
            timeout=timeout_s,
            max_retries=0,
            # A proxy of the environment does not reach this machine's own addresses. Where a
            # redirect leads, nobody named: questions do not go there.
            http_client=bounded(
                DefaultHttpxClient(
                    timeout=timeout_s,
                    trust_env=not is_loopback(urlsplit(url).hostname or ""),
                    follow_redirects=False,
                )
            ),
        )
        weakref.finalize(self, self._client.close)  # else its sockets wait for the collector

    def send(
        self, request: "Callable[[OpenAI], bytes]", answer: type[_Body], *, model: str | None = None
    ) -> _Body:
        """Send a request and read its answer, or raise `RequestFailed`, which names the model."""
        with self._explained(model):
            body = request(self._client)
        try:
            return answer.model_validate_json(body)
        except ValueError:
            with suppress(ValueError):
                return answer.model_validate_json(_repaired(body))
            words = self._shown(body.decode(errors="replace")) or "nothing at all"
            # Some versions of llama.cpp report errors with the status of success.
            if body.lstrip().startswith(b'{"error"') and _SAYS_TOO_LONG.search(words):
                raise self._too_long(words, model) from None
            expected = (answer.__doc__ or "").rstrip(".").lower()
            raise RequestFailed(
                f"{self.url} did not send {expected}, but: {words}", may_pass=True
            ) from None

    def models(self) -> "dict[str, str]":
        """Return the models that the server offers, each with its owner."""
        listed = self.send(lambda client: client.models.with_raw_response.list().content, _Models)
        return {model.id: model.owned_by or "" for model in listed.data}

    @contextmanager
    def _explained(self, model: str | None) -> Iterator[None]:
        """Bound a request, and turn the client's errors into `RequestFailed`."""
        import httpx2
        from openai import APIConnectionError, APIStatusError, APITimeoutError

        try:
            with request_bounds(bound(self._timeout_s), MAX_ANSWER_BYTES):
                yield
        except (APITimeoutError, httpx2.TimeoutException):
            raise RequestFailed(
                f"{self.url} did not answer within {self._timeout_s:g} s",
                self._purpose.if_slow,
                may_pass=True,
            ) from None
        except AnswerTooLong as error:
            raise RequestFailed(
                f"the answer of {self.url} cannot be read: {error}",
                "Is it the URL of an OpenAI-compatible server?",
                may_pass=False,
            ) from None
        except APIConnectionError as error:
            raise self._broken(error.__cause__ or error) from None
        except APIStatusError as error:
            raise self._refusal(error, model) from None
        except (httpx2.HTTPError, OSError) as error:  # The client does not wrap all of them.
            raise self._broken(error) from None

    def _broken(self, error: BaseException) -> RequestFailed:
        import httpx2

        from kbqa.kb.connections import through_proxy

        words, where = self._shown(str(error)), f"{self.url}{through_proxy(self.url)}"
        if isinstance(error, httpx2.ConnectError):
            return RequestFailed(f"no server answers at {where}: {words}", may_pass=True)
        return RequestFailed(f"the connection to {where} broke off: {words}", may_pass=True)

    def _refusal(self, error: "APIStatusError", model: str | None) -> RequestFailed:
        status, words = error.status_code, self._shown(error.message)
        # llama.cpp has reported it as 500, which would pass.
        said = f"{error.code} {error.message}"
        if status in (400, 413, 422, 500) and _SAYS_TOO_LONG.search(said):
            return self._too_long(words, model)
        advice = ""
        # OpenAI reports it with the status for "too fast", which would pass.
        is_unpaid = status == 402 or error.code == "insufficient_quota"
        if status in (401, 403):
            variables = " or ".join(_key_variables(self.url, self._purpose))
            advice = f"{'Check' if self._key else 'Set'} {variables}."
        elif is_unpaid:
            advice = "The account has no credit left."
        elif location := error.response.headers.get("Location"):
            advice = f"It has moved to {self._shown(location)}. Use that URL."
        elif status in (400, 404):
            advice = self._model_advice(model, status)
        elif status == 429:
            advice = self._purpose.if_busy
        return RequestFailed(
            f"{self.url} refused: {words}",
            advice,
            may_pass=(status in (408, 409, 429) or status >= 500) and not is_unpaid,
            wait_s=read_retry_after(error.response.headers, datetime.now(UTC)),
            refusal=_words_of_refusal(error),
        )

    def _too_long(self, words: str, model: str | None) -> RequestFailed:
        return RequestFailed(
            f"the prompt does not fit into the context of {model} at {self.url}: {words}",
            "Start the server with a larger context (--max-model-len of vLLM, --ctx-size of "
            "llama.cpp), use a model that has one, or let the method offer less at once.",
            may_pass=False,
            raised_as=PromptTooLong,
        )

    def _model_advice(self, model: str | None, status: int) -> str:
        """List the models of the server if this one is not among them."""
        try:
            offered = self.models() if model is not None else None
        except RequestFailed:
            offered = None
        if model is None or offered is None:
            return "The URL of such an API usually ends in /v1." if status == 404 else ""
        return "" if model in offered else describe_offer(offered, model)

    def _shown(self, words: str) -> str:
        """Shorten the server's words, and remove the key in case it was sent back."""
        if self._key is not None:
            words = words.replace(self._key, "…")
        words = " ".join(words.split()).rstrip(".")
        return words if len(words) <= _WORDS_SHOWN else words[: _WORDS_SHOWN - 1] + "…"


def _repaired(body: bytes) -> bytes:
    """Replace what is no UTF-8, and escaped halves of surrogate pairs."""
    try:
        whole = json.loads(body.decode(errors="replace"))
        return json.dumps(whole, ensure_ascii=False).encode(errors="replace")
    except RecursionError:
        return body


def _words_of_refusal(error: "APIStatusError") -> str:
    """Return what a server says of a request that it does not take; nothing of other errors."""
    if error.status_code not in (400, 422):
        return ""
    # A 422 lists the fields at fault in its body.
    detail = error.body if error.status_code == 422 else ""
    return f"{error.param} {error.code} {error.message} {detail}"


def check_server(url: str, purpose: Purpose = GENERAL_MODEL) -> str | None:
    """Check the URL, the key and the extra, without asking the server; return the key, if any."""
    try:
        parts = urlsplit(url)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and url.isprintable()
    except ValueError:
        is_url = False
    if not is_url:
        raise InputError(f"{url!r} is not the URL of a server, such as http://127.0.0.1:8000/v1")
    if "@" in parts.netloc or parts.query or parts.fragment:
        # URLs are shown in messages, manifests and logs.
        raise InputError(
            f"the URL of {parts.hostname} must not hold a user, password, query or fragment. "
            f"Give the key in {purpose.key_variable}."
        )
    key = ""
    for variable in _key_variables(url, purpose):
        key = os.environ.get(variable, "").strip()
        if not (key.isascii() and key.isprintable()):
            # The client would show it in its error.
            raise InputError(f"{variable} holds characters that no key has")
        if key:
            break
    if importlib.util.find_spec("openai") is None:
        raise ModelError("asking a model server needs openai. Install: pip install 'kbqa[llm]'")
    return key or None


def _key_variables(url: str, purpose: Purpose) -> list[str]:
    host = urlsplit(url).hostname or ""
    is_openai = host == "openai.com" or host.endswith(".openai.com")
    return [purpose.key_variable, *([OPENAI_KEY_VARIABLE] * (is_openai and purpose.is_general))]


def describe_offer(offered: Collection[str], model: str = "") -> str:
    """Describe the models that a server offers; of many, those with the most similar names.

    >>> describe_offer(["gpt-4o", "gpt-4o-mini"], "gpt-4")
    'It offers gpt-4o and gpt-4o-mini.'
    """
    shown = sorted(offered)
    if len(shown) > _MODELS_SHOWN:
        shown = difflib.get_close_matches(model, shown, _MODELS_SHOWN, cutoff=0.0)
        return f"It offers {len(offered)} models, such as {', '.join(shown)}."
    listed = " and ".join(filter(None, [", ".join(shown[:-1]), *shown[-1:]]))
    return f"It offers {listed or 'no model'}."


class _OfferedModel(BaseModel):
    id: str
    owned_by: str | None = None


class _Models(BaseModel):
    """A list of models."""

    data: list[_OfferedModel]


class AnswerTooLong(Exception):
    """A server sends more than an answer can need."""


@dataclass(slots=True)
class _Bounds:
    ends_at: float
    bytes_left: int


_bounds: ContextVar[_Bounds | None] = ContextVar("bounds", default=None)


@contextmanager
def request_bounds(limit_s: float, max_bytes: int) -> Iterator[None]:
    """Bound the requests that this thread sends inside the block by a `bounded` client.

    Raises:
        AnswerTooLong: More than `max_bytes` was sent, or it is compressed: its size is not known.
    """
    token = _bounds.set(_Bounds(time.monotonic() + limit_s, max_bytes))
    try:
        yield
    finally:
        _bounds.reset(token)


def bounded(client: httpx2.Client) -> httpx2.Client:
    """Make a new client respect `request_bounds`, and ask for uncompressed answers."""
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
    def __init__(self, backend: httpcore2.NetworkBackend) -> None:
        self._backend = backend

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.NetworkStream:
        return _BoundedStream(
            self._backend.connect_tcp(host, port, _left_s(timeout), local_address, socket_options)
        )


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
    if (bounds := _bounds.get()) is None:
        return timeout_s
    left_s = bounds.ends_at - time.monotonic()
    if left_s <= 0:
        raise httpcore2.ReadTimeout
    return left_s if timeout_s is None else min(left_s, timeout_s)
