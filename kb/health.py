"""Look an embedded store over and say what is wrong with it; nothing is changed or repaired.

The checks read a sample, so that they take a second on a store of any size: damage that lies beside
the sample stays unseen.
"""

import fcntl
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal as Choice

import pyoxigraph

from kbqa.kb.graph import DEFAULT_TIMEOUT_S, Graph
from kbqa.kb.layout import DumpFile, Manifest, StoreLayout, read_manifest
from kbqa.kb.names import NameIndex
from kbqa.kb.schema import Schema
from kbqa.kb.statistics import Statistics
from kbqa.kb.store import OxigraphStore
from kbqa.sparql.errors import GraphError, KbqaError, StoreError
from kbqa.sparql.templates import NAME
from kbqa.sparql.terms import FREEBASE_NS, full_iri, is_mid, resource_id

Status = Choice["ok", "warning", "problem"]

FINAL_DUMP_BYTES = 32_191_685_487
"""Size of freebase-rdf-2015-08-09-00-01.gz, the last dump that Google made."""

_OFFICIAL_NAME = "freebase-rdf"
_SAMPLE_TRIPLES = 2000
_SAMPLE_ENTITIES = 20
_SLOW_S = 1.0
_SQLITE_HEADER_BYTES = 100


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found.

    Attributes:
        check: What was looked at, in a word.
        status: A warning lets kbqa work; a problem does not.
        finding: What is so.
        advice: What to do about it; empty where nothing is to be done.
    """

    check: str
    status: Status
    finding: str
    advice: str = ""


def ok(check: str, finding: str) -> Finding:
    """Make a finding that nothing is wrong."""
    return Finding(check, "ok", finding)


def warning(check: str, finding: str, advice: str) -> Finding:
    """Make a finding of something that kbqa works with, but not well."""
    return Finding(check, "warning", finding, advice)


def problem(check: str, finding: str, advice: str) -> Finding:
    """Make a finding of something that keeps kbqa from working."""
    return Finding(check, "problem", finding, advice)


def from_error(check: str, error: KbqaError, advice: str = "") -> Finding:
    """Make a problem of an error; where it does not say itself what to do, `advice` does."""
    finding, _, last = str(error).rpartition(". ")
    return problem(check, finding, last) if finding else problem(check, last, advice)


def check_store(directory: Path, timeout_s: float = DEFAULT_TIMEOUT_S) -> Iterator[Finding]:
    """Look a store over, the checks first on which others stand.

    Args:
        directory: Where `kbqa load-freebase` was told to write.
        timeout_s: Seconds for a query that goes through the store's query process.
    """
    layout = StoreLayout(directory)
    unfinished = _check_load(layout)
    if unfinished is not None:
        yield unfinished
    if not layout.is_finished:
        return
    try:
        manifest = read_manifest(directory)
        graph = OxigraphStore.open(directory)
    except StoreError as error:
        yield from_error("store", error, _reload(layout))
        return
    with closing(graph):
        summary = manifest.summary
        yield ok(
            "store",
            f"{graph.description}: {summary.kept:,} triples, {summary.entities:,} entities, "
            f"loaded by kbqa {manifest.kbqa_version}",
        )
        yield _check_files(layout, manifest)
        yield _check_dump(manifest)
        if is_held(layout.graph / "LOCK", fcntl.lockf):
            yield warning(
                "lock",
                "another process has the store open for writing",
                "What is read meanwhile may be neither old nor new: wait until it ends.",
            )
        yield from _check_graph(layout, graph, timeout_s)
        yield _check_names(layout, manifest)
        yield _check_schema(layout)
        if layout.statistics.exists():
            yield _check_statistics(layout)


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


def _check_load(layout: StoreLayout) -> Finding | None:
    """Say what keeps a store from being finished, or that one is being replaced."""
    directory = layout.directory
    command = f"kbqa load-freebase DUMP --store {directory}"
    if not directory.is_dir():
        what = "is a file" if directory.exists() else "does not exist"
        return problem("store", f"{directory} {what}", f"Make a store: `{command}`.")
    if layout.building.exists():
        state = _load_state(layout)
        if is_held(layout.building / "lock", fcntl.flock):
            advice = "Wait until it ends, or ask another store meanwhile."
            if layout.is_finished:
                return warning("load", f"the store is being replaced now: {state}", advice)
            return problem("load", f"the store is being loaded now: {state}", advice)
        if layout.is_finished:
            return warning(
                "load",
                f"a load that was to replace the store has not finished: {state}",
                f"Go on with it: `{command} --overwrite`; or delete {layout.building}.",
            )
        return problem(
            "load", f"the load has not finished: {state}", f"The same command goes on: `{command}`."
        )
    if not layout.is_finished:
        is_empty = not any(directory.iterdir())
        what = "is empty" if is_empty else "holds no finished store"
        return problem("store", f"{directory} {what}", f"Make a store: `{command}`.")
    return None


def _load_state(layout: StoreLayout) -> str:
    shards = len(list(layout.building.glob("shard-*")))
    return f"{shards} shards lie in {layout.building}"


def _check_files(layout: StoreLayout, manifest: Manifest) -> Finding:
    """Compare the files' size with what the load left."""
    size_bytes = sum(path.stat().st_size for path in _files(layout))
    expected = manifest.summary.size_bytes
    finding = f"{size_bytes / 1e6:,.1f} MB on disk"
    if size_bytes < 0.9 * expected:
        return problem(
            "files",
            f"{finding}, where the load left {expected / 1e6:,.1f} MB: files are missing or cut",
            _reload(layout),
        )
    return ok("files", finding)


