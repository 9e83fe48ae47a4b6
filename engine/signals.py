"""End a run on Ctrl-C or SIGTERM once the questions in progress are done.

The first signal raises an exception in the main thread; the run's other threads finish their
questions. The second ends the process at once, since a question may wait minutes for a server.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_NOTICE = b"\nStopping once the questions in progress are done. A second signal stops at once.\n"
_STDERR = 2
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopped(KeyboardInterrupt):
    """A signal asked the process to end.

    Attributes:
        exit_code: The shell's code for the signal: 130 or 143.
    """

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.exit_code = 128 + number


@contextmanager
def stop_on_signals() -> Iterator[None]:
    """Raise `Stopped` on the first signal in the block; only in the main thread."""

    def stop(number: int, frame: FrameType | None) -> None:
        for each in handled:
            signal.signal(each, _end)
        os.write(_STDERR, _NOTICE)  # print may have been interrupted itself
        raise Stopped(number)

    # A process that a script started in the background ignores Ctrl-C, and still must.
    handled = [each for each in _SIGNALS if signal.getsignal(each) is not signal.SIG_IGN]
    before = {each: signal.signal(each, stop) for each in handled}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def stop_on_sigterm() -> Iterator[None]:
    """Raise `Stopped` on SIGTERM in the block, so that temporary files are deleted as on Ctrl-C.

    A second one ends the process at once. Nothing changes outside the main thread, or if SIGTERM is
    ignored or handled already.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise Stopped(number)

    is_ours = threading.current_thread() is threading.main_thread()
    if not is_ours or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextmanager
def held_signals() -> Iterator[None]:
    """Hold Ctrl-C and SIGTERM back until the block ends: for imports in the main thread.

    What a signal raises within an import may be lost or turned into another error by what is
    imported, or leave a lock of Python's behind, so that another import waits for ever.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end(number: int, frame: FrameType | None) -> None:
    os._exit(128 + number)
