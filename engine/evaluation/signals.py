"""End a run by Ctrl-C or SIGTERM so that what is in hand is done before.

The first signal is an exception in the main thread, which the run's other threads outlive; the
second ends the process at once, as a question may wait for a server for minutes.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_NOTICE = b"\nStopping once the questions in hand are done; a second signal ends them too.\n"
_STDERR = 2
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopped(KeyboardInterrupt):
    """A signal asks the process to end.

    Attributes:
        exit_code: As a shell tells the signal: 130 or 143.
    """

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.exit_code = 128 + number


@contextmanager
def stop_on_signals() -> Iterator[None]:
    """Raise `Stopped` at the first signal in the block; only in the main thread."""

    def stop(number: int, frame: FrameType | None) -> None:
        for each in heeded:
            signal.signal(each, _end)
        os.write(_STDERR, _NOTICE)  # print may be what was interrupted
        raise Stopped(number)

    # What is started in the background by a script ignores Ctrl-C, and goes on doing so.
    heeded = [each for each in _SIGNALS if signal.getsignal(each) is not signal.SIG_IGN]
    before = {each: signal.signal(each, stop) for each in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(number: int, frame: FrameType | None) -> None:
    os._exit(128 + number)
