"""The process that writes a store: the child's side of `StoreWriter` in `kbqa.kb.loading.load`.

    python -P kb/loading/store_writer_process.py GRAPH LOADERS

It is run by its path and imports nothing of kbqa, which takes ten times as long to start.

It reads lines: the paths of shards to load, or ``compact``. It answers each with a line of JSON. An
empty line closes the store. If the input ends without one, the parent is gone, and it exits at
once. `bulk_load` reads several shards at a time without holding the interpreter lock, and loads all
of a file or nothing. A line that its parser refuses is found and left out.

RocksDB merges files in the background whenever a few have come in, and most of that work is done
again when the next come. So with loaders, it merges only while a core is idle. A process without
loaders merges at full speed.
"""

import json
import os
import resource
import signal
import sys
import threading
import traceback
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from pyoxigraph import RdfFormat, Store, parse

_COMPACT = "compact"
_FINISH = ""
_FORMAT = RdfFormat.N_TRIPLES
_OPEN_FILES = 1 << 16


def _load(store: Store, shard: Path) -> dict[int, str]:
    refused: dict[int, str] = {}
    if _holds(store, shard):
        return refused
    try:
        _bulk_load(store, shard)
    except SyntaxError:
        refused = _refused_lines(shard)
        cleaned = shard.with_suffix(".cleaned")
        _leave_out(shard, refused, cleaned)
        _bulk_load(store, cleaned)
        cleaned.unlink()
    return refused


def _holds(store: Store, shard: Path) -> bool:
    # After a kill, a shard may be in the store without a note of it. Loaded again, it takes disk
    # space twice until RocksDB merges both. For a new shard, the first triple is missing already.
    try:
        return all(quad in store for quad in parse(path=shard, format=_FORMAT, lenient=True))
    except SyntaxError:
        return False


def _bulk_load(store: Store, shard: Path) -> None:
    store.bulk_load(path=shard, format=_FORMAT, lenient=True)


def _refused_lines(shard: Path) -> dict[int, str]:
    numbers: set[int] = set()
    quads = parse(path=shard, format=_FORMAT, lenient=True)
    while True:
        try:
            # After an error, the iterator continues at the next line.
            for _ in quads:
                pass
        except SyntaxError as error:
            assert error.lineno is not None, "pyoxigraph gives the line"
            numbers.add(error.lineno)
        else:
            break
    with shard.open("rb") as lines:
        return {
            number: line.rstrip(b"\n").decode("utf-8", "replace")
            for number, line in enumerate(lines, start=1)
            if number in numbers
        }


def _leave_out(shard: Path, numbers: Iterable[int], cleaned: Path) -> None:
    left_out = frozenset(numbers)
    with shard.open("rb") as lines, cleaned.open("wb") as kept:
        kept.writelines(
            line for number, line in enumerate(lines, start=1) if number not in left_out
        )


def _open(graph: str, *, gives_way: bool) -> Store:
    """Open the store; with `gives_way`, it merges files only while a core is idle."""

    def open_here() -> Store:
        if gives_way:
            with suppress(AttributeError, OSError):  # Not on this system: it merges as it does.
                os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        return Store(graph)

    # RocksDB starts its threads here, and they inherit the priority of the thread that starts them,
    # which an ordinary user cannot raise again.
    with ThreadPoolExecutor(1) as opener:
        return opener.submit(open_here).result()


def _raise_open_files() -> None:
    # RocksDB keeps every file of the store open.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    with suppress(OSError, ValueError):  # macOS allows fewer than it says
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _end_at_an_error(task: Future[None]) -> None:
    # There is no answer to an unexpected error: do not let the parent wait for one.
    if (error := task.exception()) is not None:
        traceback.print_exception(error)
        os._exit(1)


def main() -> None:
    """Load shards and compact the store as the parent says, until it closes the store."""
    graph, loaders = sys.argv[1], int(sys.argv[2])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle.
    _raise_open_files()
    saying = threading.Lock()

    def say(answer: dict[str, object]) -> None:
        with saying:
            print(json.dumps(answer), flush=True)  # noqa: T201 (its channel to the parent)

    def load(shard: str) -> None:
        try:
            refused = _load(store, Path(shard))
        except (OSError, SyntaxError) as error:
            say({"error": str(error)})
        except RuntimeError as error:
            say({"damage": str(error)})
        else:
            say({"shard": shard, "refused": refused})

    def compact() -> None:
        try:
            store.optimize()
        except OSError as error:
            say({"error": f"{error}, while compacting (use --no-compact to skip that)"})
        except RuntimeError as error:
            say({"damage": str(error)})
        else:
            say({})

    try:
        store = _open(graph, gives_way=loaders > 0)
    except OSError as error:
        say({"error": str(error)})
        return
    except RuntimeError as error:  # what pyoxigraph raises if files are damaged
        say({"damage": str(error)})
        return
    pool = ThreadPoolExecutor(max(loaders, 1))
    for line in sys.stdin:
        order = line.removesuffix("\n")
        if order == _FINISH:
            pool.shutdown()
            store.flush()
            return
        task = pool.submit(compact) if order == _COMPACT else pool.submit(load, order)
        task.add_done_callback(_end_at_an_error)
    os._exit(1)  # The parent is gone.


if __name__ == "__main__":
    main()
