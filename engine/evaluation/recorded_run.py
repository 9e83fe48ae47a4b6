"""Read a run that `kbqa eval` wrote: its rows, and the manifest beside them.

Only what reports use is read of a row; the rest of it may be anything.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kbqa.engine.evaluation.metrics import Scores
from kbqa.engine.json_lines import read_rows
from kbqa.engine.run_manifest import manifest_path
from kbqa.sparql.errors import InputError
from kbqa.sparql.relax import Level

READ_VERSION = 2
"""The rows' schema_version that is read."""

Stage: TypeAlias = Literal["specialised", "general"]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class GoldShape(_Record):
    """What the gold query is like: hops of its main path, constraints, whether it is ordered."""

    hops: Annotated[int, Field(ge=0)]
    constraints: Annotated[int, Field(ge=0)]
    ordered: bool


class RowAnswer(_Record):
    """An answer: an entity's mid or a literal's text, and the name."""

    mid: str | None = None
    value: str | None = None
    name: str

    @property
    def key(self) -> str:
        """What is compared with the gold answers."""
        return self.mid or self.value or ""


class GeneralUsage(_Record):
    """Calls of general models; how many came out of the cache is told by runs with timings."""

    calls: int
    cached_calls: int | None = None


class RowUsage(_Record):
    """What was asked of the models for a question."""

    general: GeneralUsage


class RowRepair(_Record):
    """What a repair took."""

    queries: int


class RunRow(_Record):
    """A question's row, as far as reports use it; `kbqa.engine.evaluation.rows` makes it."""

    id: str
    question: str
    gold: tuple[frozenset[str], ...]
    answers: tuple[RowAnswer, ...]
    scores: Scores | None
    error: str | None
    tier: str | None = None
    type: str | None = None
    gold_shape: GoldShape | None = None
    stage: Stage | None = None
    level: Level | None = None
    confidence: float | None = None
    calls: int | None = None
    tokens: int | None = None
    repair: RowRepair | None = None
    cost_usd: float | None = None
    usage: RowUsage | None = None
    seconds: Mapping[str, float] | None = None

    @property
    def predicted(self) -> tuple[str, ...]:
        """The answers as they are compared with the gold ones, best first."""
        return tuple(answer.key for answer in self.answers)


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A run as it is on disk.

    Attributes:
        path: The file of its rows.
        manifest: What made it.
        rows: By question, in the file's order; no two have the same id.
    """

    path: Path
    manifest: Mapping[str, object]
    rows: tuple[RunRow, ...]

    @property
    def name(self) -> str:
        """The file's name without its ending."""
        return self.path.stem

    @property
    def entities(self) -> str:
        """Whether the questions' entities were given: ``gold`` or ``linked``."""
        return "gold" if self.manifest["gold_entities"] else "linked"

    @property
    def question_count(self) -> int | None:
        """How many questions were asked; None where the manifest, of an older kbqa, is silent."""
        count = self.manifest.get("question_count")
        return count if isinstance(count, int) else None


def flatten_manifest(manifest: Mapping[str, object]) -> dict[str, str]:
    """Write a manifest as labels and texts, nested ones with the labels joined.

    What is null is left out.

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
            flat[label] = _text(value)
    return flat


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    return json.dumps(value) if isinstance(value, dict) else str(value)


def read_run(path: Path) -> RecordedRun:
    """Read a run.

    Raises:
        InputError: There is no such file; it is no run, or one of another kbqa; a line is broken,
            or two are of the same question; or its manifest is missing or broken.
    """
    rows: dict[str, RunRow] = {}
    for number, record in read_rows(path):
        row = _row(record, f"{path}, line {number}")
        if row.id in rows:
            raise InputError(f"{path}, line {number}: there is a row of question {row.id!r} above")
        rows[row.id] = row
    if not rows:
        raise InputError(f"{path} holds no rows")
    return RecordedRun(path, _manifest(path), tuple(rows.values()))


def _row(record: Mapping[str, object], place: str) -> RunRow:
    version = record.get("schema_version")
    if version != READ_VERSION:
        if version is None or not {"id", "scores"} <= record.keys():
            raise InputError(f"{place}: not a row of `kbqa eval`")
        raise InputError(
            f"{place}: a row of schema_version {version}, and this kbqa reads {READ_VERSION}. "
            "Make the run anew with `kbqa eval`."
        )
    try:
        return RunRow.model_validate(record)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise InputError(f"{place}: not a row of `kbqa eval`: {field}: {first['msg']}") from None


def _manifest(run: Path) -> Mapping[str, object]:
    path = manifest_path(run)
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(
            f"{run} has no manifest: there is no {path}. A run cannot be told without it; "
            "keep the two files together."
        ) from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path}, the manifest of {run.name}, cannot be read: {error}") from None
    if not isinstance(manifest, dict) or not isinstance(manifest.get("gold_entities"), bool):
        raise InputError(f"{path} is not the manifest of a run of `kbqa eval`")
    return manifest
