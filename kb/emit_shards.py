"""Write the filtered triples of dumps as gzipped shards, for a store of another kind.

The lines are those that `kbqa.kb.load` would load: cleaned, filtered, in canonical N-Triples. The
work is done with checkpoints as there; ``shards.json`` is written last and says what there is.
"""

import json
import shutil
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from dataclasses import asdict
from pathlib import Path

from isal import igzip

from kbqa.kb.checkpoint import discard
from kbqa.kb.durable import sync, write_safely
from kbqa.kb.layout import SCHEMA_VERSION, LineCounts, StoreLayout
from kbqa.kb.load_job import LoadJob, LoadSettings, Progress, versions
from kbqa.kb.rules import Rules
from kbqa.kb.shard_pipeline import TakenShard
from kbqa.sparql.errors import InputError

MANIFEST = "shards.json"

_COPY_BYTES = 1 << 20
_LEVEL = 2  # igzip's best but one; its next takes twice as long for 3 % less.


def emit_shards(
    dumps: Sequence[str | Path],
    directory: Path,
    *,
    rules: Rules | None = None,
    overwrite: bool = False,
    settings: LoadSettings | None = None,
    progress: Progress | None = None,
) -> LineCounts:
    """Write ``part-00000.nt.gz``, …, or go on with that.

    Args:
        dumps: Paths of N-Triples files, compressed or not; ``-`` is standard input.
        directory: Where they go; made if it is missing.
        rules: What to leave out; None for the profile ``qa``.
        overwrite: Replace finished shards, or unfinished ones of something else.
        settings: How to go about it; None for the defaults.
        progress: Told how far the work is.

    Raises:
        InputError: A dump does not exist, or the directory holds something else.
        DumpError: A dump cannot be read, or a shard not be written.
    """
    work = StoreLayout(StoreLayout(directory).building)
    job = LoadJob(dumps, work, rules, settings, progress)
    _check_directory(directory, work, overwrite)
    with job.at_work(f"the shards in {directory}"):
        job.begin("shards", overwrite)
        (directory / MANIFEST).unlink(missing_ok=True)
        with _Emitter(directory, job.settings.sinks) as emitter:
            job.fill(emitter)
            job.drain(emitter)
        numbered = (_part(directory, number) for number in range(job.state.shards))
        parts = [part for part in numbered if part.exists()]
        for left_over in set(directory.glob("part-*")) - set(parts):
            left_over.unlink()
        counts = job.line_counts(sum(part.stat().st_size for part in parts))
        shutil.copyfile(work.rejects, StoreLayout(directory).rejects)
        _write_manifest(directory, job, parts, counts)
        discard(work)
    return counts


class _Emitter:
    """Compresses shards, several at a time; a `ShardSink`."""

    def __init__(self, directory: Path, threads: int) -> None:
        self._directory = directory
        self._pool = ThreadPoolExecutor(threads)
        self._pending: set[Future[Path]] = set()

    @property
    def pending(self) -> int:
        return len(self._pending)

    def submit(self, shard: Path) -> None:
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
        target.unlink(missing_ok=True)  # No store takes an empty file for a dump.
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
    directory: Path, job: LoadJob, parts: Sequence[Path], counts: LineCounts
) -> None:
    fields = {
        "schema_version": SCHEMA_VERSION,
        "versions": versions(),
        "rules": job.rules.to_toml(),
        "dumps": [asdict(dump) for dump in job.dump_files()],
        "counts": asdict(counts),
        "parts": [part.name for part in parts],
    }
    write_safely(directory / MANIFEST, json.dumps(fields, indent=2) + "\n")


def _check_directory(directory: Path, work: StoreLayout, overwrite: bool) -> None:
    if directory.exists() and not directory.is_dir():
        raise InputError(f"{directory} is a file. Name a folder for the shards.")
    if (directory / MANIFEST).exists() and not overwrite and not work.directory.exists():
        raise InputError(f"{directory} holds finished shards. Replace them with --overwrite.")
    if directory.is_dir():
        rejects = StoreLayout(directory).rejects
        ours = {directory / MANIFEST, work.directory, rejects, *directory.glob("part-*.nt.*")}
        if foreign := sorted(set(directory.iterdir()) - ours):
            raise InputError(f"{directory} holds {foreign[0].name}. Name an empty folder.")
