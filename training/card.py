"""Write the model card of an adapter from the run that made it."""

import importlib.metadata
import json
import math
import platform
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from kbqa.training.data import ExampleSet, Split
from kbqa.training.run_folder import LOG_FILE
from kbqa.training.train import TrainingConfig, TrainingResult

CARD_FILE = "README.md"
_PACKAGES = ("kbqa", "torch", "transformers", "peft")


def write_model_card(
    output: Path,
    config: TrainingConfig,
    gathered: ExampleSet,
    split: Split,
    result: TrainingResult,
) -> None:
    """Write the card beside the adapter: what it is, what it was made from, how it went.

    Args:
        output: Folder of the run, with its log.
        config: What the run was told.
        gathered: The examples, and what was left out.
        split: How they were divided.
        result: What `train_adapter` returned.
    """
    lines = [
        *_front_matter(config),
        "# CRP writer",
        "",
        "A LoRA adapter with which a small language model writes constraint-aware reasoning paths",
        "(CRPs, RouterKGQA's text form) for questions over Freebase. Made by `kbqa train-crp`;",
        "used by `kbqa ask`. It knows the relations of its training questions, and no facts.",
        "",
        "## Data",
        "",
        *_data_table(gathered, split),
        "",
        f"Training examples left out because they are longer than {config.max_length} tokens:"
        f" {result.too_long:,}.",
        "Rows left out before, by reason:",
        "",
        *_skipped(gathered),
        "",
        "Rows marked `test_parent` are never used: a question of a test set was made from each of",
        "them, or it from one. No question is both trained on and held out.",
        "",
        *(f"- `{file.name}`: SHA-256 {file.sha256}" for file in gathered.files),
        "",
        "## Training",
        "",
        f"- base model: {config.base}",
        f"- LoRA: rank {config.lora_rank}, alpha {config.lora_alpha},"
        f" on {', '.join(config.lora_targets)};"
        f" {result.trainable_parameters:,} parameters, saved in bf16",
        f"- epochs: {config.epochs} of {result.train_examples:,} examples, {result.steps:,} steps"
        f" of {config.batch_size}",
        f"- AdamW, highest learning rate {config.learning_rate:g}, reached after"
        f" {config.warmup:.0%} of the steps, cosine schedule down to a tenth; seed {config.seed}",
        "- loss on target tokens alone, none on the prompt",
        f"- {result.seconds:,.0f} seconds",
        "",
        "Mean loss per target token, natural log:",
        "",
        *_curve(output),
        "",
        "## Versions",
        "",
        f"- Python {platform.python_version()}",
        *(f"- {name} {importlib.metadata.version(name)}" for name in _PACKAGES),
        "",
    ]
    (output / CARD_FILE).write_text("\n".join(lines), encoding="utf-8")


def _front_matter(config: TrainingConfig) -> Iterator[str]:
    yield from ("---", f"base_model: {config.base}", "library_name: peft", "license: apache-2.0")
    yield from ("tags: [knowledge-graph-question-answering, freebase, sparql, lora]", "---", "")


def _data_table(gathered: ExampleSet, split: Split) -> Iterator[str]:
    train = Counter(example.source for example in split.train)
    valid = Counter(example.source for example in split.valid)
    yield "| question set | trained on | held out |"
    yield "|---|---|---|"
    for source in sorted({example.source for example in gathered.examples}):
        yield f"| {source} | {train[source]:,} | {valid[source]:,} |"


def _skipped(gathered: ExampleSet) -> Iterator[str]:
    if not gathered.skipped:
        yield "- none"
    for reason, count in sorted(gathered.skipped.items()):
        yield f"- {count:,}: {reason}"


def _curve(output: Path) -> Iterator[str]:
    """Tabulate the losses of each epoch from the run's log, whose rows end with their epoch's."""
    yield "| epoch | trained on | held out |"
    yield "|---|---|---|"
    last_step, loss, steps = 0, 0.0, 0
    for line in (output / LOG_FILE).read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        loss += row["loss"] * (row["step"] - last_step)
        steps += row["step"] - last_step
        last_step = row["step"]
        if row["epoch"] == math.floor(row["epoch"]):
            valid = row["valid_loss"]
            held_out = "–" if valid is None else f"{valid:.4f}"
            yield f"| {row['epoch']:.0f} | {loss / steps:.4f} | {held_out} |"
            loss, steps = 0.0, 0
