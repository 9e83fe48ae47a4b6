"""Stop before more is spent on a general model than the user allows."""

import threading

from kbqa.sparql.errors import SpendingLimitReached


class SpendingLimit:
    """Counts what is spent, and refuses requests beyond the limit. Threads may share one.

    Requests are counted when they are sent, so the limit on requests is never exceeded. Their cost
    is known when they are answered, so the limit in USD is exceeded by at most the cost of the
    requests that were under way when it was reached. Each object counts from zero, so a resumed run
    starts from zero again. Cached replies cost nothing and are not counted.

    Args:
        usd: What the tokens may cost; None for no limit.
        calls: Requests that may be sent, retries included; None for no limit.
    """

    def __init__(self, usd: float | None = None, calls: int | None = None) -> None:
        self.usd, self.calls = usd, calls
        self._lock = threading.Lock()
        self._spent_usd, self._sent = 0.0, 0
        self._is_known = True

    def count_call(self) -> None:
        """Count a request that is about to be sent.

        Raises:
            SpendingLimitReached: It must not be sent.
        """
        with self._lock:
            if self.calls is not None and self._sent >= self.calls:
                raise SpendingLimitReached(
                    f"{self._sent} requests were sent to the general model, and no more are "
                    f"allowed. {_NOTHING_IS_LOST} Raise --llm-calls."
                )
            if self.usd is not None and not self._is_known:
                raise SpendingLimitReached(
                    "the general model's server does not report how many tokens it uses, so the "
                    f"limit of {self.usd:g} USD cannot be kept. {_NOTHING_IS_LOST} Use "
                    "--llm-calls instead of --llm-limit."
                )
            if self.usd is not None and self._spent_usd >= self.usd:
                raise SpendingLimitReached(
                    f"{self._spent_usd:.4g} USD were spent on the general model, of "
                    f"{self.usd:g} allowed. {_NOTHING_IS_LOST} Raise --llm-limit."
                )
            self._sent += 1

    def add_cost(self, usd: float | None) -> None:
        """Count what a request cost; None if that is not known."""
        with self._lock:
            if usd is None:
                self._is_known = False
            else:
                self._spent_usd += usd


_NOTHING_IS_LOST = "Its replies so far are kept."
