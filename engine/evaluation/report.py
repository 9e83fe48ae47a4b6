"""Measure a run: scores, costs, steps, breakdowns and errors, all in one `Report`.

`make_report` measures, and `report_sections` puts that into words for a terminal or Markdown.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kbqa.engine.chat.model import find_price
from kbqa.engine.evaluation.breakdowns import (
    FOUND,
    GoldAnswers,
    RowGroup,
    ShapeCell,
    Spread,
    StepCosts,
    WalkEnd,
    add_kinds,
    break_down,
    cost_per_10_000,
    count_gold,
    count_steps,
    cross_shapes,
    measure_costs,
    measure_stops,
    rows_by_tier,
    score_tiers,
    stage_name,
    stage_rank,
    writer_cost_per_10_000,
)
from kbqa.engine.evaluation.rows import RecordedRun, Row, flatten_manifest
from kbqa.engine.evaluation.scores import (
    RESAMPLES,
    Mean,
    NameScores,
    OfficialMeans,
    OfficialScores,
    average,
    is_webqsp_id,
    official_means,
    official_score,
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
    COST_RULE,
    METRIC_NAMES,
    NAME_METRICS,
    NAME_RULES,
    NO_GOLD_NAMES,
    OFFICIAL_RULE,
    ORIGIN_RULE,
    Cell,
    Section,
    count_of,
    define_scores,
    shorten_setting,
    spoken,
    table_section,
)

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Answered:
    """The numbers of answered questions of a tier, also of those without gold answers."""

    n: int
    stages: Mapping[str, Mapping[str, int]]  # by stage and by how far the path was relaxed
    origins: Mapping[str, int]  # by the origin of the answers
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

    Tiers are those of `rows_by_tier`, ``all`` first.
    """

    name: str
    method: str | None  # None if the manifest does not say
    manifest: Mapping[str, object]
    entities: str  # gold or linked
    questions: int | None  # how many were asked; None if the manifest does not say, as older ones
    rows: int  # how many of these have a row; fewer if the run is unfinished
    scored: int  # how many of these have gold answers
    resamples: int  # of each interval
    gold_answers: GoldAnswers | None  # None if no question has a list of gold answers
    scores: Mapping[str, Mapping[str, Mean]]  # by tier and metric
    official: Mapping[str, OfficialMeans] | None  # by tier; None if this is not WebQSP
    name_scores: Mapping[str, Mapping[str, Mean]] | None  # by tier; None if not asked for
    answered: Mapping[str, Answered]  # by tier
    costs: Mapping[str, Spread]  # see `measure_costs`
    usd_per_10_000: float | None  # US dollars of general models; None if no cost is known
    writer_usd_per_10_000: float | None  # of the small model; None if price or tokens are unknown
    steps: Sequence[StepCosts]  # of a walking method, by kind
    stops: Sequence[WalkEnd]  # why walking ended
    first_paths: Mapping[str, Mean] | None  # by part of a path; None if no gold path is known
    breakdowns: Mapping[str, Sequence[RowGroup]]  # see `break_down`
    shapes: Sequence[ShapeCell]
    calibration: Sequence[Tenth]  # of the answered questions
    calibration_error: float | None  # None if no row has a confidence, like the next
    brier_score: float | None
    auroc: float | None  # of an F1 of at least 0.5; None if there are not both kinds of answers
    coverage: Sequence[Covered]
    errors: Sequence[Errors]  # by kind, the most frequent first

    def to_dict(self) -> dict[str, Any]:
        """Return everything as a JSON record, with definitions of the metrics."""
        record = asdict(self)
        record["calibration"] = [tenth._asdict() for tenth in self.calibration]
        record["coverage"] = [covered._asdict() for covered in self.coverage]
        return {
            "schema_version": SCHEMA_VERSION,
            "definitions": define_scores(self.resamples),
            "official_rule": None if self.official is None else OFFICIAL_RULE,
            "name_rules": None if self.name_scores is None else NAME_RULES,
            **record,
        }