def _files(layout: StoreLayout) -> Iterator[Path]:
    for path in layout.directory.rglob("*"):
        if path.is_file() and layout.building not in path.parents:
            yield path


def _check_dump(manifest: Manifest) -> Finding:
    dumps = manifest.dumps
    if any(dump.size_bytes == FINAL_DUMP_BYTES for dump in dumps):
        return ok("dump", "loaded from the final dump of 2015-08-09")
    named = ", ".join(Path(dump.name).name for dump in dumps)
    for dump in dumps:
        if _looks_official(dump) and dump.size_bytes is not None:
            return warning(
                "dump",
                f"{named} has {dump.size_bytes:,} bytes, the final dump {FINAL_DUMP_BYTES:,}",
                "It is cut short, or of another date: the benchmarks were made on the final dump, "
                "freebase-rdf-2015-08-09-00-01.gz.",
            )
    return ok(
        "dump",
        f"loaded from {named}, not from the final dump: scores on it are no scores on Freebase",
    )


def _looks_official(dump: DumpFile) -> bool:
    return Path(dump.name).name.startswith(_OFFICIAL_NAME)


def _check_graph(layout: StoreLayout, graph: Graph, timeout_s: float) -> Iterator[Finding]:
    """Read a sample of the triples, and ask about the entities in it."""
    try:
        store = pyoxigraph.Store.read_only(str(layout.graph))
        # Oxigraph orders nodes by a hash: the first triples are as good as drawn at random.
        triples = store.quads_for_pattern(None, None, None, pyoxigraph.DefaultGraph())
        subjects = [
            resource_id(quad.subject.value)
            for quad in islice(triples, _SAMPLE_TRIPLES)
            if isinstance(quad.subject, pyoxigraph.NamedNode)
        ]
        yield _check_vocabulary(layout, subjects)
        started = time.monotonic()
        mids = sorted(filter(is_mid, set(subjects)))[:_SAMPLE_ENTITIES]
        for mid in mids:
            if not graph.relations(mid, "out", 1):
                yield problem("queries", f"{mid} is in the store and is not found", _reload(layout))
                return
        graph.ask("ASK { ?s ?p ?o }", timeout_s=timeout_s)
        yield _speed("queries", f"{len(mids) + 1} of a sample answer", time.monotonic() - started)
    except (OSError, RuntimeError) as error:  # pyoxigraph's for damage is the latter
        yield problem("queries", f"the triples cannot be read: {error}", _reload(layout))
    except GraphError as error:
        yield from_error("queries", error, _reload(layout))


