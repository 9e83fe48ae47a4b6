"""Measure loading: all of `kbqa load-freebase` against `oxigraph load`.

    python -m tools.make.dump --lines 34500000 --output dump.nt.gz
    python -m tools.bench.loading.load dump.nt.gz --work FOLDER [--repeats 3]
    python -m tools.bench.loading.load small.nt.gz large.nt.gz --work FOLDER --memory

The first form loads one dump in several ways, in turn. kbqa gets the dump and does everything:
unpacking, cleaning, filtering, names, schema, statistics, hubs. oxigraph gets the filtered triples
in a plain file. kbqa with ``--no-compact`` is compared to ``oxigraph load``; kbqa with its
defaults, which compact the store, to ``oxigraph load`` and ``oxigraph optimize``. Rates count the
filtered triples. Wall-clock times depend on what else the machine does; if others use it too,
compare CPU times. The second form loads each dump once with kbqa and shows how memory grows; the
store of the last dump stays in the folder.
"""

import gzip
import json
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from tools.bench.measured_run import Measured, disk_bytes, machine, run_measured
from tools.options import FILE, NEW_FOLDER

_KBQA = Path(sys.executable).with_name("kbqa")
_OXIGRAPH_PROGRAM = Path(sys.executable).with_name("oxigraph")
_OURS_AS_LOADED = "kbqa load-freebase --no-compact"
_OURS = "kbqa load-freebase"
_OXIGRAPH = "oxigraph load --lenient"
_OXIGRAPH_OPTIMIZED = "oxigraph load, then optimize"
_BARS = ((_OURS_AS_LOADED, _OXIGRAPH, 0.9), (_OURS, _OXIGRAPH_OPTIMIZED, 1.0))
_COPY_BYTES = 1 << 24


@dataclass(frozen=True, slots=True)
class Run:
    """One load, and the size of its store."""

    measured: Measured
    disk_mb: float


Way = Callable[[Path], Mapping[str, Run]]
"""Loads into a new store, and returns a run for each of its rows of the table."""


@click.command()
@click.argument("dumps", nargs=-1, required=True, type=FILE)
@click.option(
    "--work",
    required=True,
    type=NEW_FOLDER,
    help="Folder for the stores and the filtered files; the latter are kept and reused.",
)
@click.option("--repeats", default=3, show_default=True, type=click.IntRange(min=1))
@click.option(
    "--loaders", type=click.IntRange(min=1), help="kbqa's loaders; by default it chooses."
)
@click.option("--memory", is_flag=True, help="Load each dump once with kbqa and show the memory.")
def main(
    dumps: Sequence[Path], work: Path, repeats: int, loaders: int | None, memory: bool
) -> None:
    """Measure loading."""
    work.mkdir(parents=True, exist_ok=True)
    print(f"{machine()}; {time.strftime('%Y-%m-%d')}")
    if memory:
        _show_memory(dumps, work, loaders)
        return
    if len(dumps) != 1:
        raise click.UsageError("several dumps need --memory.")
    [dump] = dumps
    filtered, triples = _filter(dump, work)
    print(
        f"{dump.name}: {dump.stat().st_size / 1e6:,.0f} MB; {triples:,} filtered triples "
        f"in {filtered.stat().st_size / 1e6:,.0f} MB; medians of {repeats}"
    )
    ways: list[Way] = [
        lambda store: {_OURS_AS_LOADED: _load_all(dump, store, loaders, "--no-compact")},
        lambda store: {_OURS: _load_all(dump, store, loaders)},
        lambda store: _load_oxigraph(filtered, store),
    ]
    _print_runs(_in_turn(ways, work / "store", repeats), triples)


def _in_turn(ways: Sequence[Way], store: Path, repeats: int) -> dict[str, list[Run]]:
    """Run each way equally often; start each turn with another one."""
    runs: dict[str, list[Run]] = {}
    for turn in range(repeats):
        for at in range(len(ways)):
            shutil.rmtree(store, ignore_errors=True)
            for name, run in ways[(turn + at) % len(ways)](store).items():
                runs.setdefault(name, []).append(run)
                measured = run.measured
                print(
                    f"  {name}: {measured.wall_s:.1f} s, {measured.cpu_s:.1f} s of CPU, "
                    f"{measured.peak_mb:,.0f} MB",
                    file=sys.stderr,
                )
    shutil.rmtree(store, ignore_errors=True)
    return runs


