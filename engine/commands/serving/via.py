"""Ask a running `kbqa serve` instead of loading a model: `kbqa ask --via URL`.

The server renders the answer as lines without knowing the terminal, which colours and wraps them
here. It keeps to itself where its graph lies.
"""

import http.client
import json
import os
import time
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, cast, get_args
from urllib.parse import urlsplit

from kbqa.engine.answer import MAX_ANSWERS, Status
from kbqa.engine.answer_lines import Line, ShownAnswer, Style, last_lines
from kbqa.kb.endpoint.address import Address, read_address
from kbqa.kb.endpoint.connections import Connections, Response
from kbqa.sparql.crp import Entity
from kbqa.sparql.errors import (
    AnsweringError,
    BusyReason,
    DeadlineExceeded,
    GraphError,
    InputError,
    KbqaError,
    QueryTooLarge,
    ServerBusy,
    ServerError,
)

KEY_VARIABLE = "KBQA_VIA_KEY"

_LONGEST_S = 3600.0
"""The longest time limit that the server takes."""

_GRACE_S = 5.0
"""How much longer than its time limit a server is waited for."""

_EXAMPLE = "http://127.0.0.1:8080"


class ServedEngine:
    """The engine of a running `kbqa serve`.

    Args:
        url: Where it listens. The key, if it wants one, is read from `KEY_VARIABLE`.

    Raises:
        InputError: The URL or the key cannot be one.
    """

    def __init__(self, url: str) -> None:
        self._address = _read_url(url)
        self._connections = Connections(self._address)
        self._headers = {
            "Content-Type": "application/json",
            "Accept": "application/json",
            "User-Agent": "kbqa",
        }
        self._key = _read_key()
        if self._key:
            self._headers["Authorization"] = f"Bearer {self._key}"

    @property
    def url(self) -> str:
        """Where it is, for messages."""
        return self._address.shown

    def ask(
        self,
        question: str,
        topics: Sequence[Entity] = (),
        *,
        deadline_s: float | None = None,
        with_lines: bool,
    ) -> ShownAnswer:
        """Answer a question.

        Args:
            question: In natural language.
            topics: What it is about, if that is known; each has a mid.
            deadline_s: Seconds that it may take; None for the server's own limit.
            with_lines: Return the lines too.

        Raises:
            InputError: The server refuses the question.
            ServerBusy: It has too much to do, or is starting or stopping.
            DeadlineExceeded: No answer came in time.
            GraphError: Its graph does not answer.
            AnsweringError: It failed at this question.
            ServerError: It cannot be reached, wants a key, or is no `kbqa serve`.
        """
        limit_s = min(deadline_s or _LONGEST_S, _LONGEST_S)
        body = {
            "question": question,
            "topics": [topic.mid for topic in topics],
            "max_answers": MAX_ANSWERS,
            "lines": with_lines,
        }
        if deadline_s is not None:
            body["timeout_s"] = limit_s
        response = self._send("/api/v1/ask", body, limit_s)
        record = _object(response.body)
        if response.status != http.HTTPStatus.OK:
            self._refuse(response, record)
        try:
            sent = record.pop("lines", [])
            lines = [_line(each) for each in sent]
            if with_lines:
                lines += last_lines(f"the one of {self.url}", record["seconds"])
            # What the server adds to the record of `kbqa ask`.
            del record["id"], record["trace"]["batch_size"], record["trace"]["cached"]
            if record["status"] in get_args(Status):
                return ShownAnswer(record, lines)
        except (AttributeError, KeyError, TypeError, ValueError):
            pass  # it is another kind of record
        raise self._no_kbqa()

    def close(self) -> None:
        """Close the connections."""
        self._connections.close()

    def _send(self, path: str, body: Mapping[str, object], limit_s: float) -> Response:
        url = self._address.url.rstrip("/") + path
        request = urllib.request.Request(url, json.dumps(body).encode(), self._headers)
        try:
            return self._connections.send(request, time.monotonic() + limit_s + _GRACE_S)
        except TimeoutError:
            raise DeadlineExceeded(f"no answer from {self.url} within {limit_s:g} s") from None
        except http.client.HTTPException:
            raise self._no_kbqa() from None
        except QueryTooLarge as error:
            raise ServerError(str(error)) from None
        except OSError as error:
            reason = error.strerror or str(error)
            raise ServerError(
                f"no server can be reached at {self.url}: {reason}. "
                "Start one with `kbqa serve`, or correct --via or KBQA_VIA."
            ) from error

    def _refuse(self, response: Response, problem: Mapping[str, Any]) -> NoReturn:
        """Raise what a response that is no answer means, as `kbqa.engine.serve.problems` has it."""
        detail, code = problem.get("detail"), problem.get("code")
        if not isinstance(detail, str) or not isinstance(code, str):
            raise self._no_kbqa(response)
        if response.status == http.HTTPStatus.UNAUTHORIZED:
            known = f"does not know the key in {KEY_VARIABLE}"
            wanted = f"wants a key. Set {KEY_VARIABLE}"
            raise ServerError(f"{self.url} {known if self._key else wanted}")
        raise _error(response.status, code, f"{self.url}: {detail}", problem.get("retry_after_s"))

    def _no_kbqa(self, response: Response | None = None) -> ServerError:
        status = "" if response is None else f" (HTTP status {response.status})"
        return ServerError(
            f"{self.url} does not answer as a `kbqa serve` of this version does{status}. "
            "Is it another server, or another version of kbqa?"
        )


def _error(status: int, code: str, message: str, retry_after_s: object) -> KbqaError:
    match status:
        case 429 | 503 if code in ("queue-full", "starting", "stopping", "too-fast"):
            seconds = retry_after_s if isinstance(retry_after_s, int) else 1
            text = f"{message.removesuffix(' Try again later.')} Try again in {seconds} s."
            return ServerBusy(cast(BusyReason, code), text, seconds)
        case 400 | 413 | 415 | 422:
            return InputError(message)
        case 504 if code == "deadline":
            return DeadlineExceeded(message)
        case 502 | 503 | 504:
            return GraphError(message)
        case 500:
            return AnsweringError(message)
        case _:
            return ServerError(message)


def _line(sent: Mapping[str, Any]) -> Line:
    line = Line(sent["text"], sent["style"], bool(sent["wraps"]))
    if not isinstance(line.text, str) or line.style not in (None, *get_args(Style)):
        raise ValueError(line)
    return line


def _object(body: bytes) -> dict[str, Any]:
    """Read a JSON object; anything else is an empty one."""
    try:
        found = json.loads(body)
        json.dumps(found, allow_nan=False)  # it is printed, and NaN is no JSON
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _read_url(url: str) -> Address:
    try:
        parts = urlsplit(url)
        is_plain = parts.username is None and not parts.query and not parts.fragment
        is_served = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        is_plain = is_served = False
    if not is_served:
        raise InputError(f"--via is the address of a `kbqa serve`, such as {_EXAMPLE}, not {url!r}")
    if not is_plain:
        raise InputError(
            f"--via is only an address, such as {_EXAMPLE}. A key is read from {KEY_VARIABLE}."
        )
    return read_address(url)


def _read_key() -> str:
    key = os.environ.get(KEY_VARIABLE, "").strip()
    if not key.isascii() or not key.isprintable() or " " in key:
        raise InputError(f"{KEY_VARIABLE} holds blanks or characters that no key has")
    return key
