"""How far a load is, on disk: what the same command needs in order to go on after a kill.

The state is one JSON file, replaced whole whenever a shard is complete or loaded. Whatever lies
beside it and is not named in it is of no use and is deleted when the load goes on.
"""

import fcntl
import json
import shutil
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import NamedTuple, TypeAlias

from kbqa.kb.durable import write_safely
from kbqa.kb.layout import StoreLayout
from kbqa.sparql.errors import DumpError, InputError

Plan: TypeAlias = Mapping[str, str | Sequence[Sequence[str]]]
"""The parts of what a load is to do, each in words, or as names and what there is of each."""


class Position(NamedTuple):
    """How far the dumps were read into complete shards.

    Attributes:
        dump: Index of the dump that was being read.
        end: Bytes of its decompressed content that were read.
        lines: Lines of it that were read.
    """

    dump: int = 0
    end: int = 0
    lines: int = 0


class ReadDump(NamedTuple):
    """A dump that was read to its end: its bytes as they lie on disk."""

    sha256: str
    size_bytes: int


@dataclass(slots=True)
class Counts:
    """What became of lines; ``read = kept + filtered + rejected``.

    Attributes:
        read: Lines.
        kept: Triples handed to the store, repetitions included.
        filtered: Lines left out on purpose, by reason.
        rejected: Lines that are no triples, by reason.
        mended: Defects mended, by name; their lines count as kept or filtered.
        relations: Kept triples of each relation.
        types: Kept statements that something is of a type, by type.
    """

    read: int = 0
    kept: int = 0
    filtered: Counter[str] = field(default_factory=Counter)
    rejected: Counter[str] = field(default_factory=Counter)
    mended: Counter[str] = field(default_factory=Counter)
    relations: Counter[str] = field(default_factory=Counter)
    types: Counter[str] = field(default_factory=Counter)

    def add(self, other: "Counts") -> None:
        """Add the counts of further lines."""
        self.read += other.read
        self.kept += other.kept
        for name in _COUNTERS:
            getattr(self, name).update(getattr(other, name))

    def refuse(self, lines: int, reason: str) -> None:
        """Count kept lines as rejected after all."""
        if lines:
            self.kept -= lines
            self.rejected[reason] += lines


_COUNTERS = ("filtered", "rejected", "mended", "relations", "types")


@dataclass(slots=True)
class Checkpoint:
    """The state of a load.

    Attributes:
        plan: What is being loaded, by which rules and versions; a load goes on only with an
            equal plan.
        shard_triples: Triples after which a shard is complete.
        position: Where reading goes on.
        counts: Of the lines in complete shards.
        shards: Complete shards.
        unloaded: Those of them that the store has not taken yet, by number, with their triples.
        triples_loaded: Triples of the others.
        refused: Lines that the store's parser refused, in words.
        rejects_bytes: Size of the file of rejected lines.
        dumps: The dumps that were read to their end, in order.
        node_rows: Rows of the shards' node counts.
        is_read: Every dump was read to its end.
        is_compacted: The store holds all and was compacted.
        is_built: The store and all beside it are complete, and are being moved into place.
        seconds: Time spent.
    """

    plan: Plan
    shard_triples: int
    position: Position = field(default_factory=Position)
    counts: Counts = field(default_factory=Counts)
    shards: int = 0
    unloaded: dict[int, int] = field(default_factory=dict)
    triples_loaded: int = 0
    refused: list[str] = field(default_factory=list)
    rejects_bytes: int = 0
    dumps: list[ReadDump] = field(default_factory=list)
    node_rows: int = 0
    is_read: bool = False
    is_compacted: bool = False
    is_built: bool = False
    seconds: float = 0.0

    def save(self, path: Path) -> None:
        """Write the state; a crash leaves the old state or the new one."""
        write_safely(path, json.dumps(self, default=_fields))


@contextmanager
def locked(work: StoreLayout) -> Iterator[None]:
    """Hold the folder in which a load works; it is made if it is missing.

    Raises:
        InputError: Another load is at work there.
    """
    work.directory.mkdir(parents=True, exist_ok=True)
    with work.lock.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(
                f"another load is at work in {work.directory.parent}. Wait for it to end."
            ) from None
        yield


