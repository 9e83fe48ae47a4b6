"""Count the source files that a question visits, and list them in docs/architecture.md.

    python -m tools.make.question_trace
    python -m tools.make.question_trace docs/architecture.md

Runs one `kbqa ask` on the demo graph in this process, in which all its threads are watched, until
the answer is printed. Two sets of files come of it, `__init__.py` aside:

- *Visited*: a function of the file is called. What modules call while they are imported does not
  count.
- *Stops*: a function of the file is handed the question. One of its arguments, `self` included, is
  a string that contains the text of the question, an `Asked`, or a `Candidate`; or it is a dict,
  list, tuple, set or dataclass that holds one of these at any depth. Other objects are not looked
  into, and the CRP that a candidate is read into is no longer a candidate.

Run `kbqa ask` once before, so that loading the demo graph and converting the model are not part of
it. The same revision then always counts the same files.
"""

import io
import re
import sys
import threading
from collections.abc import Iterable
from contextlib import redirect_stdout
from dataclasses import fields, is_dataclass
from functools import cache
from inspect import CO_OPTIMIZED, CO_VARARGS, CO_VARKEYWORDS
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from kbqa.engine import cli
from kbqa.engine.asked import Asked
from kbqa.engine.writing.generate import Candidate

QUESTION = "what is the capital of Kenya?"
ROOT = Path(cli.__file__).resolve().parents[1]


class Trace(NamedTuple):
    """The files of a question, in order, each with its first function."""

    visited: dict[str, str]
    stops: dict[str, str]


def trace(question: str) -> Trace:
    """Answer a question; return the files that it visits, and at which of them it stops."""
    visited: dict[str, str] = {}
    stops: dict[str, str] = {}
    printed = (0, 0)

    class Output(io.StringIO):
        def write(self, text: str) -> int:
            nonlocal printed
            printed = len(visited), len(stops)
            return super().write(text)

    def record(frame: FrameType, event: str, _argument: object) -> None:
        place = _place(frame.f_code.co_filename) if event == "call" else None
        if place is None or place in stops or _is_import(frame):
            return
        visited.setdefault(place, frame.f_code.co_name)
        if holds(_arguments(frame), question):
            stops[place] = frame.f_code.co_name

    threading.setprofile(record)
    sys.setprofile(record)
    try:
        with redirect_stdout(Output()):
            cli.main(["ask", question], standalone_mode=False)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    seen, stopped = printed  # with the last line of the answer
    return Trace(dict(islice(visited.items(), seen)), dict(islice(stops.items(), stopped)))


def _arguments(frame: FrameType) -> list[object]:
    code = frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & CO_VARARGS) + bool(code.co_flags & CO_VARKEYWORDS)
    values = frame.f_locals
    return [values[name] for name in code.co_varnames[:count] if name in values]


def holds(value: object, question: str) -> bool:
    """Return whether a value is the question, or holds it."""
    if isinstance(value, str):
        return question in value
    if isinstance(value, Asked | Candidate):
        return True
    inner: Iterable[object] = ()
    if isinstance(value, dict):
        inner = value.values()
    elif isinstance(value, list | tuple | set | frozenset):
        inner = value
    elif is_dataclass(value):
        inner = [getattr(value, field.name, None) for field in fields(value)]
    return any(holds(one, question) for one in inner)


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
    """Return a file's path in the repository; None if it is none of kbqa's that counts."""
    path = Path(filename).resolve()
    if not path.is_relative_to(ROOT) or not path.is_file() or path.name == "__init__.py":
        return None
    place = path.relative_to(ROOT)
    return place.as_posix() if place.parts[0] in ("engine", "kb", "sparql", "training") else None


def update_page(path: Path, trace: Trace) -> None:
    """Replace the list in a page, with a star at each stop, and its numbers of files."""
    width = max(map(len, trace.visited))
    lines = [
        f"{number:3}  {file:{width}}  {function}{' *' if file in trace.stops else ''}\n"
        for number, (file, function) in enumerate(trace.visited.items(), 1)
    ]
    page = path.read_text(encoding="utf-8")
    page = re.sub(r"(?:^ *\d+  \S+\.py .*\n)+", "".join(lines), page, count=1, flags=re.MULTILINE)
    page = re.sub(r"visits \d+ files", f"visits {len(trace.visited)} files", page)
    page = re.sub(r"stops at \d+", f"stops at {len(trace.stops)}", page)
    path.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    found = trace(QUESTION)
    print(f"visited {len(found.visited)}, stops {len(found.stops)}")
    for name in sys.argv[1:]:
        update_page(Path(name), found)
