"""Measure a run: scores, costs, steps, breakdowns and errors, all in one `Report`."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kbqa.engine.evaluation.reports.breakdowns import (
    FOUND,
    RowGroup,
    ShapeCell,
    break_down,
    cross_shapes,
    rows_by_tier,
    score_tiers,
    stage_name,
    stage_rank,
)
from kbqa.engine.evaluation.reports.glossary import DEFINITIONS, NAME_RULES, OFFICIAL_RULE
from kbqa.engine.evaluation.reports.steps import StepCosts, count_steps, count_stops
from kbqa.engine.evaluation.runs.costs import Spread, cost_per_10_000, measure_costs
from kbqa.engine.evaluation.runs.recorded_run import RecordedRun
from kbqa.engine.evaluation.runs.rows import Row
from kbqa.engine.evaluation.scores.by_name import (
    UNANSWERED,
    NameMeans,
    average_names,
    score_names,
)
from kbqa.engine.evaluation.scores.calibration import (
    Covered,
    Tenth,
    brier_score,
    calibrate,
    calibration_error,
    cover,
    separate_right,
)
from kbqa.engine.evaluation.scores.metrics import Mean
from kbqa.engine.evaluation.scores.official_webqsp import (
    MISSING,
    OfficialMeans,
    OfficialScores,
    is_webqsp_id,
    official_means,
    official_score,
)

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Answered:
    """How many questions of a tier were answered.

    Attributes:
        n: All of them, including those without gold answers.
        stages: Those with an answer, by stage and by how far the path was relaxed.
        origins: Those with an answer, by the origin of their answers.
        unanswered: Those without.
    """

    n: int
    stages: Mapping[str, Mapping[str, int]]
    origins: Mapping[str, int]
    unanswered: int


@dataclass(frozen=True, slots=True)
class Errors:
    """Questions that failed with one kind of error: how many, the first one's id and its text."""

    kind: str
    n: int
    first_id: str
    first_error: str


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that is reported about a run.

    Attributes:
        name: The run's file without its ending.
        method: The name of the method; None if the manifest does not say.
        manifest: What made it.
        entities: ``gold`` or ``linked``.
        questions: How many were asked; None if the manifest does not say, as older ones.
        rows: How many of these have a row; fewer if the run is unfinished.
        scored: How many of these have gold answers.
        scores: Means by tier (``all`` first) and metric.
        official: Means by tier by WebQSP's official rule; None for another question set.
        name_scores: Means by tier of scores by names, over the questions whose gold names are
            known; None if they were not asked for.
        answered: By tier, with ``all``.
        costs: By what is measured; see `costs.measure_costs`.
        usd_per_10_000: US dollars for 10,000 questions; None if no cost is known.
        steps: What the steps of a walking method took, by kind.
        stops: How often walking ended for which reason.
        breakdowns: See `breakdowns.break_down`.
        shapes: F1 by hops and constraints of the gold query.
        calibration: Confidence against F1 of the answered questions, by tenths.
        calibration_error: Their mean distance; None if no row has a confidence.
        brier_score: The mean squared distance of confidence and F1; None as above.
        auroc: How well confidences separate answers with an F1 of at least 0.5 from others; None
            if there are not both.
        coverage: What is answered if only the surest are.
        errors: By kind, the most frequent first.
    """

    name: str
    method: str | None
    manifest: Mapping[str, object]
    entities: str
    questions: int | None
    rows: int
    scored: int
    scores: Mapping[str, Mapping[str, Mean]]
    official: Mapping[str, OfficialMeans] | None
    name_scores: Mapping[str, NameMeans] | None
    answered: Mapping[str, Answered]
    costs: Mapping[str, Spread]
    usd_per_10_000: float | None
    steps: Sequence[StepCosts]
    stops: Mapping[str, int]
    breakdowns: Mapping[str, Sequence[RowGroup]]
    shapes: Sequence[ShapeCell]
    calibration: Sequence[Tenth]
    calibration_error: float | None
    brier_score: float | None
    auroc: float | None
    coverage: Sequence[Covered]
    errors: Sequence[Errors]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as a JSON record, with definitions of the metrics."""
        record = asdict(self)
        record["calibration"] = [tenth._asdict() for tenth in self.calibration]
        record["coverage"] = [covered._asdict() for covered in self.coverage]
        return {
            "schema_version": SCHEMA_VERSION,
            "definitions": dict(DEFINITIONS),
            "official_rule": None if self.official is None else OFFICIAL_RULE,
            "name_rules": None if self.name_scores is None else NAME_RULES,
            **record,
        }