def make_report(run: RecordedRun, *, names: bool = False, resamples: int = RESAMPLES) -> Report:
    """Measure everything about a run, and if `names`, also score the names of answers.

    It takes seconds, since each interval is resampled, and ten times as long with ten times as many
    resamples.
    """
    scored = [row for row in run.rows if row.scores is not None]
    is_webqsp = bool(scored) and all(is_webqsp_id(row.id) for row in scored)
    pairs = [
        (row.confidence, row.scores.f1)
        for row in scored
        if row.confidence is not None and row.scores is not None
    ]
    tenths = calibrate(pairs)
    first_paths = [row.first_path for row in run.rows if row.first_path is not None]
    return Report(
        name=run.name,
        method=run.method,
        manifest=run.manifest,
        entities=run.entities,
        questions=run.question_count,
        rows=len(run.rows),
        scored=len(scored),
        resamples=resamples,
        gold_answers=count_gold(scored),
        scores=score_tiers(scored, resamples),
        official={
            tier: _official_means(rows, resamples) for tier, rows in rows_by_tier(scored).items()
        }
        if is_webqsp
        else None,
        name_scores={
            tier: average([row.name_scores for row in rows], NameScores._fields, resamples)
            for tier, rows in rows_by_tier([row for row in run.rows if row.gold_names]).items()
        }
        if names
        else None,
        answered={tier: _count_answered(rows) for tier, rows in rows_by_tier(run.rows).items()},
        costs=measure_costs(run.rows),
        usd_per_10_000=cost_per_10_000(run.rows),
        writer_usd_per_10_000=writer_cost_per_10_000(run.rows, find_price(run.writer or "")),
        steps=count_steps(run.rows),
        stops=measure_stops(run.rows),
        first_paths=average(first_paths, _PARTS, resamples) if first_paths else None,
        breakdowns=break_down(scored, resamples),
        shapes=cross_shapes(scored),
        calibration=tenths,
        calibration_error=calibration_error(tenths) if tenths else None,
        brier_score=brier_score(pairs) if pairs else None,
        auroc=separate_right(pairs),
        coverage=cover(pairs),
        errors=_count_errors(run.rows),
    )


def _official_means(rows: Sequence[Row], resamples: int) -> OfficialMeans:
    failed = OfficialScores(0.0, 0.0, 0.0)
    scores = (
        failed if row.error is not None else official_score(row.predicted, row.gold) for row in rows
    )
    return official_means(list(scores), resamples)


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


_PARTS = {"depth": "depth", "main_path": "main path", "skeleton": "skeleton", "exact": "all of it"}
# In the title or the facts already, or of no interest.
_HIDDEN = ("gold entities", "question count", "schema version", "store summary")


def report_sections(report: Report) -> Iterator[Section]:
    """Put a report into words, in order of interest."""
    yield _heading(report)
    if (gold := report.gold_answers) is not None:
        one = f"{gold.single:.1%} of {gold.n:,} questions"
        facts = [("gold answers, mean", f"{gold.mean:.2f}"), ("one gold answer", one)]
        yield Section("Question set", facts)
    yield _scores(report)
    definitions = define_scores(report.resamples).items()
    named = [(METRIC_NAMES.get(name, name), text) for name, text in definitions]
    yield Section("What the scores mean", named)
    if report.official is not None:
        yield _official(report.official, report.entities)
    if report.name_scores is not None:
        yield from _by_name(report.name_scores, report.entities)
    yield _stages(report.answered)
    if report.answered["all"].origins.keys() - {"graph"}:
        tiers = report.answered.values()
        origins = [
            (origin, *(count_of(one.origins.get(origin, 0), one.n) for one in tiers))
            for origin in report.answered["all"].origins
        ]
        title = "Answered, by origin of the answers"
        yield table_section(title, ("", *report.answered), origins, ORIGIN_RULE)
    if report.costs:
        yield _costs(report)
    if report.steps:
        yield _steps(report.steps)
        yield _left_out(report.steps)
    if report.stops:
        yield _stops(report.stops)
    if report.first_paths is not None:
        yield _first_paths(report.first_paths)
    for way, groups in report.breakdowns.items():
        by = BREAKDOWN_NAMES[way]
        header = (by, "n", "F1", "hit", "exact match", "answered")
        rows = [
            (spoken(g.name), f"{g.n:,}", g.f1, g.hit, g.exact_match, f"{g.answered:.1%}")
            for g in groups
        ]
        yield table_section(f"By {by}, all scored questions", header, rows)
    if report.shapes:
        yield _shapes(report.shapes)
    if report.calibration_error is not None:
        yield _calibration(report)
    if report.errors:
        failed = report.errors
        first = [(f"{e.n:,} {e.kind}", f"first: {e.first_id}: {e.first_error}") for e in failed]
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
        missing = "No question has gold answers by id, so there is nothing to score"
        return Section(title, notes=[f"{missing} here. --names scores those given by name."])
    tiers = {tier: list(means.values()) for tier, means in report.scores.items()}
    return _by_tier(title, METRIC_NAMES.values(), tiers)