def _print_runs(runs: dict[str, list[Run]], triples: int) -> None:
    print(f"\n{'':34}{'wall s':>9}{'CPU s':>9}{'peak MB':>9}{'disk MB':>9}{'triples/s':>12}")
    walls, cpus = {}, {}
    for name, done in runs.items():
        walls[name] = statistics.median(run.measured.wall_s for run in done)
        cpus[name] = statistics.median(run.measured.cpu_s for run in done)
        peak = max(run.measured.peak_mb for run in done)
        print(
            f"{name:34}{walls[name]:9.1f}{cpus[name]:9.1f}{peak:9,.0f}{done[-1].disk_mb:9,.0f}"
            f"{triples / walls[name]:12,.0f}"
        )
    for ours, theirs, bar in _BARS:
        if ours in walls and theirs in walls:
            ratio = walls[theirs] / walls[ours]
            each = [
                other.measured.wall_s / own.measured.wall_s
                for own, other in zip(runs[ours], runs[theirs], strict=True)
            ]
            print(
                f"{ours}: {ratio:.2f} times the rate of {theirs} (goal: {bar}; "
                f"round by round {', '.join(f'{value:.2f}' for value in each)}), "
                f"{cpus[ours] / cpus[theirs]:.2f} times its CPU time"
            )


def _show_memory(dumps: Sequence[Path], work: Path, loaders: int | None) -> None:
    print(f"\n{'':24}{'triples':>13}{'wall s':>9}{'CPU s':>9}{'peak MB':>9}{'disk MB':>9}")
    store = work / "store"
    for dump in dumps:
        shutil.rmtree(store, ignore_errors=True)
        run = _load_all(dump, store, loaders)
        triples = json.loads(run.measured.output.splitlines()[-1])["kept"]
        print(
            f"{dump.name:24}{triples:13,}{run.measured.wall_s:9.1f}{run.measured.cpu_s:9.1f}"
            f"{run.measured.peak_mb:9,.0f}{run.disk_mb:9,.0f}"
        )


def _filter(dump: Path, work: Path) -> tuple[Path, int]:
    """Write the filtered triples of a dump, or reuse those of an earlier run, and count them."""
    folder = work / f"{dump.name}-filtered"
    info, whole = folder / "summary.json", folder / "whole.nt"
    size = dump.stat().st_size
    if not info.exists() or json.loads(info.read_text(encoding="utf-8"))["dump_bytes"] != size:
        shutil.rmtree(folder, ignore_errors=True)
        packed = folder / "packed"
        command: list[str | Path] = [_KBQA, "load-freebase", dump, "--emit-shards", packed]
        summary = json.loads(run_measured([*command, "--json"]).output.splitlines()[-1])
        with whole.open("wb") as target:
            for shard in sorted(packed.glob("*.nt.gz")):
                with gzip.open(shard) as source:
                    shutil.copyfileobj(source, target, _COPY_BYTES)
        shutil.rmtree(packed)
        known = {"dump_bytes": size, "triples": summary["kept"]}
        info.write_text(json.dumps(known), encoding="utf-8")
    return whole, json.loads(info.read_text(encoding="utf-8"))["triples"]


def _load_all(dump: Path, store: Path, loaders: int | None, *options: str) -> Run:
    command: list[str | Path] = [_KBQA, "load-freebase", dump, "--store", store, "--json", *options]
    if loaders is not None:
        command += ["--loaders", str(loaders)]
    return _measure(command, store)


def _load_oxigraph(filtered: Path, store: Path) -> dict[str, Run]:
    """Load (one row), then optimize (a second row, together with the load)."""
    command: list[str | Path] = [_OXIGRAPH_PROGRAM, "load", "--lenient", "--location", store]
    loaded = _measure([*command, "--file", filtered], store)
    optimized = _measure([_OXIGRAPH_PROGRAM, "optimize", "--location", store], store)
    first, second = loaded.measured, optimized.measured
    both = Measured(
        first.wall_s + second.wall_s,
        first.cpu_s + second.cpu_s,
        max(first.peak_mb, second.peak_mb),
        first.output + second.output,
    )
    return {_OXIGRAPH: loaded, _OXIGRAPH_OPTIMIZED: Run(both, optimized.disk_mb)}


def _measure(command: Sequence[str | Path], store: Path) -> Run:
    measured = run_measured(command)
    return Run(measured, disk_bytes(store) / 1e6)


if __name__ == "__main__":
    main()
