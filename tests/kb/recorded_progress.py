"""What a load tells of itself, written down; and loads that are stopped at a certain point."""

from kbqa.kb.load_forecast import Forecast
from kbqa.kb.shard_pipeline import Stage


class RecordedProgress:
    """Notes what it is told; may interrupt a load as Ctrl-C does.

    Args:
        stop_at: Triples that have to be loaded for that; None to let the load go on.
        stop_in: The stage that has to be reached, too; None for any.
    """

    def __init__(self, stop_at: int | None = None, stop_in: Stage | None = None) -> None:
        self.expected: Forecast | None = None
        self.loaded_before = 0
        self.steps: list[tuple[Stage, int, int]] = []
        self._stop_at = stop_at
        self._stop_in = stop_in

    @property
    def stages(self) -> list[Stage]:
        """The stages, in the order in which they began."""
        return list(dict.fromkeys(stage for stage, _, _ in self.steps))

    def begin(self, expected: Forecast | None, triples_loaded: int) -> None:
        self.expected = expected
        self.loaded_before = triples_loaded

    def advance(self, stage: Stage, bytes_read: int, triples_loaded: int) -> None:
        self.steps.append((stage, bytes_read, triples_loaded))
        is_loaded = self._stop_at is not None and triples_loaded >= self._stop_at
        if is_loaded and self._stop_in in (None, stage):
            raise KeyboardInterrupt
