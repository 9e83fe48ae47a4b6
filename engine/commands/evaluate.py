"""The command `kbqa eval`."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kbqa.engine.commands.chat_options import ChatChoice, chat_limits, chat_options
from kbqa.engine.commands.methods import MethodChoice, method_options
from kbqa.engine.commands.options import (
    deadline_option,
    model_options,
    open_engine,
    questions_option,
)
from kbqa.engine.commands.render import render_summary
from kbqa.engine.writing.model_choice import ModelChoice
from kbqa.kb.commands.options import GraphChoice, graph_options, json_option
from kbqa.sparql.errors import InputError, OutputError, SpendingLimitReached

if TYPE_CHECKING:
    from kbqa.engine.evaluation.runs.rows import Row


@click.command("eval")
@questions_option
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="RUN.jsonl",
    help="Where the rows go, one a question, with a manifest beside.",
)
@graph_options
@deadline_option
@method_options
@chat_options
@chat_limits
@model_options
@click.option(
    "--gold-entities", is_flag=True, help="Give the gold topic entities; link only without any."
)
@click.option(
    "--beams",
    "beams_file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Paths that `kbqa crp generate` wrote, instead of writing them again.",
)
@click.option(
    "--resume", is_flag=True, help="Resume the run in --output, and ask again what failed."
)
@click.option("--overwrite", is_flag=True, help="Replace the run in --output.")
@click.option(
    "--show",
    is_flag=True,
    help="Only estimate calls, tokens and cost, from 5 questions; nothing is spent or written.",
)
@click.option(
    "--batch-size",
    type=click.IntRange(1),
    default=8,
    show_default=True,
    help="Questions for which paths are written at once.",
)
@click.option(
    "--concurrency",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Questions to answer at once; trust times only with 1.",
)
@click.option(
    "--sample", type=click.IntRange(1), metavar="N", help="Answer only N questions of the set."
)
@click.option("--seed", default=42, show_default=True, help="Seed of --sample.")
@click.option(
    "--timings/--no-timings",
    default=True,
    show_default=True,
    help="Write in rows what differs from run to run, such as seconds.",
)
@json_option
def evaluate(
    file: Path,
    output: Path | None,
    graph: GraphChoice,
    deadline_s: float | None,
    method: MethodChoice,
    chat: ChatChoice,
    model: ModelChoice,
    gold_entities: bool,
    beams_file: Path | None,
    resume: bool,
    overwrite: bool,
    show: bool,
    batch_size: int,
    concurrency: int,
    sample: int | None,
    seed: int,
    timings: bool,
    as_json: bool,
) -> None:
    """Answer a question set and score the answers.

    Prints hit, Hits@1, exact match and F1 with 95 % bootstrap intervals, for each tier of evidence
    that the question set names. Use --resume to continue an interrupted run.
    """
    from kbqa.engine.evaluation.estimate import ESTIMATED_FROM, estimate_run
    from kbqa.engine.evaluation.evaluate import EvaluationConfig
    from kbqa.engine.evaluation.evaluate import evaluate as run
    from kbqa.engine.evaluation.runs.run_settings import (
        record_beams,
        record_graph,
        record_method,
        record_model,
        record_questions,
    )
    from kbqa.engine.files.manifest import discard
    from kbqa.engine.questions.question_sets import read_questions, sample_questions
    from kbqa.engine.writing.beam_files import read_beams
    from kbqa.engine.writing.generate import SavedBeams

    questions = read_questions(file)
    if sample is not None:
        questions = sample_questions(questions, sample, seed)
    output = None if show else _checked_output(output, resume=resume, overwrite=overwrite)
    beams = read_beams(beams_file) if beams_file is not None else {}
    is_written = all(question.id in beams for question in questions)
    saved = SavedBeams(str(beams_file)) if is_written else None
    if output is None:
        with open_engine(graph, model, replace(chat, is_stand_in=True), method, saved) as engine:
            estimate = estimate_run(
                engine,
                sample_questions(questions, ESTIMATED_FROM, seed),
                len(questions),
                gold_entities=gold_entities,
                deadline_s=deadline_s,
                beams=beams,
            )
        record = json.dumps(estimate.to_dict(), indent=2)
        click.echo(record if as_json else "\n".join(estimate.describe()))
        return
    with open_engine(graph, model, chat, method, saved) as engine:
        resources = engine.resources
        recorded = (
            record_questions(file, sample, seed)
            | record_graph(resources.graph, graph.timeout_s)
            | record_beams(beams_file)
            | record_model(model, None if is_written else resources.generator_name)
            | record_method(
                engine.method,
                deadline_s,
                resources.call_budget,
                None if resources.chat is None else resources.chat.name,
            )
        )
        config = EvaluationConfig(
            gold_entities, timings, deadline_s, recorded.settings, recorded.notes
        )
        if overwrite:
            discard(output)
        with _watched(len(questions)) as report:
            rows = run(
                engine,
                questions,
                output,
                config,
                beams=beams,
                batch_size=batch_size,
                concurrency=concurrency,
                report=report,
            )
    entities = "gold" if gold_entities else "linked"
    click.echo(render_summary(rows, entities=entities, as_json=as_json))


def _checked_output(output: Path | None, *, resume: bool, overwrite: bool) -> Path:
    """Check that a run can be written, and that none is overwritten or resumed unasked."""
    if output is None:
        raise click.UsageError("Missing option '--output'.")
    if resume and overwrite:
        raise InputError("choose one: --resume or --overwrite")
    if not output.parent.is_dir():
        raise InputError(f"there is no folder {output.parent} to write {output.name} to")
    if output.exists() and not (resume or overwrite):
        raise InputError(
            f"{output} exists. Add --resume to continue it, or --overwrite to replace it."
        )
    return output


@contextmanager
def _watched(total: int) -> Iterator[Callable[["Row"], None]]:
    """Show the progress of a run; if it is stopped, say how to resume."""
    from tqdm import tqdm

    from kbqa.engine.evaluation.progress import RunProgress
    from kbqa.engine.evaluation.signals import Stopped, stop_on_signals

    progress = RunProgress(total)
    try:
        with stop_on_signals(), tqdm(total=total, unit="question", disable=None) as bar:

            def advance(row: "Row") -> None:
                progress.add(row)
                bar.set_postfix(progress.figures(), refresh=False)
                bar.update()

            yield advance
    except (Stopped, SpendingLimitReached, OutputError) as stop:
        click.echo(f"Error: {stop}", err=True)
        click.echo(f"{progress.left} of {total} questions are left. Use --resume.", err=True)
        raise SystemExit(stop.exit_code if isinstance(stop, Stopped) else 1) from stop
