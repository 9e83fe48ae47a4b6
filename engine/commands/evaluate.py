"""The command `kbqa eval`."""

from dataclasses import replace
from pathlib import Path

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
from kbqa.engine.commands.run_options import RunChoice, run_options, watched
from kbqa.engine.writing.model_choice import ModelChoice
from kbqa.kb.commands.options import GraphChoice, graph_options, json_option
from kbqa.kb.commands.text import print_json, print_note, print_result


@click.command("eval")
@questions_option
@run_options
@graph_options
@deadline_option
@method_options
@chat_options
@chat_limits
@model_options
@click.option(
    "--beams",
    "beams_file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
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
    show_default=True,
    help="Questions for which paths are written at once.",
)
@json_option
def evaluate(
    file: Path,
    run: RunChoice,
    graph: GraphChoice,
    deadline_s: float | None,
    method: MethodChoice,
    chat: ChatChoice,
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
    from kbqa.engine.evaluation.estimate import ESTIMATED_FROM, estimate_run
    from kbqa.engine.evaluation.evaluate import EvaluationConfig
    from kbqa.engine.evaluation.evaluate import evaluate as evaluate_set
    from kbqa.engine.evaluation.progress import RunProgress
    from kbqa.engine.evaluation.runs.run_settings import (
        record_beams,
        record_graph,
        record_method,
        record_model,
        record_questions,
    )
    from kbqa.engine.files.manifest import discard
    from kbqa.engine.questions.question_sets import gold_warning, sample_questions
    from kbqa.engine.writing.beam_files import read_beams
    from kbqa.engine.writing.generate import SavedBeams

    questions = run.read(file)
    if warning := gold_warning(file, questions):
        print_note(f"Warning: {warning}")
    output = None if show else run.checked_output()
    beams = read_beams(beams_file) if beams_file is not None else {}
    is_written = all(question.id in beams for question in questions)
    saved = SavedBeams(str(beams_file)) if is_written else None
    if output is None:
        with open_engine(graph, model, replace(chat, is_stand_in=True), method, saved) as engine:
            estimate = estimate_run(
                engine,
                sample_questions(questions, ESTIMATED_FROM, run.seed),
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
    with open_engine(graph, model, chat, method, saved) as engine:
        resources = engine.resources
        recorded = (
            record_questions(file, run.sample, run.seed)
            | record_graph(resources.graph, graph.timeout_s)
            | record_beams(beams_file)
            | record_model(model, None if is_written else resources.generator_name)
            | record_method(
                engine.method,
                deadline_s,
                resources.call_budget,
                None if resources.chat is None else resources.chat.name,
                resources.unsure_below,
            )
        )
        config = EvaluationConfig(
            run.gold_entities, run.timings, deadline_s, recorded.settings, recorded.notes
        )
        if run.overwrite:
            discard(output)
        with watched(RunProgress(len(questions)), len(questions)) as report:
            rows = evaluate_set(
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
