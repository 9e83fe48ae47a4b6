"""Measure a run: scores, costs, steps, breakdowns and errors, all in one `Report`.

Put a report into words: sections of facts and tables, for a terminal or in Markdown.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kbqa.engine.evaluation.breakdowns import (
    FOUND,
    RowGroup,
    ShapeCell,
    StepCosts,
    break_down,
    count_steps,
    count_stops,
    cross_shapes,
    rows_by_tier,
    score_tiers,
    stage_name,
    stage_rank,
    step_sections,
)
from kbqa.engine.evaluation.rows import (
    RecordedRun,
    Row,
    Spread,
    cost_per_10_000,
    flatten_manifest,
    measure_costs,
)
from kbqa.engine.evaluation.scores import (
    METRICS,
    Mean,
    NameScores,
    OfficialMeans,
    OfficialScores,
    average,
    is_webqsp_id,
    official_means,
    official_score,
    score_names,
)
from kbqa.engine.evaluation.statistics import (
    Covered,
    Tenth,
    brier_score,
    calibrate,
    calibration_error,
    cover,
    separate_right,
)
from kbqa.engine.evaluation.tables import (
    BREAKDOWN_NAMES,
    DEFINITIONS,
    METRIC_NAMES,
    NAME_RULES,
    OFFICIAL_RULE,
    ORIGIN_RULE,
    Cell,
    MarkdownTable,
    Section,
    shorten_setting,
)

SCHEMA_VERSION = 1
_NO_PREDICTION = OfficialScores(0.0, 0.0, 0.0)


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
    name_scores: Mapping[str, Mapping[str, Mean]] | None
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
    return official_means(
        [
            _NO_PREDICTION if row.error is not None else official_score(row.predicted, row.gold)
            for row in rows
        ]
    )


def _name_means(scored: Sequence[Row]) -> dict[str, dict[str, Mean]]:
    known = [row for row in scored if row.gold_names]
    return {
        tier: average(list(map(_name_scores, rows)), NameScores._fields)
        for tier, rows in rows_by_tier(known).items()
    }


def _name_scores(row: Row) -> NameScores:
    if row.error is not None:
        return NameScores(0.0, 0.0, 0.0)
    return score_names([answer.name for answer in row.answers], row.gold_names)


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


_COST_NAMES = {
    "general_calls": "calls of the general model",
    "cached_calls": "of these from the cache",
}
# In the title or the facts already, or of no interest.
_HIDDEN = ("gold entities", "question count", "schema version", "store summary")


def report_sections(report: Report) -> list[Section]:
    """Put a report into words, in order of interest."""
    return list(_sections(report))


def _sections(report: Report) -> Iterator[Section]:
    yield _heading(report)
    yield _scores(report)
    definitions = [(METRIC_NAMES.get(name, name), text) for name, text in DEFINITIONS.items()]
    yield Section("What the scores mean", definitions)
    if report.official is not None:
        yield _official(report.official, report.entities)
    if report.name_scores is not None:
        yield _by_name(report.name_scores, report.entities)
    yield _stages(report.answered)
    if report.answered["all"].origins.keys() - {"graph"}:
        yield _origins(report.answered)
    if report.costs:
        yield _costs(report.costs, report.usd_per_10_000)
    yield from step_sections(report.steps, report.stops)
    for way, groups in report.breakdowns.items():
        yield _breakdown(BREAKDOWN_NAMES[way], groups)
    if report.shapes:
        yield _shapes(report.shapes)
    if report.calibration_error is not None:
        yield _calibration(report)
    if report.errors:
        first = [
            (f"{e.n:,} {e.kind}", f"first: {e.first_id}: {e.first_error}") for e in report.errors
        ]
        yield Section("Errors", first)


def _heading(report: Report) -> Section:
    failed = sum(each.n for each in report.errors)
    counts = f"{report.rows:,}, {report.scored:,} with gold answers, {failed:,} failed"
    facts = [("rows", counts)]
    if report.questions is not None and report.rows < report.questions:
        done = f"{report.rows:,} of {report.questions:,} questions; continue with --resume"
        facts.append(("unfinished", done))
    facts += [
        (label, shorten_setting(label, text))
        for label, text in flatten_manifest(report.manifest).items()
        if not label.startswith(_HIDDEN)
    ]
    method = "" if report.method is None else f"method {report.method}, "
    return Section(f"Run {report.name}, {method}{report.entities} entities", facts, depth=1)


def _scores(report: Report) -> Section:
    title = f"Scores, {report.entities} entities"
    if not report.scores:
        return Section(title, notes=["No question has gold answers, so there is nothing to score."])
    header = ("tier of evidence", "n", *METRIC_NAMES.values())
    rows: list[list[Cell]] = [
        [tier, f"{means['f1'].n:,}", *(means[metric] for metric in METRICS)]
        for tier, means in report.scores.items()
    ]
    return Section(title, table=MarkdownTable(header, rows))


def _official(official: Mapping[str, OfficialMeans], entities: str) -> Section:
    header = ("tier of evidence", "n", "precision", "recall", "F1", "F1 of means", "true accuracy")
    rows = []
    for tier, m in official.items():
        f1s = (m.f1, f"{m.f1_of_means:.3f}", m.true_accuracy)
        rows.append((tier, f"{m.f1.n:,}", m.precision, m.recall, *f1s))
    title = f"Scores by WebQSP's official rule, {entities} entities"
    return Section(title, table=MarkdownTable(header, rows), notes=[OFFICIAL_RULE])


def _by_name(means: Mapping[str, Mapping[str, Mean]], entities: str) -> Section:
    title = f"Scores by the names of answers, as papers compute them, {entities} entities"
    if not means:
        return Section(
            title, notes=["The rows have no names of gold answers. Run `kbqa eval` again."]
        )
    header = ("tier of evidence", "n", "Hits@1, BPC", "F1, BPC", "contained (their rule)")
    rows: list[tuple[Cell, ...]] = [
        (tier, f"{m['f1'].n:,}", *m.values()) for tier, m in means.items()
    ]
    return Section(title, table=MarkdownTable(header, rows), notes=[NAME_RULES])


def _stages(answered: Mapping[str, Answered]) -> Section:
    everything = answered["all"]
    parts = [(stage, level) for stage, levels in everything.stages.items() for level in levels]
    rows = [
        (
            stage if level == FOUND else f"{stage}, {_spoken(level)}",
            *(_share(one.stages.get(stage, {}).get(level, 0), one.n) for one in answered.values()),
        )
        for stage, level in parts
    ]
    rows.append(("no answer", *(_share(one.unanswered, one.n) for one in answered.values())))
    rows.append(("questions", *(f"{one.n:,}" for one in answered.values())))
    is_relaxed = any(level != FOUND for _, level in parts)
    title = "Answered, by stage and relaxation" if is_relaxed else "Answered, by stage"
    return Section(title, table=MarkdownTable(("", *answered), rows))


def _origins(answered: Mapping[str, Answered]) -> Section:
    rows = [
        (origin, *(_share(one.origins.get(origin, 0), one.n) for one in answered.values()))
        for origin in answered["all"].origins
    ]
    table = MarkdownTable(("", *answered), rows)
    return Section("Answered, by origin of the answers", table=table, notes=[ORIGIN_RULE])


def _costs(costs: Mapping[str, Spread], usd_per_10_000: float | None) -> Section:
    rows = [
        (
            _COST_NAMES.get(name, name),
            *map(_amount, (one.mean, one.median, one.p95, one.total)),
            f"{one.n:,}",
        )
        for name, one in costs.items()
    ]
    cost = "not known" if usd_per_10_000 is None else f"{usd_per_10_000:,.2f} US dollars"
    return Section(
        "What a question takes",
        table=MarkdownTable(("", "mean", "median", "p95", "total", "n"), rows),
        notes=[
            "n: questions for which this is known. "
            "Tokens: written by the small model, and read and written by the general one. "
            f"Cost of general models per 10,000 questions: {cost}."
        ],
    )


def _breakdown(by: str, groups: Sequence[RowGroup]) -> Section:
    rows = [
        (_spoken(g.name), f"{g.n:,}", g.f1, g.hit, g.exact_match, f"{g.answered:.1%}")
        for g in groups
    ]
    header = (by, "n", "F1", "hit", "exact match", "answered")
    return Section(f"By {by}, all scored questions", table=MarkdownTable(header, rows))


def _shapes(cells: Sequence[ShapeCell]) -> Section:
    constraints = sorted({cell.constraints for cell in cells})
    found = {(cell.hops, cell.constraints): f"{cell.f1:.3f} ({cell.n:,})" for cell in cells}
    rows = [
        (hops, *(found.get((hops, count), "–") for count in constraints))
        for hops in sorted({cell.hops for cell in cells})
    ]
    header = ("hops", *(f"{count} constr." for count in constraints))
    title = "F1 (n) by hops and constraints of the gold query"
    return Section(title, table=MarkdownTable(header, rows))


def _calibration(report: Report) -> Section:
    rows = [
        (str(number), f"{tenth.confidence:.3f}", f"{tenth.f1:.3f}", f"{tenth.n:,}")
        for number, tenth in enumerate(report.calibration, 1)
    ]
    notes = [
        f"Mean distance (expected calibration error): {report.calibration_error:.3f}.",
        f"Mean squared distance (Brier score): {report.brier_score:.3f}.",
    ]
    if report.auroc is not None:
        notes.append(
            f"AUROC of answers with an F1 of at least 0.5 against others: {report.auroc:.3f}."
        )
    return Section(
        "Confidence against F1, by tenths of the answered questions",
        table=MarkdownTable(("tenth", "mean confidence", "mean F1", "n"), rows),
        notes=notes,
    )


def _spoken(name: str) -> str:
    return name.replace("_", " ")


def _share(count: int, of: int) -> str:
    return f"{count:,} ({count / of:.1%})"


def _amount(value: float) -> str:
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:,.1f}" if value >= 100 else f"{value:.3f}"
