"""Decide whether and when a request that failed is sent again.

The `openai` client's own retries are switched off: it accepts empty and malformed replies, waits
silently, and would multiply its tries by ours.
"""

import itertools
import logging
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TypeVar

from kbqa.engine.deadline import check_deadline
from kbqa.sparql.errors import ModelError

_LONG_PAUSE_S = 10.0

_Reply = TypeVar("_Reply")

logger = logging.getLogger(__name__)


class RequestFailed(Exception):
    """A request got no usable reply. If every try fails, the call raises `ModelError`.

    Attributes:
        advice: What the user may try: sentences, or nothing.
        may_pass: Whether the same request may succeed later.
        wait_s: How long the server asks to wait before another try; None if it does not say.
        raised_as: The error that the call then raises.
        parameter: The parameter of the request that the server does not take, if it says so.
    """

    def __init__(
        self,
        words: str,
        advice: str = "",
        *,
        may_pass: bool,
        wait_s: float | None = None,
        raised_as: type[ModelError] = ModelError,
        parameter: str | None = None,
    ) -> None:
        super().__init__(words)
        self.advice = advice
        self.may_pass = may_pass
        self.wait_s = wait_s
        self.raised_as = raised_as
        self.parameter = parameter


@dataclass(frozen=True, slots=True)
class Retrying:
    """How often a failed request is sent again, and after what pauses.

    Attributes:
        retries: Further tries.
        first_pause_s: Before the first of them; each later pause is twice as long.
        longest_wait_s: No pause is longer. If a server asks to wait longer, the call fails at once,
            which is better than silence.
    """

    retries: int = 5
    first_pause_s: float = 0.5
    longest_wait_s: float = 120.0

    def pause_s(self, tries: int) -> float:
        """Return the seconds to wait after the given number of tries, at least one.

        They are shortened at random by up to a quarter, so that requests that failed together are
        not sent together again.
        """
        pause_s = self.first_pause_s * 2.0 ** min(tries - 1, 20)
        return min(pause_s, self.longest_wait_s) * random.uniform(0.75, 1.0)

    def call(self, ask: Callable[[], _Reply], name: str, ends_at: float | None = None) -> _Reply:
        """Ask until there is a reply.

        Args:
            ask: Sends one request, and may raise `RequestFailed`.
            name: Of the model or server, for the log.
            ends_at: When the caller's deadline passes, as `time.monotonic` counts.

        Raises:
            ModelError: The last try failed, or one that cannot succeed later.
            DeadlineExceeded: The deadline passed.
        """
        for tries in itertools.count(1):
            try:
                return ask()
            except RequestFailed as failure:
                check_deadline(ends_at, name)
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
            if ends_at is not None:
                wait_s = min(wait_s, max(0.0, ends_at - time.monotonic()))
            time.sleep(wait_s)
            check_deadline(ends_at, name)
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
    """Return how many seconds a server asks to wait, or None if it does not say.

    >>> noon = datetime(2026, 2, 14, 12, tzinfo=UTC)
    >>> read_retry_after({"retry-after": "7"}, noon)
    7.0
    >>> read_retry_after({"retry-after": "Sat, 14 Feb 2026 12:00:30 GMT"}, noon)
    30.0

    Args:
        headers: Of the answer, with names in lower case or a mapping that ignores case.
        now: The time, for dates.

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
