"""How fast the server answers, as measured, so that it can say how long to wait."""

import time

_FIRST_GUESS_S = 1.0
_KEPT = 0.95
"""Of what was measured before, at each further answer: about the last twenty count."""


class Pace:
    """Measures the seconds from one answer to the next while there are questions under way."""

    def __init__(self) -> None:
        self._under_way = 0
        self._since = 0.0
        self._seconds, self._answers = _FIRST_GUESS_S, 1.0

    @property
    def seconds_each(self) -> float:
        """Seconds that a question takes, given that others are worked on beside it."""
        return self._seconds / self._answers

    def begin(self) -> None:
        """Count a question that begins."""
        if not self._under_way:
            self._since = time.monotonic()
        self._under_way += 1

    def end(self, *, is_answered: bool) -> None:
        """Count a question that ends; one that was given up says nothing of the pace."""
        self._under_way -= 1
        if is_answered:
            now = time.monotonic()
            self._seconds = _KEPT * self._seconds + now - self._since
            self._answers = _KEPT * self._answers + 1
            self._since = now
