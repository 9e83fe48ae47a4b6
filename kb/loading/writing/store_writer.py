"""Load shards into a store in a separate process.

`StoreWriter` is the parent's side. Run as a module, this file is the child, which alone has the
store open for writing. So a load can be stopped at once, although pyoxigraph cannot be interrupted,
and its memory is freed. A shard is a plain N-Triples file: `bulk_load` reads several at a time
without holding the interpreter lock, and loads all of a file or nothing. A line that its parser
refuses is found and left out. At the end the store's files are merged.

The parent writes lines, each a path or a command; the child answers each with a line of JSON. When
the parent ends, for whatever reason, the pipe closes and the child exits at once.
"""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any

from pyoxigraph import RdfFormat, Store, parse

from kbqa.kb.loading.writing.shards import TakenShard
from kbqa.sparql.errors import DumpError

_MALLOC = ":".join(
    f"glibc.malloc.{name}={value}"
    for name, value in {
        "hugetlb": 1,
        "arena_max": 4,
        "mmap_threshold": 1 << 25,
        "trim_threshold": 1 << 34,
        "top_pad": 1 << 28,
    }.items()
)
"""Memory settings of the child's C library: large pages, and freed memory is kept. The bulk loader
sorts millions of small keys; without this it spends a fifth of its time on clearing the same memory
again."""

_COMPACT = "compact"
_FINISH = ""
_FORMAT = RdfFormat.N_TRIPLES
_OPEN_FILES = 1 << 16
_STOP_TIMEOUT_S = 60.0


class StoreWriter:
    """A process that loads shards into a store, several at a time.

    Args:
        graph: The store's directory; created if it is missing.
        threads: Shards that are loaded at the same time.
    """

    def __init__(self, graph: Path, threads: int) -> None:
        self._graph = graph
        self._answers: SimpleQueue[str] = SimpleQueue()
        self._pending = 0
        self._child = subprocess.Popen(
            # -P: do not import from the working directory.
            [
                sys.executable,
                "-P",
                "-m",
                "kbqa.kb.loading.writing.store_writer",
                str(graph),
                str(threads),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env={"GLIBC_TUNABLES": _MALLOC} | os.environ,
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    @property
    def pending(self) -> int:
        """Number of shards that were submitted and not yet returned by `take`."""
        return self._pending

    def submit(self, shard: Path) -> None:
        """Queue a shard."""
        self._say(str(shard))
        self._pending += 1

    def take(self, *, wait: bool) -> TakenShard | None:
        """Return a shard that was loaded; None if there is none (yet).

        Args:
            wait: Wait for one, if any is pending.

        Raises:
            DumpError: A shard could not be loaded.
        """
        if not self._pending:
            return None
        try:
            line = self._answers.get(block=wait)
        except Empty:
            return None
        answer = self._read(line)
        self._pending -= 1
        refused = {int(number): line for number, line in answer["refused"].items()}
        return TakenShard(Path(answer["shard"]), refused)

    def compact(self) -> None:
        """Merge the files of the store, after everything was loaded.

        Before, the ranges of keys in the files overlap, so a query must read many of them.

        Raises:
            DumpError: They cannot be merged.
        """
        assert not self._pending, "shards are still being loaded"
        self._say(_COMPACT)
        self._read(self._answers.get())

    def finish(self) -> None:
        """Close the store, after everything was loaded.

        Raises:
            DumpError: It cannot be closed properly.
        """
        assert not self._pending, "shards are still being loaded"
        self._say(_FINISH)
        if code := self._child.wait():
            raise DumpError(f"the store at {self._graph} could not be closed (code {code}).")

    def __enter__(self) -> "StoreWriter":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._child.kill()
        self._child.wait()
        self._listener.join()
        for pipe in (self._child.stdin, self._child.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):  # The child died before it read a line.
                pipe.close()

    def _say(self, line: str) -> None:
        assert self._child.stdin is not None
        with suppress(BrokenPipeError):  # The child is dead; `take` and `finish` report it.
            self._child.stdin.write(line + "\n")

    def _read(self, line: str) -> dict[str, Any]:
        if not line:
            raise DumpError(
                f"the process that writes {self._graph} died"
                f" (code {self._child.wait(_STOP_TIMEOUT_S)}). It may have been killed or have run "
                "out of memory. Run the same command again to resume."
            )
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise DumpError(
                f"the store at {self._graph} cannot be written: {answer['error']}. The disk may be "
                "full, or the store in use. Run the same command again to resume."
            )
        return answer

    def _listen(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            self._answers.put(line)
        self._answers.put("")


def drop_orphans(graph: Path) -> None:
    """Delete files that a killed process left in a store and that do not belong to it.

    RocksDB never deletes files that it was given but did not take in. A backup has hard links to
    the files in use, so it takes no time and no disk space, and can replace the store.

    Raises:
        OSError: The store cannot be opened.
    """
    clean, old = graph.with_suffix(".clean"), graph.with_suffix(".old")
    if graph.exists():
        shutil.rmtree(clean, ignore_errors=True)
        Store(str(graph)).backup(str(clean))
        shutil.rmtree(old, ignore_errors=True)
        graph.rename(old)
    if clean.exists():
        clean.rename(graph)
    shutil.rmtree(old, ignore_errors=True)


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
    """Serve as the child: ``python -m kbqa.kb.loading.writing.store_writer GRAPH THREADS``."""
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
        else:
            say({"shard": shard, "refused": refused})

    def compact() -> None:
        try:
            store.optimize()
        except OSError as error:
            say({"error": f"{error}, while compacting (use --no-compact to skip that)"})
        else:
            say({})

    try:
        store = Store(sys.argv[1])
    except OSError as error:
        say({"error": str(error)})
        return
    pool = ThreadPoolExecutor(int(sys.argv[2]))
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
