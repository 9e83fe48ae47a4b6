"""Draw F1 by the number of candidates and by their source, for `tools.score.judge`.

Each source is a curve over the number of written candidates: the answers given, with their 95 %
interval, and dashed above them the best possible. Searched candidates alone are level lines, as
their number does not change. They are those that were not also written.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from kbqa.engine.evaluation.scores import Mean
from kbqa.sparql.errors import InputError

# Colours that colour-blind readers can distinguish: Okabe and Ito 2008.
_COLOURS = ("#0072B2", "#E69F00", "#009E73")
_DPI = 200


class Curve(NamedTuple):
    """The F1 of one source of candidates.

    Attributes:
        source: Its name.
        given: F1 of the answers given, by the number of written candidates.
        best: F1 of the best candidates.
    """

    source: str
    given: Sequence[Mean]
    best: Sequence[Mean]


def draw_curves(counts: Sequence[int], curves: Sequence[Curve], title: str, path: Path) -> None:
    """Draw curves into a file, whose ending says its format.

    Args:
        counts: Numbers of written candidates.
        curves: At most three.
        title: What was measured.
        path: The file.

    Raises:
        InputError: matplotlib, from the `plots` extra, is not installed; or the file cannot be
            written.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError("--plot needs matplotlib. Install: pip install 'kbqa[plots]'") from None
    figure = Figure(figsize=(5.6, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    for colour, curve in zip(_COLOURS, curves, strict=False):
        given = [each.mean for each in curve.given]
        low, high = [each.low for each in curve.given], [each.high for each in curve.given]
        axes.plot(counts, given, color=colour, marker="o", label=f"{curve.source}: given")
        axes.fill_between(counts, low, high, color=colour, alpha=0.12, linewidth=0)
        best = [each.mean for each in curve.best]
        axes.plot(counts, best, color=colour, linestyle="--", label=f"{curve.source}: best")
    axes.set_xticks(counts)
    axes.set(xlabel="written candidates", ylabel="F1")
    axes.set_title(title, fontsize="medium")
    axes.grid(axis="y", color="#E5E5E5")
    figure.legend(loc="outside right center", frameon=False)
    try:
        figure.savefig(path, dpi=_DPI)
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be written: {error}") from None
