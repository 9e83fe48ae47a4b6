"""Compare the time and memory of two versions of kbqa, side by side in one run.

    python -m tools.bench.versions OTHER --store slice --questions webqsp.jsonl \
        [--questions cwq.jsonl] [--count 100] [--beams webqsp.beams.jsonl] [--dump dump.nt.gz] \
        [--rounds 3]

OTHER is the program `kbqa` of another version's environment, such as /tmp/old/.venv/bin/kbqa. The
two take turns, so that a busy machine slows both. Measured are `kbqa ask` on the demo graph, cold
(a process for each question), `kbqa ask -` with the first questions of each file, one at a time in
one process, and, if they are given, `kbqa eval` from beams and `kbqa load-freebase`. Both must read
the store and the beams. The ratio is this version's median divided by the other's: below 1, this
version is faster. A cold start is also compared with importing torch and transformers.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import click

from tools.bench.measured_run import machine, memory_bytes, watched_memory
from tools.options import FILE, FOLDER

COLD_QUESTION = "what is the largest city in Kenya?"

Program = Sequence[str]
Measure = Callable[[Program, Path], Sequence[float]]
"""Runs a program with a folder for its files and returns one figure for each row of the table."""


@click.command(help=__doc__)
@click.argument("other", type=FILE)
@click.option("--store", type=FOLDER, required=True)
@click.option("--questions", "files", type=FILE, required=True, multiple=True)
@click.option("--count", default=100, show_default=True)
@click.option("--beams", type=FILE)
@click.option("--dump", type=FILE)
@click.option("--rounds", default=3, show_default=True)
def main(
    other: Path,
    store: Path,
    files: Sequence[Path],
    count: int,
    beams: Path | None,
    dump: Path | None,
    rounds: int,
) -> None:
    """Measure both, in turns, and print the table."""
    programs = {"other": [str(other)], "this": [sys.executable, "-m", "kbqa.engine.cli"]}
    measures: dict[Sequence[str], Measure] = {
        ("ask, cold, s",): lambda program, folder: [_cold(program, folder)]
    }
    for file in files:
        texts = [
            json.loads(line)["question"] for line in file.read_text().splitlines()[: count + 1]
        ]
        title = f"ask, {len(texts) - 1} of {file.name}, s"
        measures[title, "the same, memory in MB"] = partial(_warm, store=store, questions=texts)
    if beams is not None:
        evaluate = ("eval", "--store", store, "--questions", files[0], "--beams", beams)
        evaluate += ("--no-timings", "--overwrite", "--output")
        measures[("eval from beams, s",)] = lambda program, folder: [
            _timed(program, folder, *evaluate, folder / "run.jsonl")
        ]
    if dump is not None:
        measures[("load-freebase, s",)] = lambda program, folder: [
            _timed(program, folder, "load-freebase", dump, "--overwrite", "--store", folder / "new")
        ]
    click.echo(f"{machine()}; {time.strftime('%Y-%m-%d')}; medians of {rounds} rounds\n")
    click.echo("| | other | this | ratio (range) |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as temporary:
        folders = {name: Path(temporary, name) for name in programs}
        for name, folder in folders.items():
            folder.mkdir()
            _cold(programs[name], folder)  # fills the cache, and does not count
        for rows, measure in measures.items():
            figures = [
                {name: measure(program, folders[name]) for name, program in programs.items()}
                for _ in range(rounds)
            ]
            for at, row in enumerate(rows):
                _print(row, [(figure["other"][at], figure["this"][at]) for figure in figures])
        imported = [(_import(), _cold(programs["this"], folders["this"])) for _ in range(rounds)]
        _print("ask, cold, against importing torch and transformers, s", imported)


def _print(row: str, pairs: Sequence[tuple[float, float]]) -> None:
    other, this = (statistics.median(column) for column in zip(*pairs, strict=True))
    ratios = [this / other for other, this in pairs]
    click.echo(
        f"| {row} | {other:.3g} | {this:.3g} | {this / other:.2f} "
        f"({min(ratios):.2f}–{max(ratios):.2f}) |"
    )


def _run(program: Program, folder: Path, *arguments: str | Path, stdin: str = "") -> list[str]:
    """Run kbqa with a separate cache and none of this process's import paths."""
    environment = {**os.environ, "KBQA_CACHE": str(folder / "cache")}
    if len(program) == 1:
        environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        [*program, *arguments],
        env=environment,
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        input=stdin,
    )
    return done.stdout.splitlines()


def _timed(program: Program, folder: Path, *arguments: str | Path) -> float:
    started = time.perf_counter()
    _run(program, folder, *arguments)
    return time.perf_counter() - started


def _import() -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import torch, transformers"], check=True)
    return time.perf_counter() - started


def _cold(program: Program, folder: Path) -> float:
    return _timed(program, folder, "ask", COLD_QUESTION)


def _warm(
    program: Program, folder: Path, store: Path, questions: Sequence[str]
) -> tuple[float, float]:
    """Return the median seconds of a question, without the first, and the peak memory in MB."""
    with watched_memory(os.getpid()) as memory:
        before = memory_bytes(os.getpid())
        lines = _run(
            program, folder, "ask", "-", "--json", "--store", store, stdin="\n".join(questions)
        )
    seconds = [sum(json.loads(line)["seconds"].values()) for line in lines]
    return statistics.median(seconds[1:]), (memory.peak_bytes - before) / 1e6


if __name__ == "__main__":
    main()
