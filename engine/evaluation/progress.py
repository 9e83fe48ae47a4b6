"""Add up a run's rows as they come, to show its progress."""

from kbqa.engine.evaluation.runs.row_file import WrittenRow
from kbqa.engine.evaluation.runs.rows import Row


class RunProgress:
    """How far a run is, and how good so far.

    Args:
        total: The questions of the run.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = self._failed = self._scored = 0
        self._f1 = self._hit = 0.0
        self._general_calls = 0

    def add(self, row: Row) -> None:
        """Count a row."""
        self._done += 1
        if row.error is not None:
            self._failed += 1
        if row.scores is not None:
            self._scored += 1
            self._f1 += row.scores.f1
            self._hit += row.scores.hit
        if row.usage is not None:
            self._general_calls += row.usage.general.calls

    @property
    def left(self) -> int:
        """Questions that a resumed run would ask: those to come, and those that failed."""
        return self._total - self._done + self._failed

    def figures(self) -> dict[str, str]:
        """Return means over the questions scored so far, and counts, as texts by name."""
        return {
            "n": str(self._scored),
            "F1": f"{self._f1 / max(self._scored, 1):.3f}",
            "hit": f"{self._hit / max(self._scored, 1):.3f}",
            "errors": str(self._failed),
            "general calls": f"{self._general_calls / max(self._done, 1):.2f}",
        }


class RetrievalProgress:
    """How far a run is whose rows have no scores.

    Args:
        total: The questions of the run.

    Attributes:
        failed: Questions that failed.
    """

    def __init__(self, total: int) -> None:
        self._total, self._done, self.failed = total, 0, 0

    def add(self, row: WrittenRow) -> None:
        """Count a row."""
        self._done += 1
        self.failed += row.error is not None

    @property
    def left(self) -> int:
        """Questions that a resumed run would ask: those to come, and those that failed."""
        return self._total - self._done + self.failed

    def figures(self) -> dict[str, str]:
        """Return counts, as texts by name."""
        return {"errors": str(self.failed)}
