"""Draw a run's breakdowns as for a paper: bars with intervals, and their numbers below."""

import importlib.util
import os
from collections.abc import Mapping
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

from kbqa.engine.evaluation.breakdowns import FOUND, NO_ANSWER, UNKNOWN
from kbqa.engine.evaluation.report import Answered, Report
from kbqa.engine.evaluation.tables import BREAKDOWN_NAMES
from kbqa.kb.open import cache_directory
from kbqa.sparql.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Colours that colour-blind readers can distinguish: Okabe and Ito 2008.
_BLUE, _SKY, _ORANGE, _GREEN, _PURPLE = "#0072B2", "#56B4E9", "#E69F00", "#009E73", "#CC79A7"
_GREY = "#BBBBBB"
_PALE = "#E5E5E5"
_DPI = 200
_SHARES = (0, 0.2, 0.4, 0.6, 0.8, 1)
_WAYS = ("type", "depth", "constraints")
_UNRELAXED = ("full", FOUND)
_COLOURS = {"specialised": _BLUE, "general": _ORANGE}
_OTHER_COLOURS = (_SKY, _GREEN, _PURPLE)


def draw_report(report: Report, directory: Path) -> list[Path]:
    """Draw a report's pictures into a folder, which is created if it does not exist.

    They show F1 by each breakdown that the questions have, answers by stage, confidence against F1,
    and F1 against the share of questions that are answered.

    Raises:
        InputError: matplotlib, from the `plots` extra, is not installed; or the folder cannot be
            written.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise InputError("--plots needs matplotlib. Install: pip install 'kbqa[plots]'")
    pictures = []
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, figure in draw_figures(report).items():
            pictures.append(directory / f"{report.name}.{name}.png")
            figure.savefig(pictures[-1], dpi=_DPI)
    except OSError as error:
        raise InputError(f"{directory} cannot be written: {error}") from error
    return pictures


def draw_figures(report: Report) -> "dict[str, Figure]":
    """Draw a report's figures, by the names of their files."""
    figures = {f"f1-by-{way}": _draw_f1(report, way) for way in _WAYS if way in report.breakdowns}
    figures["answered-by-stage"] = _draw_answered(report.answered)
    if report.calibration:
        figures["confidence"] = _draw_confidence(report)
        figures["coverage"] = _draw_coverage(report)
    return figures


def _draw_f1(report: Report, way: str) -> "Figure":
    groups = [group for group in report.breakdowns[way] if group.name != UNKNOWN]
    figure, axes = new_figure(1.4 + 0.95 * len(groups), 3.0)
    positions = range(len(groups))
    means = [group.f1.mean for group in groups]
    # The mean of a few questions may lie outside its interval by the last digit.
    below = [max(0.0, group.f1.mean - group.f1.low) for group in groups]
    above = [max(0.0, group.f1.high - group.f1.mean) for group in groups]
    axes.bar(positions, means, 0.62, color=_SKY)
    axes.errorbar(positions, means, [below, above], fmt="none", ecolor="black", capsize=3)
    for position, group in zip(positions, groups, strict=True):
        axes.annotate(f"{group.f1.mean:.2f}", (position, group.f1.high + 0.02), ha="center")
    axes.set_xticks(positions, [f"{group.name}\nn = {group.n:,}" for group in groups])
    axes.set_yticks(_SHARES)
    axes.set(ylim=(0, 1.12), ylabel="F1, with 95 % interval", xlabel=BREAKDOWN_NAMES[way])
    axes.set_axisbelow(True)
    axes.grid(axis="y", color=_PALE)
    return figure


def _draw_answered(answered: Mapping[str, Answered]) -> "Figure":
    """Stack the shares of each tier's questions: by stage, the relaxed apart, and no answer."""
    figure, axes = new_figure(6.0, 1.3 + 0.45 * len(answered))
    names = [f"{tier}\nn = {one.n:,}" for tier, one in answered.items()]
    starts = [0.0] * len(answered)
    for label, (colour, hatch) in _styles(answered["all"]).items():
        shares = [_counts(one).get(label, 0) / one.n for one in answered.values()]
        if any(shares):
            axes.barh(
                names, shares, 0.66, starts, color=colour, hatch=hatch, ec="white", label=label
            )
            starts = [start + share for start, share in zip(starts, shares, strict=True)]
    axes.invert_yaxis()
    axes.set(xlim=(0, 1), xlabel="share of questions")
    axes.xaxis.set_major_formatter("{x:.0%}")
    figure.legend(loc="outside upper center", ncols=3, frameon=False)
    return figure


def _draw_confidence(report: Report) -> "Figure":
    figure, axes = _square()
    axes.plot([0, 1], [0, 1], color=_GREY, linestyle="--")
    confidences, f1s, _ = zip(*report.calibration, strict=True)
    axes.plot(confidences, f1s, color=_BLUE, marker="o")
    axes.set(xlabel="confidence, mean of a tenth", ylabel="F1")
    axes.set_title(f"calibration error {report.calibration_error:.3f}", fontsize="medium")
    return figure


def _draw_coverage(report: Report) -> "Figure":
    """Draw F1 over the share of questions that are answered, the surest first."""
    figure, axes = _square()
    shares, f1s, _ = zip(*report.coverage, strict=True)
    axes.plot(shares, f1s, color=_BLUE, marker="o")
    axes.set(xlabel="share answered", ylabel="F1 of these")
    axes.xaxis.set_major_formatter("{x:.0%}")
    return figure


def _square() -> "tuple[Figure, Axes]":
    figure, axes = new_figure(3.6, 3.4)
    axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
    axes.set_xticks(_SHARES)
    axes.set_yticks(_SHARES)
    return figure, axes


def _styles(everything: Answered) -> dict[str, tuple[str, str]]:
    """Return the colour and hatch of each part: a colour for each stage, hatched if relaxed."""
    others = cycle(_OTHER_COLOURS)
    styles: dict[str, tuple[str, str]] = {}
    for stage in everything.stages:
        colour = _COLOURS.get(stage) or next(others)
        styles |= {stage: (colour, ""), f"{stage}, relaxed": (colour, "///")}
    return {**styles, NO_ANSWER: (_GREY, "")}


def _counts(answered: Answered) -> dict[str, int]:
    counts = {NO_ANSWER: answered.unanswered}
    for stage, levels in answered.stages.items():
        counts[stage] = sum(levels.get(level, 0) for level in _UNRELAXED)
        counts[f"{stage}, relaxed"] = sum(levels.values()) - counts[stage]
    return counts


def new_figure(width: float, height: float) -> "tuple[Figure, Axes]":
    """Make a figure of a size in inches, without the frame's top and right."""
    # It would write to the user's home.
    os.environ.setdefault("MPLCONFIGDIR", str(cache_directory() / "matplotlib"))
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes
