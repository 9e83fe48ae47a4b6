import signal
import subprocess
import sys
import time

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


HELD = """
import signal
from kbqa.engine.cli import held_signals
try:
    with held_signals():
        signal.raise_signal(signal.SIGINT)
        print("went on")
except KeyboardInterrupt:
    print("ended")
"""


def test_a_signal_waits_for_the_end_of_what_must_not_be_interrupted() -> None:
    # In a process of its own: those that share the tests do not all survive a signal.
    command = [sys.executable, "-c", HELD]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "went on\nended\n"
