"""Kill loads at random moments, resume them, and compare the stores to an uninterrupted load's.

    python -m tools.make.dump --lines 3000000 --output dump.nt.gz --defects 0.01
    python -m tools.bench.loading.kill_load dump.nt.gz --work FOLDER [--kills 20] [--seed 1]

One load after another is killed, and resumed by the same command until it ends, up to a number of
kills. Kills come at a random second, while the side indexes are written, while the store is
compacted, and while the parts are moved into place. They hit all processes or the first one alone.
Each finished store must have the same triples, names, statistics, schema and rejected lines as the
uninterrupted load, on at most 1.2 times the disk space, with no process left behind. The exit code
is 1 if anything differs.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from random import Random
from typing import NamedTuple

import click

from kbqa.kb.layout import StoreLayout
from tools.bench.measured_run import disk_bytes, machine, process_tree
from tools.options import FILE, NEW_FOLDER
from tools.store_content import Content, store_content

_DISK_BAR = 1.2
_POLL_S = 0.0005
_LONGEST_MOVE_S = 0.01
_END_TIMEOUT_S = 20.0
_ANY = "at a random second"
_INDEXING = "while indexes are written"
_COMPACTING = "while the store is compacted"
_MOVING = "while parts are moved"
# Half of the kills are at any time, so that a load is killed in all its stages.
_MOMENTS = (_ANY, _ANY, _INDEXING, _COMPACTING, _ANY, _ANY, _COMPACTING, _MOVING)


class Killed(NamedTuple):
    """A run of the command that was killed, or not."""

    seconds: float  # how long it ran
    code: int | None  # its exit code if it ended before it was killed; else None
    left: int  # its processes that did not end after the first was killed


@click.command()
@click.argument("dump", type=FILE)
@click.option("--work", required=True, type=NEW_FOLDER)
@click.option("--kills", default=20, show_default=True, type=click.IntRange(min=1))
@click.option("--seed", default=1, show_default=True, help="Another seed chooses other moments.")
@click.option("--shard-triples", default=100_000, show_default=True, type=click.IntRange(min=1))
def main(dump: Path, work: Path, kills: int, seed: int, shard_triples: int) -> None:
    """Kill loads, resume them, and compare the stores."""
    print(f"{machine()}; {dump.name}, {dump.stat().st_size / 1e6:,.0f} MB; seed {seed}")
    work.mkdir(parents=True, exist_ok=True)
    command = [str(Path(sys.executable).with_name("kbqa")), "load-freebase", str(dump)]
    command += ["--shard-triples", str(shard_triples), "--no-progress", "--store"]

    alone = work / "alone"
    shutil.rmtree(alone, ignore_errors=True)
    started = time.monotonic()
    subprocess.run([*command, str(alone)], check=True, stdout=subprocess.DEVNULL)
    whole_s = time.monotonic() - started
    expected = store_content(alone)
    size = disk_bytes(alone)
    print(
        f"uninterrupted: {whole_s:.1f} s, {size / 1e6:,.0f} MB, "
        f"{expected['triples'].total:,} triples"
    )

    store = work / "killed"
    layout = StoreLayout(store)
    shutil.rmtree(store, ignore_errors=True)
    random = Random(seed)
    moments = cycle(_MOMENTS)
    killed = loads = 0
    problems: list[str] = []
    print(f"\n{'kill':>5}{'load':>5}{'after s':>9}  {'of':14}{'':30}found at the kill")
    while True:
        moment = next(moments) if killed < kills else None
        first_alone = killed % 2 == 1
        run = _run([*command, str(store)], moment, first_alone, random, whole_s)
        if run.left:
            problems.append(f"kill {killed + 1}: {run.left} processes were left behind")
        if run.code is None:
            killed += 1
            what = "first process" if first_alone else "all processes"
            found = ", ".join(_found(store))
            print(f"{killed:5}{loads + 1:5}{run.seconds:9.2f}  {what:14}{moment:30}{found}")
            if not layout.is_finished or layout.building.exists():
                continue  # else it was complete, and only had to exit
        loads += 1
        finished = layout.is_finished
        differences = _compare(expected, store, size) if finished else ["no finished store"]
        if run.code:
            differences.append(f"the command ended with code {run.code}")
        problems += [f"load {loads}: {difference}" for difference in differences]
        ratio = disk_bytes(store) / size
        verdict = "; ".join(differences) or "the same store"
        print(f"  load {loads} ended: {verdict}, {ratio:.3f} times the disk")
        shutil.rmtree(store)
        if killed >= kills:
            break
    shutil.rmtree(alone)
    print(f"\n{killed} kills, {loads} loads: " + ("; ".join(problems) or "nothing differs"))
    sys.exit(1 if problems else 0)


def _run(
    command: Sequence[str], moment: str | None, first_alone: bool, random: Random, whole_s: float
) -> Killed:
    """Run the command and kill it at a moment, if it gets that far."""
    started = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
    if moment is None:
        process.wait()
    else:
        delays_s = {_ANY: whole_s, _INDEXING: whole_s / 10, _COMPACTING: whole_s / 20}
        if _comes(_has_begun(moment, Path(command[-1])), process):
            with suppress(subprocess.TimeoutExpired):
                process.wait(random.uniform(0, delays_s.get(moment, _LONGEST_MOVE_S)))
    if process.poll() is not None:
        return Killed(time.monotonic() - started, process.returncode, 0)
    tree = process_tree(process.pid)
    if first_alone:
        process.kill()
    else:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    seconds = time.monotonic() - started
    # Half of the time resume at once, while the other processes may still be ending.
    left = 0 if random.random() < 0.5 else _still_running(tree)
    return Killed(seconds, None, left)


def _has_begun(moment: str, store: Path) -> Callable[[], bool]:
    work = StoreLayout(StoreLayout(store).building)
    since = time.time()
    if moment == _INDEXING:
        return lambda: _is_written(work.names, since)
    if moment == _COMPACTING:
        # It starts when names are being indexed and the last shard is loaded and gone.
        return lambda: _is_written(work.names, since) and not any(work.directory.glob("shard-*"))
    if moment == _MOVING:
        return work.manifest.exists  # It is written and moved last.
    return lambda: True


def _is_written(path: Path, since: float) -> bool:
    """Return whether a file was written in this run and not by one killed before."""
    try:
        return path.stat().st_mtime > since
    except FileNotFoundError:
        return False


def _comes(is_there: Callable[[], bool], process: "subprocess.Popen[bytes]") -> bool:
    while not is_there():
        if process.poll() is not None:
            return False
        time.sleep(_POLL_S)
    return True


def _still_running(tree: Sequence[int]) -> int:
    """Count the processes that do not end."""
    deadline = time.monotonic() + _END_TIMEOUT_S
    while time.monotonic() < deadline:
        left = sum(_is_alive(pid) for pid in tree)
        if not left:
            return 0
        time.sleep(_POLL_S)
    return left


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def _found(store: Path) -> list[str]:
    """List the files in a store's directory and in the folder in which the load works."""
    names = sorted(path.name for path in store.glob("*") if path.name != "building")
    working = sorted(path.name for path in StoreLayout(store).building.glob("*"))
    shards = [name for name in working if name.startswith("shard-")]
    others = [name for name in working if name not in shards and not name.endswith(".lock")]
    return names + ["building:", *others] + ([f"shards: {len(shards)}"] if shards else [])


def _compare(expected: dict[str, Content], store: Path, size: int) -> list[str]:
    found = store_content(store)
    differences = [
        f"{name} differ ({expected[name].total:,} → {found[name].total:,})"
        for name in expected
        if found[name] != expected[name]
    ]
    if disk_bytes(store) > _DISK_BAR * size:
        differences.append(f"the disk is over {_DISK_BAR} times")
    if StoreLayout(store).building.exists():
        differences.append("the folder of the load is still there")
    return differences


if __name__ == "__main__":
    main()
