"""The manifest of a training run: what was made, of what, by what, on what.

It holds all numbers that the model card gives; the losses on the way stand in the log.
"""

import json
import platform
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from kbqa.engine.provenance import git_revision, hardware, package_versions
from kbqa.training.config import TrainingConfig
from kbqa.training.data import NAMED_SKIPS, DataFile, ExampleSet, Split
from kbqa.training.processes import Processes
from kbqa.training.progress import TrainingResult

MANIFEST_FILE = "training_manifest.json"
SCHEMA_VERSION = 1
_PACKAGES = ("accelerate", "peft", "safetensors", "tokenizers", "torch", "transformers")


def write_manifest(
    output: Path,
    config: TrainingConfig,
    gathered: ExampleSet,
    split: Split,
    result: TrainingResult,
) -> None:
    """Write the manifest into the folder of a run.

    Args:
        output: Folder of the run.
        config: What the run was told.
        gathered: The examples, and what was left out.
        split: How they were divided.
        result: What `train_adapter` returned.
    """
    record = {
        "schema_version": SCHEMA_VERSION,
        "kbqa": version("kbqa"),
        "git": git_revision(),
        "python": platform.python_version(),
        "packages": package_versions(_PACKAGES),
        "hardware": {**hardware(), "processes": Processes.from_environment().count},
        "base": {"name": config.base, "revision": result.base_revision},
        "settings": asdict(config),
        "data": {
            "files": [_file(one) for one in gathered.files],
            "scored": [_file(one) for one in gathered.scored],
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


def _file(file: DataFile) -> Mapping[str, object]:
    return {"name": file.name, "sha256": file.sha256}


def _sets(split: Split) -> Iterator[Mapping[str, object]]:
    train = Counter(example.source for example in split.train)
    valid = Counter(example.source for example in split.valid)
    for source in sorted({*train, *valid}):
        yield {"name": source, "trained_on": train[source], "held_out": valid[source]}


def _left_out(
    config: TrainingConfig, gathered: ExampleSet, result: TrainingResult
) -> Iterator[Mapping[str, object]]:
    """Count what was left out by reason, and name the first few."""
    for reason, count in sorted(gathered.skipped.items()):
        yield {"reason": reason, "count": count, "rows": gathered.skipped_rows.get(reason, [])}
    if result.too_long:
        yield {
            "reason": f"to be trained on, but longer than {config.max_length} tokens",
            "count": len(result.too_long),
            "rows": list(result.too_long[:NAMED_SKIPS]),
        }
