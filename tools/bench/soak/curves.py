"""Sample processes, and judge and draw what they take over time."""

import csv
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from tools.bench.measured_run import memory_bytes, process_tree

_MB = 1e6


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


def sample(seconds: float, job: str, pid: int, folder: Path) -> Sample:
    """Measure a job; what ended meanwhile counts nothing."""
    tree = process_tree(pid)
    below = folder / job
    files = sum(_count(part, "**/*") for part in (below / "tmp", below / "cache"))
    rounds = below / "rounds"
    return Sample(
        round(seconds, 2),
        job,
        round(sum(map(memory_bytes, tree)) / _MB, 1),
        sum(_count(Path(f"/proc/{each}/fd"), "*") for each in tree),
        len(tree),
        sum(_count(Path(f"/proc/{each}/task"), "*") for each in tree),
        files,
        rounds.stat().st_size if rounds.is_file() else 0,
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


def write_results(
    folder: Path, samples: Sequence[Sample], problems: Sequence[str], machine: str
) -> None:
    """Write the curves as CSV, and a summary as JSON."""
    with (folder / "soak.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Sample)])
        writer.writeheader()
        writer.writerows(asdict(each) for each in samples)
    last = {each.job: each for each in samples}
    summary = {
        "machine": machine,
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


def draw(folder: Path, samples: Sequence[Sample]) -> None:
    """Draw the curves, one picture a measure; nothing without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return
    figure = Figure(figsize=(8, 2 * len(GROWTH)), layout="constrained")
    for axes, measure in zip(figure.subplots(len(GROWTH), sharex=True), GROWTH, strict=True):
        for job in sorted({each.job for each in samples}):
            own = [each for each in samples if each.job == job]
            minutes = [each.seconds / 60 for each in own]
            axes.plot(minutes, [getattr(each, measure) for each in own], label=job, linewidth=0.8)
        axes.set_ylabel(measure.replace("_mb", ", MB"))
        axes.set_ylim(bottom=0)
    axes.set_xlabel("minutes")
    axes.legend(loc="lower right", ncols=4, fontsize="small")
    figure.savefig(folder / "soak.png", dpi=150)
