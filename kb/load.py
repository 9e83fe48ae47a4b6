"""Turn dumps into a store: the wanted triples, the name index and the schema, in one pass.

A load works in a folder inside the store's directory and moves the parts into place at its end,
the manifest last. Loading again after a kill starts from nothing; resuming is not done here yet.
"""

import logging
import shutil
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Literal as Choice

from kbqa.kb.build_names import NamedEntity, NameIndexBuilder
from kbqa.kb.dump import Block, dump_size_bytes, read_blocks
from kbqa.kb.layout import DumpFile, LoadSummary, Manifest, StoreLayout, write_manifest
from kbqa.kb.schema import SchemaBuilder
from kbqa.kb.shards import ShardLoader
from kbqa.kb.triples import (
    BLANK,
    DROPPED_PREDICATES,
    RawTriple,
    is_utf8,
    literal_parts,
    parse_line,
    reject_reason,
    resource_name,
)
from kbqa.sparql.errors import DumpError, InputError
from kbqa.sparql.terms import FREEBASE_NS

logger = logging.getLogger(__name__)

Stage = Choice["reading", "loading", "indexing"]
Progress = Callable[[Stage, int], None]
"""Told what the load is doing, and how many bytes it has read of all dumps, as they lie on disk."""

_NS_OPEN = f"<{FREEBASE_NS}".encode()
_MID_OPEN = (_NS_OPEN + b"m.", _NS_OPEN + b"g.")
_NAME = _NS_OPEN + b"type.object.name>"
_ALIAS = _NS_OPEN + b"common.topic.alias>"
_NOTED = frozenset(
    {_NS_OPEN + name.encode() + b">" for name in SchemaBuilder.PREDICATES} | {_NAME, _ALIAS}
)


def load_freebase(
    dumps: Sequence[str | Path],
    store_directory: Path,
    *,
    overwrite: bool = False,
    languages: Sequence[str] = ("en",),
    progress: Progress | None = None,
) -> LoadSummary:
    """Load dumps into a store.

    Args:
        dumps: Paths of N-Triples files, compressed or not; ``-`` is standard input.
        store_directory: Where the store goes; made if it is missing.
        overwrite: Replace a finished store. It stays in use until the new one is complete.
        languages: Languages of the name index, as primary tags; untagged names always count.
        progress: Told how far the load is.

    Raises:
        InputError: A dump does not exist, or the directory holds a store or something else.
        DumpError: A dump cannot be read or holds no triple, or the store cannot be written.
    """
    started = time.monotonic()
    names = [str(dump) for dump in dumps]
    if not names:
        raise InputError("no dump was named.")
    files = tuple(DumpFile(name, dump_size_bytes(name)) for name in names)
    layout = StoreLayout(store_directory)
    _check_directory(layout, overwrite)

    try:
        summary = _build(names, layout.building, frozenset(languages), progress, started)
        _move_into_place(StoreLayout(layout.building), layout)
        write_manifest(
            layout.manifest, Manifest(version("kbqa"), tuple(sorted(languages)), files, summary)
        )
    except (OSError, sqlite3.Error) as error:
        raise DumpError(
            f"the store at {store_directory} cannot be written: {error}. "
            "Is the disk full, or the folder not yours?"
        ) from error
    finally:
        # Half a store is of no use to anybody; Ctrl-C too leaves the directory as it was.
        shutil.rmtree(layout.building, ignore_errors=True)
    logger.info("loaded %s triples into %s", summary.kept, store_directory)
    return summary


def _build(
    dumps: Sequence[str],
    directory: Path,
    languages: frozenset[str],
    progress: Progress | None,
    started: float,
) -> LoadSummary:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    run = _Load(StoreLayout(directory), languages, progress or _say_nothing)
    try:
        for dump in dumps:
            run.read(dump)
        return run.finish(started)
    finally:
        run.close()


@dataclass(slots=True)
class _Counts:
    read: int = 0
    kept: int = 0
    other_names: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    rejected: Counter[str] = field(default_factory=Counter)


