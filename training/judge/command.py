"""The command `kbqa train-judge`."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click
from tqdm import tqdm

from kbqa.kb.commands.options import GraphChoice, graph_options, json_option
from kbqa.sparql.errors import InputError
from kbqa.training.cli import print_left_out
from kbqa.training.options import exclude_option, output_option

if TYPE_CHECKING:
    from kbqa.engine.questions.question_sets import Question
    from kbqa.engine.setup import Resources
    from kbqa.engine.writing.generate import Candidate
    from kbqa.training.data.training_set import Example, ExampleSet
    from kbqa.training.judge.reading import Step


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
@exclude_option
@click.option(
    "--start",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="DIR",
    help="Judge whose cross-encoder to go on from.",
)
@click.option(
    "--epochs",
    type=click.IntRange(1),
    default=2,
    show_default=True,
    help="Passes over the questions.",
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
    scored: tuple[Path, ...],
    start: Path | None,
    epochs: int,
    seed: int,
    output: Path,
    graph: GraphChoice,
    as_json: bool,
) -> None:
    """Train what chooses among candidates.

    A cross-encoder learns to read written paths, and those that a search of the graph adds, from
    all questions but the families held out. To these a confidence model is fitted. Ask with both:
    `kbqa ask --set judge=DIR`.
    """
    from kbqa.engine.embedding.embedder import Embedder
    from kbqa.engine.linking.model import LinkingModel
    from kbqa.engine.methods.router.pool import PathPool
    from kbqa.engine.setup import Resources
    from kbqa.engine.writing.models.base_models import require_lm_extra
    from kbqa.kb.open import open_graph
    from kbqa.training.data.training_set import families_of, load_examples
    from kbqa.training.judge.reading import ReadingConfig
    from kbqa.training.judge.run import Part, Reports
    from kbqa.training.judge.run import train_judge as train

    require_lm_extra()
    output.mkdir(parents=True, exist_ok=True)
    written, held_out = _written(beam_files), _written(held_out_files)
    with ExitStack() as stack:
        opened = [stack.enter_context(closing(graph.open()))]
        if demo_questions:
            opened.append(stack.enter_context(closing(open_graph())))
        on, *demo = [
            stack.enter_context(closing(Resources(each, timeout_s=graph.timeout_s)))
            for each in opened
        ]
        examples = load_examples(
            files,
            form="extended",
            names=on.graph.labels,
            scored=scored,
            demo_questions=demo_questions,
            seed=seed,
        )
        golds = [_find_gold(examples, files, on), *(_run_gold(examples, each) for each in demo)]
        print_left_out(examples)
        away = families_of(examples.examples, held_out)
        embedder, asking = Embedder.load(), LinkingModel.load()
        parts = [
            Part(
                [(q, written.get(id_, paths)) for id_, q, paths in gold if id_ not in away],
                [(q, held_out[id_]) for id_, q, _ in gold if id_ in held_out],
                resources,
                PathPool(resources.graph, embedder, asking),
            )
            for gold, resources in zip(golds, (on, *demo), strict=True)
        ]
        counts = {
            "read": sum(len(part.read) for part in parts),
            "held_out": sum(len(part.held_out) for part in parts),
        }
        for name, count in counts.items():
            if not count:
                option = "--held-out" if name == "held_out" else "--data"
                raise InputError(f"no question of {option} has gold answers on the graph")
        _print(f"{counts['read']:,} questions to read, {counts['held_out']:,} held out, with gold")
        bar = stack.enter_context(tqdm(unit="question", disable=None))
        model = train(
            parts,
            output,
            ReadingConfig(epochs=epochs, seed=seed),
            f"{counts['held_out']} questions of {_names(files, demo_questions)}; linked",
            Reports(_print, bar.update, _print_step),
            start,
        )
    if as_json:
        click.echo(json.dumps({"judge": str(output), "questions": counts}))
        return
    click.echo("| mean confidence | mean F1 | candidates |\n|---|---|---|")
    for confidence, f1, n in model.calibration:
        click.echo(f"| {confidence:.3f} | {f1:.3f} | {n} |")
    click.echo(f"judge in {output}: ask with `kbqa ask --set judge={output}`")


def _written(paths: Sequence[Path]) -> "Mapping[str, Sequence[Candidate]]":
    """Read files of beams together."""
    from kbqa.engine.writing.beam_files import read_beams

    return {id_: written for path in paths for id_, written in read_beams(path).items()}


def _names(files: Sequence[Path], demo_questions: int) -> str:
    return ", ".join(
        [*(path.name for path in files), *(["the demo graph"] if demo_questions else [])]
    )


class _Gold(NamedTuple):
    """A question with gold, by its id, and its gold paths."""

    id: str
    question: "Question"
    paths: "Sequence[Candidate]"


def _find_gold(
    examples: "ExampleSet", files: Sequence[Path], resources: "Resources"
) -> "list[_Gold]":
    """Find the gold of the questions of files in a graph."""
    from kbqa.engine.writing.constraints.decoding import Decoding
    from kbqa.training.data.training_set import DEMO_SOURCE
    from kbqa.training.writer.grpo.questions import GoldFinder, find_questions

    graph = resources.graph
    finder = GoldFinder(graph, Decoding("graph", graph), "extended", resources.timeout_s)
    asked = [each for each in examples.examples if each.source != DEMO_SOURCE]
    found = find_questions(asked, files, finder, examples, lambda done: None)
    paths = _gold_paths(asked)
    return [_Gold(id_, question, paths[id_]) for (_, id_), question in sorted(found.items())]


def _run_gold(examples: "ExampleSet", resources: "Resources") -> "list[_Gold]":
    """Find the gold of the questions on the demo graph, which their paths lead to."""
    from kbqa.training.data.training_set import DEMO_SOURCE
    from kbqa.training.judge.pools import PoolRunner

    runner = PoolRunner(resources, None)
    asked = [each for each in examples.examples if each.source == DEMO_SOURCE]
    texts = {each.id: each.question for each in asked}
    golds = []
    for id_, paths in _gold_paths(asked).items():
        if (question := runner.gold(f"{DEMO_SOURCE} {id_}", texts[id_], paths[0])) is not None:
            golds.append(_Gold(id_, question, paths))
    return golds


def _gold_paths(examples: "Iterable[Example]") -> "dict[str, list[Candidate]]":
    from kbqa.engine.writing.generate import Candidate

    paths: dict[str, list[Candidate]] = defaultdict(list)
    for example in examples:
        paths[example.id].append(Candidate(example.target, logprob=0.0, tokens=1))
    return paths


def _print(message: str) -> None:
    click.echo(message, err=True)


def _print_step(step: "Step") -> None:
    _print(f"step {step.step:,}/{step.steps:,}  loss {step.loss:.4f}")
