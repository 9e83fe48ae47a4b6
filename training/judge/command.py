"""The command `kbqa train-judge`."""

import json
from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from tqdm import tqdm

from kbqa.kb.commands.options import GraphChoice, graph_options, json_option
from kbqa.sparql.errors import InputError
from kbqa.training.cli import print_left_out
from kbqa.training.options import exclude_option, output_option

if TYPE_CHECKING:
    from kbqa.engine.setup import Resources
    from kbqa.engine.writing.generate import Candidate
    from kbqa.training.judge.pools import Pools
    from kbqa.training.judge.reading import Step


class FoldBeams(click.ParamType[tuple[int, Path]]):
    """The number of a fold and a file that exists, as in ``1=beams.jsonl``."""

    name = "k=file"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, Path]:
        """Read the text."""
        number, _, name = str(value).partition("=")
        if not number.isdecimal() or not name:
            self.fail(f"{value!r} is not K=FILE, such as 1=beams.jsonl", param, ctx)
        if not Path(name).is_file():
            self.fail(f"there is no file {name}", param, ctx)
        return int(number), Path(name)


@click.command("train-judge")
@click.option(
    "--data",
    "files",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    multiple=True,
    required=True,
    metavar="FILE",
    help="Question set with the gold of the questions in --beams; repeatable.",
)
@click.option(
    "--beams",
    type=FoldBeams(),
    multiple=True,
    required=True,
    metavar="K=FILE",
    help="What `kbqa crp generate` wrote for questions of fold K, with a model that "
    "`kbqa train-crp --leave-out-fold K/N` trained; repeatable, and at least two folds.",
)
@exclude_option
@click.option(
    "--epochs",
    type=click.IntRange(1),
    default=2,
    show_default=True,
    help="Passes over the questions.",
)
@click.option(
    "--seed", type=int, default=42, show_default=True, help="Decides weights, order and draws."
)
@output_option
@graph_options
@json_option
def train_judge(
    files: tuple[Path, ...],
    beams: tuple[tuple[int, Path], ...],
    scored: tuple[Path, ...],
    epochs: int,
    seed: int,
    output: Path,
    graph: GraphChoice,
    as_json: bool,
) -> None:
    """Train what chooses among candidates.

    A cross-encoder learns to read them, from what was written for questions that the model did not
    know, and from what a search of the graph adds. A confidence model is fitted to both. Ask with
    them: `kbqa ask --set judge=DIR`.
    """
    from kbqa.engine.embedding.embedder import Embedder
    from kbqa.engine.linking.model import LinkingModel
    from kbqa.engine.methods.router.pool import PathPool
    from kbqa.engine.setup import Resources
    from kbqa.engine.writing.models.base_models import require_lm_extra
    from kbqa.training.judge.reading import ReadingConfig
    from kbqa.training.judge.run import Reports
    from kbqa.training.judge.run import train_judge as train

    require_lm_extra()
    output.mkdir(parents=True, exist_ok=True)
    with (
        closing(graph.open()) as opened,
        closing(Resources(opened, timeout_s=graph.timeout_s)) as resources,
        tqdm(unit="question", disable=None) as bar,
    ):
        folds = _folds(files, scored, beams, resources, graph.timeout_s)
        counts = {str(at): len(fold) for at, fold in folds.items()}
        _print(f"questions with gold, by fold: {counts}")
        pool = PathPool(opened, Embedder.load(), LinkingModel.load())
        model = train(
            list(folds.values()),
            resources,
            pool,
            output,
            ReadingConfig(epochs=epochs, seed=seed),
            f"{sum(counts.values())} questions of {', '.join(path.name for path in files)}; linked",
            Reports(_print, bar.update, _print_step),
        )
    if as_json:
        click.echo(json.dumps({"judge": str(output), "questions": counts}))
        return
    click.echo("| mean confidence | mean F1 | candidates |\n|---|---|---|")
    for confidence, f1, n in model.calibration:
        click.echo(f"| {confidence:.3f} | {f1:.3f} | {n} |")
    click.echo(f"judge in {output}: ask with `kbqa ask --set judge={output}`")


def _folds(
    files: Sequence[Path],
    scored: Sequence[Path],
    beams: Sequence[tuple[int, Path]],
    resources: "Resources",
    timeout_s: float,
) -> "dict[int, Pools]":
    """Find the gold of the questions that have beams."""
    from kbqa.engine.writing.beam_files import read_beams
    from kbqa.engine.writing.constraints.decoding import Decoding
    from kbqa.training.data.training_set import load_examples
    from kbqa.training.writer.grpo.questions import GoldFinder, find_questions

    written: dict[int, dict[str, list[Candidate]]] = defaultdict(dict)
    for fold, path in beams:
        written[fold].update(read_beams(path))
    graph = resources.graph
    gathered = load_examples(files, form="extended", names=graph.labels, scored=scored)
    wanted = [each for each in gathered.examples if any(each.id in one for one in written.values())]
    finder = GoldFinder(graph, Decoding("graph", graph), "extended", timeout_s)
    found = find_questions(wanted, files, finder, gathered, lambda done: None)
    print_left_out(gathered)
    gold = {id_: question for (_, id_), question in found.items()}
    if not gold:
        raise InputError("no question of --beams has gold answers on the graph")
    return {
        fold: [(gold[id_], one[id_]) for id_ in sorted(one.keys() & gold.keys())]
        for fold, one in sorted(written.items())
    }


def _print(message: str) -> None:
    click.echo(message, err=True)


def _print_step(step: "Step") -> None:
    _print(f"step {step.step:,}/{step.steps:,}  loss {step.loss:.4f}")
