"""Make everything that is to be said about a run, as data; `report_sections` puts it into words."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, get_args

from kbqa.engine.evaluation.breakdowns import (
    Group,
    ShapeCell,
    break_down,
    cross_shapes,
    rows_by_tier,
)
from kbqa.engine.evaluation.calibration import Tenth, calibrate, calibration_error
from kbqa.engine.evaluation.costs import Spread, cost_per_10_000, measure_costs
from kbqa.engine.evaluation.metrics import METRICS, Mean, bootstrap_mean
from kbqa.engine.evaluation.official_webqsp import (
    MISSING,
    OfficialMeans,
    OfficialScores,
    is_webqsp_id,
    official_means,
    official_score,
)
from kbqa.engine.evaluation.recorded_run import RecordedRun, RunRow, Stage
from kbqa.sparql.relax import Level

SCHEMA_VERSION = 1

DEFINITIONS: Mapping[str, str] = {
    "hit": "a gold answer is among the predicted (several papers' Hits@1)",
    "hits_at_1": "the first predicted answer is gold; first in the order of the row's answers",
    "exact_match": "the predicted answers are the gold ones, none more, none less",
    "precision": "share of the predicted answers that are gold",
    "recall": "share of the gold answers that are predicted",
    "f1": "harmonic mean of a question's precision and recall; averaged over questions (macro)",
    "empty": "gold and prediction both empty: each is 1; only one of them empty: each is 0",
    "several gold sets": "a question with several parses (WebQSP) counts with that of the best F1",
    "failed": "a question that ended in an error counts 0 throughout",
    "not scored": "a question without gold answers counts nowhere",
    "interval": "95 % percentile bootstrap over questions, 1,000 resamples, seed 42",
}

OFFICIAL_RULE = (
    "WebQSP's official script. Its F1 is ours; its precision is 1 where nothing is predicted, and "
    "its recall is 1 where nothing is gold, for which ours are 0."
)


@dataclass(frozen=True, slots=True)
class Answered:
    """What became of the questions of a tier.

    Attributes:
        n: How many there are, those without gold answers included.
        stages: How many got an answer, by stage and by how far the path was relaxed.
        unanswered: How many got none.
    """

    n: int
    stages: Mapping[str, Mapping[str, int]]
    unanswered: int


@dataclass(frozen=True, slots=True)
class Errors:
    """Questions that failed alike: the kind of error, how many, and the first one's id and text."""

    kind: str
    n: int
    first_id: str
    first_error: str


@dataclass(frozen=True, slots=True)
class Report:
    """What there is to say about a run.

    Attributes:
        name: The run's file without its ending.
        manifest: What made it.
        entities: ``gold`` or ``linked``.
        questions: That were asked; None where the manifest, of an older kbqa, does not tell.
        rows: Of these, those that have a row; fewer where the run is unfinished.
        scored: Of these, those that have gold answers.
        scores: Means by tier (``all`` first) and metric.
        official: Means by tier by WebQSP's official rule; None where it is another question set.
        answered: By tier, with ``all``.
        costs: By what is measured; see `costs.measure_costs`.
        usd_per_10_000: US dollars for 10,000 questions; None where no cost is known.
        breakdowns: See `breakdowns.break_down`.
        shapes: F1 by hops and constraints of the gold query.
        calibration: Confidence against F1 of the answered questions, by tenths.
        calibration_error: Their mean distance; None where no row has a confidence.
        errors: By kind, the most frequent first.
    """

    name: str
    manifest: Mapping[str, object]
    entities: str
    questions: int | None
    rows: int
    scored: int
    scores: Mapping[str, Mapping[str, Mean]]
    official: Mapping[str, OfficialMeans] | None
    answered: Mapping[str, Answered]
    costs: Mapping[str, Spread]
    usd_per_10_000: float | None
    breakdowns: Mapping[str, Sequence[Group]]
    shapes: Sequence[ShapeCell]
    calibration: Sequence[Tenth]
    calibration_error: float | None
    errors: Sequence[Errors]

    @property
    def failed(self) -> int:
        """How many questions ended in an error."""
        return sum(one.n for one in self.errors)

    def to_dict(self) -> dict[str, Any]:
        """Make a JSON-ready record of everything, with what the metrics mean."""
        record = asdict(self)
        record["calibration"] = [tenth._asdict() for tenth in self.calibration]
        return {
            "schema_version": SCHEMA_VERSION,
            "definitions": dict(DEFINITIONS),
            "official_rule": None if self.official is None else OFFICIAL_RULE,
            **record,
        }


def make_report(run: RecordedRun) -> Report:
    """Measure everything about a run; it takes seconds, since each interval is resampled."""
    scored = [row for row in run.rows if row.scores is not None]
    tiers = rows_by_tier(scored)
    is_webqsp = bool(scored) and all(is_webqsp_id(row.id) for row in scored)
    tenths = calibrate(
        (row.confidence, row.scores.f1)
        for row in scored
        if row.confidence is not None and row.scores is not None
    )
    return Report(
        name=run.name,
        manifest=run.manifest,
        entities=run.entities,
        questions=run.question_count,
        rows=len(run.rows),
        scored=len(scored),
        scores={tier: _means(rows) for tier, rows in tiers.items()},
        official={tier: official_means(_official(rows)) for tier, rows in tiers.items()}
        if is_webqsp
        else None,
        answered={tier: _answered(rows) for tier, rows in rows_by_tier(run.rows).items()},
        costs=measure_costs(run.rows),
        usd_per_10_000=cost_per_10_000(run.rows),
        breakdowns=break_down(scored),
        shapes=cross_shapes(scored),
        calibration=tenths,
        calibration_error=calibration_error(tenths) if tenths else None,
        errors=_errors(run.rows),
    )


def _means(rows: Sequence[RunRow]) -> dict[str, Mean]:
    scores = [row.scores for row in rows if row.scores is not None]
    return {metric: bootstrap_mean([getattr(one, metric) for one in scores]) for metric in METRICS}


def _official(rows: Sequence[RunRow]) -> list[OfficialScores]:
    return [
        MISSING if row.error is not None else official_score(row.predicted, row.gold)
        for row in rows
    ]


def _answered(rows: Sequence[RunRow]) -> Answered:
    counts = Counter((row.stage, row.level) for row in rows if row.answers)
    stages = {
        stage: {level: n for level in get_args(Level) if (n := counts[stage, level])}
        for stage in get_args(Stage)
    }
    return Answered(
        n=len(rows),
        stages={stage: levels for stage, levels in stages.items() if levels},
        unanswered=sum(not row.answers for row in rows),
    )


def _errors(rows: Sequence[RunRow]) -> list[Errors]:
    kinds: dict[str, list[RunRow]] = {}
    for row in rows:
        if row.error is not None:
            kinds.setdefault(row.error.partition(":")[0], []).append(row)
    return [
        Errors(kind, len(failed), failed[0].id, failed[0].error or "")
        for kind, failed in sorted(kinds.items(), key=lambda item: -len(item[1]))
    ]
