"""Load dumps into a store, or into shards for another kind of store.

```text
 dump.gz ──► reader ──► blocks ──► filters ──► shards ──► writer ──────────────► graph/
             gunzip     16 MB      a thread    .nt with   a process, K loaders
             SHA-256               a core      checkpoint
                                     │           │
                                     ▼           └──► runs ──► merged by ranges ──► names.sqlite
                                rejects.tsv           .parquet                      schema.json
                                                                                    statistics.sqlite
                                                                   at the very end: manifest.json
```

The reader (dump.py) unpacks a dump, hashes it, and cuts it into blocks of whole lines. Threads
filter the blocks (filter_block.py). The kept triples go into shards, in the order of the dump, and
each shard leaves small sorted files, the runs (shards.py). A process (store_writer_process.py)
loads the shards into the store. When the dumps are read, the names, the schema and the statistics
are built from the runs, while the last shards are loaded and the store is compacted. Then the store
is asked for the relations of those hubs whose edges are scattered over the dump, and all parts are
moved into place, the manifest last.

All of it happens in a folder inside the store's directory, with a checkpoint after every step
(job.py): to resume a load that was killed, ask for it again. Memory holds some blocks, a batch of
triples for each loader and one range of nodes, whatever the size of the dump.

`emit_shards` writes the same lines as gzipped shards; ``shards.json``, written last, lists them.
"""

import fcntl
import json
import logging
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from isal import igzip
from pyoxigraph import Store

from kbqa.kb.layout import (
    SCHEMA_VERSION,
    LoadSummary,
    Manifest,
    OutputSummary,
    StoreLayout,
    read_manifest,
    sync,
    write_manifest,
    write_safely,
)
from kbqa.kb.loading.checkpoint import Checkpoint, discard, has_work_left, is_unresumable
from kbqa.kb.loading.job import (
    LoadJob,
    LoadProgress,
    LoadSettings,
    cores,
    naming_write_errors,
    versions,
)
from kbqa.kb.loading.rules import FilterRules
from kbqa.kb.loading.shards import TakenShard, index_hubs, index_languages, index_runs
from kbqa.sparql.errors import DumpError, InputError

logger = logging.getLogger(__name__)

MANIFEST = "shards.json"

_PARTS = "part-[0-9]*.nt.*"
_COPY_BYTES = 1 << 20
_LEVEL = 2  # igzip's second best; the best takes twice as long for 3 % less.

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


def load_freebase(
    dumps: Sequence[str | Path],
    store_directory: Path,
    *,
    rules: FilterRules | None = None,
    overwrite: bool = False,
    settings: LoadSettings | None = None,
    progress: LoadProgress | None = None,
) -> LoadSummary:
    """Load dumps into a store, or resume a load of them that was stopped.

    Args:
        dumps: Paths of N-Triples files, compressed or not; ``-`` is standard input.
        store_directory: Where the store goes; created if it is missing.
        rules: None for the profile ``qa``.
        overwrite: Replace a finished store, or discard an unfinished load of something else. A
            finished store stays in use until the new one is complete.
        settings: None for the defaults.
        progress: Receives the progress.

    Raises:
        InputError: A dump does not exist, the directory holds a store or something else, another
            load works there, or the disk is too small.
        DumpError: A dump cannot be read or has no triple to keep, or the store cannot be written.
    """
    layout = StoreLayout(store_directory)
    work = StoreLayout(layout.building)
    job = LoadJob(dumps, work, rules, settings, progress)
    with naming_write_errors(f"the store at {store_directory}"):
        # The parts are moved first, and the manifest last.
        job.check_directory(layout.manifest, _parts(layout), is_placing=work.is_finished)
        if layout.is_finished and not overwrite and not layout.building.exists():
            raise _is_finished(store_directory)
        with job.at_work():
            if layout.is_finished and not overwrite:
                # Only the folder of the load is left to delete, if this load made the store.
                if has_work_left(work) or not job.has_made(read_manifest(store_directory)):
                    raise _is_finished(store_directory)
            else:
                job.begin("store", overwrite, partial(_prepare_graph, work))
                if not job.state.is_built:
                    _build(job)
                _move_into_place(work, layout)
            discard(work)
    summary = read_manifest(store_directory).summary
    logger.info("loaded %s triples into %s", summary.kept, store_directory)
    return summary


