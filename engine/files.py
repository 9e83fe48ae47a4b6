"""Files of the engine: JSON, JSON Lines, manifests, and a cache of bytes computed from texts.

Users may write these files, and a writer of JSON Lines may have been killed: all are checked, and
an unfinished line is removed. The manifest of ``run.jsonl`` is ``run.manifest.json``. It records
the settings of a run, so that only the same run resumes it, and the versions of the code.
"""

import fcntl
import functools
import gzip
import hashlib
import importlib.metadata
import json
import logging
import os
import platform
import sqlite3
import subprocess
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, TypeAlias, TypeVar

from kbqa.sparql.errors import InputError, KbqaError, ModelError

if TYPE_CHECKING:
    from pydantic import ValidationError

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

BadRow: TypeAlias = Callable[[int, str], None]
"""Called with the number of an unusable record and what is wrong with it."""

MANIFEST_VERSION = 1

FORMER_METHODS = {"router": "kbqa"}
"""Former names of methods, which one more version accepts."""

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

_LOCK_TIMEOUT_S = 10.0
_TEXTS_A_QUERY = 500
_BROKEN = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
# The second, if SQLite quotes damaged text in its own message.
_ERRORS = (sqlite3.Error, UnicodeDecodeError, OSError)
_PRIMARY_CODE = 0xFF  # The other bits of an error's code are details.


def read_json(
    path: Path, type_: type[_T], error: Callable[[str], KbqaError], *, schema_version: int
) -> _T:
    """Read a JSON file of one type, such as a dataclass; unknown fields are ignored.

    If the file is missing, unreadable, or of another type or version, `error` makes the exception
    from a sentence that begins with the path; the class of an error will do.
    """
    # Takes 40 ms, and many commands read no such file.
    from pydantic import TypeAdapter, ValidationError
    from pydantic_core import from_json

    try:
        record = from_json(path.read_bytes(), allow_inf_nan=False)
    except FileNotFoundError:
        raise error(f"{path} is missing") from None
    except (OSError, ValueError) as reason:
        raise error(f"{path} cannot be read: {reason}") from reason
    if not isinstance(record, dict):
        raise error(f"{path} cannot be read: it is not a JSON object")
    found = record.pop("schema_version", None)
    if found != schema_version:
        raise error(
            f"{path} has schema_version {found}, and this kbqa reads version {schema_version}"
        )
    try:
        return TypeAdapter(type_).validate_python(record)
    except ValidationError as invalid:
        raise error(f"{path} cannot be read: {invalid_field(invalid)}") from invalid


def invalid_field(error: "ValidationError") -> str:
    """Return the first field that pydantic refuses, and why."""
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"


def read_model_json(
    path: Path, type_: type[_T], shipped: Path, name: str, *, schema_version: int
) -> _T:
    """Read a dataclass from the JSON file of a model, or raise a `ModelError`.

    `name` is for errors, such as ``the linking model``.
    """
    # Tests check the files that ship; `read_json` would delay each question on the command line by
    # 60 ms, for pydantic.
    if path == shipped:
        record = json.loads(path.read_text(encoding="utf-8"))
        del record["schema_version"]
        return type_(**record)

    def error(problem: str) -> ModelError:
        return ModelError(f"cannot read {name}: {problem}")

    return read_json(path, type_, error, schema_version=schema_version)


