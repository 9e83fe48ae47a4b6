"""Run a command and measure its time, CPU time and memory, including all its children.

Linux only: the figures come from /proc.
"""

import os
import platform
import re
import resource
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_INTERVAL_S = 0.5
_MB = 1e6


@dataclass(frozen=True, slots=True)
class Measured:
    """The cost of a command."""

    wall_s: float  # wall-clock time
    cpu_s: float  # CPU time, children included
    # The sum of the resident sets of all processes, sampled twice a second. Shared pages count for
    # each process: the programs' code, some 50 MB.
    peak_mb: float
    output: str


def run_measured(command: Sequence[str | Path]) -> Measured:
    """Run a command to its end."""
    started = time.monotonic()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    with watched_memory(process.pid) as memory:
        output, _ = process.communicate()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode != 0:
        words = " ".join(str(word) for word in command)
        raise RuntimeError(f"{words}: code {process.returncode}: {output[-2000:]}")
    cpu_s = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return Measured(time.monotonic() - started, cpu_s, memory.peak_bytes / _MB, output)


@dataclass(slots=True)
class Memory:
    """The highest memory use seen."""

    peak_bytes: int = 0  # the highest sum over processes that ran at the same time


@contextmanager
def watched_memory(pid: int) -> Iterator[Memory]:
    """Watch a process and its descendants."""
    memory = Memory()
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(_INTERVAL_S):
            used = sum(memory_bytes(one) for one in process_tree(pid))
            memory.peak_bytes = max(memory.peak_bytes, used)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield memory
    finally:
        ended.set()
        watcher.join()


def process_tree(pid: int) -> list[int]:
    """List a process and its descendants; those that ended meanwhile are left out."""
    found = [pid]
    for one in found:
        for listing in Path(f"/proc/{one}/task").glob("*/children"):
            try:
                found += [int(child) for child in listing.read_text().split()]
            except OSError:
                continue
    return found


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a running process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_bytes(pid: int) -> int:
    """Return the resident set of a process; 0 if it has ended."""
    # Not the proportional set of smaps_rollup: reading that takes 10 ms for each GB, and the
    # process cannot touch new memory meanwhile.
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def disk_bytes(folder: Path) -> int:
    """Return the size of all files below a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def machine() -> str:
    """Describe this machine in one line."""
    processor = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    memory = re.search(r"MemTotal:\s*(\d+)", Path("/proc/meminfo").read_text())
    return (
        f"{os.cpu_count()} × {processor[1] if processor else platform.machine()}, "
        f"{int(memory[1]) / 1e6 if memory else 0:.0f} GB memory, "
        f"load average {os.getloadavg()[0]:.1f} at the start"
    )
