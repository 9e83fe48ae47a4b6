"""Where kbqa keeps what it makes once and can always make again."""

import os
from pathlib import Path

import platformdirs


def cache_directory() -> Path:
    """Return the folder of cached things, which need not exist yet.

    It is ``KBQA_CACHE`` where that is set and not empty, else ``kbqa`` in the user's cache folder.
    Whoever writes there writes to a temporary name and renames, and keys the name by all that can
    change the content.
    """
    configured = os.environ.get("KBQA_CACHE")
    return Path(configured) if configured else Path(platformdirs.user_cache_dir("kbqa"))