def _official(official: Mapping[str, OfficialMeans], entities: str) -> Section:
    columns = ("precision", "recall", "F1", "F1 of means", "true accuracy")
    tiers = {
        tier: (m.precision, m.recall, m.f1, f"{m.f1_of_means:.3f}", m.true_accuracy)
        for tier, m in official.items()
    }
    title = f"Scores by WebQSP's official rule, {entities} entities"
    return _by_tier(title, columns, tiers, OFFICIAL_RULE)


def _by_name(means: Mapping[str, Mapping[str, Mean]], entities: str) -> Iterator[Section]:
    title = f"Scores by the names of answers, as papers compute them, {entities} entities"
    if not means:
        yield Section(title, notes=[NO_GOLD_NAMES])
        return
    names = list(NAME_METRICS.values())
    tiers = {tier: list(of_tier.values()) for tier, of_tier in means.items()}
    exact = {tier: cells[:3] for tier, cells in tiers.items()}
    yield _by_tier(title, names[:3], exact)
    parts = {tier: cells[3:] for tier, cells in tiers.items()}
    title = f"Scores by normalised names, {entities} entities"
    yield _by_tier(title, names[3:], parts, NAME_RULES)


def _by_tier(
    title: str, columns: Iterable[str], tiers: Mapping[str, Sequence[Cell]], *notes: str
) -> Section:
    """Make a table of means, with the number of questions of each tier."""
    rows = [
        (tier, *(f"{cell.n:,}" for cell in cells[:1] if isinstance(cell, Mean)), *cells)
        for tier, cells in tiers.items()
    ]
    return table_section(title, ("tier of evidence", "n", *columns), rows, *notes)


def _stages(answered: Mapping[str, Answered]) -> Section:
    stages, tiers = answered["all"].stages, list(answered.values())
    rows, title = [], "Answered, by stage"
    for stage, levels in stages.items():
        for level in levels:
            counts = [count_of(one.stages.get(stage, {}).get(level, 0), one.n) for one in tiers]
            rows.append((stage if level == FOUND else f"{stage}, {spoken(level)}", *counts))
            if level != FOUND:
                title = "Answered, by stage and relaxation"
    rows.append(("no answer", *(count_of(one.unanswered, one.n) for one in tiers)))
    rows.append(("questions", *(f"{one.n:,}" for one in tiers)))
    return table_section(title, ("", *answered), rows)


def _costs(report: Report) -> Section:
    rows = []
    for name, one in report.costs.items():
        amounts = (one.mean, one.median, one.p95, one.most, one.total, one.right, one.wrong)
        cells = ("–" if amount is None else _amount(amount) for amount in amounts)
        rows.append((spoken(name), *cells, f"{one.n:,}"))
    return table_section(
        "What a question takes",
        ("", "mean", "median", "p95", "most", "total", "right", "wrong", "n"),
        rows,
        "n: questions for which this is known. Right, wrong: means over the questions that have a "
        "right answer, and over the others.",
        COST_RULE,
        _usd(report.usd_per_10_000, report.writer_usd_per_10_000),
    )