def find_unfinished(work: StoreLayout, plan: Plan, overwrite: bool) -> Checkpoint | None:
    """Find the load to go on with, and clear away what is of no use to it.

    Args:
        work: The folder in which it works, locked.
        plan: What is to be loaded.
        overwrite: Give up a load with another plan, or whose state cannot be read.

    Returns:
        Its state, or None where nothing is begun.

    Raises:
        InputError: An unfinished load has another plan.
        DumpError: Its state cannot be read, and it is not to be given up.
    """
    state = _found(work.checkpoint, overwrite)
    if state is not None and state.plan != plan:
        if not overwrite:
            raise InputError(
                f"{work.directory.parent} holds an unfinished load with other "
                f"{' and '.join(_differences(state.plan, plan))}. Finish it with the command that "
                "began it, or start anew with --overwrite."
            )
        state = None
    if state is not None and _is_in_place(work, state):
        state = None  # What it built is to be replaced.
    _clear(work, _known_files(work, state))
    work.runs.mkdir(exist_ok=True)
    return state


def has_work_left(work: StoreLayout) -> bool:
    """Tell whether a load that was stopped has more to do than to delete its folder.

    Raises:
        DumpError: Its state cannot be read.
    """
    return work.checkpoint.exists() and not _is_in_place(work, read_checkpoint(work.checkpoint))


def read_checkpoint(path: Path) -> Checkpoint:
    """Read the state of an unfinished load.

    Raises:
        DumpError: The file cannot be read.
    """
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
        saved["position"] = Position(*saved["position"])
        saved["dumps"] = [ReadDump(*dump) for dump in saved["dumps"]]
        saved["unloaded"] = {int(number): n for number, n in saved["unloaded"].items()}
        counts = saved["counts"]
        counts.update({name: Counter(counts[name]) for name in _COUNTERS})
        saved["counts"] = Counts(**counts)
        return Checkpoint(**saved)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DumpError(
            f"the state of the unfinished load, {path}, cannot be read ({error}). "
            "Start anew with --overwrite."
        ) from error


def discard(work: StoreLayout) -> None:
    """Delete the folder in which a load worked; what says that all was done, last."""
    _clear(work, {work.lock, work.checkpoint})
    work.checkpoint.unlink(missing_ok=True)
    shutil.rmtree(work.directory)


def _found(path: Path, overwrite: bool) -> Checkpoint | None:
    try:
        return read_checkpoint(path) if path.exists() else None
    except DumpError:
        if overwrite:
            return None
        raise


def _is_in_place(work: StoreLayout, state: Checkpoint) -> bool:
    # Of all that was built, the manifest is moved last.
    return state.is_built and not work.manifest.exists()


def _fields(value: object) -> dict[str, object]:
    # Not dataclasses.asdict, which takes a Counter for a list of pairs.
    assert isinstance(value, Checkpoint | Counts), "what else is in a checkpoint, JSON knows"
    return {member.name: getattr(value, member.name) for member in fields(value)}


def _clear(work: StoreLayout, known: Collection[Path]) -> None:
    for path in work.directory.iterdir():
        if path not in known:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _known_files(work: StoreLayout, state: Checkpoint | None) -> set[Path]:
    if state is None:
        return {work.lock}
    known = {work.lock, work.checkpoint, work.graph, work.rejects, work.manifest, work.runs}
    known |= {work.shard(number) for number in state.unloaded}
    # A store whose orphans were being dropped.
    known |= {work.graph.with_suffix(suffix) for suffix in (".clean", ".old")}
    if state.is_built:
        known |= {work.names, work.schema, work.statistics}
    return known


def _differences(begun: Plan, asked: Plan) -> Iterator[str]:
    for part, now in asked.items():
        was = begun.get(part, "")
        if was == now:
            continue
        changes: list[str] = []
        if not isinstance(was, str) and not isinstance(now, str):
            before = {pair[0]: pair[1] for pair in was}
            changes = [
                f"{name}: {before[name]}, now {state}"
                for name, state in now
                if before.get(name, state) != state
            ]
        yield f"{part} ({'; '.join(changes)})" if changes else part
