"""Write files so that a crash of the machine leaves the old content or the new, never half."""

import os
import secrets
from pathlib import Path


def write_safely(path: Path, text: str) -> None:
    """Replace a file's content as a whole, and sync it to the disk.

    Several processes may write the same file at the same time: each writes under its own name, and
    the last to finish wins.
    """
    unfinished = path.with_name(f"{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with unfinished.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    sync(path.parent)


def sync(path: Path) -> None:
    """Wait until a file's content, or a directory's entries, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
