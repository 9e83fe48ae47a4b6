"""Write the filtered triples of dumps as gzipped shards, for another kind of store.

The lines are those that `kbqa.kb.loading.load` would load: cleaned, filtered, in canonical
N-Triples. The work resumes from checkpoints in the same way. ``shards.json``, written last, lists
the shards.
"""

import json
import shutil
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from dataclasses import asdict
from pathlib import Path

from isal import igzip

from kbqa.kb.durable import sync, write_safely
from kbqa.kb.loading.checkpoint import discard
from kbqa.kb.loading.job import LoadJob, LoadSettings, Progress, naming_write_errors, versions
from kbqa.kb.loading.rules import FilterRules
from kbqa.kb.loading.writing.shards import TakenShard
from kbqa.kb.store.layout import SCHEMA_VERSION, OutputSummary, StoreLayout
from kbqa.sparql.errors import InputError

MANIFEST = "shards.json"

_PARTS = "part-[0-9]*.nt.*"
_COPY_BYTES = 1 << 20
_LEVEL = 2  # igzip's second best; the best takes twice as long for 3 % less.


def emit_shards(
    dumps: Sequence[str | Path],
    directory: Path,
    *,
    rules: FilterRules | None = None,
    overwrite: bool = False,
    settings: LoadSettings | None = None,
    progress: Progress | None = None,
) -> OutputSummary:
    """Write ``part-00000.nt.gz``, ``part-00001.nt.gz``, …, or resume that.

    Args:
        dumps: Paths of N-Triples files, compressed or not; ``-`` is standard input.
        directory: Where they go; created if it is missing.
        rules: What to leave out; None for the profile ``qa``.
        overwrite: Replace finished shards, or unfinished ones of something else.
        settings: How the load works; None for the defaults.
        progress: Receives the progress.

    Raises:
        InputError: A dump does not exist, or the directory holds something else.
        DumpError: A dump cannot be read, or a shard cannot be written.
    """
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
    """Compresses shards, several at a time; a `ShardSink`."""

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