def _prepare_graph(work: StoreLayout, state: Checkpoint) -> None:
    """Check the triples that a stopped load has loaded, and delete half loaded files."""
    if state.is_built:
        return
    wait_for_writer(work.graph)
    if not state.is_compacted:
        try:
            drop_orphans(work.graph)
        except RuntimeError as error:  # what pyoxigraph raises if files are damaged
            raise is_unresumable(work, f"{work.graph.name} is damaged ({error})") from error
    if state.triples_loaded and not work.graph.exists():
        raise is_unresumable(work, f"{work.graph.name} is missing")


def _build(job: LoadJob) -> None:
    work, state = job.work, job.state
    with ThreadPoolExecutor(1) as pool, StoreWriter(work.graph, job.settings.sinks) as writer:
        job.fill(writer)
        # Names and schema need only the runs, and take a core for a while.
        completing = pool.submit(_complete_store, job, writer)
        indexed = index_runs(work, state, job.rules)
        completing.result()
    index_hubs(work, indexed.scattered, cores())
    size_bytes = sum(_size_bytes(part) for part in _parts(work))
    summary = LoadSummary(
        **asdict(job.summary(size_bytes)),
        entities=indexed.entities,
        names=indexed.names,
        properties=indexed.properties,
        hubs=indexed.hubs,
    )
    manifest = Manifest(
        versions(), job.rules.to_toml(), index_languages(job.rules), job.dump_files(), summary
    )
    write_manifest(work.manifest, manifest)
    state.is_built = True
    job.save()


def _complete_store(job: LoadJob, writer: "StoreWriter") -> None:
    """Load the last shards and compact the store."""
    job.drain(writer)
    state = job.state
    if job.settings.compacts and not state.is_compacted:
        job.advance("compacting")
        writer.compact()
        state.is_compacted = True
        job.save()
    writer.finish()
    job.advance("indexing")


def _is_finished(directory: Path) -> InputError:
    return InputError(f"{directory} holds a finished store. Use --overwrite to replace it.")


def _move_into_place(work: StoreLayout, layout: StoreLayout) -> None:
    """Move the parts to where they are read; after a kill, the next call finishes the move."""
    # From here until the new manifest is there, the directory is not a finished store.
    layout.manifest.unlink(missing_ok=True)
    for built, final in zip(_parts(work), _parts(layout), strict=True):
        if built.exists():
            if final.is_dir():
                shutil.rmtree(final)
            built.replace(final)
    work.manifest.replace(layout.manifest)


def _parts(layout: StoreLayout) -> tuple[Path, ...]:
    return (layout.graph, layout.names, layout.schema, layout.statistics, layout.rejects)


