"""The commands `kbqa ask` and `kbqa eval`: they parse, call and print."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kbqa.engine.answer import Answer
from kbqa.engine.options import ModelChoice, model_options, questions_option
from kbqa.engine.render import render_answer, render_summary
from kbqa.engine.repair.options import MethodChoice, method_options
from kbqa.kb.graph import Graph
from kbqa.kb.options import GraphChoice, graph_options, json_option
from kbqa.sparql.crp import Entity
from kbqa.sparql.errors import GraphError, InputError, OutputError, SpendingLimitReached
from kbqa.sparql.terms import is_mid

if TYPE_CHECKING:
    from kbqa.engine.evaluation.row_file import Row
    from kbqa.engine.generate import Generator


@click.command()
@click.argument("question")
@graph_options
@model_options
@method_options
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="MID",
    help="Entity that the question is about, instead of those it names; repeatable.",
)
@json_option
def ask(
    question: str,
    graph: GraphChoice,
    model: ModelChoice,
    method: MethodChoice,
    topics: tuple[str, ...],
    as_json: bool,
) -> None:
    """Answer QUESTION, with the reasoning path, the query and the triples that prove it.

    With - as QUESTION, questions are read from standard input, one a line. The exit code is 1 where
    a single QUESTION gets no answer.
    """
    from kbqa.engine.engine import Engine
    from kbqa.engine.generate import NoPaths
    from kbqa.engine.questions import asked_questions

    if not question.strip():
        raise InputError("the question is empty")
    if method.writes_paths:
        model.check()
    entities = [_topic(mid) for mid in topics]
    many = question == "-"
    is_answered = False
    with closing(graph.open()) as opened:
        check_answers(opened, graph.timeout_s)
        generator = model.load(opened) if method.writes_paths else NoPaths()
        engine = Engine(
            opened,
            generator,
            n=model.n,
            timeout_s=graph.timeout_s,
            rules=method.rules(),
            router=method.router(opened),
        )
        with closing(engine):
            for text in asked_questions(question):
                answer = engine.ask(text, entities)
                is_answered = bool(answer.answers)
                _print_answer(answer, as_json=as_json, is_one_of_many=many)
    if not (is_answered or many):
        raise SystemExit(1)


@click.command("eval")
@questions_option
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    metavar="RUN.jsonl",
    help="Where the rows go, one a question, with a manifest beside.",
)
@graph_options
@model_options
@method_options
@click.option(
    "--gold-entities", is_flag=True, help="Give the gold topic entities; link only what has none."
)
@click.option(
    "--beams",
    "beams_file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Paths that `kbqa crp generate` wrote, instead of writing them anew.",
)
@click.option(
    "--resume", is_flag=True, help="Go on with the run in --output, and ask again what failed."
)
@click.option("--overwrite", is_flag=True, help="Replace the run in --output.")
@click.option("--batch-size", type=click.IntRange(1), default=8, show_default=True)
@click.option(
    "--concurrency",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Questions to answer at once; times are only to be trusted with 1.",
)
@click.option(
    "--sample", type=click.IntRange(1), metavar="N", help="Answer only N questions of the set."
)
@click.option("--seed", default=42, show_default=True, help="What --sample is drawn by.")
@click.option(
    "--timings/--no-timings",
    default=True,
    show_default=True,
    help="Tell in rows what differs from run to run, such as seconds.",
)
@json_option
def evaluate(
    file: Path,
    output: Path,
    graph: GraphChoice,
    model: ModelChoice,
    method: MethodChoice,
    gold_entities: bool,
    beams_file: Path | None,
    resume: bool,
    overwrite: bool,
    batch_size: int,
    concurrency: int,
    sample: int | None,
    seed: int,
    timings: bool,
    as_json: bool,
) -> None:
    """Answer a question set and score the answers.

    Prints hit, Hits@1, exact match and F1 with 95 % bootstrap intervals, for each tier of evidence
    that the question set names. A run that was stopped, by whatever, goes on with --resume.
    """
    from kbqa.engine.beam_files import read_beams
    from kbqa.engine.engine import Engine
    from kbqa.engine.evaluation.evaluate import EvaluationConfig, summarise
    from kbqa.engine.evaluation.evaluate import evaluate as run
    from kbqa.engine.evaluation.run_settings import (
        record_beams,
        record_graph,
        record_method,
        record_model,
        record_questions,
    )
    from kbqa.engine.generate import NoPaths, SavedBeams
    from kbqa.engine.questions import read_questions, sample_questions
    from kbqa.engine.run_manifest import discard

    questions = read_questions(file)
    if sample is not None:
        questions = sample_questions(questions, sample, seed)
    _check_output(output, resume=resume, overwrite=overwrite)
    if beams_file is not None and not method.writes_paths:
        raise InputError("--method general takes no paths; leave --beams out")
    beams = read_beams(beams_file) if beams_file is not None else {}
    is_written = all(question.id in beams for question in questions)
    with closing(graph.open()) as opened:
        check_answers(opened, graph.timeout_s)
        router = method.router(opened)
        generator: Generator
        if not method.writes_paths:
            generator = NoPaths()
        elif is_written:
            generator = SavedBeams(str(beams_file))
        else:
            generator = model.load(opened)
        is_loaded = method.writes_paths and not is_written
        recorded = (
            record_questions(file, sample, seed)
            | record_graph(opened, graph.timeout_s)
            | record_beams(beams_file)
            | record_model(model, generator.name if is_loaded else None)
            | record_method(method.rules(), method.name, router)
        )
        config = EvaluationConfig(gold_entities, timings, recorded.settings, recorded.notes)
        if overwrite:
            discard(output)
        engine = Engine(
            opened,
            generator,
            n=model.n,
            timeout_s=graph.timeout_s,
            rules=method.rules(),
            router=router,
        )
        with (
            closing(engine),
            _watched(len(questions)) as report,
        ):
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
    click.echo(
        render_summary(
            summarise(rows),
            entities="gold" if gold_entities else "linked",
            failed=sum(row["error"] is not None for row in rows),
            unscored=sum(row["scores"] is None for row in rows),
            as_json=as_json,
        )
    )


def check_answers(graph: Graph, timeout_s: float) -> None:
    """Make sure that a graph answers and holds something, before work is begun for it.

    Raises:
        GraphError: It does not.
    """
    if not graph.ask("ASK { ?s ?p ?o }", timeout_s=timeout_s):
        raise GraphError(f"{graph.description} holds no triples")


def _topic(mid: str) -> Entity:
    if not is_mid(mid):
        raise InputError(
            f"--topic {mid}: not a mid such as m.06w2sn5; find one with `kbqa entities`"
        )
    return Entity(mid=mid)


def _check_output(output: Path, *, resume: bool, overwrite: bool) -> None:
    """Make sure that a run can be written, and none is overwritten or continued unasked."""
    if resume and overwrite:
        raise InputError("choose one: --resume or --overwrite")
    if not output.parent.is_dir():
        raise InputError(f"there is no folder {output.parent} to write {output.name} to")
    if output.exists() and not (resume or overwrite):
        raise InputError(f"{output} exists. Go on with --resume, or replace it with --overwrite.")


@contextmanager
def _watched(total: int) -> Iterator[Callable[["Row"], None]]:
    """Show how far a run is while it tells its rows; where it is stopped, say how to go on."""
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
        click.echo(f"{progress.left} of {total} questions are left; go on with --resume.", err=True)
        raise SystemExit(stop.exit_code if isinstance(stop, Stopped) else 1) from stop


def _print_answer(answer: Answer, *, as_json: bool, is_one_of_many: bool) -> None:
    if as_json:
        indent = None if is_one_of_many else 2
        click.echo(json.dumps(answer.to_dict(), ensure_ascii=False, indent=indent))
        return
    if is_one_of_many:
        click.echo(f"# {answer.question}")
    click.echo(render_answer(answer))
    if is_one_of_many:
        click.echo()
