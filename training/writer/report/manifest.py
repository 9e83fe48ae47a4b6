"""The manifest of a training run.

The manifest has all numbers of the model card. The losses along the way are in the log.
"""

import json
import platform
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from kbqa.engine.files.provenance import git_revision, hardware, package_versions
from kbqa.engine.writing.models.adapter_files import adapter_sha256
from kbqa.engine.writing.models.precision import fastest_precision
from kbqa.training.data.data_record import data_record
from kbqa.training.data.training_set import ExampleSet, Split
from kbqa.training.writer.config import Stage, TrainingConfig
from kbqa.training.writer.processes import Processes
from kbqa.training.writer.run_folder import RewardResult, TrainingResult

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
    too_long = f"to be trained on, but longer than {config.max_length} tokens"
    record = {
        **_run_record(config, "sft", result.base_revision),
        "settings": asdict(config),
        "data": data_record(gathered, split, {too_long: result.too_long}),
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
    _write(output, record)


def write_reward_manifest(
    output: Path,
    settings: Mapping[str, object],
    config: TrainingConfig,
    gathered: ExampleSet,
    split: Split,
    result: RewardResult,
) -> None:
    """Write the manifest of a run of training by reward.

    Args:
        output: Folder of the run.
        settings: Those that only training by reward has, and the graph.
        config: The other settings of the run.
        gathered: The examples, and what was left out.
        split: The examples whose questions were trained on, and those held out.
        result: What `train_by_reward` returned.
    """
    record = {
        **_run_record(config, "grpo", result.base_revision),
        "settings": {**asdict(config), **settings},
        "data": data_record(gathered, split, {}),
        "result": {
            **{name: value for name, value in result._asdict().items() if name != "adapter"},
            "seconds": round(result.seconds, 1),
        },
    }
    _write(output, record)


def _run_record(
    config: TrainingConfig, stage: Stage, base_revision: str | None
) -> dict[str, object]:
    """Record what any run was made with."""
    processes = Processes.from_environment()
    return {
        "schema_version": SCHEMA_VERSION,
        "stage": stage,
        "kbqa": version("kbqa"),
        "git": git_revision(),
        "python": platform.python_version(),
        "packages": package_versions(_PACKAGES),
        "hardware": {
            **hardware(),
            "processes": processes.count,
            "precision": fastest_precision(processes.device().type),
        },
        "base": {"name": config.base, "revision": base_revision},
        "start_sha256": adapter_sha256(Path(config.start)) if config.start else None,
    }


def _write(output: Path, record: Mapping[str, object]) -> None:
    path = output / MANIFEST_FILE
    path.write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
