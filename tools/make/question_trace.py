"""List the source files that a question visits, in docs/architecture.md.

    python -m tools.make.question_trace docs/architecture.md

Runs one `kbqa ask` on the demo graph in this process and records, in all its threads, each source
file of kbqa in which a function is called, with the first function called there. What modules call
while they are imported does not count. The record ends when the first SPARQL query of a candidate
is about to be executed. Run `kbqa ask` once before, so that loading the demo graph and converting
the model are not part of it.
"""

import io
import re
import sys
import threading
from collections.abc import Mapping
from contextlib import redirect_stdout
from functools import cache
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import FrameType

from kbqa.engine import cli

QUESTION = "what is the capital of Kenya?"
ROOT = Path(cli.__file__).resolve().parents[1]


def visited_files(question: str) -> dict[str, str]:
    """Answer a question; return the files that it visits, in order, with the first function."""
    visited: dict[str, str] = {}
    is_over = False

    def record(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal is_over
        if is_over or event != "call":
            return
        code = frame.f_code
        place = _place(code.co_filename)
        if place is None:
            return
        caller = frame.f_back
        if code.co_name == "select" and caller is not None:
            is_over = Path(caller.f_code.co_filename).name == "outcome.py"
        if not is_over and place not in visited and not _is_import(frame):
            visited[place] = code.co_name

    threading.setprofile(record)
    sys.setprofile(record)
    try:
        with redirect_stdout(io.StringIO()):
            cli.main(["ask", question], standalone_mode=False)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    if not is_over:
        raise RuntimeError("no candidate was executed")
    return visited


def _is_import(frame: FrameType | None) -> bool:
    """Return whether the body of one of kbqa's modules or classes is running."""
    while frame is not None:
        code = frame.f_code
        if not code.co_flags & CO_OPTIMIZED and _place(code.co_filename) is not None:
            return True
        frame = frame.f_back
    return False


@cache
def _place(filename: str) -> str | None:
    """Return a file's path in the repository; None if it is none of kbqa's source."""
    path = Path(filename).resolve()
    if not path.is_relative_to(ROOT) or not path.is_file():
        return None
    place = path.relative_to(ROOT)
    return place.as_posix() if place.parts[0] in ("engine", "kb", "sparql", "training") else None


def update_page(path: Path, visited: Mapping[str, str]) -> None:
    """Replace the list in a page, and its number of files."""
    width = max(map(len, visited))
    lines = [
        f"{number:3}  {file:{width}}  {function}\n"
        for number, (file, function) in enumerate(visited.items(), 1)
    ]
    page = path.read_text(encoding="utf-8")
    page = re.sub(r"(?:^ *\d+  \S+\.py .*\n)+", "".join(lines), page, count=1, flags=re.MULTILINE)
    page = re.sub(r"visits \d+ files", f"visits {len(visited)} files", page)
    path.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    update_page(Path(sys.argv[1]), visited_files(QUESTION))