def make_report(run: RecordedRun, *, names: bool = False) -> Report:
    """Measure everything about a run; it takes seconds, since each interval is resampled.

    Args:
        run: The run.
        names: Also score the names of answers.
    """
    scored = [row for row in run.rows if row.scores is not None]
    is_webqsp = bool(scored) and all(is_webqsp_id(row.id) for row in scored)
    pairs = [
        (row.confidence, row.scores.f1)
        for row in scored
        if row.confidence is not None and row.scores is not None
    ]
    tenths = calibrate(pairs)
    return Report(
        name=run.name,
        method=run.method,
        manifest=run.manifest,
        entities=run.entities,
        questions=run.question_count,
        rows=len(run.rows),
        scored=len(scored),
        scores=score_tiers(scored),
        official={tier: _official_means(rows) for tier, rows in rows_by_tier(scored).items()}
        if is_webqsp
        else None,
        name_scores=_name_means(scored) if names else None,
        answered={tier: _count_answered(rows) for tier, rows in rows_by_tier(run.rows).items()},
        costs=measure_costs(run.rows),
        usd_per_10_000=cost_per_10_000(run.rows),
        steps=count_steps(run.rows),
        stops=count_stops(run.rows),
        breakdowns=break_down(scored),
        shapes=cross_shapes(scored),
        calibration=tenths,
        calibration_error=calibration_error(tenths) if tenths else None,
        brier_score=brier_score(pairs) if pairs else None,
        auroc=separate_right(pairs),
        coverage=cover(pairs),
        errors=_count_errors(run.rows),
    )


def _official_means(rows: Sequence[Row]) -> OfficialMeans:
    scores: list[OfficialScores] = [
        MISSING if row.error is not None else official_score(row.predicted, row.gold)
        for row in rows
    ]
    return official_means(scores)


def _name_means(scored: Sequence[Row]) -> dict[str, NameMeans]:
    known = [row for row in scored if row.gold_names]
    return {
        tier: average_names(
            [
                UNANSWERED
                if row.error is not None
                else score_names([answer.name for answer in row.answers], row.gold_names)
                for row in rows
            ]
        )
        for tier, rows in rows_by_tier(known).items()
    }


def _count_answered(rows: Sequence[Row]) -> Answered:
    answered = [row for row in rows if row.is_answered]
    stages: dict[str, Counter[str]] = {}
    for row in sorted(answered, key=lambda row: stage_rank(row.level or FOUND)):
        stages.setdefault(stage_name(row), Counter())[row.level or FOUND] += 1
    return Answered(
        n=len(rows),
        stages={stage: dict(stages[stage]) for stage in sorted(stages, key=stage_rank)},
        origins=dict(Counter(sorted(row.origin for row in answered if row.origin))),
        unanswered=len(rows) - len(answered),
    )


def _count_errors(rows: Sequence[Row]) -> list[Errors]:
    kinds: dict[str, list[Row]] = {}
    for row in rows:
        if row.error is not None:
            kinds.setdefault(row.error.partition(":")[0], []).append(row)
    return [
        Errors(kind, len(failed), failed[0].id, failed[0].error or "")
        for kind, failed in sorted(kinds.items(), key=lambda item: -len(item[1]))
    ]
