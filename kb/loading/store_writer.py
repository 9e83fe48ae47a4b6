"""Load shards into a store in a separate process.

The child process (`store_writer_process.py`) alone has the store open for writing. So a load can be
stopped at once, although pyoxigraph cannot be interrupted, and its memory is freed. At the end a
second child merges the store's files.

The parent writes lines, each a path or a command; the child answers each with a line of JSON. When
the parent ends, for whatever reason, the pipe closes and the child exits at once.
"""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from pyoxigraph import Store

from kbqa.kb.loading.shards import TakenShard
from kbqa.sparql.errors import DumpError

# Memory settings of the child's C library: large pages, and freed memory is kept. The bulk loader
# sorts millions of small keys; without this it spends a fifth of its time on clearing the same
# memory again.
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
_COMPACT = "compact"
_FINISH = ""
_PROGRAM = Path(__file__).with_name("store_writer_process.py")
_STOP_TIMEOUT_S = 60.0
_POLL_S = 0.1


class StoreWriter:
    """A process that loads shards into a store, as many at a time as there are `threads`.

    Every method raises `DumpError` if the process failed or died.
    """

    def __init__(self, graph: Path, threads: int) -> None:
        self._graph = graph
        self._pending = 0
        self._start(threads)

    @property
    def pending(self) -> int:
        """Number of shards that were submitted and not yet returned by `take`."""
        return self._pending

    def submit(self, shard: Path) -> None:
        """Queue a shard."""
        self._say(str(shard))
        self._pending += 1

    def take(self, *, wait: bool) -> TakenShard | None:
        """Return a shard that was loaded; None if there is none (yet, unless `wait` is set)."""
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
        """Merge the files of the store, as the last step.

        Their ranges of keys overlap, so that a query would have to read many of them.
        """
        self.finish()
        self._close()
        self._start(0)
        self._say(_COMPACT)
        self._read(self._answers.get())

    def finish(self) -> None:
        """Close the store, after everything was loaded."""
        assert not self._pending, "shards are still being loaded"
        self._say(_FINISH)
        if self._child.wait():
            raise self._died()

    def __enter__(self) -> "StoreWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def _start(self, loaders: int) -> None:
        self._answers: SimpleQueue[str] = SimpleQueue()
        self._child = subprocess.Popen(
            # -P: do not import from the program's folder.
            [sys.executable, "-P", _PROGRAM, self._graph, str(loaders)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env={"GLIBC_TUNABLES": _MALLOC} | os.environ,
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _close(self) -> None:
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
            raise self._died()
        answer: dict[str, Any] = json.loads(line)
        if "damage" in answer:
            raise DumpError(
                f"the store at {self._graph} is damaged: {answer['damage']}. "
                f"Delete {self._graph.parent} to start again."
            )
        if "error" in answer:
            raise DumpError(
                f"the store at {self._graph} cannot be written: {answer['error']}. The disk may be "
                "full, or the store in use. Run the same command again to resume."
            )
        return answer

    def _died(self) -> DumpError:
        return DumpError(
            f"the process that writes {self._graph} died"
            f" (code {self._child.wait(_STOP_TIMEOUT_S)}). It may have been killed or have run "
            "out of memory. Run the same command again to resume."
        )

    def _listen(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            self._answers.put(line)
        self._answers.put("")


def wait_for_writer(graph: Path) -> None:
    """Wait for the process that wrote a store before a kill: it may outlive its parent a little."""
    lock, deadline = graph / "LOCK", time.monotonic() + _STOP_TIMEOUT_S
    while lock.exists():
        with lock.open("r+b") as file:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # RocksDB's lock
                return
            except BlockingIOError:
                pass
        if time.monotonic() > deadline:
            raise DumpError(
                f"another process is writing to {graph}. Wait until it ends, or stop it, then run "
                "the same command again to resume."
            )
        time.sleep(_POLL_S)


def drop_orphans(graph: Path) -> None:
    """Delete files that a killed process left in a store; raises `RuntimeError` on damage."""
    # RocksDB never deletes files that it was given but did not take in. A backup has hard links to
    # the files in use, so it takes no time and no disk space, and can replace the store.
    clean, old = graph.with_suffix(".clean"), graph.with_suffix(".old")
    if graph.exists():
        shutil.rmtree(clean, ignore_errors=True)
        Store(str(graph)).backup(str(clean))
        shutil.rmtree(old, ignore_errors=True)
        graph.rename(old)
    if clean.exists():
        clean.rename(graph)
    shutil.rmtree(old, ignore_errors=True)
