"""Say beside a file of rows what made them, so that a run is only gone on with by the same.

The manifest of ``run.jsonl`` is ``run.manifest.json``.
"""

import fcntl
import hashlib
import json
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

from kbqa.engine.provenance import git_revision, package_versions
from kbqa.sparql.errors import InputError

SCHEMA_VERSION = 1

_PACKAGES = (
    "pyoxigraph",
    "torch",
    "transformers",
    "peft",
    "vllm",
    "sentence-transformers",
    "openai",
)
_ABSENT = object()


def claim_output(output: Path, settings: Mapping[str, object], notes: Mapping[str, object]) -> bool:
    """Write the manifest of a new run, or make sure that `output` holds one with these settings.

    Args:
        output: Where the rows go, or are.
        settings: What decides the rows.
        notes: What is worth knowing besides; it may differ.

    Returns:
        Whether there is a run to go on with.

    Raises:
        InputError: `output` cannot be written, or holds something else than a run with these
            settings.
    """
    path = manifest_path(output)
    if output.is_file():
        _check_settings(output, path, settings)
        return True
    record = {
        "schema_version": SCHEMA_VERSION,
        "kbqa": version("kbqa"),
        "git": git_revision(),
        "python": platform.python_version(),
        "packages": package_versions(_PACKAGES),
        **notes,
        **settings,
    }
    try:
        path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(f"{output} cannot be written: {error}") from error
    return False


@contextmanager
def held(output: Path) -> Iterator[None]:
    """Keep other processes from going on with a run; its manifest stands for it.

    Raises:
        InputError: Another process holds it.
    """
    with manifest_path(output).open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(
                f"another process is writing to {output}. Wait for it to end, or stop it."
            ) from None
        yield


def discard(output: Path) -> None:
    """Remove the rows of a run, so that another can begin.

    Raises:
        InputError: Another process writes them.
    """
    if manifest_path(output).exists():
        with held(output):
            output.unlink(missing_ok=True)
    else:
        output.unlink(missing_ok=True)


def manifest_path(output: Path) -> Path:
    """Name the manifest of a file of rows."""
    return output.with_suffix(".manifest.json")


def file_sha256(path: Path) -> str:
    """Hash a file's bytes, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_settings(output: Path, manifest: Path, settings: Mapping[str, object]) -> None:
    try:
        found = json.loads(manifest.read_text(encoding="utf-8"))
        if found["schema_version"] != SCHEMA_VERSION:
            raise ValueError(f"it is of schema_version {found['schema_version']}")
        # As they were written, so that a tuple is the list that it became.
        wanted = json.loads(json.dumps(settings))
        changed = sorted(key for key in wanted if found.get(key, _ABSENT) != wanted[key])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{output} cannot be told to be a run: {manifest} is missing or broken ({error!r}). "
            "Choose another --output, or replace it with --overwrite."
        ) from error
    if changed:
        raise InputError(
            f"{output} holds a run with other settings ({', '.join(changed)}). "
            "Resume it with the same ones, or choose another --output."
        )
