"""Fine-tune a causal language model, with LoRA or as a whole, to write CRPs.

This is the entry point. It reserves the folder of the run; `kbqa.training.writer.loop` trains.

Source: RouterKGQA §3.2 "Specialized Model Training" and Table 9.
"""

import hashlib
import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path

from kbqa.engine.writing.models.adapter_files import adapter_sha256
from kbqa.engine.writing.models.base_models import require_lm_extra
from kbqa.engine.writing.models.precision import Precision, fastest_precision
from kbqa.sparql.errors import TrainingError
from kbqa.training.data.training_set import Split
from kbqa.training.writer.config import TrainingConfig
from kbqa.training.writer.loop import TrainingLoop
from kbqa.training.writer.processes import Processes
from kbqa.training.writer.report.training_log import TrainingProgress
from kbqa.training.writer.run_folder import RunFolder, TrainingResult

__all__ = ["TrainingConfig", "TrainingProgress", "TrainingResult", "train_adapter"]

_SCHEMA_VERSION = 1


def train_adapter(
    split: Split,
    output: Path,
    config: TrainingConfig,
    report: Callable[[TrainingProgress], None] = lambda progress: None,
) -> TrainingResult:
    """Train an adapter or a model, or resume an interrupted run in the same folder.

    Processes started by a launcher train together; only the main process writes and reports.

    Args:
        split: The examples.
        output: Folder of the run, for checkpoints, the log and finally the adapter itself.
        config: The settings; to resume a run, they must be the same.
        report: Called every ten steps, at the end of each epoch and after each validation.

    Raises:
        InputError: ``KBQA_PRECISION`` names no precision.
        ModelError: The base model is missing or broken, or the `lm` extra is not installed.
        TrainingError: The folder holds another run or another process writes to it, no example is
            short enough, the loss is not a number, or there are more processes than batches in a
            step.
    """
    require_lm_extra()
    processes = Processes.from_environment()
    if processes.count > config.accumulate:
        raise TrainingError(
            f"{processes.count} processes cannot share the batches of a step: there are only "
            f"{config.accumulate}. Use --accumulate {processes.count} or a multiple of it."
        )
    device = processes.device()
    settings = _settings(config, split, fastest_precision(device.type))
    folder = RunFolder(output)
    with processes.joined(device):
        if processes.is_main:
            folder.check(settings)
        loop = TrainingLoop(split, folder, config, processes, device, report)
        # Only now, so that a model that cannot be loaded leaves nothing behind.
        with folder.claimed(settings) if processes.is_main else nullcontext():
            loop.resume()
            loop.run()
            loop.finish()
    return loop.result()


def _settings(config: TrainingConfig, split: Split, precision: Precision) -> dict[str, object]:
    """Collect everything that identifies a run."""
    examples = [
        [example.question, example.target, *example.relations]
        for example in (*split.train, *split.valid)
    ]
    return {
        "schema_version": _SCHEMA_VERSION,
        **asdict(config),
        **({"start_sha256": adapter_sha256(Path(config.start))} if config.start else {}),
        "precision": precision,
        "train_examples": len(split.train),
        "valid_examples": len(split.valid),
        "examples_sha256": hashlib.sha256(json.dumps(examples).encode()).hexdigest(),
    }
