"""The folder for what kbqa builds once and can always build again."""

import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import platformdirs

_UNLOCKED_S = 5.0
"""A folder that nobody holds is left over once it is so old: its maker locks it at once."""


def cache_directory() -> Path:
    """Return the cache folder, which need not exist yet.

    It is ``KBQA_CACHE`` if that is set and not empty, else ``kbqa`` in the user's cache folder.
    A writer writes to a temporary name and renames it, and the name depends on everything that can
    change the content.
    """
    configured = os.environ.get("KBQA_CACHE")
    return Path(configured) if configured else Path(platformdirs.user_cache_dir("kbqa"))


@contextmanager
def building_folder(directory: Path) -> Iterator[Path]:
    """Make an empty folder beside one that is to be built in it and moved to its place.

    What is not moved is removed at the end, and so are the folders of processes that were killed.

    Raises:
        OSError: It cannot be written.
    """
    directory.parent.mkdir(parents=True, exist_ok=True)
    for other in directory.parent.glob(f"{directory.name}.*"):
        if _is_left_over(other):
            shutil.rmtree(other, ignore_errors=True)
    prefix = f"{directory.name}."
    with TemporaryDirectory(
        prefix=prefix, dir=directory.parent, ignore_cleanup_errors=True
    ) as folder:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            with suppress(OSError):  # a network drive may have no locks
                fcntl.flock(descriptor, fcntl.LOCK_SH)
            yield Path(folder)
        finally:
            os.close(descriptor)


def _is_left_over(folder: Path) -> bool:
    """Whether the process that built in a folder has ended."""
    try:
        if time.time() - folder.stat().st_mtime < _UNLOCKED_S:
            return False
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def sync(folder: Path) -> None:
    """Write what a folder holds to the disk, so that a power cut does not empty its files."""
    for path in [*folder.rglob("*"), folder]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
