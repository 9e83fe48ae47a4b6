"""Write the model card of an adapter from the run that made it."""

import importlib.metadata
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from kbqa.training.data import ExampleSet, Split
from kbqa.training.train import LOG_FILE, TrainingConfig, TrainingResult

CARD_FILE = "README.md"


def write_model_card(
    output: Path,
    config: TrainingConfig,
    gathered: ExampleSet,
    split: Split,
    result: TrainingResult,
) -> None:
    """Write the card beside the adapter: what it is, what it was made from, how it went."""
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
        f"{result.too_long} training examples longer than {config.max_length} tokens were left",
        "out. Rows left out before, by reason:",
        "",
        *(f"- {count:,}: {reason}" for reason, count in sorted(gathered.skipped.items())),
        "",
        "No test question is among the examples, nor one that a test question was made from or",
        "that was made from one (rows marked `test_parent`).",
        "",
        "## Training",
        "",
        f"- base model: {config.base}",
        f"- LoRA: rank {config.lora_rank}, alpha {config.lora_alpha},"
        f" on {', '.join(config.lora_targets)}; {result.trainable_parameters:,} parameters, saved in bf16",
        f"- {config.epochs} epochs of {result.train_examples:,} examples, {result.steps:,} steps"
        f" of {config.batch_size}, AdamW, highest learning rate {config.learning_rate:g},"
        f" cosine schedule, seed {config.seed}",
        "- loss on prompt tokens: none",
        *_curve(output),
        "",
        "## Versions",
        "",
        *(f"- {name} {importlib.metadata.version(name)}" for name in _PACKAGES),
        "",
    ]
    (output / CARD_FILE).write_text("\n".join(lines), encoding="utf-8")


_PACKAGES = ("kbqa", "torch", "transformers", "peft")


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


def _curve(output: Path) -> Iterator[str]:
    """Give the losses at the end of each epoch, from the run's log."""
    log = (output / LOG_FILE).read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in log]
    ends = [row for row in rows if row["valid_loss"] is not None]
    if ends:
        yield "- mean loss per target token on the held-out examples, by epoch: " + ", ".join(
            f"{row['valid_loss']:.4f}" for row in ends
        )
