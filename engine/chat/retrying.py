"""Decide whether and when a request that brought no usable reply is sent again.

The `openai` client could do a part of this, and its own is switched off: it takes rubbish and
empty texts for replies, waits without a word, and would multiply its tries by ours.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


class RequestFailed(Exception):
    """A request brought no usable reply. The tries of a call end in a `ModelError`, not in this.

    Attributes:
        advice: What the user may try: sentences, or nothing.
        may_pass: Whether the same request may be answered later.
        wait_s: What the server asks to wait before it is sent again; None where it does not say.
    """

    def __init__(
        self, words: str, advice: str = "", *, may_pass: bool, wait_s: float | None = None
    ) -> None:
        super().__init__(words)
        self.advice = advice
        self.may_pass = may_pass
        self.wait_s = wait_s


@dataclass(frozen=True, slots=True)
class Retrying:
    """How often a request that failed is sent again, and after what pauses.

    Attributes:
        retries: Further tries.
        first_pause_s: Before the first of them; each later pause is twice as long.
        longest_wait_s: No pause is longer. Where a server asks to wait longer, the call fails at
            once, which is better than silence.
    """

    retries: int = 5
    first_pause_s: float = 0.5
    longest_wait_s: float = 120.0

    def pause_s(self, tries: int) -> float:
        """Draw a pause of our own after so many tries, at least one.

        It is up to a quarter shorter than said, so that what failed together is not sent together
        again.
        """
        pause_s = self.first_pause_s * 2.0 ** min(tries - 1, 20)
        return min(pause_s, self.longest_wait_s) * random.uniform(0.75, 1.0)


def read_retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Read how many seconds a server asks to wait, which may be none.

    >>> noon = datetime(2026, 2, 14, 12, tzinfo=UTC)
    >>> read_retry_after({"retry-after": "7"}, noon)
    7.0
    >>> read_retry_after({"retry-after": "Sat, 14 Feb 2026 12:00:30 GMT"}, noon)
    30.0

    Args:
        headers: Of the answer, with names in lower case or a mapping that does not mind.
        now: The time, for dates.

    Returns:
        The seconds; None where it does not say, or nothing that can be read.

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
