"""The row of a question in a run: its answers, their scores, and what they cost.

`Row` is what `kbqa eval` writes (`kbqa.engine.evaluation.runs.row_making`) and what reports read.
Any method's answers fit: what only one method knows is in its trace.
"""

from collections.abc import Mapping
from typing import Annotated, Any, get_args

from pydantic import BaseModel, ConfigDict, Field, StrictBool, ValidationError

from kbqa.engine.evaluation.scores.metrics import Scores
from kbqa.engine.questions.gold import GoldKind, gold_kind
from kbqa.sparql.errors import InputError
from kbqa.sparql.relax import Level

SCHEMA_VERSION = 3
READ_VERSIONS = (2, SCHEMA_VERSION)
"""The versions that can be read. Version 2, of the time when there was one method, has the fields
of the trace in the row itself."""

Count = Annotated[int, Field(ge=0)]

_LEVELS: tuple[Level, ...] = get_args(Level)


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class GoldShape(_Record):
    """The shape of a gold query, taken from the CRP that means the same.

    Attributes:
        hops: Steps of its main path.
        constraints: How many it has, at any depth, its ordering included.
        ordered: It keeps the first or last of its answers.
    """

    hops: Count
    constraints: Count
    ordered: bool


class RowAnswer(_Record):
    """An answer: an entity's mid or a literal's text, its name, and where it comes from.

    `confidence` says how sure it is, if the method knows.
    """

    mid: str | None = None
    value: str | None = None
    name: str
    origin: str = "graph"
    confidence: float | None = None

    @property
    def key(self) -> str:
        """What is compared with the gold answers."""
        return self.mid or self.value or ""


class WriterUsage(_Record):
    """What the small model wrote for a question."""

    calls: int
    output_tokens: int = 0


class GeneralUsage(_Record):
    """What general models took; only runs with timings have the last two."""

    calls: int
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    cached_calls: int | None = None
    seconds: float | None = None


class RowUsage(_Record):
    """What was asked of the models for a question."""

    specialised: WriterUsage | None = None
    general: GeneralUsage


class Row(_Record):
    """A question's row. Fields that the file does not have are None or empty.

    The fields from `answers` to `seconds` are those of `Answer`. `gold_names` are the names of each
    set of `gold`, if the question set has them; older rows do not have them. The fields from
    `category` to `gold_unanswerable` are those of `Question`. A failed question has no costs if
    they are not known.
    """

    schema_version: int
    id: str
    question: str
    tier: str | None = None
    type: str | None = None
    gold: tuple[tuple[str, ...], ...]
    gold_names: tuple[tuple[str, ...], ...] = ()
    category: str | None = None
    generalization: str | None = None
    function: str | None = None
    gold_boolean: StrictBool | None = None
    gold_count: Count | None = None
    gold_unanswerable: bool = False
    gold_shape: GoldShape | None = None
    answers: tuple[RowAnswer, ...]
    boolean: StrictBool | None = None
    count: Count | None = None
    not_understood: tuple[str, ...] = ()
    status: str | None = None
    confidence: float | None = None
    truncated: bool = False
    problem: str | None = None
    reason: str | None = None
    stage: str | None = None
    sparql: str | None = None
    evidence: tuple[object, ...] = ()
    linked: tuple[object, ...] = ()
    trace: Mapping[str, object] | None = None
    usage: RowUsage | None = None
    seconds: Mapping[str, float] | None = None
    scores: Scores | None
    calls: int | None = None
    tokens: int | None = None
    cost_usd: float | None = None
    error: str | None

    @property
    def kind(self) -> GoldKind | None:
        """Which kind of gold its question has; None if it has none."""
        return gold_kind(self.gold, self.gold_boolean, self.gold_count, self.gold_unanswerable)

    @property
    def is_answered(self) -> bool:
        """Whether the question got an answer of any kind."""
        return bool(self.answers) or self.boolean is not None or self.count is not None

    @property
    def predicted(self) -> tuple[str, ...]:
        """The answers as they are compared with the gold ones, best first."""
        return tuple(answer.key for answer in self.answers)

    @property
    def origin(self) -> str | None:
        """Where the answers come from, such as ``graph`` or ``graph + text``; None without any."""
        return " + ".join(sorted({answer.origin for answer in self.answers})) or None

    @property
    def level(self) -> Level | None:
        """How far the path that answers was relaxed; None if the method does not relax paths."""
        level = (self.trace or {}).get("level")
        return next((each for each in _LEVELS if each == level), None)

    @property
    def queries(self) -> int | None:
        """How many lookups in the graph a walking method took; None for others."""
        return self._counted("queries")

    @property
    def decisions(self) -> int | None:
        """How many decisions a walking method took, by any chooser; None for other methods."""
        return self._counted("decisions")

    @property
    def repair_queries(self) -> int | None:
        """How many queries a repair took; None if there was none."""
        repair = (self.trace or {}).get("repair")
        queries = repair.get("queries") if isinstance(repair, dict) else None
        return queries if isinstance(queries, int) else None

    def _counted(self, name: str) -> int | None:
        """Return a count of the trace; None if it has none of that name."""
        count = (self.trace or {}).get(name)
        return count if isinstance(count, int) else None

    def to_dict(self) -> dict[str, Any]:
        """Return the row as a JSON record, without the fields that were not set."""
        return self.model_dump(exclude_unset=True)


def read_row(record: Mapping[str, object], place: str) -> Row:
    """Read a row.

    Args:
        record: Of JSON.
        place: Where it is, for messages.

    Raises:
        InputError: It is not a row, or one of a version that cannot be read.
    """
    version = record.get("schema_version")
    if version not in READ_VERSIONS:
        if version is None or not {"id", "scores"} <= record.keys():
            raise InputError(f"{place} is not a row of `kbqa eval`")
        raise InputError(
            f"{place} is a row of schema_version {version}, and this kbqa reads "
            f"{' and '.join(map(str, READ_VERSIONS))}. Run `kbqa eval` again."
        )
    if version == 2:
        trace = {name: record.get(name) for name in ("level", "repair")}
        record = {**record, "trace": trace}
    try:
        return Row.model_validate(record)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(map(str, first["loc"]))
        raise InputError(f"{place} is not a row of `kbqa eval`: {field}: {first['msg']}") from None