def read_rows(path: Path, bad: BadRow | None = None) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Read the records of a JSON Lines file, gzipped or not, each with its line number.

    `bad` is called with each line that is not a JSON object; without it, the first one raises an
    `InputError`, as does a file that cannot be read.
    """
    opener = gzip.open if path.suffix == ".gz" else open
    number = 0
    try:
        with opener(path, "rt", encoding="utf-8-sig") as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                try:
                    row = json.loads(line)
                    problem = None if isinstance(row, dict) else "not a JSON object"
                except (ValueError, RecursionError) as error:
                    problem = f"not JSON ({error})"
                if problem is None:
                    yield number, row
                elif bad is None:
                    raise InputError(f"{path}, line {number}: {problem}")
                else:
                    bad(number, problem)
    except FileNotFoundError:
        raise InputError(f"there is no file {path}") from None
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise InputError(f"{path}, after line {number}, cannot be read: {error}") from None


def drop_unfinished_line(path: Path) -> None:
    """Remove an unfinished last line, left by a process that was killed."""
    try:
        with path.open("r+b") as file:
            file.truncate(file.read().rfind(b"\n") + 1)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error}") from error


def git_revision() -> str | None:
    """Return the commit of the checkout that this code runs from; None if it is installed."""
    root = Path(__file__).resolve().parents[1]
    if not (root / ".git").exists():  # installed, maybe in a folder of somebody's checkout
        return None
    try:
        done = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def package_versions(names: Iterable[str]) -> dict[str, str | None]:
    """Return the installed versions of packages; None for one that is not installed."""
    return {name: _installed_version(name) for name in names}


@functools.cache
def _installed_version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def hardware() -> dict[str, object]:
    """Describe the processor, its cores and the GPUs that torch finds."""
    import torch

    try:  # Linux has a better name than Python.
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": names[0] if names else platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpus": [torch.cuda.get_device_name(at) for at in range(torch.cuda.device_count())],
    }


@contextmanager
def claimed(
    output: Path, settings: Mapping[str, object], notes: Mapping[str, object]
) -> Iterator[bool]:
    """Reserve a file of rows for this process, and check or write its manifest.

    `settings` decide the rows; `notes` are other facts, which may differ when a run is resumed.
    Yields whether `output` has rows of a run with these settings, to be resumed. When the block
    ends, the manifest gets its ``times``: when the run began and ended, in UTC, and its seconds,
    without those between an end and the next beginning. A killed process notes none.
    """
    begun = time.monotonic()

    def not_resumable(reason: str) -> InputError:
        return InputError(
            f"{output} is not a resumable run: {reason}. "
            "Choose another --output, or replace it with --overwrite."
        )

    path = manifest_path(output)
    if output.is_file() and not path.is_file():
        raise not_resumable(f"{path} is missing")
    # The lock is on the manifest, so take it before anything is written there.
    with _locked(output, "a+b") as manifest:
        is_begun = output.is_file()
        if is_begun:
            record = {
                "schema_version": MANIFEST_VERSION,
                **read_manifest(output, not_resumable),
            }
            check_same_settings(output, record, settings, InputError)
        else:
            _check_replaceable(path, manifest)
            record = {
                "schema_version": MANIFEST_VERSION,
                "kbqa": importlib.metadata.version("kbqa"),
                "git": git_revision(),
                "python": platform.python_version(),
                "packages": package_versions(_PACKAGES),
                "times": {"began": _utc()},
                **notes,
                **settings,
            }
            try:
                manifest.truncate(0)
                manifest.write(_manifest_text(record))
                manifest.flush()
            except OSError as error:
                raise InputError(f"{output} cannot be written: {error}") from error
        try:
            yield is_begun
        finally:
            _note_times(path, record, time.monotonic() - begun)


def discard(output: Path) -> None:
    """Delete the rows of a run, so that another can begin; raises as `claimed` does."""
    path = manifest_path(output)
    with _locked(output, "rb") if path.is_file() else nullcontext() as manifest:
        if manifest is not None:
            _check_replaceable(path, manifest)
        output.unlink(missing_ok=True)


def manifest_path(output: Path) -> Path:
    """Return the path of the manifest of a file of rows."""
    return output.with_suffix(".manifest.json")


def lock(opened: BinaryIO | int, output: Path, error: type[KbqaError]) -> None:
    """Lock an open file, or a folder by its descriptor, until it is closed.

    The error is raised if another process is writing to `output`.
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
    """Raise an error that names the settings of a run that differ from those in its output."""
    # As JSON, in which a tuple is a list.
    wanted = json.loads(json.dumps(settings))
    changed = sorted(key for key in wanted if found.get(key, _ABSENT) != wanted[key])
    if changed:
        raise error(
            f"{output} holds a run with other settings ({', '.join(changed)}). "
            "Resume it with the same settings, or choose another --output."
        )


def file_sha256(*paths: Path) -> str:
    """Hash the bytes of files, one after the other, in hex."""
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            hashlib.file_digest(file, lambda: digest)
    return digest.hexdigest()


@contextmanager
def _locked(output: Path, mode: Literal["rb", "a+b"]) -> Iterator[BinaryIO]:
    try:
        file = manifest_path(output).open(mode)
    except OSError as error:
        raise InputError(f"{output} cannot be written: {error}") from error
    with file:
        lock(file, output, InputError)
        yield file


