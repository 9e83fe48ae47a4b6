"""The demo graph: what kbqa asks if the user names neither a store nor an endpoint.

It ships as triples (kb/demo/SOURCES.md lists their sources and licences) and is loaded into a store
in the user's cache at first use.
"""

import hashlib
import json
import logging
import shutil
from collections.abc import Mapping
from pathlib import Path

from kbqa.kb.cache import building_folder, cache_directory
from kbqa.kb.store.layout import SCHEMA_VERSION, StoreLayout
from kbqa.sparql.errors import StoreError

logger = logging.getLogger(__name__)

DEMO_DUMP = Path(__file__).with_name("demo") / "demo.nt.xz"
"""The shipped triples."""

_SIZES = "sizes.json"
"""In the store's folder: each of its files with its size, by which damage shows at once."""


def demo_store_directory() -> Path:
    """Return the store of the demo graph, and build it first if it is missing or damaged.

    The name of the folder holds the hash of the triples and the version of the store's layout, so
    that a new kbqa finds its own. Processes may build it at the same time: each builds under its
    own name, and the first to finish wins.

    Raises:
        DumpError: The shipped file is damaged.
        StoreError: The cache folder cannot be written.
    """
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
