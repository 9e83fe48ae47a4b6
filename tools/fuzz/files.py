"""Fuzz every file that kbqa writes and reads again: cut at any place, and with bytes changed.

A file that was cut must be refused, or mean what it meant before; one made of rows may also hold
fewer of them. A file with other bytes may mean something else, as few formats have checksums, but
must be read or refused.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

from tools.fuzz.formats import Format, engine_files, graph_files, training_files
from tools.fuzz.mutation import cuts, mutated_bytes, mutated_json_text
from tools.fuzz.trying import Outcome, Try, Wrong, reported

_MAKERS = (graph_files, engine_files, training_files)


@dataclass(frozen=True)
class _Damaged:
    """A format with what its file holds while it is whole."""

    format: Format
    content: bytes
    whole: object


@contextmanager
def files(folder: Path) -> Iterator[Try]:
    """Files of every format, damaged by chance."""
    with _open_formats(folder) as formats:

        def try_one(random: Random) -> None:
            each = random.choice(formats)
            if random.random() < 0.5:
                _try_cut(each, random.choice(cuts(len(each.content))))
            else:
                _try_change(each, random)

        yield try_one


def cut_everywhere(folder: Path) -> Outcome:
    """Cut each file at each byte up to 64 kB and at a thousand places above."""
    outcome = Outcome("every cut")
    folder.mkdir(parents=True)
    with _open_formats(folder) as formats:
        for each in formats:
            for at in cuts(len(each.content)):
                outcome.note(f"{each.format.name}, byte {at}", partial(_try_cut, each, at))
    return outcome


@contextmanager
def _open_formats(folder: Path) -> Iterator[list[_Damaged]]:
    with ExitStack() as stack:
        formats = []
        for make in _MAKERS:
            below = folder / make.__name__
            below.mkdir()
            formats += stack.enter_context(make(below))
        yield [_Damaged(each, each.file.read_bytes(), each.read()) for each in formats]


def _try_cut(each: _Damaged, at: int) -> None:
    found = _read(each, each.content[:at], f"{each.format.name}, cut at byte {at}")
    if found is None or found == each.whole:
        return
    if each.format.is_rows and _is_beginning(found, each.whole):
        return
    raise Wrong(f"{each.format.name}, cut at byte {at} of {len(each.content)}, is read otherwise")


def _try_change(each: _Damaged, random: Random) -> None:
    if random.random() < 0.5 and each.format.is_text:
        content = mutated_json_text(random, each.content.decode())
    else:
        content = mutated_bytes(random, each.content)
    _read(each, content, f"{each.format.name} as {content[:3000]!r}")


def _read(each: _Damaged, content: bytes, tried: str) -> object | None:
    """Read a file with other content; None if it is refused."""
    each.format.file.write_bytes(content)
    try:
        with reported(tried):
            return each.format.read()
        return None
    finally:
        each.format.restore(each.content)


def _is_beginning(found: object, whole: object) -> bool:
    return (
        isinstance(found, Sequence) and isinstance(whole, Sequence) and found == whole[: len(found)]
    )
