"""Train the asker: an adapter of SmolLM2-135M that asks the question of a path.

It learns the writer's examples the other way round, from the path in words to the question, and so
how likely a question is, given a path.

Source: Sachan et al. 2022 (UPR), who rank passages by how likely the question is, given each.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from kbqa.engine.running.candidate_text import path_words
from kbqa.sparql.forms import read_crp
from kbqa.training.data.training_set import Example, Split
from kbqa.training.judge.reading import ReadingConfig
from kbqa.training.writer.config import ALL_LAYERS, TrainingConfig
from kbqa.training.writer.report.training_log import TrainingProgress
from kbqa.training.writer.train import train_adapter


def train_asker(
    examples: Iterable[Example],
    folder: Path,
    config: ReadingConfig,
    report: Callable[[TrainingProgress], None],
    start: Path | None = None,
) -> None:
    """Train an asker, or resume this in the same folder.

    Args:
        examples: Questions with their paths; those that are very long are left out.
        folder: Of the adapter.
        config: Has the passes over them, and the seed that decides weights and order.
        report: Called every ten steps.
        start: Folder of an asker to go on from; None for a new one.

    Raises:
        ModelError: The base model is missing or broken, or the asker to start from does not fit.
        TrainingError: The folder holds another run, or there is no example to learn from.
    """
    settings = TrainingConfig(
        start="" if start is None else str(start),
        epochs=config.asker_epochs,
        batch_size=16,
        lora_rank=8,
        lora_alpha=16,
        lora_targets=ALL_LAYERS,
        max_length=160,
        valid_generate=0,
        patience=0,
        seed=config.seed,
    )
    train_adapter(Split(tuple(map(_turn_round, examples)), ()), folder, settings, report)


def _turn_round(example: Example) -> Example:
    words = path_words(read_crp(example.target).crp)
    question = " ".join(example.question.split())
    return replace(example, question=words, target=question, relations=())
