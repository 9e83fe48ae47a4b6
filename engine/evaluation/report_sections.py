"""Put a report into sections, for `tables` to lay out."""

from collections.abc import Iterator, Mapping, Sequence

from kbqa.engine.evaluation.breakdowns import Group, ShapeCell
from kbqa.engine.evaluation.costs import Spread
from kbqa.engine.evaluation.metrics import METRICS
from kbqa.engine.evaluation.official_webqsp import OfficialMeans
from kbqa.engine.evaluation.recorded_run import flatten_manifest
from kbqa.engine.evaluation.report import DEFINITIONS, OFFICIAL_RULE, Answered, Report
from kbqa.engine.evaluation.tables import Cell, Section, Table

METRIC_NAMES: Mapping[str, str] = {
    "hit": "hit",
    "hits_at_1": "Hits@1",
    "exact_match": "exact match",
    "precision": "precision",
    "recall": "recall",
    "f1": "F1",
}

BREAKDOWN_NAMES: Mapping[str, str] = {
    "type": "type of composition",
    "depth": "hops of the gold path",
    "constraints": "constraints of the gold query",
    "stage": "stage that answered",
    "level": "relaxation of the path",
}

_COST_NAMES = {
    "general_calls": "calls of the general model",
    "cached_calls": "of these from the cache",
    "tokens": "tokens",
}
_HASH_SHOWN = 12
_TEXT_SHOWN = 160
# Said otherwise, or nobody's concern.
_UNSAID = ("gold entities", "question count", "schema version", "store summary")


def report_sections(report: Report) -> list[Section]:
    """Say everything about a run, in order of interest."""
    return list(_sections(report))


def shorten_setting(label: str, text: str) -> str:
    """Cut a hash, or what is too long to be read."""
    if label.endswith(("sha256", "git")):
        return text[:_HASH_SHOWN]
    return text if len(text) <= _TEXT_SHOWN else f"{text[:_TEXT_SHOWN]}…"


def _sections(report: Report) -> Iterator[Section]:
    counts = f"{report.rows:,}, {report.scored:,} with gold answers, {report.failed:,} failed"
    facts = [("rows", counts)]
    if report.questions is not None and report.rows < report.questions:
        left = f"{report.rows:,} of {report.questions:,} questions; go on with --resume"
        facts.append(("unfinished", left))
    facts += [
        (label, shorten_setting(label, text))
        for label, text in flatten_manifest(report.manifest).items()
        if not label.startswith(_UNSAID)
    ]
    yield Section(f"Run {report.name}, {report.entities} entities", facts, depth=1)
    yield _scores(report)
    facts = [(METRIC_NAMES.get(name, name), text) for name, text in DEFINITIONS.items()]
    yield Section("What the scores mean", facts)
    if report.official is not None:
        yield _official(report.official, report.entities)
    yield _answered(report.answered)
    if report.costs:
        yield _costs(report.costs, report.usd_per_10_000)
    for way, groups in report.breakdowns.items():
        yield _breakdown(BREAKDOWN_NAMES[way], groups)
    if report.shapes:
        yield _shapes(report.shapes)
    if report.calibration_error is not None:
        yield _calibration(report)
    if report.errors:
        facts = [
            (f"{e.n:,} {e.kind}", f"first: {e.first_id}: {e.first_error}") for e in report.errors
        ]
        yield Section("Errors", facts)


def _scores(report: Report) -> Section:
    title = f"Scores, {report.entities} entities"
    if not report.scores:
        return Section(title, notes=["No question has gold answers, so there is nothing to score."])
    header = ("tier of evidence", "n", *METRIC_NAMES.values())
    rows: list[list[Cell]] = [
        [tier, f"{means['f1'].n:,}", *(means[metric] for metric in METRICS)]
        for tier, means in report.scores.items()
    ]
    return Section(title, table=Table(header, rows))


def _official(official: Mapping[str, OfficialMeans], entities: str) -> Section:
    header = ("tier of evidence", "n", "precision", "recall", "F1", "F1 of means", "true accuracy")
    rows = [
        (
            tier,
            f"{means.f1.n:,}",
            means.precision,
            means.recall,
            means.f1,
            f"{means.f1_of_means:.3f}",
            means.true_accuracy,
        )
        for tier, means in official.items()
    ]
    return Section(
        f"By WebQSP's official rule, {entities} entities",
        table=Table(header, rows),
        notes=[OFFICIAL_RULE],
    )


def _answered(answered: Mapping[str, Answered]) -> Section:
    parts = {
        (stage, level): None
        for one in answered.values()
        for stage, levels in one.stages.items()
        for level in levels
    }
    rows = [
        (
            f"{stage}, {_spoken(level)}",
            *(_share(one.stages.get(stage, {}).get(level, 0), one.n) for one in answered.values()),
        )
        for stage, level in parts
    ]
    rows.append(("no answer", *(_share(one.unanswered, one.n) for one in answered.values())))
    rows.append(("questions", *(f"{one.n:,}" for one in answered.values())))
    return Section("Answered, by stage and relaxation", table=Table(("", *answered), rows))


def _costs(costs: Mapping[str, Spread], usd_per_10_000: float | None) -> Section:
    rows = [
        (
            _COST_NAMES.get(name, name),
            _amount(one.mean),
            _amount(one.median),
            _amount(one.p95),
            _amount(one.total),
            f"{one.n:,}",
        )
        for name, one in costs.items()
    ]
    cost = "not known" if usd_per_10_000 is None else f"{usd_per_10_000:,.2f} US dollars"
    return Section(
        "What a question takes",
        table=Table(("", "mean", "median", "p95", "in all", "n"), rows),
        notes=[
            "n: questions that it is known of. "
            "Tokens: what the small model writes, and the general one reads and writes. "
            f"Cost of general models per 10,000 questions: {cost}."
        ],
    )


def _breakdown(by: str, groups: Sequence[Group]) -> Section:
    rows = [(_spoken(g.name), f"{g.n:,}", g.f1, g.hit, f"{g.answered:.1%}") for g in groups]
    return Section(
        f"By {by}, all scored questions", table=Table((by, "n", "F1", "hit", "answered"), rows)
    )


def _shapes(cells: Sequence[ShapeCell]) -> Section:
    constraints = sorted({cell.constraints for cell in cells})
    found = {(cell.hops, cell.constraints): f"{cell.f1:.3f} ({cell.n:,})" for cell in cells}
    rows = [
        (hops, *(found.get((hops, count), "–") for count in constraints))
        for hops in sorted({cell.hops for cell in cells})
    ]
    header = ("hops", *(f"{count} constr." for count in constraints))
    return Section("F1 (n) by hops and constraints of the gold query", table=Table(header, rows))


def _calibration(report: Report) -> Section:
    rows = [
        (str(number), f"{tenth.confidence:.3f}", f"{tenth.f1:.3f}", f"{tenth.n:,}")
        for number, tenth in enumerate(report.calibration, 1)
    ]
    return Section(
        "Confidence against F1, by tenths of the answered questions",
        table=Table(("tenth", "mean confidence", "mean F1", "n"), rows),
        notes=[f"Mean distance (expected calibration error): {report.calibration_error:.3f}."],
    )


def _spoken(name: str) -> str:
    return name.replace("_", " ")


def _share(count: int, of: int) -> str:
    return f"{count:,} ({count / of:.1%})"


def _amount(value: float) -> str:
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:,.1f}" if value >= 100 else f"{value:.3f}"
