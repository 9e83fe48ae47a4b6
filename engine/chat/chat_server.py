"""Send a conversation once to a server that speaks OpenAI's protocol, and say what came of it.

Only ``/chat/completions`` and, to give advice, ``/models`` are used. Whatever a server does ends in
a `Completion` or a `RequestFailed`, which says in the user's terms what happened, and whether to
try again; trying again is the caller's. The answer is read as it comes, since a time-out between
two of its parts does not stop a server that sends empty lines for half an hour while it is busy, as
DeepSeek's does.
"""

import difflib
import importlib.util
import os
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from kbqa.engine.chat.completion import (
    Completion,
    read_completion,
    read_models,
    write_messages,
)
from kbqa.engine.chat.model import Message
from kbqa.engine.chat.retrying import RequestFailed, read_retry_after
from kbqa.sparql.errors import InputError, ModelError

if TYPE_CHECKING:
    from openai import APIStatusError

OPENAI_URL = "https://api.openai.com/v1"

KEY_VARIABLE = "KBQA_LLM_KEY"
"""Names the server's key, whoever it is."""

OPENAI_KEY_VARIABLE = "OPENAI_API_KEY"
"""Names OpenAI's key, which is sent to OpenAI and to no other server."""

_MODELS_SHOWN = 10
_WORDS_SHOWN = 300


class ChatServer:
    """A server.

    Args:
        url: The API's root, such as ``http://127.0.0.1:8000/v1``.
        timeout_s: Seconds for one request; one whose answer begins and does not end may take twice
            as long.

    Raises:
        InputError: The URL or the key cannot be one.
        ModelError: The `llm` extra is missing.
    """

    def __init__(self, url: str, timeout_s: float) -> None:
        if importlib.util.find_spec("openai") is None:
            raise ModelError("a general model is asked by openai. Install: pip install 'kbqa[llm]'")
        from openai import OpenAI

        self.url = _checked_url(url)
        self._timeout_s = timeout_s
        self._key = _read_key(self.url)
        # The client refuses to go without a key; a server without one does not look at it.
        self._client = OpenAI(
            base_url=self.url, api_key=self._key or "none", timeout=timeout_s, max_retries=0
        )
        weakref.finalize(self, self._client.close)  # else its sockets wait for the collector

    def complete(
        self, model: str, messages: Sequence[Message], max_tokens: int, seed: int | None
    ) -> Completion:
        """Have a conversation continued, at temperature 0.

        Raises:
            RequestFailed: No answer came, or none that is a chat completion.
        """
        from openai import omit

        # OpenAI's newer models refuse the older name, other servers may not know the newer one.
        is_openai = self.url == OPENAI_URL
        deadline = time.monotonic() + self._timeout_s
        body = bytearray()
        with (
            self._told_apart(model),
            self._client.chat.completions.with_streaming_response.create(
                model=model,
                messages=write_messages(messages),
                max_tokens=omit if is_openai else max_tokens,
                max_completion_tokens=max_tokens if is_openai else omit,
                temperature=0,
                seed=omit if seed is None else seed,
            ) as response,
        ):
            is_late = False
            for part in response.iter_bytes():
                if is_late:
                    raise self._too_slow()
                body += part
                # What is late and whole is paid for, and good.
                is_late = time.monotonic() > deadline
        try:
            return read_completion(bytes(body))
        except ValueError:
            raise self._no_answer(bytes(body), "no chat completion") from None

    def models(self) -> list[str]:
        """List the models that the server offers.

        Raises:
            RequestFailed: It does not say.
        """
        with self._told_apart():
            body = self._client.models.with_raw_response.list().content
        try:
            return read_models(body)
        except ValueError:
            raise self._no_answer(body, "no list of models") from None

    @contextmanager
    def _told_apart(self, model: str | None = None) -> Iterator[None]:
        """Turn what the client raises into what happened."""
        import httpx2
        from openai import APIConnectionError, APIStatusError, APITimeoutError

        try:
            yield
        except (APITimeoutError, httpx2.TimeoutException):
            raise self._too_slow() from None
        except APIConnectionError as error:
            cause = self._shown(str(error.__cause__ or error))
            raise RequestFailed(
                f"no server answers at {self.url}: {cause}", may_pass=True
            ) from None
        except APIStatusError as error:
            raise self._refusal(error, model) from None
        # The client wraps only what happens before the answer begins.
        except (httpx2.HTTPError, OSError) as error:
            raise RequestFailed(
                f"{self.url} broke off in its answer: {self._shown(str(error))}", may_pass=True
            ) from None

    def _refusal(self, error: "APIStatusError", model: str | None) -> RequestFailed:
        status, words = error.status_code, self._shown(error.message)
        advice = ""
        # OpenAI says so with the status of "too fast", which would pass.
        is_unpaid = status == 402 or error.code == "insufficient_quota"
        if status in (401, 403):
            variable = KEY_VARIABLE
            if _is_openai(self.url):
                variable += f" or {OPENAI_KEY_VARIABLE}"
            advice = f"{'Check' if self._key else 'Set'} {variable}."
        elif is_unpaid:
            advice = "The account has nothing left to pay with."
        elif status in (400, 404) and model is not None:
            advice = self._model_advice(model, status)
        elif status == 429:
            advice = "Ask for less at once: --llm-concurrency."
        return RequestFailed(
            f"{self.url} refuses: {words}",
            advice,
            may_pass=(status in (408, 409, 429) or status >= 500) and not is_unpaid,
            wait_s=read_retry_after(error.response.headers, datetime.now(UTC)),
        )

    def _model_advice(self, model: str, status: int) -> str:
        """Say which models there are where this one is not among them."""
        try:
            offered = self.models()
        except RequestFailed:
            return "The URL of such an API mostly ends in /v1." if status == 404 else ""
        return "" if model in offered else describe_offer(offered, model)

    def _too_slow(self) -> RequestFailed:
        return RequestFailed(
            f"{self.url} did not answer within {self._timeout_s:g} s",
            "Raise --llm-timeout.",
            may_pass=True,
        )

    def _no_answer(self, body: bytes, what: str) -> RequestFailed:
        words = self._shown(body.decode(errors="replace")) or "nothing at all"
        return RequestFailed(f"{self.url} answers with what is {what}: {words}", may_pass=True)

    def _shown(self, words: str) -> str:
        """Shorten what a server says, and take the key out, should it be sent back."""
        if self._key is not None:
            words = words.replace(self._key, "…")
        words = " ".join(words.split()).rstrip(".")
        return words if len(words) <= _WORDS_SHOWN else words[: _WORDS_SHOWN - 1] + "…"


