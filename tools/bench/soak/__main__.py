"""Work for hours without a pause, and see that nothing grows.

    python -m tools.bench.soak --output soak                # two hours
    python -m tools.bench.soak --output soak --minutes 20 --model

Four processes work next to each other: one loads dumps, one evaluates runs from candidates, one
serves, and one asks it. They are sampled all the time, from when each has done something. The
folder gets the curves (`soak.csv`) and what they came to (`soak.json`). The tool ends with 1 if
something grew past its bound from the second quarter of the time to the last, or a process ended.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from tools.bench.measured_run import machine, memory_bytes, process_tree
from tools.bench.soak.work import JOBS

_LINES = 20_000
_MOST_SAMPLES = 2000
_END_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Sample:
    """What a job took at a moment, with all the processes below it."""

    seconds: float  # since the beginning
    job: str
    memory_mb: float  # resident memory
    descriptors: int  # open files, sockets and pipes
    processes: int  # how many processes
    threads: int  # how many threads
    files: int  # files in its folder for temporary files and in its cache
    rounds: int  # rounds done so far


GROWTH = {
    "memory_mb": (1.05, 30.0),
    "descriptors": (1.0, 8.0),
    "processes": (1.0, 1.0),
    "threads": (1.0, 4.0),
    "files": (1.0, 8.0),
}
"""The bound of each measure: the lowest of the last quarter may be that of the second quarter times
the first number plus the second. A leak raises the lowest; a load that opens files and closes them
does not. The first quarter warms up: caches fill, models load."""


def main() -> None:
    """Work, watch, and write what was seen."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0])
    parser.add_argument("--output", type=Path, required=True, help="a new folder")
    parser.add_argument("--minutes", type=float, default=120.0, help="how long (120)")
    parser.add_argument("--lines", type=int, default=_LINES, help="of each dump that is loaded")
    parser.add_argument("--model", action="store_true", help="serve the shipped model")
    options = parser.parse_args()
    options.output.mkdir(parents=True)
    samples, problems = soak(
        options.output, options.minutes * 60, options.lines, model=options.model
    )
    problems = problems or find_growth(samples)
    write_results(options.output, samples, problems)
    print("\n".join(problems) or "nothing grew")
    sys.exit(1 if problems else 0)


def soak(
    folder: Path, seconds: float, lines: int = _LINES, *, model: bool = False, rounds: int = 1
) -> tuple[list[Sample], list[str]]:
    """Work for a time; return samples from when each process has done something, and problems."""
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
    stopped = [(name, process.returncode) for name, process in processes.items()]
    return samples, ended or [f"{job} was stopped and ended with {c}" for job, c in stopped if c]


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
            command += ["--model"] if model else []
            with (below / "log").open("wb") as log:
                processes[name] = subprocess.Popen(
                    command, stdout=log, stderr=subprocess.STDOUT, env=environment
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


def sample(seconds: float, job: str, pid: int, folder: Path) -> Sample:
    """Measure a job; what ended meanwhile counts nothing."""
    tree = process_tree(pid)
    below = folder / job
    rounds = below / "rounds"
    return Sample(
        seconds=round(seconds, 2),
        job=job,
        memory_mb=round(sum(map(memory_bytes, tree)) / 1e6, 1),
        descriptors=sum(_count(Path(f"/proc/{each}/fd"), "*") for each in tree),
        processes=len(tree),
        threads=sum(_count(Path(f"/proc/{each}/task"), "*") for each in tree),
        files=sum(_count(below / part, "**/*") for part in ("tmp", "cache")),
        rounds=rounds.stat().st_size if rounds.is_file() else 0,
    )


def _count(folder: Path, pattern: str) -> int:
    try:
        return sum(1 for _ in folder.glob(pattern))
    except OSError:
        return 0


def find_growth(samples: Sequence[Sample]) -> list[str]:
    """Describe what grew past its bound, a sentence each."""
    ends_at = max(each.seconds for each in samples)
    problems = []
    for job in sorted({each.job for each in samples}):
        own = [each for each in samples if each.job == job]
        early = [each for each in own if ends_at / 4 <= each.seconds < ends_at / 2]
        late = [each for each in own if each.seconds >= ends_at * 3 / 4]
        for measure, (times, plus) in GROWTH.items():
            before, after = (min(getattr(each, measure) for each in part) for part in (early, late))
            if after > before * times + plus:
                problems.append(f"{job}: {measure} grew from {before:g} to {after:g}")
        if late[-1].rounds == early[-1].rounds and job != "server":
            problems.append(f"{job} did no more rounds after {late[-1].rounds}")
    return problems


def write_results(folder: Path, samples: Sequence[Sample], problems: Sequence[str]) -> None:
    """Write the curves as CSV, and a summary as JSON."""
    with (folder / "soak.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Sample)])
        writer.writeheader()
        writer.writerows(asdict(each) for each in samples)
    last = {each.job: each for each in samples}
    summary = {
        "machine": machine(),
        "seconds": max(each.seconds for each in samples),
        "bounds": GROWTH,
        "problems": list(problems),
        "rounds": {job: each.rounds for job, each in last.items()},
        "highest": {
            job: {name: max(getattr(e, name) for e in samples if e.job == job) for name in GROWTH}
            for job in last
        },
        "last": {job: {name: getattr(each, name) for name in GROWTH} for job, each in last.items()},
    }
    (folder / "soak.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
