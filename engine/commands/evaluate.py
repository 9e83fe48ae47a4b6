"""The commands `kbqa eval`, `kbqa report` and `kbqa compare`."""

import json
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kbqa.engine.commands.options import (
    INPUT_FILE,
    ChatChoice,
    ChatLimits,
    MethodChoice,
    RunChoice,
    chat_limits,
    chat_options,
    deadline_option,
    method_options,
    model_options,
    open_engine,
    questions_option,
    resources_over,
    run_options,
    watched,
)
from kbqa.engine.commands.screen import render_summary, waiting
from kbqa.engine.evaluation.scores import METRICS, RESAMPLES
from kbqa.engine.writing.generate import ModelChoice
from kbqa.kb.commands.options import (
    GraphChoice,
    graph_options,
    json_option,
    print_json,
    print_note,
    print_result,
)
from kbqa.sparql.errors import InputError

if TYPE_CHECKING:
    from kbqa.engine.engine import Engine
    from kbqa.engine.evaluation.tables import Section


@click.command("eval")
@questions_option
@run_options
@graph_options
@click.option(
    "--own-graphs",
    is_flag=True,
    help="Ask each question of the graph in its row, as RoG's rows have one, and of no other.",
)
@deadline_option()
@method_options
@chat_options
@chat_limits
@model_options
@click.option(
    "--beams",
    "beams_file",
    type=INPUT_FILE,
    metavar="FILE",
    help="Paths that `kbqa crp generate` wrote, instead of writing them again.",
)
@click.option(
    "--show",
    is_flag=True,
    help="Only estimate calls, tokens and cost, from 5 questions; nothing is spent or written.",
)
@click.option(
    "--batch-size",
    type=click.IntRange(1),
    default=8,
    help="Questions for which paths are written at once.",
)
@json_option
def evaluate(
    file: Path,
    run: RunChoice,
    graph: GraphChoice,
    own_graphs: bool,
    deadline_s: float | None,
    method: MethodChoice,
    chat: ChatChoice,
    limits: ChatLimits,
    model: ModelChoice,
    beams_file: Path | None,
    show: bool,
    batch_size: int,
    as_json: bool,
) -> None:
    """Answer a question set and score the answers.

    Prints hit, Hits@1, exact match and F1 with 95 % bootstrap intervals, for each tier of evidence
    that the question set names, and exact match by category. Use --resume to continue an
    interrupted run.
    """
    from kbqa.engine.evaluation import evaluate as evaluation
    from kbqa.engine.evaluation.own_graphs import OwnGraphs
    from kbqa.engine.files import discard
    from kbqa.engine.questions.question_sets import gold_warning, sample_questions
    from kbqa.engine.writing.generate import SavedBeams, read_beams

    chat = replace(chat, limits=limits)
    questions = run.read(file)
    if not own_graphs and (warning := gold_warning(file, questions)):
        print_note(f"Warning: {warning}")
    output = None if show else run.checked_output()
    beams = read_beams(beams_file) if beams_file is not None else {}
    is_written = all(question.id in beams for question in questions)
    saved = SavedBeams(str(beams_file)) if is_written else None
    if output is None:
        chat = replace(chat, is_stand_in=True)
    opened: AbstractContextManager[Engine | OwnGraphs]
    if own_graphs:
        if not graph.is_demo:
            raise InputError("choose one: --own-graphs, or a graph by --store or --endpoint")
        if model.needs_graph and (model.server is not None or model.backend == "vllm"):
            raise InputError("--own-graphs with vLLM needs --decoding none")
        chat.check()
        make = resources_over(graph, model, chat, method, saved)
        with waiting("Loading the model"):
            opened = nullcontext(OwnGraphs(file, questions, make, method.name, method.settings))
    else:
        opened = open_engine(graph, model, chat, method, saved)
    if output is None:
        with opened as engine:
            estimate = evaluation.estimate_run(
                engine,
                sample_questions(questions, evaluation.ESTIMATED_FROM, run.seed),
                len(questions),
                gold_entities=run.gold_entities,
                deadline_s=deadline_s,
                beams=beams,
            )
        if as_json:
            print_json(estimate.to_dict(), indent=2)
        else:
            print_result("\n".join(estimate.describe()))
        return
    with opened as engine:
        resources = engine.resources
        recorded = (
            evaluation.record_questions(file, run.sample, run.seed)
            | evaluation.record_graph(None if own_graphs else resources.graph, graph.timeout_s)
            | evaluation.record_beams(beams_file)
            | evaluation.record_model(model, None if is_written else resources.generator_name)
            | evaluation.record_method(
                engine.method,
                deadline_s,
                resources.call_budget,
                None if resources.chat is None else resources.chat.name,
                resources.unsure_below,
            )
        )
        config = evaluation.EvaluationConfig(run.gold_entities, run.timings, deadline_s, recorded)
        if run.overwrite:
            discard(output)
        with watched(evaluation.EvaluationProgress(len(questions))) as report:
            rows = evaluation.evaluate(
                engine,
                questions,
                output,
                config,
                beams=beams,
                batch_size=batch_size,
                concurrency=run.concurrency,
                report=report,
            )
    entities = "gold" if run.gold_entities else "linked"
    print_result(render_summary(rows, entities=entities, as_json=as_json))


