"""A kind of file that kbqa writes."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Format:
    """A kind of file, with one example of it.

    Attributes:
        name: For reports.
        file: The example.
        read: Read it as kbqa does; return what it holds, or None if it may mean anything.
        is_rows: It is a list of rows, which may be shorter; `read` returns it as a list.
        is_text: It is JSON, JSON Lines or TOML.
    """

    name: str
    file: Path
    read: Callable[[], object]
    is_rows: bool = False
    is_text: bool = True

    def restore(self, content: bytes) -> None:
        """Put its content back, and remove what SQLite left beside it."""
        for beside in ("-journal", "-wal", "-shm"):
            self.file.with_name(self.file.name + beside).unlink(missing_ok=True)
        self.file.write_bytes(content)
