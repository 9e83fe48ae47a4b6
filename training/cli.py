"""The command `kbqa train-crp`."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kbqa.engine.commands.options import check_output
from kbqa.engine.writing.steering import CONSTRAINED_FORMS
from kbqa.kb.commands.options import (
    GraphChoice,
    graph_options,
    is_given,
    json_option,
    print_json,
    print_note,
    print_result,
)
from kbqa.kb.graph import Graph
from kbqa.training.config import GrpoConfig, Stage, TrainingConfig
from kbqa.training.data.training_set import Fold, Split
from kbqa.training.options import (
    DataChoice,
    FoldNumber,
    SetWeight,
    check_composed,
    check_stage,
    complete_config,
    complete_grpo,
    composed_option,
    config_options,
    exclude_option,
    grpo_options,
    output_option,
    preset_help,
    preset_option,
    print_counts,
    stage_option,
)

if TYPE_CHECKING:
    from kbqa.training.writer import TrainingProgress, TrainingResult


@click.command("train-crp", epilog=preset_help())
@click.option(
    "--data",
    "files",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    multiple=True,
    metavar="FILE",
    help="Question set with SPARQL or CRPs, ours or official; repeatable. Missing names of "
    "entities are looked up in --store or --endpoint.",
)
@exclude_option
@click.option(
    "--demo-questions",
    type=click.IntRange(0),
    default=800,
    metavar="N",
    help="Number of questions on the demo graph to add.",
)
@composed_option
@click.option(
    "--weight",
    "weights",
    type=SetWeight(),
    multiple=True,
    metavar="SET=NUMBER",
    help="How often to use the examples of a set in an epoch; repeatable. 2 is twice; of 0.1, a "
    "tenth, with as many different relations as possible. SET is the file's name without endings.",
)
@output_option
@click.option(
    "--valid-size",
    type=click.IntRange(0),
    default=200,
    help="Questions of each set to hold out for validation; at most a tenth of it.",
)
@click.option(
    "--leave-out-fold",
    "fold",
    type=FoldNumber(),
    metavar="K/N",
    help="Leave out the Kth of N parts of the questions, so that a judge can learn from what this "
    "model writes for them; see kbqa train-judge.",
)
@graph_options
@stage_option
@grpo_options
@preset_option
@config_options
@json_option
def train_crp(
    files: tuple[Path, ...],
    scored: tuple[Path, ...],
    demo_questions: int,
    composed_questions: int,
    weights: tuple[tuple[str, float], ...],
    output: Path,
    valid_size: int,
    fold: Fold | None,
    stage: Stage,
    grpo: GrpoConfig,
    preset: str,
    config: TrainingConfig,
    graph: GraphChoice,
    as_json: bool,
) -> None:
    """Fine-tune a model to write reasoning paths for questions.

    Keeps the weights that write most main paths of held-out questions exactly, or with --stage grpo
    those with the highest F1 on them. To train on several GPUs, start one process for each:
    `torchrun --nproc-per-node 4 -m kbqa.engine.cli train-crp --accumulate 4 …`
    """
    from kbqa.engine.writing.checkpoint import base_model, require_lm_extra

    check_stage(stage, preset, files, config, grpo, graph)
    grpo = complete_grpo(grpo, preset)
    config = complete_config(config, preset, stage)
    if not files and not demo_questions:
        raise click.UsageError("nothing to train on: give --data FILE or --demo-questions N")
    check_output(output)
    check_composed(composed_questions, graph)
    if config.suggested_relations and graph.is_demo:
        wanted_by = "--suggested-relations"
        if not is_given("suggested_relations"):
            wanted_by = f"the adapter in {config.start} is shown relations, which"
        raise click.UsageError(
            f"{wanted_by} needs a graph: give --store or --endpoint, or --suggested-relations 0"
        )
    require_lm_extra()
    base_model(config.base)  # a missing model is an error now, not after minutes of reading
    data = DataChoice(
        files,
        scored,
        demo_questions,
        composed_questions,
        config.seed,
        dict(weights),
        valid_size,
        fold,
    )
    if stage == "grpo":
        from kbqa.training.grpo.train import train_on_graph

        train_on_graph(data, output, config, grpo, graph, as_json)
    else:
        _train_on_paths(data, output, config, graph, as_json)


def _train_on_paths(
    data: DataChoice, output: Path, config: TrainingConfig, graph: GraphChoice, as_json: bool
) -> None:
    from kbqa.training.card import write_writer_reports
    from kbqa.training.run import Processes
    from kbqa.training.writer import train_adapter

    is_main = Processes.from_environment().is_main
    with _opened(graph) as opened:
        gathered = data.load(config.crp_format, opened)
        split = data.split(gathered)
        if is_main:
            print_counts(gathered)
        split = data.weigh(split, gathered)
        if opened is not None and config.suggested_relations:
            split = _suggest(split, opened, config.suggested_relations)
    result = train_adapter(split, output, config, _print_progress)
    if is_main:
        write_writer_reports(output, config, gathered, split, result)
        _print_result(result, config, as_json)


def _suggest(split: Split, graph: Graph, count: int) -> Split:
    from tqdm import tqdm

    from kbqa.training.data.training_set import suggest_relations

    with tqdm(desc="suggesting relations", unit="question", disable=None) as bar:
        return suggest_relations(split, graph, count, bar.update)


@contextmanager
def _opened(graph: GraphChoice) -> Iterator[Graph | None]:
    """Open the graph that the user chose, if any."""
    if graph.is_demo:
        yield None
        return
    with closing(graph.open()) as opened:
        yield opened


def _print_progress(progress: "TrainingProgress") -> None:
    loss, paths = progress.valid_loss, progress.valid_main_path
    print_note(
        f"step {progress.step:,}/{progress.steps:,}  epoch {progress.epoch:.2f}  "
        f"loss {progress.loss:.4f}"
        f"{'' if loss is None else f'  held out {loss:.4f}'}"
        f"{'' if paths is None else f'  main paths {paths:.1%}'}"
    )


def _print_result(result: "TrainingResult", config: TrainingConfig, as_json: bool) -> None:
    record = {**result._asdict(), "adapter": str(result.adapter)}
    if as_json:
        print_json(record)
        return
    if result.stopped_early:
        print_note(f"stopped early at step {result.steps:,}")
    free = "" if config.crp_format in CONSTRAINED_FORMS else " --decoding none"
    ask = f"kbqa ask --adapter {result.adapter}{free}"
    print_result(f"adapter in {result.adapter}: ask with `{ask}`")
