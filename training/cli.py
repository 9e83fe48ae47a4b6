"""The command `kbqa train-crp`."""

import json
from pathlib import Path

import click

from kbqa.kb.options import json_option
from kbqa.training.data import ExampleSet, split_examples
from kbqa.training.train import Progress, TrainingConfig, TrainingResult, train_adapter

_DEFAULT = TrainingConfig(base="smollm2-135m-instruct")


@click.command("train-crp")
@click.option(
    "--data",
    "files",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    multiple=True,
    metavar="FILE",
    help="Question set with SPARQL or CRPs, JSON Lines, gzipped or not; repeatable. Rows marked "
    "test_parent are left out.",
)
@click.option(
    "--demo-questions",
    type=click.IntRange(0),
    default=800,
    show_default=True,
    metavar="N",
    help="Questions on the demo graph to add.",
)
@click.option("--base", default=_DEFAULT.base, show_default=True, help="Model id or folder.")
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    metavar="DIR",
    help="Folder of the run; the same command resumes a run that was stopped there.",
)
@click.option(
    "--epochs",
    type=click.IntRange(1),
    default=_DEFAULT.epochs,
    show_default=True,
    help="Passes over the examples.",
)
@click.option(
    "--batch-size",
    type=click.IntRange(1),
    default=_DEFAULT.batch_size,
    show_default=True,
    help="Examples a step.",
)
@click.option(
    "--learning-rate",
    type=click.FloatRange(0, min_open=True),
    default=_DEFAULT.learning_rate,
    show_default=True,
    help="The highest, reached at the end of the warm-up.",
)
@click.option(
    "--lora-rank",
    type=click.IntRange(1),
    default=_DEFAULT.lora_rank,
    show_default=True,
    help="Rank of the update matrices.",
)
@click.option(
    "--lora-alpha",
    type=click.IntRange(1),
    default=_DEFAULT.lora_alpha,
    show_default=True,
    help="Scale of the update, divided by the rank.",
)
@click.option(
    "--max-length",
    type=click.IntRange(16),
    default=_DEFAULT.max_length,
    show_default=True,
    help="Longer examples, in tokens, are left out.",
)
@click.option(
    "--valid-size",
    type=click.IntRange(0),
    default=200,
    show_default=True,
    help="Questions held out to watch the run by; at most a tenth.",
)
@click.option(
    "--checkpoint-steps",
    type=click.IntRange(1),
    default=_DEFAULT.checkpoint_steps,
    show_default=True,
    help="Steps between checkpoints, besides the one at the end of each epoch.",
)
@click.option(
    "--seed",
    type=int,
    default=_DEFAULT.seed,
    show_default=True,
    help="Decides initial weights, and which examples are drawn, held out and come when.",
)
@json_option
def train_crp(
    files: tuple[Path, ...],
    demo_questions: int,
    base: str,
    output: Path,
    epochs: int,
    batch_size: int,
    learning_rate: float,
    lora_rank: int,
    lora_alpha: int,
    max_length: int,
    valid_size: int,
    checkpoint_steps: int,
    seed: int,
    as_json: bool,
) -> None:
    """Fine-tune a model with LoRA to write reasoning paths for questions."""
    from kbqa.engine.models import base_model, require_lm_extra
    from kbqa.training.card import write_model_card
    from kbqa.training.examples import gather_examples

    if not files and not demo_questions:
        raise click.UsageError("nothing to train on: give --data FILE or --demo-questions N")
    require_lm_extra()
    base_model(base)  # a missing model is told now, not after minutes of reading
    config = TrainingConfig(
        base=base,
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        lora_rank=lora_rank,
        lora_alpha=lora_alpha,
        max_length=max_length,
        seed=seed,
        checkpoint_steps=checkpoint_steps,
    )
    gathered = gather_examples(files, demo_questions=demo_questions, seed=seed)
    _print_counts(gathered)
    split = split_examples(gathered.examples, valid_size, seed)
    result = train_adapter(split, output, config, _print_progress)
    write_model_card(output, config, gathered, split, result)
    _print_result(result, as_json)


def _print_counts(gathered: ExampleSet) -> None:
    click.echo(f"{len(gathered.examples):,} examples", err=True)
    for reason, count in gathered.skipped.most_common():
        click.echo(f"  left out {count:,}: {reason}", err=True)


def _print_progress(progress: Progress) -> None:
    valid = "" if progress.valid_loss is None else f"  held out {progress.valid_loss:.4f}"
    click.echo(
        f"step {progress.step:,}/{progress.steps:,}  epoch {progress.epoch:.2f}  "
        f"loss {progress.loss:.4f}{valid}",
        err=True,
    )


def _print_result(result: TrainingResult, as_json: bool) -> None:
    record = {**result._asdict(), "adapter": str(result.adapter)}
    if as_json:
        click.echo(json.dumps(record))
    else:
        click.echo(f"adapter in {result.adapter}: ask with `kbqa ask --adapter {result.adapter}`")
