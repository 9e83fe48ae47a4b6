"""The code and the machine that made a result, for manifests."""

import functools
import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Iterable
from pathlib import Path


def git_revision() -> str | None:
    """Return the commit of the checkout that this code runs from; None if it is installed."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():  # installed, maybe in a folder of somebody's checkout
        return None
    try:
        done = subprocess.run(
            ["git", "rev-parse", "HEAD"],
            cwd=root,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def package_versions(names: Iterable[str]) -> dict[str, str | None]:
    """Return the installed versions of packages; None for one that is not installed."""
    return {name: _installed_version(name) for name in names}


@functools.cache
def _installed_version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def hardware() -> dict[str, object]:
    """Describe the processor, its cores and the GPUs that torch finds."""
    import torch

    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpus": [torch.cuda.get_device_name(at) for at in range(torch.cuda.device_count())],
    }


def _processor() -> str:
    """Return the processor's name; Linux has a better one than Python."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
