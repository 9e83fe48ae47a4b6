"""The demo graph: what kbqa asks when nobody names a store or an endpoint.

It ships as triples (kb/demo/SOURCES.md tells what they are and whose) and becomes a store in the
user's cache at first use.
"""

import hashlib
import logging
import shutil
import tempfile
from pathlib import Path

from kbqa.kb.cache import cache_directory
from kbqa.kb.layout import SCHEMA_VERSION, StoreLayout

logger = logging.getLogger(__name__)

DEMO_DUMP = Path(__file__).with_name("demo") / "demo.nt.xz"
"""The shipped triples."""


def demo_store_directory() -> Path:
    """Return the store of the demo graph, which is built first where it is not yet there.

    The name of the folder holds the hash of the triples and the version of the store's layout, so
    that a new kbqa finds its own. Processes that build it at the same time do no harm: each builds
    under a name of its own, and the first to finish is the one that stays.

    Raises:
        DumpError: The shipped file is damaged.
        OSError: The cache folder cannot be written.
    """
    digest = hashlib.sha256(DEMO_DUMP.read_bytes()).hexdigest()[:12]
    directory = cache_directory() / f"demo-{digest}-{SCHEMA_VERSION}"
    if not StoreLayout(directory).is_finished:
        _build(directory)
    return directory


def _build(directory: Path) -> None:
    from kbqa.kb.load import load_freebase

    logger.info("building the demo graph's store, once, in %s", directory)
    directory.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=f"{directory.name}.", dir=directory.parent))
    try:
        load_freebase([DEMO_DUMP], building)
        try:
            building.rename(directory)
        except OSError:
            # Another process was first, and its store is as good.
            if not StoreLayout(directory).is_finished:
                raise
    finally:
        shutil.rmtree(building, ignore_errors=True)
