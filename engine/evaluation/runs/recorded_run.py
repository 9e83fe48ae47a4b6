"""Read a run that `kbqa eval` wrote: its rows, and the manifest next to them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kbqa.engine.evaluation.runs.rows import Row, read_row
from kbqa.engine.files.json_file import read_json
from kbqa.engine.files.json_lines import read_rows
from kbqa.engine.files.manifest import MANIFEST_VERSION, manifest_path
from kbqa.sparql.errors import InputError

_UNUSED = ("evidence", "linked", "sparql")
_USED_OF_TRACE = ("level", "repair", "stop", "queries", "decisions")
_USED_OF_STEP = (
    "kind",
    "hidden",
    "clipped",
    "unread",
    "is_truncated",
    "no_decision",
    "input_tokens",
    "output_tokens",
)


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A run as it is on disk.

    Attributes:
        path: The file of its rows.
        manifest: What made it.
        rows: In the file's order; no two have the same id.
    """

    path: Path
    manifest: Mapping[str, object]
    rows: tuple[Row, ...]

    @property
    def name(self) -> str:
        """The file's name without its ending."""
        return self.path.stem

    @property
    def entities(self) -> str:
        """Whether the questions' entities were given: ``gold`` or ``linked``."""
        return "gold" if self.manifest["gold_entities"] else "linked"

    @property
    def method(self) -> str | None:
        """The name of the method; None if the manifest does not say."""
        method = self.manifest.get("method")
        return str(method["name"]) if isinstance(method, dict) and "name" in method else None

    @property
    def question_count(self) -> int | None:
        """How many questions were asked; None if the manifest does not say, as older ones."""
        count = self.manifest.get("question_count")
        return count if isinstance(count, int) else None


def flatten_manifest(manifest: Mapping[str, object]) -> dict[str, str]:
    """Return a manifest as labels and texts, with the labels of nested ones joined.

    Null values are left out.

    >>> flatten_manifest({"n": 5, "beams": None, "store": {"languages": ["en"], "is_full": False}})
    {'n': '5', 'store, languages': 'en', 'store, is full': 'no'}
    """
    flat: dict[str, str] = {}
    for key, value in manifest.items():
        label = key.replace("_", " ")
        if isinstance(value, dict):
            inner = flatten_manifest(value)
            flat |= {f"{label}, {name}": text for name, text in inner.items()}
        elif value is not None:
            flat[label] = setting_text(value)
    return flat


def setting_text(value: object) -> str:
    """Return the value of a setting as reports show it.

    >>> setting_text({"name": "router", "write": True, "without": [], "repair": None})
    'router (write yes, without none, repair none)'
    """
    if isinstance(value, dict):
        name = value.get("name")
        rest = [f"{key} {setting_text(each)}" for key, each in value.items() if key != "name"]
        inner = ", ".join(rest).replace("_", " ")
        if name is None:
            return inner or "none"
        return f"{name} ({inner})" if inner else str(name)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(setting_text, value)) or "none"
    return "none" if value is None else str(value)


def read_run(path: Path) -> RecordedRun:
    """Read a run.

    Raises:
        InputError: The file is missing, or it is not a run that this kbqa reads; a line is broken,
            or two lines have the same question; or the manifest is missing or broken.
    """
    rows: dict[str, Row] = {}
    for number, record in read_rows(path):
        row = read_row(_used(record), f"{path}, line {number}")
        if row.id in rows:
            raise InputError(f"{path}, line {number}: a second row of question {row.id!r}")
        rows[row.id] = row
    if not rows:
        raise InputError(f"{path} has no rows")
    return RecordedRun(path, _manifest(path), tuple(rows.values()))


def _used(record: Mapping[str, object]) -> Mapping[str, object]:
    """Return what reports use of a row; whole rows would take several times the memory."""
    used = {name: value for name, value in record.items() if name not in _UNUSED}
    if isinstance(trace := record.get("trace"), dict):
        kept = {name: trace[name] for name in _USED_OF_TRACE if name in trace}
        if isinstance(steps := trace.get("steps"), list):
            kept["steps"] = [_used_of_step(step) for step in steps if isinstance(step, dict)]
        used["trace"] = kept
    return used


def _used_of_step(step: Mapping[str, object]) -> Mapping[str, object]:
    return {name: step[name] for name in _USED_OF_STEP if name in step}


def _manifest(run: Path) -> Mapping[str, object]:
    def not_a_run(problem: str) -> InputError:
        return InputError(
            f"{run} is not a run of `kbqa eval`: {problem}. "
            "The manifest must be in the same folder as the rows."
        )

    path = manifest_path(run)
    manifest = read_json(path, dict[str, object], not_a_run, schema_version=MANIFEST_VERSION)
    if not isinstance(manifest.get("gold_entities"), bool):
        raise not_a_run(f"{path} does not say whether entities were given")
    return _with_method(manifest)


def _with_method(manifest: Mapping[str, object]) -> Mapping[str, object]:
    """Return a manifest with the settings of its method in one record, as new manifests have it."""
    if not isinstance(manifest.get("method"), str):
        return manifest
    rest = dict(manifest)
    names = ("order", "confidence_model", "without", "repair")
    settings = {name: rest.pop(name) for name in names if name in rest}
    repair = settings.get("repair")
    if isinstance(repair, dict) and "policy" in repair:
        settings["repair"] = {("route" if n == "policy" else n): repair[n] for n in repair}
    rest["method"] = {"name": "router", "write": manifest["method"] != "general", **settings}
    return rest