def _size_bytes(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


class StoreWriter:
    """A `ShardSink`: a process that loads shards into a store, as many at a time as `threads`.

    The process alone has the store open for writing. So a load can be stopped at once, although
    pyoxigraph cannot be interrupted, and its memory is freed. At the end a second process merges
    the store's files.

    The parent writes lines, each a path or a command; the child answers each with a line of JSON.
    When the parent ends, for whatever reason, the pipe closes and the child exits at once. Every
    method raises `DumpError` if the process failed or died.
    """

    def __init__(self, graph: Path, threads: int) -> None:
        self._graph = graph
        self.pending = 0  # shards that were submitted and not yet returned by `take`
        self._start(threads)

    def submit(self, shard: Path) -> None:
        """Queue a shard."""
        self._say(str(shard))
        self.pending += 1

    def take(self, *, wait: bool) -> TakenShard | None:
        """Return a shard that was loaded; None if there is none (yet, unless `wait` is set)."""
        if not self.pending:
            return None
        try:
            line = self._answers.get(block=wait)
        except Empty:
            return None
        answer = self._read(line)
        self.pending -= 1
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
        assert not self.pending, "shards are still being loaded"
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


def emit_shards(
    dumps: Sequence[str | Path],
    directory: Path,
    *,
    rules: FilterRules | None = None,
    overwrite: bool = False,
    settings: LoadSettings | None = None,
    progress: LoadProgress | None = None,
) -> OutputSummary:
    """Write ``part-00000.nt.gz``, … to a directory, or resume that; else as `load_freebase`."""
    work = StoreLayout(StoreLayout(directory).building)
    job = LoadJob(dumps, work, rules, settings, progress)
    with naming_write_errors(f"the shards in {directory}"):
        parts = [*directory.glob(_PARTS), StoreLayout(directory).rejects]
        job.check_directory(directory / MANIFEST, parts, is_placing=work.checkpoint.exists())
        with job.at_work():
            if (directory / MANIFEST).exists() and not overwrite and not work.checkpoint.exists():
                raise InputError(
                    f"{directory} holds finished shards. Use --overwrite to replace them."
                )
            job.begin("shards", overwrite)
            with _Emitter(directory, job.settings.sinks) as emitter:
                job.fill(emitter)
                job.drain(emitter)
            numbered = (_part(directory, number) for number in range(job.state.shards))
            parts = [part for part in numbered if part.exists()]
            for left_over in set(directory.glob(_PARTS)) - set(parts):
                left_over.unlink()
            summary = job.summary(sum(part.stat().st_size for part in parts))
            shutil.copyfile(work.rejects, StoreLayout(directory).rejects)
            _write_manifest(directory, job, parts, summary)
            discard(work)
    return summary


class _Emitter:
    """A `ShardSink` that compresses several shards at a time."""

    def __init__(self, directory: Path, threads: int) -> None:
        self._directory = directory
        self._pool = ThreadPoolExecutor(threads)
        self._pending: set[Future[Path]] = set()

    @property
    def pending(self) -> int:
        return len(self._pending)

    def submit(self, shard: Path) -> None:
        # From here until the new manifest is written, the shards are not finished.
        (self._directory / MANIFEST).unlink(missing_ok=True)
        self._pending.add(self._pool.submit(_compress, shard, self._directory))

    def take(self, *, wait: bool) -> TakenShard | None:
        done, _ = wait_for(self._pending, timeout=None if wait else 0, return_when=FIRST_COMPLETED)
        if not done:
            return None
        future = done.pop()
        self._pending.remove(future)
        return TakenShard(future.result(), {})

    def __enter__(self) -> "_Emitter":
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)


def _compress(shard: Path, directory: Path) -> Path:
    target = _part(directory, int(shard.stem.removeprefix("shard-")))
    if not shard.stat().st_size:
        target.unlink(missing_ok=True)  # Loaders refuse an empty file.
        return shard
    unfinished = target.with_suffix(".tmp")
    packed = igzip.open(unfinished, "wb", compresslevel=_LEVEL)  # type: ignore[no-untyped-call]
    with shard.open("rb") as lines, packed:
        shutil.copyfileobj(lines, packed, _COPY_BYTES)
    sync(unfinished)
    unfinished.replace(target)
    return shard


def _part(directory: Path, number: int) -> Path:
    return directory / f"part-{number:05}.nt.gz"


def _write_manifest(
    directory: Path, job: LoadJob, parts: Sequence[Path], summary: OutputSummary
) -> None:
    fields = {
        "schema_version": SCHEMA_VERSION,
        "versions": versions(),
        "rules": job.rules.to_toml(),
        "dumps": [asdict(dump) for dump in job.dump_files()],
        "counts": asdict(summary),
        "parts": [part.name for part in parts],
    }
    write_safely(directory / MANIFEST, json.dumps(fields, indent=2) + "\n")
