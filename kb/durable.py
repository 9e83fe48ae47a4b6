"""Write files so that a crash of the machine leaves the old content or the new, never half."""

import os
from pathlib import Path


def write_safely(path: Path, text: str) -> None:
    """Replace a file's content at once, on the disk."""
    unfinished = path.with_name(path.name + ".tmp")
    with unfinished.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
    sync(path.parent)


def sync(path: Path) -> None:
    """Have a file's content, or a directory's entries, on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
