"""Put a comparison into sections, for `tables` to lay out."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kbqa.engine.evaluation.compare import Comparison, Difference, Pair
from kbqa.engine.evaluation.metrics import Mean
from kbqa.engine.evaluation.recorded_run import RunRow
from kbqa.engine.evaluation.report_sections import BREAKDOWN_NAMES, METRIC_NAMES, shorten_setting
from kbqa.engine.evaluation.tables import Section, Table

_SHOWN_ANSWERS = 5
_HEADER = ("A", "B", "B − A, 95 % interval", "wins", "losses", "ties", "p")
_STATISTICS = (
    "Interval: paired bootstrap over questions, 1,000 resamples, seed 42. Wins, losses and ties: "
    "questions on which B scores higher, lower and alike. p: of the two-sided exact sign test over "
    "wins and losses, for each line by itself."
)


def compare_sections(comparison: Comparison, examples: int) -> list[Section]:
    """Say everything about a comparison, with as many wins and losses as `examples` at most."""
    return list(_sections(comparison, examples))


def _sections(comparison: Comparison, examples: int) -> Iterator[Section]:
    yield _heading(comparison)
    for tier, differences in comparison.differences.items():
        yield _tier(tier, differences)
    for way, differences in comparison.breakdowns.items():
        yield _breakdown(way, comparison.metric, differences)
    wins, losses = comparison.wins[:examples], comparison.losses[:examples]
    counts = (
        f"B scores higher on {len(comparison.wins):,} questions, lower on "
        f"{len(comparison.losses):,}, and alike on {len(comparison.ties):,}. "
        f"Here are {len(wins):,} wins and {len(losses):,} losses, the largest changes first."
    )
    yield Section(f"Questions by {METRIC_NAMES[comparison.metric]}", notes=[counts])
    for pair in (*wins, *losses):
        yield _example(comparison, pair)


def _heading(comparison: Comparison) -> Section:
    facts = [
        ("A", comparison.a),
        ("B", comparison.b),
        (
            "compared",
            f"{comparison.common:,} questions that both scored; {comparison.only_a:,} that only A "
            f"scored and {comparison.only_b:,} that only B scored are left out",
        ),
        *(("warning", warning) for warning in comparison.warnings),
    ]
    for label, sides in comparison.settings.items():
        a, b = (shorten_setting(label, text or "none") for text in sides)
        facts.append((label, f"A {a}; B {b}"))
    title = f"Run {Path(comparison.b).stem} (B) against {Path(comparison.a).stem} (A)"
    return Section(title, facts, depth=1)


def _tier(tier: str, differences: Mapping[str, Difference]) -> Section:
    n = next(iter(differences.values())).difference.n
    rows = [(METRIC_NAMES[metric], *_cells(one)) for metric, one in differences.items()]
    return Section(
        f"Tier {tier}, n = {n:,}",
        table=Table(("", *_HEADER), rows),
        notes=[_STATISTICS] if tier == "all" else [],
    )


def _breakdown(way: str, metric: str, differences: Mapping[str, Difference]) -> Section:
    rows = [(name, f"{one.difference.n:,}", *_cells(one)) for name, one in differences.items()]
    return Section(
        f"{METRIC_NAMES[metric]} by {BREAKDOWN_NAMES[way]}", table=Table(("", "n", *_HEADER), rows)
    )


def _cells(one: Difference) -> tuple[str, ...]:
    signs = map("{:,}".format, one.signs)
    return f"{one.a:.3f}", f"{one.b:.3f}", _change(one.difference), *signs, _p_value(one.p_value)


def _example(comparison: Comparison, pair: Pair) -> Section:
    golds = [_listed(names) for names in comparison.gold_names(pair)]
    facts = [("A", _answers(pair.a)), ("B", _answers(pair.b)), ("gold", ", or: ".join(golds))]
    title = f"{'Win' if pair.change > 0 else 'Loss'} {pair.change:+z.3f}, {pair.a.id}"
    return Section(f"{title}: {pair.a.question}", facts, depth=3)


def _answers(row: RunRow) -> str:
    if row.error is not None:
        return f"failed: {row.error}"
    return _listed([answer.name for answer in row.answers])


def _listed(names: Sequence[str]) -> str:
    more = f", … ({len(names):,} in all)" if len(names) > _SHOWN_ANSWERS else ""
    return ", ".join(names[:_SHOWN_ANSWERS]) + more or "nothing"


def _change(mean: Mean) -> str:
    return f"{mean.mean:+z.3f} [{mean.low:+z.3f}, {mean.high:+z.3f}]"


def _p_value(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"