def _usd(general: float | None, writer: float | None) -> str:
    """Write what 10,000 questions cost."""
    if general is None:
        return "Cost per 10,000 questions: not known."
    if writer is None:
        return (
            f"Cost of general models per 10,000 questions: {general:,.2f} US dollars; that of the "
            "small model is not known."
        )
    cost = f"Cost per 10,000 questions: {general + writer:,.2f} US dollars"
    return f"{cost}, {writer:,.2f} of it for the small model." if writer else f"{cost}."


def _first_paths(parts: Mapping[str, Mean]) -> Section:
    rows = [(_PARTS[part], f"{mean.n:,}", mean) for part, mean in parts.items()]
    return table_section(
        "The first written path against that of the gold query",
        ("the same", "n", "share"),
        rows,
        "Depth: hops of the main path. Main path: its relations. Skeleton: also the constraints, "
        "but not the names of entities or the values of literals. n: questions whose gold query "
        "is a path, and for which a path was written.",
    )


def _stops(stops: Sequence[WalkEnd]) -> Section:
    rows = []
    for one in stops:
        share, silent = f"{one.n / stops[-1].n:.1%}", count_of(one.unanswered, one.n)
        rows.append((one.stop, f"{one.n:,}", share, f"{one.depth:.2f}", silent))
    header = ("", "questions", "share", "mean depth", "no answer")
    return table_section("Why walking ended", header, rows)


def _steps(steps: Sequence[StepCosts]) -> Section:
    rows = []
    for one in (*steps, add_kinds(steps)):
        counts = one.decisions, one.calls, one.input_tokens, one.output_tokens
        seconds = "–" if one.seconds is None else f"{one.seconds:,.1f}"
        rows.append((spoken(one.kind), *map("{:,}".format, counts), seconds))
    return table_section(
        "What each kind of step takes, all questions together",
        ("step", "decisions", "calls", "input tokens", "output tokens", "seconds"),
        rows,
        "Decisions are by any chooser; calls and tokens are the general model's.",
    )


def _left_out(steps: Sequence[StepCosts]) -> Section:
    rows = [
        (
            spoken(one.kind),
            count_of(one.unread, one.calls),
            count_of(one.truncated, one.calls),
            f"{one.hidden:,} ({one.hidden_steps:,})" if one.hidden else "0",
            f"{one.clipped:,} ({one.clipped_steps:,})" if one.clipped else "0",
        )
        for one in (*steps, add_kinds(steps))
    ]
    return table_section(
        "What was not understood, and what limits left out",
        ("step", "unread replies", "cut-off replies", "hidden options", "clipped walks"),
        rows,
        "Unread: a part of the reply could not be understood. Cut off: at the most tokens. "
        "Hidden: options that exist and were not offered. Clipped: walks that were dropped "
        "because there were too many. In brackets: the share of the calls, or how many steps.",
    )


def _shapes(cells: Sequence[ShapeCell]) -> Section:
    constraints = sorted({cell.constraints for cell in cells})
    found = {(cell.hops, cell.constraints): f"{cell.f1:.3f} ({cell.n:,})" for cell in cells}
    rows = [
        (hops, *(found.get((hops, count), "–") for count in constraints))
        for hops in sorted({cell.hops for cell in cells})
    ]
    header = ("hops", *(f"{count} constr." for count in constraints))
    return table_section("F1 (n) by hops and constraints of the gold query", header, rows)


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
    title = "Confidence against F1, by tenths of the answered questions"
    return table_section(title, ("tenth", "mean confidence", "mean F1", "n"), rows, *notes)


def _amount(value: float) -> str:
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:,.1f}" if value >= 100 else f"{value:.3f}"
