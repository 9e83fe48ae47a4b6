"""Compare the time of two versions of kbqa, side by side in one run.

    python -m tools.bench.versions OTHER --store slice --questions webqsp.jsonl \
        --beams webqsp.beams.jsonl [--dump dump.nt.gz] [--rounds 3]

OTHER is the program `kbqa` of another version's environment, such as /tmp/old/.venv/bin/kbqa. The
two take turns, so that a busy machine slows both. Measured are `kbqa ask` on the demo graph, cold
(a process for each question) and warm (many questions in one process), `kbqa eval` from the given
beams, and, if a dump is given, `kbqa load-freebase`. Both must read the store and the beams. The
ratio is this version's median divided by the other's: below 1, this version is faster.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import click

QUESTIONS = (
    "what is the largest city in Kenya?",
    "which airport has the IATA code NBO?",
    "what currency is used in Kenya?",
    "what is the capital of Kenya?",
    "which languages are spoken in Switzerland?",
    "what is the atomic number of gold?",
)

Program = Sequence[str]
Measure = Callable[[Program, Path], float]


@click.command(help=__doc__)
@click.argument("other", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--store", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--questions", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--beams", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--dump", type=click.Path(path_type=Path, exists=True))
@click.option("--rounds", default=3, show_default=True)
def main(
    other: Path, store: Path, questions: Path, beams: Path, dump: Path | None, rounds: int
) -> None:
    """Measure both, in turns, and print the table."""
    programs = {"other": [str(other)], "this": [sys.executable, "-m", "kbqa.engine.cli"]}
    evaluation = ["--store", str(store), "--questions", str(questions), "--beams", str(beams)]
    measures: dict[str, Measure] = {
        "ask, cold": _cold,
        "ask, warm": _warm,
        "eval from beams": lambda program, folder: _evaluate(program, folder, evaluation),
    }
    if dump is not None:
        measures["load-freebase"] = lambda program, folder: _load(program, folder, dump)
    click.echo("| | other, median s | this, median s | ratio |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as temporary:
        folders = {name: Path(temporary, name) for name in programs}
        for name, folder in folders.items():
            folder.mkdir()
            _cold(programs[name], folder)  # fills the cache, and does not count
        for measure, run in measures.items():
            seconds: dict[str, list[float]] = {name: [] for name in programs}
            for _ in range(rounds):
                for name, program in programs.items():
                    seconds[name].append(run(program, folders[name]))
            medians = {name: statistics.median(values) for name, values in seconds.items()}
            ratio = medians["this"] / medians["other"]
            click.echo(
                f"| {measure} | {medians['other']:.2f} | {medians['this']:.2f} | {ratio:.2f} |"
            )


def _run(program: Program, folder: Path, *arguments: str, stdin: str | None = None) -> str:
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
    return done.stdout


def _timed(program: Program, folder: Path, *arguments: str) -> float:
    started = time.perf_counter()
    _run(program, folder, *arguments)
    return time.perf_counter() - started


def _cold(program: Program, folder: Path) -> float:
    return _timed(program, folder, "ask", QUESTIONS[0])


def _warm(program: Program, folder: Path) -> float:
    """Return the median seconds of a question, without the first."""
    lines = _run(program, folder, "ask", "-", "--json", stdin="\n".join(QUESTIONS)).splitlines()
    totals = [sum(json.loads(line)["seconds"].values()) for line in lines]
    return statistics.median(totals[1:])


def _evaluate(program: Program, folder: Path, arguments: Sequence[str]) -> float:
    output = str(folder / "run.jsonl")
    common = ("--no-timings", "--overwrite", "--output", output)
    return _timed(program, folder, "eval", *arguments, *common)


def _load(program: Program, folder: Path, dump: Path) -> float:
    store = str(folder / "store")
    return _timed(program, folder, "load-freebase", str(dump), "--store", store, "--overwrite")


if __name__ == "__main__":
    main()