class _Load:
    """One load under way: everything that a line of a dump adds to."""

    def __init__(self, work: StoreLayout, languages: frozenset[str], progress: Progress) -> None:
        self._work = work
        self._languages = languages
        self._progress = progress
        self._counts = _Counts()
        self._popularity: Counter[bytes] = Counter()
        self._schema = SchemaBuilder()
        self._names = NameIndexBuilder(work.names)
        self._stated_names: dict[str, list[tuple[str, bool]]] = {}
        self._shards = ShardLoader(work.graph, work.directory)
        self._bytes_before = 0

    def read(self, dump: str) -> None:
        """Take in one dump."""
        bytes_read = 0
        for block in read_blocks(dump):
            kept = self._wanted(block)
            self._counts.kept += len(kept)
            self._shards.add(kept)
            bytes_read = block.bytes_read
            self._progress("reading", self._bytes_before + bytes_read)
        self._bytes_before += bytes_read

    def finish(self, started: float) -> LoadSummary:
        """Load what is left, write the indexes, and sum up."""
        counts = self._counts
        self._progress("loading", self._bytes_before)
        refused = self._shards.finish()
        if refused:
            counts.kept -= refused
            counts.rejected["refused by the store's parser"] += refused
        if not counts.kept:
            raise DumpError(f"none of the {counts.read} lines read is a triple to keep.")
        self._progress("indexing", self._bytes_before)
        popularity = {
            term[len(_NS_OPEN) : -1].decode("utf-8"): count
            for term, count in self._popularity.items()
        }
        self._names.add(
            NamedEntity(mid, popularity.get(mid, 0), stated)
            for mid, stated in self._stated_names.items()
        )
        names = self._names.finish()
        schema = self._schema.build()
        schema.save(self._work.schema)
        return LoadSummary(
            read=counts.read,
            kept=counts.kept,
            dropped=dict(counts.dropped),
            rejected=dict(counts.rejected),
            entities=len(popularity),
            names=names,
            other_names=counts.other_names,
            properties=len(schema.properties),
            seconds=round(time.monotonic() - started, 3),
            size_bytes=_size_bytes(self._work.directory),
        )

    def close(self) -> None:
        """Let go of the files, finished or not."""
        self._shards.close()
        self._names.close()

    def _wanted(self, block: Block) -> list[bytes]:
        """Sort out a block's lines; note what those that are kept say."""
        counts = self._counts
        counts.read += len(block.lines)
        is_clean = is_utf8(b"".join(block.lines))
        kept: list[bytes] = []
        mids: list[bytes] = []
        noted: list[RawTriple] = []
        for line in block.lines:
            triple = parse_line(line) if is_clean or is_utf8(line) else None
            if triple is None:
                reason = reject_reason(line)
                (counts.dropped if reason == BLANK else counts.rejected)[reason] += 1
                continue
            subject, predicate, object_ = triple
            if predicate in DROPPED_PREDICATES:
                counts.dropped[DROPPED_PREDICATES[predicate]] += 1
                continue
            kept.append(line)
            if subject.startswith(_MID_OPEN):
                mids.append(subject)
            if object_.startswith(_MID_OPEN):
                mids.append(object_)
            if predicate in _NOTED:
                noted.append(triple)
        self._popularity.update(mids)
        self._note(noted)
        return kept

    def _note(self, triples: Sequence[RawTriple]) -> None:
        for subject, predicate, object_ in triples:
            subject_id = resource_name(subject)
            if subject_id is None:
                continue
            literal = literal_parts(object_)
            is_name = predicate in (_NAME, _ALIAS)
            if is_name and (literal is None or not self._is_chosen(literal.language)):
                self._counts.other_names += subject.startswith(_MID_OPEN)
            elif subject.startswith(_MID_OPEN):
                if is_name and literal is not None and literal.text.strip():
                    stated = self._stated_names.setdefault(subject_id, [])
                    stated.append((literal.text, predicate == _ALIAS))
            elif predicate != _ALIAS:
                value = resource_name(object_) if literal is None else literal.text
                if value is not None:
                    self._schema.add(subject_id, predicate[len(_NS_OPEN) : -1].decode(), value)

    def _is_chosen(self, language: str | None) -> bool:
        return language is None or language.lower().partition("-")[0] in self._languages


def _check_directory(layout: StoreLayout, overwrite: bool) -> None:
    directory = layout.directory
    if directory.exists() and not directory.is_dir():
        raise InputError(f"{directory} is a file. Name a folder for the store.")
    if layout.is_finished and not overwrite:
        raise InputError(f"{directory} holds a finished store. Replace it with --overwrite.")
    if directory.is_dir():
        ours = {layout.graph, layout.names, layout.schema, layout.manifest, layout.building}
        if foreign := sorted(set(directory.iterdir()) - ours):
            raise InputError(
                f"{directory} is no store: it holds {foreign[0].name}. Name an empty folder."
            )


def _move_into_place(work: StoreLayout, layout: StoreLayout) -> None:
    # From here until the new manifest is written the directory is no finished store.
    layout.manifest.unlink(missing_ok=True)
    shutil.rmtree(layout.graph, ignore_errors=True)
    for built, final in (
        (work.graph, layout.graph),
        (work.names, layout.names),
        (work.schema, layout.schema),
    ):
        built.replace(final)


def _size_bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def _say_nothing(stage: Stage, bytes_read: int) -> None:
    del stage, bytes_read
