"""The manifest of a training run, and the questions that it held out.

The manifest has all numbers of the model card. The losses along the way are in the log.
"""

import json
import platform
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from kbqa.engine.files.provenance import git_revision, hardware, package_versions
from kbqa.engine.writing.models.precision import fastest_precision
from kbqa.training.data.training_set import NAMED_SKIPS, Example, ExampleSet, Split
from kbqa.training.writer.config import TrainingConfig
from kbqa.training.writer.loop import TrainingResult
from kbqa.training.writer.processes import Processes

MANIFEST_FILE = "training_manifest.json"
SCHEMA_VERSION = 1
_PACKAGES = ("accelerate", "peft", "safetensors", "tokenizers", "torch", "transformers")


def write_training_manifest(
    output: Path,
    config: TrainingConfig,
    gathered: ExampleSet,
    split: Split,
    result: TrainingResult,
) -> None:
    """Write the manifest into the folder of a run.

    Args:
        output: Folder of the run.
        config: The settings of the run.
        gathered: The examples, and what was left out.
        split: The examples that were trained on, and those held out.
        result: What `train_adapter` returned.
    """
    processes = Processes.from_environment()
    record = {
        "schema_version": SCHEMA_VERSION,
        "kbqa": version("kbqa"),
        "git": git_revision(),
        "python": platform.python_version(),
        "packages": package_versions(_PACKAGES),
        "hardware": {
            **hardware(),
            "processes": processes.count,
            "precision": fastest_precision(processes.device().type),
        },
        "base": {"name": config.base, "revision": result.base_revision},
        "settings": asdict(config),
        "data": {
            "files": [one._asdict() for one in gathered.files],
            "scored": [one._asdict() for one in gathered.scored],
            "sets": list(_sets(split)),
            "left_out": list(_left_out(config, gathered, result)),
        },
        "result": {
            "steps": result.steps,
            "best_step": result.best_step,
            "stopped_early": result.stopped_early,
            "train_examples": result.train_examples,
            "trained_tokens": result.trained_tokens,
            "trainable_parameters": result.trainable_parameters,
            "valid_loss": result.valid_loss,
            "valid_main_path": result.valid_main_path,
            "seconds": round(result.seconds, 1),
            "tokens_per_second": round(result.trained_tokens / result.seconds, 1),
        },
    }
    path = output / MANIFEST_FILE
    path.write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def write_held_out(output: Path, held_out: Iterable[Example]) -> None:
    """Write each question set's held-out questions to `held_out.SET.jsonl` in a run's folder.

    A model fitted to what the writer writes, such as the confidence model, needs questions that
    the writer was not trained on. A row is ``{"id", "question"}``, as `kbqa crp generate` reads it.
    """
    sets: dict[str, dict[str, str]] = defaultdict(dict)
    for example in held_out:
        sets[example.source][example.id] = example.question
    for source, questions in sets.items():
        rows = [
            json.dumps({"id": row_id, "question": question}, ensure_ascii=False) + "\n"
            for row_id, question in questions.items()
        ]
        (output / f"held_out.{source}.jsonl").write_text("".join(rows), encoding="utf-8")


def _sets(split: Split) -> Iterator[Mapping[str, object]]:
    train = Counter(example.source for example in split.train)
    valid = Counter(example.source for example in split.valid)
    for source in sorted({*train, *valid}):
        yield {"name": source, "trained_on": train[source], "held_out": valid[source]}


def _left_out(
    config: TrainingConfig, gathered: ExampleSet, result: TrainingResult
) -> Iterator[Mapping[str, object]]:
    """Count the rows left out by reason, and name the first few."""
    for reason, count in sorted(gathered.skipped.items()):
        yield {"reason": reason, "count": count, "rows": gathered.skipped_rows.get(reason, [])}
    if result.too_long:
        yield {
            "reason": f"to be trained on, but longer than {config.max_length} tokens",
            "count": len(result.too_long),
            "rows": list(result.too_long[:NAMED_SKIPS]),
        }
