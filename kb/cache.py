"""The folder for what kbqa builds once and can always build again."""

import os
from pathlib import Path

import platformdirs


def cache_directory() -> Path:
    """Return the cache folder, which need not exist yet.

    It is ``KBQA_CACHE`` if that is set and not empty, else ``kbqa`` in the user's cache folder.
    A writer writes to a temporary name and renames it, and the name depends on everything that can
    change the content.
    """
    configured = os.environ.get("KBQA_CACHE")
    return Path(configured) if configured else Path(platformdirs.user_cache_dir("kbqa"))
