"""Share a number of general calls among the questions of a run, in their order.

Which questions may call depends on the order of the questions alone, and not on how many are
answered at once. So a run gives the same rows with any concurrency, and when it is resumed.
"""

import threading
from typing import Final

MOST_CALLS: Final = 10
"""What a question is granted at most. No repair takes more: a blueprint, a choice and a judgement
for each of four steps, and the last choice."""


class RunBudget:
    """The general calls that a run may take. Threads may share one.

    A question may take what those before it leave. It only waits for them if what they may still
    take decides how many calls are left for it. The questions must be begun in their order.

    Args:
        calls: How many the run may take.
    """

    def __init__(self, calls: int) -> None:
        self._calls = calls
        self._taken: dict[int, int] = {}
        self._settled = threading.Condition()

    def grant(self, place: int) -> int:
        """Return how many calls a question may take; wait until that is known.

        Args:
            place: Of the question in the run, from 0.
        """
        with self._settled:
            while True:
                # Later questions have taken some only if there was enough for all before them, or
                # if this one failed and is asked again.
                left = self._calls - sum(self._taken.values())
                if left <= 0:
                    return 0
                open_ = sum(at not in self._taken for at in range(place))
                if not open_ or left >= (open_ + 1) * MOST_CALLS:
                    return min(left, MOST_CALLS)
                self._settled.wait()

    def settle(self, place: int, calls: int) -> None:
        """Note what a question took; it takes no more."""
        with self._settled:
            self._taken[place] = calls
            self._settled.notify_all()
