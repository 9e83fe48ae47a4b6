"""Plot a metric of several runs against a setting, with 95 % bootstrap intervals.

    python -m tools.methods.plot_sweep RUNS --versus method.history --metric f1 --output f1.png
    python -m tools.methods.plot_sweep RUNS --versus call_budget --line method.name --output f1.png

A setting is a field of the manifests, by its path, as `kbqa compare` names it. Runs that have the
same values of each --line make one line. Means are over the independent and annotated tiers (over
all questions, if the set has no tiers). Also prints the figures.
"""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import click

from kbqa.engine.evaluation.breakdowns import row_costs
from kbqa.engine.evaluation.plots import new_figure
from kbqa.engine.evaluation.rows import RecordedRun, Row, read_run, setting_text
from kbqa.engine.evaluation.scores import RESAMPLES, Mean, bootstrap_mean
from kbqa.engine.evaluation.tables import METRIC_NAMES, NAME_METRICS, MarkdownTable, markdown_table
from kbqa.sparql.errors import InputError
from tools.options import FILE, NEW_FILE

# Colours that colour-blind readers can distinguish: Okabe and Ito 2008.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000")
_BY_NAME = {f"names.{name}": text for name, text in NAME_METRICS.items()}
_SCORES = {**METRIC_NAMES, **_BY_NAME}


@click.command(help=__doc__)
@click.argument("files", metavar="RUN.jsonl…", type=FILE, nargs=-1, required=True)
@click.option("--versus", metavar="SETTING", required=True)
@click.option("--line", "same", metavar="SETTING", multiple=True, default=["method.name"])
@click.option("--metric", default="f1", show_default=True)
@click.option("--resamples", type=click.IntRange(100), default=RESAMPLES, show_default=True)
@click.option("--output", type=NEW_FILE, required=True, metavar="PNG")
def main(
    files: Sequence[Path],
    versus: str,
    same: Sequence[str],
    metric: str,
    resamples: int,
    output: Path,
) -> None:
    """Print the figures, and write the picture."""
    label = _SCORES.get(metric, metric.replace("_", " "))
    found: dict[str, dict[str, Mean]] = defaultdict(dict)
    for run in map(read_run, files):
        line = ", ".join(_setting(run, each) for each in same)
        value = _setting(run, versus)
        if value in found[line]:
            raise InputError(f"{run.path} is a second run of {line} at {value}: add a --line")
        known = [one for row in run.rows if (one := _measured(row, metric)) is not None]
        if not known:
            raise InputError(f"{run.path} has no row with {metric}")
        found[line][value] = bootstrap_mean(known, resamples=resamples)
    values = sorted(set().union(*found.values()), key=_rank)
    lines = {line: {v: found[line][v] for v in values if v in found[line]} for line in found}
    rows = [(line, *(of.get(value, "–") for value in values)) for line, of in lines.items()]
    click.echo(markdown_table(MarkdownTable((f"{label} by {versus}", *values), rows)))
    figure, axes = new_figure(6, 4)
    axes.set_prop_cycle(color=_COLOURS)
    for name, of in lines.items():
        means = [mean.mean for mean in of.values()]
        below = [max(0.0, mean.mean - mean.low) for mean in of.values()]
        above = [max(0.0, mean.high - mean.mean) for mean in of.values()]
        at = [values.index(value) for value in of]
        axes.errorbar(at, means, [below, above], fmt="o-", ms=4, capsize=2, label=name)
    axes.set(xlabel=versus, ylabel=label, xticks=range(len(values)), xticklabels=values)
    figure.legend(loc="outside upper center", ncols=2, frameon=False, fontsize="small")
    figure.savefig(output, dpi=200)


def _setting(run: RecordedRun, path: str) -> str:
    value: object = run.manifest
    for name in path.split("."):
        if not isinstance(value, dict) or name not in value:
            raise InputError(f"{run.path} has no setting {path}; its manifest names them all")
        value = value[name]
    return setting_text(value)


def _rank(value: str) -> tuple[float, str]:
    try:
        return float(value), ""
    except ValueError:  # such as full
        return float("inf"), value


def _measured(row: Row, metric: str) -> float | None:
    """Return a row's value; None if it is not known, or not evidenced."""
    if row.tier == "none":
        return None
    if metric not in _SCORES:
        return row_costs(row).get(metric)
    scores = row.name_scores if metric in _BY_NAME else row.scores
    return None if scores is None else getattr(scores, metric.removeprefix("names."))


if __name__ == "__main__":
    main()
