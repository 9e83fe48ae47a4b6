"""The command `kbqa retrieve`."""

from contextlib import closing
from pathlib import Path
from typing import get_args

import click

from kbqa.engine.commands.options import (
    RunChoice,
    check_answers,
    questions_option,
    run_options,
    watched,
)
from kbqa.engine.methods.options import read_settings, split_settings
from kbqa.engine.retrieval.pooling import Mechanism, PoolingSettings, Shown
from kbqa.engine.retrieval.retriever import ScorerName
from kbqa.engine.writing.checkpoint import require_embedding_packages
from kbqa.kb.commands.options import GraphChoice, graph_options, print_note
from kbqa.sparql.errors import InputError


@click.command()
@questions_option
@run_options
@graph_options
@click.option(
    "--triples",
    type=click.IntRange(1),
    default=100,
    metavar="K",
    help="Triples of a question, at most.",
)
@click.option(
    "--mechanism",
    type=click.Choice(get_args(Mechanism)),
    default=PoolingSettings().mechanism,
    help="Path pooling: nothing, order the best triples, or choose them among more.",
)
@click.option(
    "--scorer",
    type=click.Choice(get_args(ScorerName)),
    default="trained",
    help="What scores triples: a scorer that was trained, or the similarity of the question and "
    "the relation alone.",
)
@click.option(
    "--scorer-file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="The retriever.json that `kbqa train-retriever` wrote; by default the one that ships with "
    "kbqa.",
)
@click.option(
    "--shown",
    type=click.Choice(get_args(Shown)),
    default="once",
    help="Whether a fact that a relation and its reverse state is there once or twice.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="Setting of pooling, see `kbqa methods path-pooling`; repeatable.",
)
@click.option("--names", is_flag=True, help="Add subject_name and object_name to triples.")
def retrieve(
    file: Path,
    run: RunChoice,
    graph: GraphChoice,
    triples: int,
    mechanism: Mechanism,
    scorer: ScorerName,
    scorer_file: Path | None,
    shown: Shown,
    settings: tuple[str, ...],
    names: bool,
) -> None:
    """Write the triples that are likeliest to help to answer each question.

    Looks up what is around the question's topics, scores it, and pools the scores along paths. A
    row has "id", "topics", "triples", "seen", "truncated", "cut", "seconds" and "error". Triples
    come best first, each with "subject", "relation", "object", "score" and "pooled"; "is_literal"
    says that its object is a text.
    """
    pooling = _pooling(settings, mechanism)
    questions = run.read(file)
    output = run.checked_output()
    require_embedding_packages("retrieving triples")

    from kbqa.engine.evaluation.evaluate import RunProgress, record_graph, record_questions
    from kbqa.engine.evaluation.retrieve import QuestionRetrieval, RetrievalConfig, retrieve_set
    from kbqa.engine.files import discard

    config = RetrievalConfig(
        triples,
        scorer,
        scorer_file,
        shown,
        pooling,
        run.gold_entities,
        names,
        run.timings,
    )
    with (
        closing(graph.open()) as opened,
        closing(opened.names(graph.timeout_s)) as of_entities,
    ):
        check_answers(opened, graph.timeout_s)
        retrieval = QuestionRetrieval(opened, of_entities, config, graph.timeout_s)
        recorded = record_questions(file, run.sample, run.seed) | record_graph(
            opened, graph.timeout_s
        )
        if run.overwrite:
            discard(output)
        progress = RunProgress(len(questions))
        with watched(progress, len(questions)) as report:
            retrieve_set(
                retrieval,
                questions,
                output,
                recorded,
                concurrency=run.concurrency,
                report=report,
            )
    if progress.failed:
        print_note(
            f"{progress.failed} of {len(questions)} questions failed; their rows say why. "
            "Use --resume to try them again."
        )


def _pooling(settings: tuple[str, ...], mechanism: Mechanism) -> PoolingSettings:
    given = split_settings(settings)
    if "mechanism" in given:
        raise InputError("--set mechanism=VALUE: write it as --mechanism VALUE")
    return read_settings(PoolingSettings, {**given, "mechanism": mechanism}, "path-pooling")
