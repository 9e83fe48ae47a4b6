"""The commands `kbqa report` and `kbqa compare`."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kbqa.engine.evaluation.scores.metrics import METRICS
from kbqa.kb.commands.options import json_option
from kbqa.kb.commands.text import print_json, print_note, print_result

if TYPE_CHECKING:
    from kbqa.engine.evaluation.reports.tables import Section

_RUN = click.Path(path_type=Path, exists=True, dir_okay=False)
_markdown_option = click.option(
    "--markdown", "as_markdown", is_flag=True, help="Print Markdown instead of text."
)


@click.command()
@click.argument("run", type=_RUN, metavar="RUN.jsonl")
@json_option
@_markdown_option
@click.option(
    "--names",
    is_flag=True,
    help="Also score the names of answers by the rules of BPC, and of ToG, PoG and KnowPath.",
)
@click.option(
    "--plots",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Also draw PNG pictures into this folder: F1 by type, depth and constraints, and answers "
    "by stage.",
)
@click.option(
    "--predictions",
    "form",
    type=click.Choice(["webqsp", "cwq", "grailqa"]),
    help="Print the answers instead, in the form that the benchmark's official script reads.",
)
def report(
    run: Path,
    as_json: bool,
    as_markdown: bool,
    names: bool,
    plots: Path | None,
    form: str | None,
) -> None:
    """Report on a run of `kbqa eval`, by any method.

    RUN.jsonl is the file of its rows; its manifest must be next to it. Prints scores with 95 %
    bootstrap intervals, for all scored questions and for each tier of evidence; scores of groups of
    questions, by gold query, stage and origin; and what the run and its kinds of steps took.
    """
    from kbqa.engine.evaluation.reports.report import make_report
    from kbqa.engine.evaluation.reports.report_sections import report_sections
    from kbqa.engine.evaluation.runs.recorded_run import read_run

    _check_form(as_json, as_markdown)
    if form is not None:
        from kbqa.engine.evaluation.predictions import FORMS

        # In ASCII: the scripts open the file in whatever encoding the locale has.
        print_result(json.dumps(FORMS[form](read_run(run).rows), indent=1))
        return
    made = make_report(read_run(run), names=names)
    if plots is not None:
        from kbqa.engine.evaluation.reports.plots import draw_report

        for picture in draw_report(made, plots):
            print_note(f"drew {picture}")
    _print(made.to_dict() if as_json else report_sections(made), as_markdown)


@click.command()
@click.argument("first", type=_RUN, metavar="A.jsonl")
@click.argument("second", type=_RUN, metavar="B.jsonl")
@click.option(
    "--metric",
    type=click.Choice(METRICS),
    default="f1",
    show_default=True,
    help="Group and list questions by this metric.",
)
@click.option(
    "--examples",
    type=click.IntRange(0),
    default=5,
    show_default=True,
    help="How many wins and losses to list; --json has all.",
)
@json_option
@_markdown_option
def compare(
    first: Path, second: Path, metric: str, examples: int, as_json: bool, as_markdown: bool
) -> None:
    """Compare run B with run A, over the questions that both scored.

    Prints the settings that differ. For each metric and tier of evidence: the difference B − A with
    a paired 95 % bootstrap interval, wins, losses and ties, and the p-value of the exact sign test.
    The same for one metric by groups of gold queries, and the questions that B wins and loses.
    """
    from kbqa.engine.evaluation.reports.compare import compare_runs, compare_sections
    from kbqa.engine.evaluation.runs.recorded_run import read_run

    _check_form(as_json, as_markdown)
    compared = compare_runs(read_run(first), read_run(second), metric)
    _print(compared.to_dict() if as_json else compare_sections(compared, examples), as_markdown)


def _check_form(as_json: bool, as_markdown: bool) -> None:
    if as_json and as_markdown:
        raise click.UsageError("choose one of --json and --markdown")


def _print(content: "dict[str, Any] | Sequence[Section]", as_markdown: bool) -> None:
    from kbqa.engine.evaluation.reports.tables import render_markdown, render_text

    if isinstance(content, dict):
        print_json(content, indent=2)
    else:
        print_result((render_markdown if as_markdown else render_text)(content))
