"""Fuzz every file that kbqa writes and reads again: cut at any place, and with bytes changed.

A file that was cut must be refused, or mean what it meant before; one made of rows may also hold
fewer of them. A file with other bytes may mean something else, as few formats have checksums, but
must be read or refused. `tools/fuzz/formats.py` lists the files.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from random import Random

from tools.fuzz.formats import Format, engine_files, graph_files, training_files
from tools.fuzz.mutation import cuts, mutated_bytes, mutated_json_text
from tools.fuzz.trying import Outcome, Try, Wrong, reported


@contextmanager
def files(folder: Path) -> Iterator[Try]:
    """Files of every format, damaged by chance."""
    with _open_formats(folder) as formats:

        def try_one(random: Random) -> None:
            each = random.choice(formats)
            if random.random() < 0.5:
                _try_cut(each, random.choice(cuts(len(each.content))))
            elif random.random() < 0.5 and each.is_text:
                _read(each, mutated_json_text(random, each.content.decode()))
            else:
                _read(each, mutated_bytes(random, each.content))

        yield try_one


def cut_everywhere(folder: Path) -> Outcome:
    """Cut each file at each byte up to 64 kB and at a thousand places above."""
    outcome = Outcome("every cut")
    folder.mkdir(parents=True)
    with _open_formats(folder) as formats:
        for each in formats:
            for at in cuts(len(each.content)):
                outcome.note(f"{each.name}, byte {at}", partial(_try_cut, each, at))
    return outcome


@contextmanager
def _open_formats(folder: Path) -> Iterator[list[Format]]:
    with ExitStack() as stack:
        formats = []
        for make in (graph_files, engine_files, training_files):
            below = folder / make.__name__
            below.mkdir()
            formats += stack.enter_context(make(below))
        for each in formats:
            each.content, each.whole = each.file.read_bytes(), each.read()
        yield formats


def _try_cut(each: Format, at: int) -> None:
    found, whole = _read(each, each.content[:at]), each.whole
    if each.is_rows and isinstance(found, list) and isinstance(whole, list):
        whole = whole[: len(found)]
    if found not in (None, whole):
        raise Wrong(f"{each.name}, cut at byte {at} of {len(each.content)}, is read otherwise")


def _read(each: Format, content: bytes) -> object | None:
    """Read a file with other content; None if it is refused."""
    each.file.write_bytes(content)
    try:
        with reported(f"{each.name} as {content[:3000]!r}"):
            return each.read()
        return None
    finally:
        for beside in ("-journal", "-wal", "-shm"):  # SQLite's
            each.file.with_name(each.file.name + beside).unlink(missing_ok=True)
        each.file.write_bytes(each.content)