def _speed(check: str, finding: str, seconds: float) -> Finding:
    told = f"{finding} in {seconds:.2f} s"
    if seconds > _SLOW_S:
        return warning(
            check, told, "Is the disk slow, or the machine busy? A local SSD serves best."
        )
    return ok(check, told)


def _check_vocabulary(layout: StoreLayout, subjects: list[str]) -> Finding:
    """Tell whether the triples are Freebase's: its ids are what is short after `resource_id`."""
    foreign = [subject for subject in subjects if "://" in subject]
    if 2 * len(foreign) > len(subjects):
        return problem(
            "vocabulary",
            f"of {len(subjects)} triples {len(foreign)} are about other things than Freebase's, "
            f"such as {foreign[0]}",
            f"The dump was not Freebase's, whose ids begin with {FREEBASE_NS}. {_reload(layout)}",
        )
    return ok("vocabulary", "the ids are Freebase's")


def _check_names(layout: StoreLayout, manifest: Manifest) -> Finding:
    """Look names that the graph states up in the index."""
    if not manifest.summary.names:
        return problem(
            "names",
            "the store holds no names, so no question can be linked",
            f"The dump states none in {', '.join(manifest.languages)}. {_reload(layout)}",
        )
    try:
        with layout.names.open("rb") as file:
            header = file.read(_SQLITE_HEADER_BYTES)
        # Offsets 16 and 28 of SQLite's file format: the page size, and the number of pages.
        page_bytes = int.from_bytes(header[16:18]) or 1
        pages = int.from_bytes(header[28:32])
        if layout.names.stat().st_size < pages * (65536 if page_bytes == 1 else page_bytes):
            return problem("names", f"{layout.names} is cut short", _reload(layout))
        with closing(NameIndex.open(layout.names)) as names:
            stated = _stated_names(layout, manifest)
            missing = [name for name in stated if not names.lookup(name, 1)]
    except StoreError as error:
        return from_error("names", error)
    except (OSError, sqlite3.Error) as error:
        return problem("names", f"the name index cannot be read: {error}", _reload(layout))
    if 2 * len(missing) > len(stated):
        return problem(
            "names",
            f"of {len(stated)} names in the graph {len(missing)} are not in the index, "
            f"such as {missing[0]!r}",
            f"The index belongs to another load. {_reload(layout)}",
        )
    return ok("names", f"{manifest.summary.names:,} names and aliases")


def _stated_names(layout: StoreLayout, manifest: Manifest) -> list[str]:
    store = pyoxigraph.Store.read_only(str(layout.graph))
    name = pyoxigraph.NamedNode(full_iri(NAME))
    return [
        quad.object.value
        for quad in islice(store.quads_for_pattern(None, name, None), _SAMPLE_TRIPLES)
        if isinstance(quad.object, pyoxigraph.Literal)
        and isinstance(quad.subject, pyoxigraph.NamedNode)
        and is_mid(resource_id(quad.subject.value))
        and (quad.object.language or manifest.languages[0]) in manifest.languages
        and quad.object.value.strip()
    ][:_SAMPLE_ENTITIES]


def _check_schema(layout: StoreLayout) -> Finding:
    try:
        schema = Schema.open(layout.schema)
    except StoreError as error:
        return from_error("schema", error)
    if not schema.properties:
        return warning(
            "schema",
            "the store holds no schema",
            "The dump states no type.property.*: was it cut short, or filtered before?",
        )
    return ok("schema", f"{len(schema.properties):,} properties")


def _check_statistics(layout: StoreLayout) -> Finding:
    try:
        with closing(Statistics.open(layout.statistics)) as statistics:
            return ok("statistics", f"{len(statistics.relations()):,} relations are counted")
    except StoreError as error:
        return from_error("statistics", error)
    except sqlite3.Error as error:
        return problem("statistics", f"the counts cannot be read: {error}", _reload(layout))


def _reload(layout: StoreLayout) -> str:
    return f"Load anew: `kbqa load-freebase DUMP --store {layout.directory} --overwrite`."
