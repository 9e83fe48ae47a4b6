"""Plot F1 against the calls that a question may take, for methods and choosers.

    BUDGETS="5 10 20 40" bash tools/methods/runs.sh QUESTIONS STORE FOLDER --gold-entities
    python -m tools.methods.plot_budgets FOLDER --output budgets.png

Reads the runs FOLDER/METHOD.CHOOSER.N.jsonl. F1 is over the independent and annotated tiers (over
all questions, if the set has no tiers), with 95 % bootstrap intervals. Also prints the figures.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import click

from kbqa.engine.evaluation.rows import read_run
from kbqa.engine.evaluation.scores import bootstrap_mean
from kbqa.sparql.errors import InputError

_NAME = re.compile(r"(?P<method>\w+)\.(?P<chooser>\w+)\.(?P<budget>\d+)\.jsonl")
# Colours that colour-blind readers can distinguish: Okabe and Ito 2008.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000")
_LINES = {"perfect": "-", "embedder": "--", "random": ":"}


class Point(NamedTuple):
    """The F1 of a run, with its interval."""

    budget: int
    f1: float
    low: float
    high: float
    n: int


Curves = Mapping[tuple[str, str], Sequence[Point]]


@click.command(help=__doc__)
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--output", type=click.Path(path_type=Path), required=True, metavar="PNG")
def main(folder: Path, output: Path) -> None:
    """Print the figures, and write the picture."""
    curves = read_curves(folder)
    budgets = sorted({point.budget for points in curves.values() for point in points})
    click.echo(f"| method | chooser | n | {' | '.join(f'{b} calls' for b in budgets)} |")
    click.echo("|" + "---|" * (len(budgets) + 3))
    for (method, chooser), points in curves.items():
        cells = {point.budget: f"{point.f1:.3f}" for point in points}
        shown = " | ".join(cells.get(budget, "–") for budget in budgets)
        click.echo(f"| {method} | {chooser} | {points[0].n} | {shown} |")
    draw(curves, output)


def read_curves(folder: Path) -> Curves:
    """Read the runs of a folder, by method and chooser."""
    curves: dict[tuple[str, str], list[Point]] = defaultdict(list)
    for path in sorted(folder.glob("*.jsonl")):
        name = _NAME.fullmatch(path.name)
        if name is None:
            continue
        scored = [row for row in read_run(path).rows if row.scores is not None]
        kept = [row.scores.f1 for row in scored if row.tier != "none" and row.scores is not None]
        f1 = bootstrap_mean(kept)
        point = Point(int(name["budget"]), f1.mean, f1.low, f1.high, len(kept))
        curves[name["method"], name["chooser"]].append(point)
    if not curves:
        raise InputError(f"{folder} has no runs named METHOD.CHOOSER.CALLS.jsonl")
    return {key: sorted(points) for key, points in sorted(curves.items())}


def draw(curves: Curves, output: Path) -> None:
    """Draw a curve for each method and chooser: a colour a method, a dash a chooser."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 5), layout="constrained")
    methods = list(dict.fromkeys(method for method, _ in curves))
    for (method, chooser), points in curves.items():
        axes.errorbar(
            [point.budget for point in points],
            [point.f1 for point in points],
            [
                [point.f1 - point.low for point in points],
                [point.high - point.f1 for point in points],
            ],
            label=f"{method}, {chooser}",
            color=_COLOURS[methods.index(method) % len(_COLOURS)],
            linestyle=_LINES.get(chooser, "-."),
            marker="o",
            markersize=4,
            capsize=2,
        )
    budgets = sorted({point.budget for points in curves.values() for point in points})
    axes.set_xscale("log")
    axes.set_xticks(budgets, [str(budget) for budget in budgets])
    axes.minorticks_off()
    axes.set_xlabel("calls a question, at most")
    axes.set_ylabel("F1")
    axes.set_ylim(0, 1)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside right upper", frameon=False, fontsize="small")
    figure.savefig(output, dpi=200)


if __name__ == "__main__":
    main()
