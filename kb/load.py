"""Turn dumps into a store: what `kbqa load-freebase` does.

The triples go through a pipeline of shards (`kbqa.kb.shard_pipeline`) into a process that writes
the store (`kbqa.kb.store_writer`); then names, schema and statistics are built from what the shards
left (`kbqa.kb.side_indexes`); then the parts are moved into place, the manifest last. All of it
happens in a folder inside the store's directory, with a checkpoint after every step: a load that
was killed goes on when it is asked for again.
"""

import logging
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from kbqa.kb.checkpoint import discard, has_work_left
from kbqa.kb.layout import LoadSummary, Manifest, StoreLayout, read_manifest, write_manifest
from kbqa.kb.load_job import LoadJob, LoadSettings, Progress, cores, versions
from kbqa.kb.rules import Rules
from kbqa.kb.side_indexes import index_hubs, index_languages, index_runs
from kbqa.kb.store_writer import StoreWriter, drop_orphans
from kbqa.sparql.errors import InputError

logger = logging.getLogger(__name__)


def load_freebase(
    dumps: Sequence[str | Path],
    store_directory: Path,
    *,
    rules: Rules | None = None,
    overwrite: bool = False,
    settings: LoadSettings | None = None,
    progress: Progress | None = None,
) -> LoadSummary:
    """Load dumps into a store, or go on with a load of them that was stopped.

    Args:
        dumps: Paths of N-Triples files, compressed or not; ``-`` is standard input.
        store_directory: Where the store goes; made if it is missing.
        rules: What to leave out; None for the profile ``qa``.
        overwrite: Replace a finished store, which stays in use until the new one is complete, or
            an unfinished one that was begun from something else.
        settings: How to go about it; None for the defaults.
        progress: Told how far the load is.

    Raises:
        InputError: A dump does not exist, the directory holds a store or something else, another
            load is at work there, or the disk is too small.
        DumpError: A dump cannot be read or holds no triple, or the store cannot be written.
    """
    layout = StoreLayout(store_directory)
    work = StoreLayout(layout.building)
    job = LoadJob(dumps, work, rules, settings, progress)
    _check_directory(layout, overwrite)
    with job.at_work(f"the store at {store_directory}"):
        if layout.is_finished and not overwrite:
            # Nothing is left to do but to tidy up after the load that made it, if it was this one.
            if has_work_left(work) or not job.has_made(read_manifest(store_directory)):
                raise _is_finished(store_directory)
        else:
            job.begin("store", overwrite)
            if not job.state.is_built:
                _build(job)
            _move_into_place(work, layout)
        discard(work)
    summary = read_manifest(store_directory).summary
    logger.info("loaded %s triples into %s", summary.kept, store_directory)
    return summary


def _build(job: LoadJob) -> None:
    work, state = job.work, job.state
    if not state.is_compacted:
        # A load that was killed has left files in the store; one that begins has no store.
        drop_orphans(work.graph)
    with ThreadPoolExecutor(1) as pool, StoreWriter(work.graph, job.settings.sinks) as writer:
        job.fill(writer)
        # Names and schema need only what the shards have left, and take a core for a while.
        completing = pool.submit(_complete_store, job, writer)
        indexed = index_runs(work, state.node_rows, state.counts, job.rules)
        completing.result()
    index_hubs(work, indexed.scattered, cores())
    size_bytes = sum(_size_bytes(part) for part in _parts(work))
    summary = LoadSummary(**asdict(job.line_counts(size_bytes)), **asdict(indexed.counts))
    manifest = Manifest(
        versions(), job.rules.to_toml(), index_languages(job.rules), job.dump_files(), summary
    )
    write_manifest(work.manifest, manifest)
    state.is_built = True
    job.save()


def _complete_store(job: LoadJob, writer: StoreWriter) -> None:
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


def _check_directory(layout: StoreLayout, overwrite: bool) -> None:
    directory = layout.directory
    if directory.exists() and not directory.is_dir():
        raise InputError(f"{directory} is a file. Name a folder for the store.")
    if layout.is_finished and not overwrite and not layout.building.exists():
        raise _is_finished(directory)
    if directory.is_dir():
        ours = {*_parts(layout), layout.manifest, layout.building}
        if foreign := sorted(set(directory.iterdir()) - ours):
            raise InputError(
                f"{directory} is no store: it holds {foreign[0].name}. Name an empty folder."
            )


def _is_finished(directory: Path) -> InputError:
    return InputError(f"{directory} holds a finished store. Replace it with --overwrite.")


def _move_into_place(work: StoreLayout, layout: StoreLayout) -> None:
    """Move what was built to where it is read; done again after a kill, it ends what it began."""
    # From here until the new manifest is there the directory is no finished store.
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
