"""Open the graph that the user chose, or else the demo graph.

The demo graph ships as triples (kb/demo/SOURCES.md lists sources and licences). It is loaded into a
store in the cache folder at first use.
"""

import fcntl
import hashlib
import json
import logging
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from kbqa.kb.graph import DEFAULT_TIMEOUT_S, RESULT_BYTES, Graph
from kbqa.kb.layout import SCHEMA_VERSION, StoreLayout, sync
from kbqa.sparql.errors import InputError, StoreError

logger = logging.getLogger(__name__)

DEMO_DUMP = Path(__file__).with_name("demo") / "demo.nt.xz"

_UNLOCKED_S = 5.0  # an unlocked folder of this age is left over: its maker locks it at once
_SIZES = "sizes.json"  # in the store's folder: the size of each file, by which damage shows


def open_graph(
    store: str | Path | None = None,
    endpoint: str | Sequence[str] | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    *,
    workers: int = 1,
    low_priority: bool = False,
) -> Graph:
    """Open an embedded store or an endpoint; without either, the demo graph.

        with kbqa.open_graph() as graph:
            graph.relations("m.09c7w0", "out")

    Args:
        store: Directory that `kbqa load-freebase` wrote.
        endpoint: URL of a SPARQL 1.1 endpoint, or of several that hold copies of one graph.
            Nothing is sent yet.
        timeout_s: Seconds for each search operation of an endpoint; a store's need no limit.
        workers: Queries that a store runs at once.
        low_priority: For queries of other people: see `OxigraphStore.open`. An endpoint's results
            are then refused above `RESULT_BYTES`.

    Raises:
        InputError: Both are given, an endpoint is not an HTTP URL, or there is no worker.
        StoreError: The store is missing, unfinished, empty or unreadable.
    """
    if store is not None and endpoint is not None:
        raise InputError("choose one graph: --store or --endpoint, not both")
    if endpoint is not None:
        from kbqa.kb.endpoint import SparqlEndpoint

        most = RESULT_BYTES if low_priority else None
        graph: Graph = SparqlEndpoint(endpoint, timeout_s, max_body_bytes=most)
    else:
        from kbqa.kb.store import OxigraphStore

        directory = demo_store_directory() if store is None else Path(store)
        graph = OxigraphStore.open(directory, workers, low_priority=low_priority)
    logger.info("the graph is %s", graph.description)
    return graph


@contextmanager
def open_triples(lines: Iterable[str]) -> Iterator[Graph]:
    """Load lines of N-Triples into a store of their own, open it, and delete it at the end.

    Raises:
        DumpError: There is no triple, or the folder of temporary files cannot be written.
    """
    from tempfile import TemporaryDirectory

    from kbqa.kb.loading.job import LoadSettings
    from kbqa.kb.loading.load import load_freebase
    from kbqa.kb.loading.rules import profile

    settings = LoadSettings(loaders=1, checks_disk=False, compacts=False)
    with TemporaryDirectory(prefix="kbqa-", ignore_cleanup_errors=True) as folder:
        dump, store = Path(folder, "graph.nt"), Path(folder, "store")
        dump.write_text("".join(lines), encoding="utf-8", errors="replace")
        load_freebase([dump], store, rules=profile("full"), settings=settings)
        with open_graph(store) as graph:
            yield graph


def cache_directory() -> Path:
    """Return the cache folder, which may not exist yet: ``KBQA_CACHE``, or else the user's.

    A writer writes to a temporary name and renames it. A name in the cache depends on everything
    that can change the content.
    """
    import platformdirs

    configured = os.environ.get("KBQA_CACHE")
    return Path(configured) if configured else Path(platformdirs.user_cache_dir("kbqa"))


@contextmanager
def building_folder(directory: Path) -> Iterator[Path]:
    """Make a temporary folder beside `directory`, in which to build what is then moved there.

    It also removes the temporary folders of processes that were killed.
    """
    from tempfile import TemporaryDirectory

    directory.parent.mkdir(parents=True, exist_ok=True)
    for other in directory.parent.glob(f"{directory.name}.*"):
        if _is_left_over(other):
            shutil.rmtree(other, ignore_errors=True)
    prefix = f"{directory.name}."
    with TemporaryDirectory(
        prefix=prefix, dir=directory.parent, ignore_cleanup_errors=True
    ) as folder:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            with suppress(OSError):  # a network drive may have no locks
                fcntl.flock(descriptor, fcntl.LOCK_SH)
            yield Path(folder)
        finally:
            os.close(descriptor)


def _is_left_over(folder: Path) -> bool:
    """Whether the process that built in a folder has ended."""
    try:
        if time.time() - folder.stat().st_mtime < _UNLOCKED_S:
            return False
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def sync_folder(folder: Path) -> None:
    """Write a folder's content to the disk, so that a power cut does not empty its files."""
    for path in [*folder.rglob("*"), folder]:
        sync(path)


def demo_store_directory() -> Path:
    """Return the store of the demo graph, and build it first if it is missing or damaged.

    Several processes may build it at the same time; the first to finish wins.

    Raises:
        StoreError: The cache folder cannot be written.
    """
    # Another version of kbqa finds its own store by these parts of the name.
    digest = hashlib.sha256(DEMO_DUMP.read_bytes()).hexdigest()[:12]
    directory = cache_directory() / f"demo-{digest}-{SCHEMA_VERSION}"
    if not _is_whole(directory):
        try:
            _build(directory)
        except OSError as error:
            raise StoreError(
                f"the demo graph cannot be built in {directory.parent} ({error.strerror}). Set "
                "KBQA_CACHE to a folder that can be written, or name a graph by --store or "
                "--endpoint."
            ) from error
    return directory


def _build(directory: Path) -> None:
    from kbqa.kb.loading.load import load_freebase

    if directory.exists():
        logger.warning("the demo graph's store in %s is damaged and is built again", directory)
    logger.info("building the demo graph's store, once, in %s", directory)
    with building_folder(directory) as building:
        load_freebase([DEMO_DUMP], building)
        (building / _SIZES).write_text(json.dumps(_sizes(building)), encoding="utf-8")
        # Another process may have been first, and its store is as good.
        if not _is_whole(directory):
            _replace(directory, building)


def _replace(directory: Path, built: Path) -> None:
    """Move a finished store into its place, and what was there out of it."""
    if directory.exists():
        damaged = built.with_name(f"{built.name}.damaged")
        directory.rename(damaged)
        shutil.rmtree(damaged, ignore_errors=True)
    try:
        built.rename(directory)
    except OSError:
        if not _is_whole(directory):
            raise


def _is_whole(directory: Path) -> bool:
    """Whether every file is there and has the size that it was built with."""
    try:
        expected = json.loads((directory / _SIZES).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return StoreLayout(directory).is_finished and expected == _sizes(directory)


def _sizes(directory: Path) -> Mapping[str, int]:
    """Map the files that no reader changes to their sizes."""
    return {
        path.relative_to(directory).as_posix(): path.stat().st_size
        for path in sorted(directory.rglob("*"))
        if path.is_file() and not path.name.startswith(("LOG", "LOCK", _SIZES))
    }
