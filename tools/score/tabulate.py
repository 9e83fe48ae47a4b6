"""Put several runs of `kbqa eval` into one table, in Markdown.

    python -m tools.score.tabulate runs/webqsp.gold.*.jsonl

Prints a line for each run. It has the scores on the independent and annotated tiers together (on
all questions, if the question set has no tiers), with the 95 % bootstrap interval of F1; the F1 on
each tier; and the average cost of a question over the whole run: calls of all models and of the
general one, tokens that the small model writes and the general one reads and writes, seconds.
`kbqa report` prints everything about one run.
"""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import click

from kbqa.engine.evaluation.breakdowns import measure_costs, rows_by_tier
from kbqa.engine.evaluation.rows import RecordedRun, Row, read_run
from kbqa.engine.evaluation.scores import bootstrap_mean
from kbqa.sparql.errors import InputError
from tools.options import FILE

_HEAD = (
    "| run | method | entities | n | F1 | hit | Hits@1 | exact "
    "| F1, independent | F1, annotated | F1, none | calls | general | tokens | s |"
)
_COSTS = ("calls", "general_calls", "tokens", "seconds")


@click.command(help=__doc__)
@click.argument("runs", metavar="RUN.jsonl…", type=FILE, nargs=-1, required=True)
def main(runs: Sequence[Path]) -> None:
    """Print the table."""
    click.echo(_HEAD)
    click.echo("|" + "---|" * (_HEAD.count("|") - 1))
    for path in runs:
        click.echo(f"| {' | '.join(_cells(read_run(path)))} |")


def _cells(run: RecordedRun) -> list[str]:
    scored = [row for row in run.rows if row.scores is not None]
    if not scored:
        raise InputError(f"{run.path} has no question with gold answers")
    tiers = rows_by_tier(scored)
    joined = [row for row in scored if row.tier != "none"]
    costs = measure_costs(run.rows)
    return [
        run.name,
        run.method or "–",
        run.entities,
        str(len(joined)),
        str(bootstrap_mean([row.scores.f1 for row in joined if row.scores is not None])),
        *(f"{_mean(joined, metric):.3f}" for metric in ("hit", "hits_at_1", "exact_match")),
        *(
            f"{_mean(tiers[tier], 'f1'):.3f} ({len(tiers[tier])})" if tier in tiers else "–"
            for tier in ("independent", "annotated", "none")
        ),
        *(f"{costs[name].mean:.2f}" if name in costs else "–" for name in _COSTS),
    ]


def _mean(rows: Sequence[Row], metric: str) -> float:
    return fmean(getattr(row.scores, metric) for row in rows)


if __name__ == "__main__":
    main()