def describe_offer(offered: Sequence[str], model: str = "") -> str:
    """Say what models a server offers: those whose names are most like the one that was asked for.

    >>> describe_offer(["gpt-4o", "gpt-4o-mini"], "gpt-4")
    'It offers gpt-4o and gpt-4o-mini.'
    """
    shown = sorted(offered)
    if len(shown) > _MODELS_SHOWN:
        shown = difflib.get_close_matches(model, shown, _MODELS_SHOWN, cutoff=0.0)
        return f"It offers {len(offered)} models, such as {', '.join(shown)}."
    listed = " and ".join(filter(None, [", ".join(shown[:-1]), *shown[-1:]]))
    return f"It offers {listed or 'no model'}."


def _checked_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        is_url = False
    if not is_url:
        raise InputError(f"{url!r} is no URL of a server. Give one like http://127.0.0.1:8000/v1")
    if "@" in parts.netloc or parts.query or parts.fragment:
        # What stands in a URL is shown in messages, manifests and logs.
        raise InputError(
            f"the URL of {parts.hostname} holds more than where the server is. Give keys in "
            f"{KEY_VARIABLE} instead."
        )
    return url.rstrip("/")


def _is_openai(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    return host == "openai.com" or host.endswith(".openai.com")


def _read_key(url: str) -> str | None:
    variables = [KEY_VARIABLE, *([OPENAI_KEY_VARIABLE] if _is_openai(url) else [])]
    for variable in variables:
        key = os.environ.get(variable, "").strip()
        if key and not (key.isascii() and key.isprintable()):
            # The client would show it in its error.
            raise InputError(f"{variable} holds characters that no key has")
        if key:
            return key
    return None
