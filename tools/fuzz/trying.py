"""Try inputs one after the other: each within a time limit, each from a seed of its own."""

import re
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import NoReturn, TypeAlias

from kbqa.sparql.errors import KbqaError

Try: TypeAlias = Callable[[Random], None]
"""Makes an input by chance and tries it; raises if kbqa does not do what it should."""

Target: TypeAlias = Callable[[Path], AbstractContextManager[Try]]
"""Prepares what a part of kbqa needs to be tried, in an empty folder."""

LIMIT_S = 60.0
"""Seconds for one input: far above what any takes, also on a busy machine."""

_ELSEWHERE = re.compile("/site-packages/|/lib/python|^<")


class TooSlow(Exception):
    """An input took longer than `LIMIT_S`."""


class Wrong(Exception):
    """kbqa gave a wrong result without a word."""


@dataclass
class Outcome:
    """How many inputs of a target were tried, and the defects that they showed."""

    target: str
    tried: int = 0
    defects: dict[str, str] = field(default_factory=dict)
    """By the place in kbqa's code, the first input that showed each and its traceback."""

    def note(self, how: str, try_it: Callable[[], None]) -> None:
        """Try an input, and keep the first defect of a place with how to repeat it."""
        self.tried += 1
        try:
            with _limited():
                try_it()
        except Exception as error:  # noqa: BLE001 (any is a defect, and the next is tried)
            told = "".join(traceback.format_exception(error))
            self.defects.setdefault(_place(error), f"{how}\n{told}")


def try_inputs(
    name: str, target: Target, folder: Path, *, seed: int, first: int, inputs: int, seconds: float
) -> Outcome:
    """Try a number of inputs, or as many as there is time for.

    An input depends on the seed, the target and its number alone, so that one can be repeated.
    """
    outcome = Outcome(name)
    folder.mkdir(parents=True)
    with target(folder) as try_one:
        ends_at = time.monotonic() + seconds
        for number in range(first, first + inputs):
            if time.monotonic() > ends_at:
                break
            how = f"python -m tools.fuzz {name} --seed {seed} --first {number} --inputs 1"
            outcome.note(how, partial(try_one, Random(f"{name} {seed} {number}")))
    return outcome


@contextmanager
def reported(tried: object) -> Iterator[None]:
    """Accept an error that kbqa reports in words; note on any other what was tried."""
    try:
        yield
    except KbqaError as error:
        if not str(error).strip():
            raise Wrong(f"an error without words: {error!r}; tried {tried!r:.500}") from error
    except Exception as error:
        error.add_note(f"tried {tried!r:.2000}")
        raise


@contextmanager
def _limited() -> Iterator[None]:
    def stop(*_: object) -> NoReturn:
        raise TooSlow(f"not done within {LIMIT_S:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _place(error: BaseException) -> str:
    """Name a defect by its kind and the last lines of kbqa or of its tools that it passed."""
    frames = traceback.extract_tb(error.__traceback__)
    last = next((f for f in reversed(frames) if not _ELSEWHERE.search(f.filename)), frames[-1])
    return f"{type(error).__name__} in {'/'.join(Path(last.filename).parts[-3:])}:{last.lineno}"
