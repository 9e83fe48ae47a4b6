"""Check whether a store's load has finished; if not, how far it is and how to resume it."""

import fcntl
import shlex
from collections.abc import Callable
from pathlib import Path

from kbqa.kb.health.findings import Finding, problem, warning
from kbqa.kb.loading.checkpoint import Checkpoint, read_checkpoint
from kbqa.kb.store.layout import StoreLayout
from kbqa.sparql.errors import DumpError


def check_load(layout: StoreLayout) -> Finding | None:
    """Report an unfinished store, or a store that is being replaced.

    Returns:
        None for a finished store that no load is replacing.
    """
    directory = layout.directory
    command = f"kbqa load-freebase DUMP --store {shlex.quote(str(directory))}"
    if not directory.is_dir():
        what = "is a file" if directory.exists() else "does not exist"
        return problem("store", f"{directory} {what}", f"Create a store: `{command}`.")
    if layout.building.exists():
        return _unfinished(layout, command)
    if not layout.is_finished:
        what = "holds no finished store" if any(directory.iterdir()) else "is empty"
        return problem("store", f"{directory} {what}", f"Create a store: `{command}`.")
    return None


def is_held(path: Path, lock: Callable[[int, int], object]) -> bool:
    """Return whether another process holds an exclusive lock on a file.

    Args:
        path: The file; a missing file is not held.
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
        advice = "Wait until it ends, or use another store meanwhile."
        if layout.is_finished:
            return warning("load", f"the store is being replaced: {progress}", advice)
        return problem("load", f"the store is being loaded: {progress}", advice)
    if state is not None:
        dumps = shlex.join(name for name, _ in state.plan.dumps)
        command = command.replace("DUMP", dumps)
    if layout.is_finished:
        return warning(
            "load",
            f"a load to replace the store has not finished: {progress}",
            f"Resume it: `{command} --overwrite`, with the options that it had. "
            f"Or discard it: delete {layout.building}.",
        )
    return problem(
        "load",
        f"the load has not finished: {progress}",
        f"Resume it with the command that started it: `{command}`, with the options that it had.",
    )


def _progress(state: Checkpoint) -> str:
    if state.is_built:
        return "all parts are built, but not all moved into place"
    read = "all" if state.is_read else f"{len(state.dumps)}"
    dumps = f"{read} of {len(state.plan.dumps)} dumps"
    return (
        f"{state.counts.read:,} lines are read, {dumps} to the end, "
        f"and {state.triples_loaded:,} triples are in the store"
    )
