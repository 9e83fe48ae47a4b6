"""Measure whether answers to what a graph cannot answer are less sure than others.

    python -m tools.score.abstention --answered run.jsonl --unanswerable twins.jsonl

Both are runs of `kbqa eval`: one of questions that the graph can answer, and one of those that it
cannot: twins (see docs/results.md), or the tier *none*, whose gold queries do not find the gold
answers. A question without an answer counts as one of confidence 0. Printed are the AUROC of the
confidences, and what each threshold costs: the share of answerable questions that are still
answered, their F1, and the share of the others that are declined. The thresholds keep 99 to 80 % of
the answerable; `--unsure-below` adds one that was chosen elsewhere.

The others may still be answered rightly, from other facts: the question names a state, and the city
is left; or a part of the answers is. Those whose answers have an F1 of at least 0.5 against the
gold answers count apart, however sure they are. A twin's gold answers are those of the answerable
question of the same id.
"""

from collections.abc import Sequence
from pathlib import Path

import click

from kbqa.engine.evaluation.rows import Row, read_run
from kbqa.engine.evaluation.scores import bootstrap_mean, score_best
from kbqa.engine.evaluation.statistics import RIGHT_F1, separate
from kbqa.sparql.errors import InputError
from tools.options import FILE

_KEPT = (0.99, 0.975, 0.95, 0.9, 0.8)
_TIERS = (None, "independent", "annotated")


def confidence(row: Row) -> float:
    """Return how sure the answer of a question is; 0 if it has none."""
    return (row.confidence or 0.0) if row.is_answered else 0.0


def threshold_keeping(confidences: Sequence[float], share: float) -> float:
    """Find the highest threshold at which a share of the questions is still answered."""
    ordered = sorted(confidences, reverse=True)
    return ordered[min(max(round(share * len(ordered)), 1), len(ordered)) - 1]


@click.command(help=__doc__)
@click.option("--answered", "answered_runs", type=FILE, multiple=True, required=True)
@click.option("--unanswerable", "unanswerable_runs", type=FILE, multiple=True, required=True)
@click.option("--unsure-below", type=click.FloatRange(0, 1), metavar="CONFIDENCE")
def main(
    answered_runs: Sequence[Path], unanswerable_runs: Sequence[Path], unsure_below: float | None
) -> None:
    """Print the table."""
    answerable = [
        row
        for path in answered_runs
        for row in read_run(path).rows
        if row.scores is not None and row.tier in _TIERS and row.kind != "unanswerable"
    ]
    others = [
        row
        for path in unanswerable_runs
        for row in read_run(path).rows
        if row.kind == "unanswerable" or row.tier == "none"
    ]
    if not answerable or not others:
        raise InputError("the runs have no answerable or no unanswerable questions")
    right = _answered_rightly(others, answerable)
    if right:
        _print_table(answerable, others, unsure_below)
        click.echo(f"\nWithout the {len(right):,} that are answered rightly all the same:\n")
        others = [row for row in others if row.id not in right]
    if others:
        _print_table(answerable, others, unsure_below)


def _answered_rightly(others: Sequence[Row], answerable: Sequence[Row]) -> set[str]:
    """Find the questions that are answered rightly though the gold query finds no answers."""
    rows = [row for row in (*others, *answerable) if row.gold]
    gold = {row.id: [frozenset(each) for each in row.gold] for row in rows}
    return {
        row.id
        for row in others
        if row.is_answered
        and row.id in gold
        and score_best(row.predicted, gold[row.id]).f1 >= RIGHT_F1
    }


def _print_table(
    answerable: Sequence[Row], others: Sequence[Row], unsure_below: float | None
) -> None:
    sure, unsure = ([confidence(row) for row in rows] for rows in (answerable, others))
    click.echo(
        f"{len(answerable):,} answerable questions, {len(others):,} others; "
        f"AUROC {separate(sure, unsure):.3f}\n"
    )
    click.echo("| threshold | answerable kept | their F1 | others declined |")
    click.echo("|---|---|---|---|")
    thresholds = [threshold_keeping(sure, share) for share in _KEPT]
    for threshold in sorted({*thresholds, *([] if unsure_below is None else [unsure_below])}):
        kept = [row for row in answerable if confidence(row) >= threshold]
        f1 = [row.scores.f1 for row in kept if row.scores is not None]
        declined = bootstrap_mean([float(each < threshold) for each in unsure])
        click.echo(
            f"| {threshold:.3f} | {len(kept) / len(answerable):.1%} | "
            f"{bootstrap_mean(f1) if f1 else '–'} | {declined} |"
        )


if __name__ == "__main__":
    main()
