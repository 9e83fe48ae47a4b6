"""Compare runs of the perfect chooser with the ceilings of their methods, question by question.

    python -m tools.methods.ceilings --questions FILE --store DIR --output CEILINGS.jsonl
    python -m tools.methods.compare_ceilings CEILINGS.jsonl RUN.jsonl…

The runs are those of `tools/methods/perfect_chooser.py` with gold entities. Prints for each the
mean ceiling and F1 of the questions that both have, how many are above their ceiling and below it,
and then each of these with the reason that the ceiling gives. Exits with 1 if a question is above
its ceiling: then the chooser knows more than its prompts show. A failed question counts as 0.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import click

from kbqa.engine.evaluation.rows import read_run
from kbqa.engine.files import read_rows

_DIGITS = 9


@click.command(help=__doc__)
@click.argument("ceilings", type=click.Path(path_type=Path, exists=True))
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
def main(ceilings: Path, runs: Sequence[Path]) -> None:
    """Print a table, and the questions that differ."""
    limits = {row["id"]: row["ceilings"] for _, row in read_rows(ceilings)}
    click.echo("| run | method | n | ceiling | perfect chooser | above | below |")
    click.echo("|---|---|---|---|---|---|---|")
    told: list[str] = []
    is_above = False
    for path in runs:
        run = read_run(path)
        both = [
            (row, limits[row.id][run.method])
            for row in run.rows
            if run.method in limits.get(row.id, ())
        ]
        if not both:
            raise click.ClickException(f"{ceilings} has no ceilings of {run.method} for {path}")
        reached = [row.scores.f1 if row.scores else 0.0 for row, _ in both]
        possible = [limit["f1"] for _, limit in both]
        over = [round(f1 - most, _DIGITS) for f1, most in zip(reached, possible, strict=True)]
        above, below = sum(each > 0 for each in over), sum(each < 0 for each in over)
        is_above |= above > 0
        click.echo(
            f"| {run.name} | {run.method} | {len(both)} | {fmean(possible):.4f} "
            f"| {fmean(reached):.4f} | {above} | {below} |"
        )
        told += [
            f"{run.name} {row.id}: {f1:.3f}, ceiling {limit['f1']:.3f} ({limit['reason']}): "
            f"{row.question}"
            for (row, limit), f1, difference in zip(both, reached, over, strict=True)
            if difference
        ]
    click.echo()
    for line in told:
        click.echo(line)
    sys.exit(1 if is_above else 0)


if __name__ == "__main__":
    main()
