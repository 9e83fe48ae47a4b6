"""Manifests: what made a file of rows, written next to it, so that only the same run resumes it.

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
from typing import BinaryIO, Literal

from kbqa.engine.files.json_file import read_json
from kbqa.engine.files.provenance import git_revision, package_versions
from kbqa.sparql.errors import InputError, KbqaError

MANIFEST_VERSION = 1

_PACKAGES = (
    "pyoxigraph",
    "numpy",
    "scipy",
    "torch",
    "transformers",
    "peft",
    "vllm",
    "sentence-transformers",
    "openai",
)
_ABSENT = object()
_BEGINNING = b'{\n  "schema_version": '
"""How a manifest begins; a kill may leave less of it."""


@contextmanager
def claimed(
    output: Path, settings: Mapping[str, object], notes: Mapping[str, object]
) -> Iterator[bool]:
    """Reserve a file of rows for this process, and check or write its manifest.

    Args:
        output: The file of rows, which need not exist.
        settings: What determines the rows.
        notes: Other facts about the run; they may differ when it is resumed.

    Yields:
        Whether `output` has rows of a run with these settings, to be resumed.

    Raises:
        InputError: Another process is writing to `output`, it cannot be written, it is not a run
            with these settings, or another file has the name of its manifest.
    """
    path = manifest_path(output)
    if output.is_file() and not path.is_file():
        raise _not_resumable(output, f"{path} is missing")
    # The lock is on the manifest, so take it before anything is written there.
    with _locked(output, "a+b") as manifest:
        is_begun = output.is_file()
        if is_begun:
            _check_settings(output, settings)
        else:
            _check_replaceable(path, manifest)
            _write(output, manifest, {**notes, **settings})
        yield is_begun


def discard(output: Path) -> None:
    """Delete the rows of a run, so that another can begin.

    Raises:
        InputError: Another process is writing to `output`, or another file has the name of its
            manifest.
    """
    if manifest_path(output).is_file():
        with _locked(output, "rb") as manifest:
            _check_replaceable(manifest_path(output), manifest)
            output.unlink(missing_ok=True)
    else:
        output.unlink(missing_ok=True)


def manifest_path(output: Path) -> Path:
    """Return the path of the manifest of a file of rows."""
    return output.with_suffix(".manifest.json")


def lock(opened: BinaryIO | int, output: Path, error: type[KbqaError]) -> None:
    """Lock an open file or folder until it is closed.

    Args:
        opened: The file, or the descriptor of a folder.
        output: What the lock protects, for the message.
        error: What to raise if another process holds the lock.
    """
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise error(
            f"another process is writing to {output}. Wait for it to end, or stop it."
        ) from None


def check_same_settings(
    output: Path,
    found: Mapping[str, object],
    settings: Mapping[str, object],
    error: type[KbqaError],
) -> None:
    """Raise an error that names the settings of a run that differ from those found in its output.

    Args:
        output: Where the run writes to.
        found: Settings as read from JSON; others than those of the run do not matter.
        settings: The settings of the run.
        error: What to raise.
    """
    # As JSON, in which a tuple is a list.
    wanted = json.loads(json.dumps(settings))
    changed = sorted(key for key in wanted if found.get(key, _ABSENT) != wanted[key])
    if changed:
        raise error(
            f"{output} holds a run with other settings ({', '.join(changed)}). "
            "Resume it with the same settings, or choose another --output."
        )


def file_sha256(path: Path) -> str:
    """Hash a file's bytes, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _locked(output: Path, mode: Literal["rb", "a+b"]) -> Iterator[BinaryIO]:
    try:
        file = manifest_path(output).open(mode)
    except OSError as error:
        raise InputError(f"{output} cannot be written: {error}") from error
    with file:
        lock(file, output, InputError)
        yield file


def _check_replaceable(path: Path, manifest: BinaryIO) -> None:
    """Refuse to write over a file that only has the name of a manifest."""
    manifest.seek(0)
    beginning = manifest.read(len(_BEGINNING))
    if not _BEGINNING.startswith(beginning):
        raise InputError(
            f"{path} is not a manifest of kbqa, and would be replaced by one. "
            "Choose another --output."
        )


def _write(output: Path, manifest: BinaryIO, record: Mapping[str, object]) -> None:
    about_kbqa = {
        "schema_version": MANIFEST_VERSION,
        "kbqa": version("kbqa"),
        "git": git_revision(),
        "python": platform.python_version(),
        "packages": package_versions(_PACKAGES),
    }
    try:
        manifest.truncate(0)
        manifest.write(json.dumps({**about_kbqa, **record}, indent=2).encode() + b"\n")
        manifest.flush()
    except OSError as error:
        raise InputError(f"{output} cannot be written: {error}") from error


def _check_settings(output: Path, settings: Mapping[str, object]) -> None:
    found = read_json(
        manifest_path(output),
        dict[str, object],
        lambda problem: _not_resumable(output, problem),
        schema_version=MANIFEST_VERSION,
    )
    check_same_settings(output, found, settings, InputError)


def _not_resumable(output: Path, reason: str) -> InputError:
    return InputError(
        f"{output} is not a resumable run: {reason}. "
        "Choose another --output, or replace it with --overwrite."
    )
