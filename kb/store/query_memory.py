"""How much memory one query of an embedded store may take."""

import os
from pathlib import Path

from kbqa.sparql.errors import InputError

MEMORY_VARIABLE = "KBQA_QUERY_MEMORY_GB"
"""The environment variable that sets the limit."""

DEFAULT_GB = 8.0
"""The limit, unless a process's share of half of the machine's memory is less.

The heaviest ordinary queries allocate some 0.2 GB a second, such as a DISTINCT over all triples of
a slice (0.85 GB), so that none reaches it within the 30 seconds that a query has by default.
"""

# The limit of a container, in control groups of version 2 and 1.
_CONTAINER_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


def memory_limit_bytes(processes: int = 1, *, beside_another: bool = False) -> int:
    """Return the bytes that a query process may allocate.

    Args:
        processes: How many share the machine; what `MEMORY_VARIABLE` sets is for each of them.
        beside_another: They stand beside other processes that may take half of the machine, as in
            a server. They share a quarter.

    Raises:
        InputError: `MEMORY_VARIABLE` is not a positive number.
    """
    configured = os.environ.get(MEMORY_VARIABLE)
    if not configured:
        share = _machine_bytes() / (4 if beside_another else 2)
        return int(min(DEFAULT_GB * 2**30, share / processes))
    try:
        limit_gb = float(configured)
    except ValueError:
        limit_gb = 0.0
    if not 0 < limit_gb < 2**30:
        raise InputError(
            f"{MEMORY_VARIABLE} is {configured!r}: set it to a number of gigabytes, such as 8"
        )
    return int(limit_gb * 2**30)


def _machine_bytes() -> int:
    """Return the memory of the machine, or of the container if that has less."""
    sizes = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in _CONTAINER_LIMITS:
        try:
            sizes.append(int(path.read_text()))
        except (OSError, ValueError):  # there is none, or it reads "max"
            continue
    return min(sizes)
