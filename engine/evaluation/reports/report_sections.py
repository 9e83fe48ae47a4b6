"""Put a report into words: sections of facts and tables, for a terminal or in Markdown."""

from collections.abc import Iterator, Mapping, Sequence

from kbqa.engine.evaluation.reports.breakdowns import FOUND, RowGroup, ShapeCell
from kbqa.engine.evaluation.reports.glossary import (
    BREAKDOWN_NAMES,
    DEFINITIONS,
    METRIC_NAMES,
    NAME_RULES,
    OFFICIAL_RULE,
    ORIGIN_RULE,
    shorten_setting,
)
from kbqa.engine.evaluation.reports.report import Answered, Report
from kbqa.engine.evaluation.reports.steps import step_sections
from kbqa.engine.evaluation.reports.tables import Cell, MarkdownTable, Section
from kbqa.engine.evaluation.runs.costs import Spread
from kbqa.engine.evaluation.runs.recorded_run import flatten_manifest
from kbqa.engine.evaluation.scores.by_name import NameMeans
from kbqa.engine.evaluation.scores.metrics import METRICS
from kbqa.engine.evaluation.scores.official_webqsp import OfficialMeans

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


def _by_name(means: Mapping[str, NameMeans], entities: str) -> Section:
    title = f"Scores by the names of answers, as papers compute them, {entities} entities"
    if not means:
        return Section(
            title, notes=["The rows have no names of gold answers. Run `kbqa eval` again."]
        )
    header = ("tier of evidence", "n", "Hits@1, BPC", "F1, BPC", "contained (their rule)")
    rows = [(tier, f"{m.f1.n:,}", m.hits_at_1, m.f1, m.contained) for tier, m in means.items()]
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
