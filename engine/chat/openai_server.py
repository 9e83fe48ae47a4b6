"""Send one request to a server that speaks OpenAI's protocol.

Both the general model and the small model may be behind such a server. Whatever it does ends in the
body of an answer or in a `RequestFailed`, which says in the user's terms what happened and whether
to try again; trying again is for `Retrying`. Keys are removed from everything that is shown.
"""

import difflib
import importlib.util
import json
import os
import re
import time
import weakref
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel

from kbqa.engine.chat.retrying import RequestFailed, read_retry_after
from kbqa.sparql.errors import InputError, ModelError, PromptTooLong

if TYPE_CHECKING:
    from openai import APIStatusError, OpenAI

OPENAI_URL = "https://api.openai.com/v1"

OPENAI_KEY_VARIABLE = "OPENAI_API_KEY"
"""Names OpenAI's key, which is sent to OpenAI and to no other server."""

MAX_ANSWER_BYTES = 16 << 20
"""No answer is longer; the longest, a list of some hundred models, has under two megabytes."""

_MODELS_SHOWN = 10
_WORDS_SHOWN = 300

# "Context length" is OpenAI's and vLLM's word, "context size" llama.cpp's, "context window"
# llama-cpp-python's. Old versions of vLLM only said that nothing is left for the reply.
_SAYS_TOO_LONG = re.compile(
    r"context[ _](?:length|size|window)|max_tokens must be at least 1, got -|prompt is too long",
    re.IGNORECASE,
)

# OpenAI: "Unsupported parameter: 'max_tokens'", "does not support 0.0", and in Azure "Unrecognized
# request argument"; vLLM and Mistral: "Extra inputs are not permitted".
_PARAMETER = re.compile(r"\b(temperature|max_tokens|max_completion_tokens|seed)\b")
_SAYS_REFUSED = re.compile(
    r"unsupported|not support|unrecogni[sz]ed|unknown|unexpected|not (?:permitted|allowed)"
    r"|extra_forbidden|deprecated",
    re.IGNORECASE,
)

_Body = TypeVar("_Body", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Purpose:
    """What a server is used for, which decides its key and the advice in errors.

    Attributes:
        key_variable: The environment variable of the server's key.
        is_general: It is for a general model, so OpenAI's own server may be asked.
        if_slow: Advice if it does not answer in time.
        if_busy: Advice if it is asked too much.
    """

    key_variable: str
    is_general: bool = False
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
    """A server. Any number of threads may send requests to it.

    Args:
        url: The API's root, such as ``http://127.0.0.1:8000/v1``.
        timeout_s: Seconds for one request, from the connection to the last byte of the answer.
        purpose: What it is used for.

    Raises:
        InputError: The URL or the key is not valid.
        ModelError: The `llm` extra is missing.
    """

    def __init__(self, url: str, timeout_s: float, purpose: Purpose = GENERAL_MODEL) -> None:
        check_server(url, purpose)
        from openai import DefaultHttpxClient, OpenAI

        from kbqa.engine.chat.network_bounds import bounded
        from kbqa.kb.endpoint.connections import is_loopback

        self.url = url.rstrip("/")
        self._timeout_s, self._purpose = timeout_s, purpose
        self._key = _read_key(url, purpose)
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
        self,
        request: "Callable[[OpenAI], bytes]",
        answer: type[_Body],
        *,
        model: str | None = None,
        ends_at: float | None = None,
    ) -> _Body:
        """Send a request and read its answer.

        Args:
            request: Sends it by the client, and returns the body of the answer.
            answer: What the body must be.
            model: The model that is asked, for advice.
            ends_at: When the caller's deadline passes, as `time.monotonic` counts.

        Raises:
            RequestFailed: No answer came, or something else.
        """
        with self._explained(model, ends_at):
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
        """Return the models that the server offers, each with its owner.

        Raises:
            RequestFailed: It does not say.
        """
        listed = self.send(lambda client: client.models.with_raw_response.list().content, _Models)
        return {model.id: model.owned_by or "" for model in listed.data}

    @contextmanager
    def _explained(self, model: str | None, ends_at: float | None) -> Iterator[None]:
        """Bound a request, and turn what the client raises into what happened."""
        import httpx2
        from openai import APIConnectionError, APIStatusError, APITimeoutError

        from kbqa.engine.chat.network_bounds import AnswerTooLong, request_bounds

        own_end = time.monotonic() + self._timeout_s
        try:
            with request_bounds(min(own_end, ends_at or own_end), MAX_ANSWER_BYTES):
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

        from kbqa.kb.endpoint.connections import through_proxy

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
            parameter=_refused_parameter(error),
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
    """Replace what is no UTF-8, also half a surrogate pair, which JSON can escape."""
    try:
        whole = json.loads(body.decode(errors="replace"))
        return json.dumps(whole, ensure_ascii=False).encode(errors="replace")
    except RecursionError:
        return body


def _refused_parameter(error: "APIStatusError") -> str | None:
    """Return the parameter that a server does not take, of those that a request can do without."""
    if error.status_code not in (400, 422):
        return None
    # A 422 lists the fields at fault in its body.
    detail = error.body if error.status_code == 422 else ""
    said = f"{error.param} {error.code} {error.message} {detail}"
    named = _PARAMETER.search(said)
    return named[1] if named and _SAYS_REFUSED.search(said) else None


def check_server(url: str, purpose: Purpose = GENERAL_MODEL) -> None:
    """Check what can be checked of a server without asking it.

    Raises:
        InputError: The URL or the key is not valid.
        ModelError: The `llm` extra is missing.
    """
    _check_url(url, purpose)
    _read_key(url, purpose)
    if importlib.util.find_spec("openai") is None:
        raise ModelError("asking a model server needs openai. Install: pip install 'kbqa[llm]'")


def describe_offer(offered: Collection[str], model: str = "") -> str:
    """Describe which models a server offers; of many, those with names most like the given one.

    >>> describe_offer(["gpt-4o", "gpt-4o-mini"], "gpt-4")
    'It offers gpt-4o and gpt-4o-mini.'
    """
    shown = sorted(offered)
    if len(shown) > _MODELS_SHOWN:
        shown = difflib.get_close_matches(model, shown, _MODELS_SHOWN, cutoff=0.0)
        return f"It offers {len(offered)} models, such as {', '.join(shown)}."
    listed = " and ".join(filter(None, [", ".join(shown[:-1]), *shown[-1:]]))
    return f"It offers {listed or 'no model'}."


def _check_url(url: str, purpose: Purpose) -> None:
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


def _key_variables(url: str, purpose: Purpose) -> list[str]:
    host = urlsplit(url).hostname or ""
    is_openai = host == "openai.com" or host.endswith(".openai.com")
    return [purpose.key_variable, *([OPENAI_KEY_VARIABLE] * (is_openai and purpose.is_general))]


def _read_key(url: str, purpose: Purpose) -> str | None:
    for variable in _key_variables(url, purpose):
        key = os.environ.get(variable, "").strip()
        if key and not (key.isascii() and key.isprintable()):
            # The client would show it in its error.
            raise InputError(f"{variable} holds characters that no key has")
        if key:
            return key
    return None


class _Model(BaseModel):
    id: str
    owned_by: str | None = None


class _Models(BaseModel):
    """A list of models."""

    data: list[_Model]