_markdown_option = click.option(
    "--markdown", "as_markdown", is_flag=True, help="Print Markdown instead of text."
)

_names_option = click.option(
    "--names",
    is_flag=True,
    help="Also score the names of answers by the rules of BPC, ToG, RoG and SubgraphRAG.",
)
_resamples_option = click.option(
    "--resamples",
    type=click.IntRange(100),
    default=RESAMPLES,
    help="How often the bootstrap of each interval draws; papers often have 10000.",
)


@click.command()
@click.argument("run", type=INPUT_FILE, metavar="RUN.jsonl")
@json_option
@_markdown_option
@_names_option
@_resamples_option
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
    resamples: int,
    plots: Path | None,
    form: str | None,
) -> None:
    """Report on a run of `kbqa eval`, by any method.

    RUN.jsonl is the file of its rows; its manifest must be next to it. Prints scores with 95 %
    bootstrap intervals, for all scored questions and for each tier of evidence; scores of groups of
    questions, by gold query, stage and origin; and what the run and its kinds of steps took.
    """
    from kbqa.engine.evaluation.report import make_report, report_sections
    from kbqa.engine.evaluation.rows import read_run

    _check_form(as_json, as_markdown)
    if form is not None:
        from kbqa.engine.evaluation.evaluate import predictions

        # In ASCII: the scripts open the file in whatever encoding the locale has.
        print_result(json.dumps(predictions(read_run(run).rows, form), indent=1))
        return
    made = make_report(read_run(run), names=names, resamples=resamples)
    if plots is not None:
        from kbqa.engine.evaluation.plots import draw_report

        for picture in draw_report(made, plots):
            print_note(f"drew {picture}")
    _print(made.to_dict() if as_json else report_sections(made), as_markdown)


@click.command()
@click.argument("first", type=INPUT_FILE, metavar="A.jsonl")
@click.argument("second", type=INPUT_FILE, metavar="B.jsonl")
@click.option(
    "--metric",
    type=click.Choice(METRICS),
    default="f1",
    help="Group and list questions by this metric.",
)
@click.option(
    "--examples",
    type=click.IntRange(0),
    default=5,
    help="How many wins and losses to list; --json has all.",
)
@json_option
@_markdown_option
@_names_option
@_resamples_option
def compare(
    first: Path,
    second: Path,
    metric: str,
    examples: int,
    as_json: bool,
    as_markdown: bool,
    names: bool,
    resamples: int,
) -> None:
    """Compare run B with run A, over the questions that both scored.

    Prints the settings that differ. For each metric and tier of evidence: the difference B − A with
    a paired 95 % bootstrap interval, wins, losses and ties, and the p-value of the exact sign test.
    What a question takes in both runs: calls, tokens and seconds. The differences in one metric by
    groups of gold queries, and the questions that B wins and loses.
    """
    from kbqa.engine.evaluation.compare import compare_runs, compare_sections
    from kbqa.engine.evaluation.rows import read_run

    _check_form(as_json, as_markdown)
    runs = read_run(first), read_run(second)
    compared = compare_runs(*runs, metric, names=names, resamples=resamples)
    _print(compared.to_dict() if as_json else compare_sections(compared, examples), as_markdown)


def _check_form(as_json: bool, as_markdown: bool) -> None:
    if as_json and as_markdown:
        raise click.UsageError("choose one of --json and --markdown")


def _print(content: "dict[str, Any] | Iterable[Section]", as_markdown: bool) -> None:
    from kbqa.engine.evaluation.tables import render_markdown, render_text

    if isinstance(content, dict):
        print_json(content, indent=2)
    else:
        print_result((render_markdown if as_markdown else render_text)(content))
