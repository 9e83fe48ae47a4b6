"""Work for hours without a pause, and see that nothing grows.

    python -m tools.bench.soak --output soak                # two hours
    python -m tools.bench.soak --output soak --minutes 20 --model

Four processes work next to each other: one loads dumps, one evaluates runs from candidates, one
serves, and one asks it. They are sampled all the time, from when each has done something. The
folder gets the curves (`soak.csv`), what they came to (`soak.json`) and, with matplotlib, a picture
(`soak.png`). The tool ends with 1 if something grew past its bound from the second quarter of the
time to the last, or a process ended.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tools.bench.measured_run import machine
from tools.bench.soak.curves import Sample, draw, find_growth, sample, write_results
from tools.bench.soak.work import JOBS

_LINES = 20_000
_MOST_SAMPLES = 2000
_END_TIMEOUT_S = 60.0


def main() -> None:
    """Work, watch, and write what was seen."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0])
    parser.add_argument("--output", type=Path, required=True, help="a new folder")
    parser.add_argument("--minutes", type=float, default=120.0, help="how long (120)")
    parser.add_argument("--lines", type=int, default=_LINES, help="of each dump that is loaded")
    parser.add_argument(
        "--model", action="store_true", help="serve the shipped model, not a script"
    )
    options = parser.parse_args()
    options.output.mkdir(parents=True)
    samples, problems = soak(
        options.output, options.minutes * 60, options.lines, model=options.model
    )
    problems = problems or find_growth(samples)
    write_results(options.output, samples, problems, machine())
    draw(options.output, samples)
    print("\n".join(problems) or "nothing grew")
    sys.exit(1 if problems else 0)


def soak(
    folder: Path, seconds: float, lines: int = _LINES, *, model: bool = False, rounds: int = 1
) -> tuple[list[Sample], list[str]]:
    """Work for a time, and sample from when each process has done something.

    Returns:
        The samples, and which processes ended before the time.
    """
    dump = folder / "dump.nt.gz"
    make = [sys.executable, "-m", "tools.make.dump", "--lines", str(lines), "--output", str(dump)]
    subprocess.run(make, check=True, stderr=subprocess.DEVNULL)
    samples: list[Sample] = []
    ended: list[str] = []
    interval_s = max(0.1, seconds / _MOST_SAMPLES)
    with _working(folder, model) as processes:
        started = None
        while not ended:
            now = time.monotonic()
            found = [sample(now, name, process.pid, folder) for name, process in processes.items()]
            fewest = min(each.rounds for each in found if each.job != "server")
            started = started or (now if fewest else None)
            if started is not None:
                samples += [replace(each, seconds=now - started) for each in found]
                if now - started >= seconds and fewest >= rounds:
                    break
            ended = [
                f"{name} ended with {process.returncode}: see {folder / name / 'log'}"
                for name, process in processes.items()
                if process.poll() is not None
            ]
            time.sleep(interval_s)
    codes = {name: process.returncode for name, process in processes.items()}
    return samples, ended or [
        f"{name} was stopped and ended with {c}" for name, c in codes.items() if c
    ]


@contextmanager
def _working(folder: Path, model: bool) -> Iterator[Mapping[str, "subprocess.Popen[bytes]"]]:
    """Run all jobs, each in a process and a folder of its own."""
    processes = {}
    try:
        for name in JOBS:
            below = folder / name
            (below / "tmp").mkdir(parents=True)
            environment = {
                **os.environ,
                "TMPDIR": str(below / "tmp"),
                "KBQA_CACHE": str(below / "cache"),
            }
            command = [sys.executable, "-m", "tools.bench.soak.work", name, str(folder)]
            with (below / "log").open("wb") as log:
                processes[name] = subprocess.Popen(
                    [*command, *(["--model"] if model else [])],
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=environment,
                )
        yield processes
    finally:
        for process in reversed(processes.values()):  # who asks ends before who is asked
            process.terminate()
            try:
                process.wait(_END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


if __name__ == "__main__":
    main()
