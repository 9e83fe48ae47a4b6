"""The saved state of a load, from which the same command resumes after a kill.

The state is one JSON file, replaced whenever a shard is complete or loaded. Files beside it that it
does not name are deleted when the load resumes.
"""

import fcntl
import json
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import NamedTuple

from pydantic import TypeAdapter, ValidationError

from kbqa.kb.layout import NO_LINES, RUN_KINDS, LineCounts, StoreLayout, write_safely
from kbqa.sparql.errors import DumpError, InputError

_STATE_VERSION = 1  # of the state file; a load of another version is started again


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a load, which is resumed only by a command with an equal plan."""

    output: str  # `store` or `shards`
    dumps: tuple[tuple[str, str], ...]  # the path of each, and what changes when the file does
    rules: str  # in TOML
    versions: tuple[tuple[str, str], ...]  # of packages and formats that determine the output


class Position(NamedTuple):
    """The place in the dumps up to which complete shards hold them."""

    dump: int = 0  # index of the dump that was being read
    end: int = 0  # bytes of its decompressed content that were read
    lines: int = 0  # lines of it that were read


class ReadDump(NamedTuple):
    """A dump that was read to its end: its bytes as they are on disk."""

    sha256: str
    size_bytes: int


@dataclass(slots=True)
class Checkpoint:
    """The state of a load."""

    plan: Plan
    shard_triples: int  # after which a shard is complete
    position: Position = field(default_factory=Position)  # where reading resumes
    counts: LineCounts = NO_LINES  # of the lines in complete shards
    relations: Counter[str] = field(default_factory=Counter)  # kept triples of each
    types: Counter[str] = field(default_factory=Counter)  # kept statements of each
    shards: int = 0  # complete ones
    unloaded: dict[int, int] = field(default_factory=dict)  # shard number: its triples
    triples_loaded: int = 0  # of the other complete shards
    refused: list[str] = field(default_factory=list)  # lines that the store's parser refused
    rejects_bytes: int = 0  # size of the file of rejected lines
    dumps: list[ReadDump] = field(default_factory=list)  # those read to their end, in order
    node_rows: int = 0  # rows of the shards' node counts
    is_read: bool = False  # every dump was read to its end
    is_compacted: bool = False  # the store holds all triples and was compacted
    is_built: bool = False  # all parts are complete and are being moved into place
    seconds: float = 0.0  # time spent
    schema_version: int = _STATE_VERSION

    def save(self, path: Path) -> None:
        """Write the state; a crash leaves the old state or the new one."""
        # pydantic would turn Ctrl-C into an error of its own.
        text = json.dumps(self, default=lambda e: {name: getattr(e, name) for name in e.__slots__})
        write_safely(path, text)


_CHECKPOINT = TypeAdapter(Checkpoint)


@contextmanager
def locked(work: StoreLayout) -> Iterator[None]:
    """Lock the folder in which a load works, or raise `InputError`; create it if it is missing."""
    work.directory.mkdir(parents=True, exist_ok=True)
    with work.lock.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(
                f"another load is writing to {work.directory.parent}. Wait until it ends."
            ) from None
        yield


def find_unfinished(
    work: StoreLayout, plan: Plan, overwrite: bool, check: Callable[[Checkpoint], None]
) -> Checkpoint | None:
    """Find the load to resume, if there is one, and delete the files that it does not need.

    Unless `overwrite` discards it, a load with another plan raises `InputError`, and one whose
    state or files are missing or damaged `DumpError`; so does `check` for other files.
    """
    try:
        state = _resumable(work, plan, check)
    except (InputError, DumpError):
        if not overwrite:
            raise
        state = None
    _clear(work, _known_files(work, state))
    work.runs.mkdir(exist_ok=True)
    return state


def has_work_left(work: StoreLayout) -> bool:
    """Return whether a stopped load has more to do than to delete its folder."""
    return work.checkpoint.exists() and not _is_in_place(work, read_checkpoint(work.checkpoint))


def read_checkpoint(path: Path) -> Checkpoint:
    """Read the state of an unfinished load, or raise `DumpError`."""
    try:
        state = _CHECKPOINT.validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise _is_unreadable(path, f"{place}: {first['msg']}" if place else first["msg"]) from error
    except OSError as error:
        raise _is_unreadable(path, str(error)) from error
    if state.schema_version != _STATE_VERSION:
        raise _is_unreadable(path, f"its format has version {state.schema_version}")
    return state


def discard(work: StoreLayout) -> None:
    """Delete the folder of a load; the state, which says that the load ended, last."""
    _clear(work, {work.lock, work.checkpoint})
    work.checkpoint.unlink(missing_ok=True)
    shutil.rmtree(work.directory)


def _is_unreadable(path: Path, reason: str) -> DumpError:
    return DumpError(
        f"the state of the unfinished load, {path}, cannot be read ({reason}). "
        "Use --overwrite to start again."
    )


def _resumable(
    work: StoreLayout, plan: Plan, check: Callable[[Checkpoint], None]
) -> Checkpoint | None:
    if not work.checkpoint.exists():
        return None
    state = read_checkpoint(work.checkpoint)
    if state.plan != plan:
        raise InputError(
            f"{work.directory.parent} holds an unfinished load with other "
            f"{' and '.join(_differences(state.plan, plan))}. Finish it with the command that "
            "started it, or use --overwrite to start again."
        )
    if _is_in_place(work, state):
        return None  # its output is to be replaced
    _check_files(work, state)
    check(state)
    return state


def _is_in_place(work: StoreLayout, state: Checkpoint) -> bool:
    # Of all that was built, the manifest is moved last.
    return state.is_built and not work.manifest.exists()


def _check_files(work: StoreLayout, state: Checkpoint) -> None:
    """Check that the shards and runs that a load has written are there."""
    runs = [work.run(shard, kind) for shard in range(state.shards) for kind in RUN_KINDS]
    shards = [work.shard(number) for number in state.unloaded]
    if missing := next((path for path in (*runs, *shards) if not path.is_file()), None):
        raise is_unresumable(work, f"{missing.relative_to(work.directory)} is missing")


def is_unresumable(work: StoreLayout, reason: str) -> DumpError:
    """Return an error that says why an unfinished load cannot be resumed."""
    return DumpError(
        f"the unfinished load in {work.directory} cannot be resumed: {reason}. "
        "Use --overwrite to start again."
    )


def _clear(work: StoreLayout, known: Collection[Path]) -> None:
    for path in work.directory.iterdir():
        if path not in known:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _known_files(work: StoreLayout, state: Checkpoint | None) -> set[Path]:
    if state is None:
        return {work.lock}
    known = {work.lock, work.checkpoint, work.graph, work.rejects, work.manifest, work.runs}
    known |= {work.shard(number) for number in state.unloaded}
    # A store whose orphaned files were being dropped.
    known |= {work.graph.with_suffix(suffix) for suffix in (".clean", ".old")}
    if state.is_built:
        known |= {work.names, work.schema, work.statistics}
    return known


def _differences(started: Plan, asked: Plan) -> Iterator[str]:
    for part in fields(Plan):
        was, now = getattr(started, part.name), getattr(asked, part.name)
        if was == now:
            continue
        before = {} if isinstance(was, str) else dict(was)
        changes = [
            f"{name}: {before[name]}, now {state}"
            for name, state in ([] if isinstance(now, str) else now)
            if before.get(name, state) != state
        ]
        yield f"{part.name} ({'; '.join(changes)})" if changes else part.name
