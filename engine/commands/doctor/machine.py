"""Check the machine: disk, memory, open files, Python and installed packages."""

import importlib.util
import os
import platform
import re
import resource
import shutil
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from kbqa.kb.cache import cache_directory
from kbqa.kb.health.findings import Finding, ok, problem, warning
from kbqa.kb.store.layout import StoreLayout

_LOW_DISK_BYTES = 1_000_000_000
_RUNTIME_BYTES = 1_500_000_000
"""Memory that Python, torch and the store's caches use in addition to the model."""

_OPEN_FILES = 8192
_REQUIREMENT = re.compile(r"[\w.\-]+")
_EXTRA = re.compile(r"""extra == ["']([\w\-]+)["']""")
_EXTRA_FOR_DEVELOPERS = "dev"


def check_machine(store: Path | None, model_bytes: int) -> Iterator[Finding]:
    """Check the machine.

    Args:
        store: The embedded store in use, if any.
        model_bytes: Memory that the small model needs; 0 if unknown.
    """
    yield from _check_packages()
    folders = {"cache": cache_directory()} | ({} if store is None else {"store": store})
    for name, folder in folders.items():
        yield _check_disk(name, folder)
    yield _check_memory(model_bytes)
    if store is not None:
        yield _check_open_files(store)


def _check_packages() -> Iterator[Finding]:
    missing: dict[str, list[str]] = {}
    extras: dict[str, None] = {}
    for requirement in requires("kbqa") or ():
        found = _EXTRA.search(requirement)
        extra = found[1] if found else ""
        if extra == _EXTRA_FOR_DEVELOPERS:
            continue
        extras[extra] = None
        name = _REQUIREMENT.match(requirement)
        if name is not None and not _is_installed(name[0]):
            missing.setdefault(extra, []).append(name[0])
    here = f"kbqa {version('kbqa')} on Python {platform.python_version()}"
    if lacking := missing.get(""):
        advice = "Reinstall kbqa: pip install --force-reinstall kbqa"
        yield problem("packages", f"{here}, without the required {', '.join(lacking)}", advice)
    else:
        yield ok("packages", here)
    whole = [extra for extra in extras if extra and extra not in missing]
    absent = [extra for extra in extras if extra in missing and extra]
    yield ok(
        "extras",
        f"installed: {', '.join(whole) or 'none'}; not installed: {', '.join(absent) or 'none'}",
    )


def _is_installed(distribution: str) -> bool:
    try:
        version(distribution)
    except PackageNotFoundError:
        return importlib.util.find_spec(distribution.replace("-", "_")) is not None
    return True


def _check_disk(name: str, folder: Path) -> Finding:
    existing = next(
        path for path in (folder.absolute(), *folder.absolute().parents) if path.exists()
    )
    free_bytes = shutil.disk_usage(existing).free
    finding = f"{_gigabytes(free_bytes)} free for the {name} in {folder}"
    if not os.access(existing, os.W_OK) and name == "cache":
        return problem("disk", f"{folder} is not writable", "Set KBQA_CACHE to another folder.")
    if free_bytes < _LOW_DISK_BYTES:
        return warning("disk", finding, f"Free some space, or move the {name} to another disk.")
    return ok("disk", finding)


def _check_memory(model_bytes: int) -> Finding:
    available = available_memory_bytes()
    wanted = model_bytes + _RUNTIME_BYTES
    finding = f"{_gigabytes(available)} free; answering needs about {_gigabytes(wanted)}"
    if available < wanted:
        return warning("memory", finding, "Close other programs, or use a smaller --model.")
    return ok("memory", finding)


def available_memory_bytes() -> int:
    """Return how much memory a new process can use without swapping."""
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    meminfo = Path("/proc/meminfo")
    if meminfo.is_file():
        found = re.search(r"^MemAvailable:\s+(\d+) kB", meminfo.read_text(), re.MULTILINE)
        limits += [int(found[1]) * 1024] if found else []
    # The container's own limit, if it has one (cgroup v2).
    limit, used = (Path("/sys/fs/cgroup", name) for name in ("memory.max", "memory.current"))
    if limit.is_file() and used.is_file() and (most := limit.read_text().strip()).isdigit():
        limits.append(int(most) - int(used.read_text()))
    return max(min(limits), 0)


def _check_open_files(store: Path) -> Finding:
    """RocksDB keeps every file of a store open, in each process that reads it."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = len(list(StoreLayout(store).graph.glob("*.sst")))
    if soft == resource.RLIM_INFINITY:
        return ok("open files", f"the store has {files:,} files, and there is no limit")
    finding = f"the store has {files:,} files; the limit is {soft:,}"
    if soft < _OPEN_FILES and files > soft / 4:
        return warning("open files", finding, f"Raise the limit: `ulimit -n {_OPEN_FILES}`.")
    return ok("open files", finding)


def _gigabytes(size_bytes: int) -> str:
    return f"{size_bytes / 1e9:,.1f} GB"
