import signal
import subprocess
import sys
import time

import pytest

from kbqa.engine.cli import held_signals

# The task takes longer than the test.
STUCK = """
import sys, time
from concurrent.futures import ThreadPoolExecutor
from kbqa.engine.cli import stop_on_signals
with stop_on_signals(), ThreadPoolExecutor(1) as pool:
    pool.submit(time.sleep, 100)
    print("ready", flush=True)
    time.sleep(100)
"""


def test_a_second_signal_ends_the_questions_in_progress() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", STUCK], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    assert process.stderr.readline() == "\n"
    assert process.stderr.readline().startswith("Stopping once the questions in progress are done")
    started = time.monotonic()
    process.send_signal(signal.SIGTERM)
    process.communicate()
    assert process.returncode == 143
    assert time.monotonic() - started < 50


def test_a_signal_waits_for_the_end_of_what_must_not_be_interrupted(
    request: pytest.FixtureRequest,
) -> None:
    # A process of pytest-xdist has no handler, and would end.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, handler))
    steps = []
    with pytest.raises(KeyboardInterrupt), held_signals():
        signal.raise_signal(signal.SIGINT)
        steps.append("went on")
    assert steps == ["went on"]