def _note_times(path: Path, record: Mapping[str, object], seconds: float) -> None:
    """Add to the times of a manifest; the file stays the same one, since it is locked."""
    times = record.get("times")
    before = times.get("wall_s", 0.0) if isinstance(times, dict) else None
    if not isinstance(times, dict) or not isinstance(before, int | float):
        return  # An older kbqa began the run, and did not note when.
    times = {**times, "ended": _utc(), "wall_s": round(before + seconds, 1)}
    try:
        # Written over what is there, which is no longer, so that a kill leaves one or the other.
        with path.open("r+b", buffering=0) as file:
            file.write(_manifest_text({**record, "times": times}))
            file.truncate()
    except OSError as error:
        logger.warning("the times of the run could not be noted in %s: %s", path, error)


def _manifest_text(record: Mapping[str, object]) -> bytes:
    return json.dumps(record, indent=2).encode() + b"\n"


def _utc() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _check_replaceable(path: Path, manifest: BinaryIO) -> None:
    """Refuse to write over a file that only has the name of a manifest."""
    manifest.seek(0)
    beginning = manifest.read(len(_BEGINNING))
    if not _BEGINNING.startswith(beginning):
        raise InputError(
            f"{path} is not a manifest of kbqa, and would be replaced by one. "
            "Choose another --output."
        )


def read_manifest(output: Path, error: Callable[[str], KbqaError]) -> dict[str, object]:
    """Read the manifest of a file of rows; methods have the names that they have today."""
    path = manifest_path(output)
    manifest = read_json(path, dict[str, object], error, schema_version=MANIFEST_VERSION)
    method = manifest.get("method")
    if isinstance(method, dict) and (name := method.get("name")) in FORMER_METHODS:
        manifest["method"] = {**method, "name": FORMER_METHODS[name]}
    return manifest


class TextCache:
    """A cache of bytes computed from texts; any number of threads and processes may use one file.

    A file holds one kind of value; everything that can change the values is part of its name.
    `kind` is for the log, in the plural: ``"embeddings"``. It is SQLite, because several processes
    add texts at once: of files that are rewritten and renamed, only the last writer's would remain.
    A broken cache only costs time, so no method raises: unreadable values are computed again.
    """

    def __init__(self, path: Path, kind: str) -> None:
        self._path, self._kind, self._is_usable = path, kind, True

    def read(self, texts: Sequence[str]) -> dict[str, bytes]:
        """Return the cached values of those texts that have one."""
        found: dict[str, bytes] = {}
        if not self._is_usable or not self._path.is_file():
            return found
        try:
            with closing(self._connect()) as connection:
                for start in range(0, len(texts), _TEXTS_A_QUERY):
                    asked = texts[start : start + _TEXTS_A_QUERY]
                    places = ",".join("?" * len(asked))
                    query = f"SELECT text, made FROM made_of WHERE text IN ({places})"
                    found.update(connection.execute(query, asked))
        except _ERRORS as error:
            self._give_up(error)
        return found

    def write(self, made: Mapping[str, bytes]) -> None:
        """Cache a value for each text that has none."""
        if not self._is_usable:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with closing(self._connect()) as connection, connection:
                connection.executemany("INSERT OR IGNORE INTO made_of VALUES (?, ?)", made.items())
        except _ERRORS as error:
            self._give_up(error)

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=_LOCK_TIMEOUT_S)
        try:
            connection.execute(
                "CREATE TABLE IF NOT EXISTS made_of (text TEXT PRIMARY KEY, made BLOB NOT NULL)"
            )
        except _ERRORS:
            connection.close()
            raise
        return connection

    def _give_up(self, error: Exception) -> None:
        """Remove a damaged file, to be created again, or stop using one that fails otherwise."""
        # Errors raised by the Python module itself have no code.
        code: int = getattr(error, "sqlite_errorcode", 0)
        if code & _PRIMARY_CODE in _BROKEN or isinstance(error, UnicodeDecodeError):
            logger.warning("%s is damaged (%s) and will be rebuilt", self._path, error)
            try:
                # Also its journal, which SQLite would replay into the new file.
                for path in (self._path, Path(f"{self._path}-journal")):
                    path.unlink(missing_ok=True)
                return
            except OSError as reason:
                error = reason
        self._is_usable = False
        logger.warning("%s are not cached: %s cannot be used: %s", self._kind, self._path, error)
