"""A progress that records its calls, and can stop a load at a certain point."""

from kbqa.kb.loading.job import Forecast, LoadStage


class RecordedProgress:
    """Records its calls; can interrupt a load as Ctrl-C does.

    Args:
        stop_at: Loaded triples at which to interrupt; None for never.
        stop_in: Interrupt only in this stage; None for any.
    """

    def __init__(self, stop_at: int | None = None, stop_in: LoadStage | None = None) -> None:
        self.expected: Forecast | None = None
        self.loaded_before = 0
        self.steps: list[tuple[LoadStage, int, int]] = []
        self._stop_at = stop_at
        self._stop_in = stop_in

    @property
    def stages(self) -> list[LoadStage]:
        """The stages, in the order in which they started."""
        return list(dict.fromkeys(stage for stage, _, _ in self.steps))

    def begin(self, expected: Forecast | None, triples_loaded: int) -> None:
        self.expected = expected
        self.loaded_before = triples_loaded

    def advance(self, stage: LoadStage, bytes_read: int, triples_loaded: int) -> None:
        self.steps.append((stage, bytes_read, triples_loaded))
        is_loaded = self._stop_at is not None and triples_loaded >= self._stop_at
        if is_loaded and self._stop_in in (None, stage):
            raise KeyboardInterrupt
