"""The command `kbqa train-judge`."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING

import click
from tqdm import tqdm

from kbqa.engine.commands.run_options import check_output
from kbqa.kb.commands.options import GraphChoice, graph_options, json_option
from kbqa.kb.commands.text import print_json, print_note, print_result
from kbqa.sparql.errors import InputError
from kbqa.training.options import (
    check_composed,
    composed_option,
    exclude_option,
    output_option,
    print_left_out,
)

if TYPE_CHECKING:
    from kbqa.engine.writing.generate import Candidate
    from kbqa.training.judge.reading import Step
    from kbqa.training.writer.report.training_log import TrainingProgress


_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.command("train-judge")
@click.option(
    "--data",
    "files",
    type=_FILE,
    multiple=True,
    required=True,
    metavar="FILE",
    help="Question set to learn from, with gold; repeatable.",
)
@click.option(
    "--held-out",
    "held_out_files",
    type=_FILE,
    multiple=True,
    required=True,
    metavar="FILE",
    help="What `kbqa crp generate` wrote, with the model whose paths will be judged, for questions "
    "of --data that it was not trained on; repeatable.",
)
@click.option(
    "--beams",
    "beam_files",
    type=_FILE,
    multiple=True,
    metavar="FILE",
    help="What another model wrote for questions that it was not trained on, by "
    "`kbqa train-crp --leave-out-fold`; repeatable. Of other questions the gold path is read.",
)
@click.option(
    "--demo-questions",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Questions on the demo graph to learn from as well, as many as the model learnt.",
)
@composed_option
@exclude_option
@click.option(
    "--start",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="DIR",
    help="Judge whose cross-encoder and asker to go on from, or with 0 epochs to keep.",
)
@click.option(
    "--epochs",
    type=click.IntRange(0),
    default=2,
    show_default=True,
    help="Passes over the questions. With 0, the judge of --start keeps its cross-encoder and what "
    "it remembers, and is fitted to another model.",
)
@click.option(
    "--asker-epochs",
    type=click.IntRange(0),
    help="Passes over the questions for the asker, which learns to ask the question of a path. "
    "With 0, the judge keeps the asker of --start, if there is one.  "
    "[default: 1, or 0 with --epochs 0]",
)
@click.option(
    "--seed",
    type=int,
    default=42,
    show_default=True,
    help="Decides weights, order and draws, and the questions on the demo graph: take the seed "
    "that the model was trained with.",
)
@output_option
@graph_options
@json_option
def train_judge(
    files: tuple[Path, ...],
    held_out_files: tuple[Path, ...],
    beam_files: tuple[Path, ...],
    demo_questions: int,
    composed_questions: int,
    scored: tuple[Path, ...],
    start: Path | None,
    epochs: int,
    asker_epochs: int | None,
    seed: int,
    output: Path,
    graph: GraphChoice,
    as_json: bool,
) -> None:
    """Train what chooses among candidates.

    A cross-encoder learns to read written paths, and those that a search of the graph adds, from
    all questions but the families held out. An asker learns how likely a question is, given its
    path. A confidence model is fitted to the questions held out. Use the judge with
    `kbqa ask --set judge=DIR`.
    """
    from kbqa.engine.embedding.embedder import Embedder
    from kbqa.engine.resources import Resources
    from kbqa.engine.running.precedents import Precedents
    from kbqa.engine.writing.models.base_models import SMOLLM2, check_base_model, require_lm_extra
    from kbqa.kb.open import open_graph
    from kbqa.training.data.choice import DataChoice
    from kbqa.training.data.training_set import families_of
    from kbqa.training.judge.gold import find_precedents, gather_parts
    from kbqa.training.judge.reading import ReadingConfig
    from kbqa.training.judge.report import CARD_FILE, write_reports
    from kbqa.training.judge.run import POOLS_FILE, Reports
    from kbqa.training.judge.run import train_judge as train
    from kbqa.training.writer.run_folder import RunFolder

    if not epochs and start is None:
        raise click.UsageError(
            "--epochs 0 needs --start DIR, the judge whose cross-encoder to keep"
        )
    if asker_epochs is None:
        asker_epochs = min(epochs, 1)
    check_output(output)
    check_composed(composed_questions, graph)
    require_lm_extra()
    if asker_epochs:
        check_base_model(SMOLLM2)
    written, held_out = _written(beam_files), _written(held_out_files)
    with ExitStack() as stack:
        folder = RunFolder(output)
        stack.enter_context(folder.locked())
        if not (output / POOLS_FILE).is_file():  # what a run writes first
            folder.check_empty()
        opened = [stack.enter_context(closing(graph.open()))]
        if demo_questions:
            opened.append(stack.enter_context(closing(open_graph())))
        resources = [
            stack.enter_context(closing(Resources(each, timeout_s=graph.timeout_s)))
            for each in opened
        ]
        composed = composed_questions if epochs or asker_epochs else 0
        data = DataChoice(files, scored, demo_questions, composed, seed)
        examples = data.load("extended", opened[0])
        away = families_of(examples.examples, held_out)
        asker_examples = [
            each for each in examples.examples if asker_epochs and each.id not in away
        ]
        if not epochs:
            examples.examples = [each for each in examples.examples if each.id in held_out]
        parts = gather_parts(examples, files, written, held_out, resources)
        print_left_out(examples)
        counts = {
            "read": sum(len(part.read) for part in parts),
            "held_out": sum(len(part.held_out) for part in parts),
        }
        for name, count in counts.items():
            if not count and (epochs or name == "held_out"):
                option = "--held-out" if name == "held_out" else "--data"
                raise InputError(f"no question of {option} has gold answers on the graph")
        _print(f"{counts['read']:,} questions to read, {counts['held_out']:,} held out, with gold")
        sources = dict.fromkeys(each.source for each in examples.examples)
        bar = stack.enter_context(tqdm(unit="question", disable=None))
        config = ReadingConfig(epochs=epochs, asker_epochs=asker_epochs, seed=seed)
        if epochs or start is None:
            precedents = find_precedents(examples, held_out, opened[0])
        else:
            precedents = Precedents.load(Embedder.load(), start)
        model = train(
            parts,
            precedents,
            asker_examples,
            output,
            config,
            f"{counts['held_out']} questions of {', '.join(sources)}; linked",
            Reports(_print, bar.update, _print_step, _print_step),
            start,
        )
        beams = {"held out": held_out_files, "read": beam_files}
        write_reports(
            output, config, examples, parts, len(precedents), asker_examples, beams, start
        )
    if as_json:
        print_json({"judge": str(output), "questions": counts})
        return
    print_result("| mean confidence | mean F1 | candidates |\n|---|---|---|")
    for confidence, f1, n in model.calibration:
        print_result(f"| {confidence:.3f} | {f1:.3f} | {n} |")
    print_result(f"judge in {output}: ask with `kbqa ask --set judge={output}`")
    print_result(f"its card is {output / CARD_FILE}")


def _written(paths: Sequence[Path]) -> "Mapping[str, Sequence[Candidate]]":
    """Read files of beams together."""
    from kbqa.engine.writing.beam_files import read_beams

    return {id_: written for path in paths for id_, written in read_beams(path).items()}


def _print(message: str) -> None:
    print_note(message)


def _print_step(done: "Step | TrainingProgress") -> None:
    _print(f"step {done.step:,}/{done.steps:,}  loss {done.loss:.4f}")
