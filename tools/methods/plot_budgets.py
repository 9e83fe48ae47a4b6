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

import click

from kbqa.engine.evaluation.rows import read_run
from kbqa.engine.evaluation.scores import Mean, bootstrap_mean
from kbqa.sparql.errors import InputError
from tools.options import FOLDER

_NAME = re.compile(r"(?P<method>\w+)\.(?P<chooser>\w+)\.(?P<budget>\d+)\.jsonl")
# Colours that colour-blind readers can distinguish: Okabe and Ito 2008.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000")
_LINES = {"perfect": "-", "embedder": "--", "random": ":"}


Curves = Mapping[tuple[str, str], Mapping[int, Mean]]
"""The F1 of the runs of a method and a chooser, by the calls that a question may take."""


@click.command(help=__doc__)
@click.argument("folder", type=FOLDER)
@click.option("--output", type=click.Path(path_type=Path), required=True, metavar="PNG")
def main(folder: Path, output: Path) -> None:
    """Print the figures, and write the picture."""
    curves = read_curves(folder)
    budgets = sorted(set().union(*curves.values()))
    click.echo(f"| method | chooser | n | {' | '.join(f'{b} calls' for b in budgets)} |")
    click.echo("|" + "---|" * (len(budgets) + 3))
    for (method, chooser), f1 in curves.items():
        cells = [f"{f1[budget].mean:.3f}" if budget in f1 else "–" for budget in budgets]
        n = next(iter(f1.values())).n
        click.echo(f"| {method} | {chooser} | {n} | {' | '.join(cells)} |")
    draw(curves, budgets, output)


def read_curves(folder: Path) -> Curves:
    """Read the runs of a folder, by method and chooser."""
    curves: dict[tuple[str, str], dict[int, Mean]] = defaultdict(dict)
    for path in sorted(folder.glob("*.jsonl")):
        if (name := _NAME.fullmatch(path.name)) is None:
            continue
        kept = [row.scores.f1 for row in read_run(path).rows if row.scores and row.tier != "none"]
        curves[name["method"], name["chooser"]][int(name["budget"])] = bootstrap_mean(kept)
    if not curves:
        raise InputError(f"{folder} has no runs named METHOD.CHOOSER.CALLS.jsonl")
    return {key: dict(sorted(of.items())) for key, of in sorted(curves.items())}


def draw(curves: Curves, budgets: Sequence[int], output: Path) -> None:
    """Draw a curve for each method and chooser: a colour a method, a dash a chooser."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    methods = list(dict.fromkeys(method for method, _ in curves))
    for (method, chooser), f1 in curves.items():
        means = [each.mean for each in f1.values()]
        below = [each.mean - each.low for each in f1.values()]
        above = [each.high - each.mean for each in f1.values()]
        axes.errorbar(
            list(f1),
            means,
            [below, above],
            label=f"{method}, {chooser}",
            color=_COLOURS[methods.index(method) % len(_COLOURS)],
            linestyle=_LINES.get(chooser, "-."),
            marker="o",
            markersize=4,
            capsize=2,
        )
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
