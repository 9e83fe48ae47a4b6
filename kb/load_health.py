"""Say whether a store's load has finished, and if not, how far it is and how it goes on."""

import fcntl
import shlex
from collections.abc import Callable
from pathlib import Path

from kbqa.kb.checkpoint import Checkpoint, read_checkpoint
from kbqa.kb.findings import Finding, problem, warning
from kbqa.kb.layout import StoreLayout
from kbqa.sparql.errors import DumpError


def check_load(layout: StoreLayout) -> Finding | None:
    """Say what keeps a store from being finished, or that one is being replaced.

    Returns:
        None for a finished store at which no load is at work.
    """
    directory = layout.directory
    command = f"kbqa load-freebase DUMP --store {shlex.quote(str(directory))}"
    if not directory.is_dir():
        what = "is a file" if directory.exists() else "does not exist"
        return problem("store", f"{directory} {what}", f"Make a store: `{command}`.")
    if layout.building.exists():
        return _unfinished(layout, command)
    if not layout.is_finished:
        what = "holds no finished store" if any(directory.iterdir()) else "is empty"
        return problem("store", f"{directory} {what}", f"Make a store: `{command}`.")
    return None


def is_held(path: Path, lock: Callable[[int, int], object]) -> bool:
    """Tell whether another process holds a file under an exclusive lock.

    Args:
        path: The file; one that does not exist is not held.
        lock: How that process locks it: `fcntl.flock`, or `fcntl.lockf` as RocksDB does.
    """
    try:
        with path.open("rb") as file:
            lock(file.fileno(), fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _unfinished(layout: StoreLayout, command: str) -> Finding:
    work = StoreLayout(layout.building)
    try:
        state = read_checkpoint(work.checkpoint) if work.checkpoint.exists() else None
        progress = "nothing is complete yet" if state is None else _progress(state)
    except DumpError as error:
        state, progress = None, str(error)
    if is_held(work.lock, fcntl.flock):
        advice = "Wait until it ends, or ask another store meanwhile."
        if layout.is_finished:
            return warning("load", f"the store is being replaced now: {progress}", advice)
        return problem("load", f"the store is being loaded now: {progress}", advice)
    if state is not None:
        dumps = shlex.join(name for name, _ in state.plan["dumps"])
        command = command.replace("DUMP", dumps)
    if layout.is_finished:
        return warning(
            "load",
            f"a load that was to replace the store has not finished: {progress}",
            f"Go on with it: `{command} --overwrite`, with the options that it had; "
            f"or give it up and delete {layout.building}.",
        )
    return problem(
        "load",
        f"the load has not finished: {progress}",
        f"The command that began it goes on: `{command}`, with the options that it had.",
    )


def _progress(state: Checkpoint) -> str:
    if state.is_built:
        return "all is built, and was to be moved into place"
    dumps = state.plan["dumps"]
    read = "all" if state.is_read else f"{len(state.dumps)}"
    return (
        f"{state.counts.read:,} lines are read, {read} of {len(dumps)} dumps to the end, and "
        f"{state.triples_loaded:,} triples are in the store"
    )
