"""Fine-tune a causal language model, with LoRA or as a whole, to write CRPs.

This is the way in: who trains, in which folder, and whether it is the run that was begun there. The
steps are those of `kbqa.training.loop`.

Source: RouterKGQA §3.2 "Specialized Model Training" and Table 9.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from kbqa.engine.models import require_lm_extra
from kbqa.sparql.errors import TrainingError
from kbqa.training.config import TrainingConfig
from kbqa.training.data import Split
from kbqa.training.loop import TrainingLoop
from kbqa.training.processes import Processes
from kbqa.training.progress import Progress, TrainingResult
from kbqa.training.run_folder import RunFolder

__all__ = ["Progress", "TrainingConfig", "TrainingResult", "train_adapter"]

_SCHEMA_VERSION = 1


def train_adapter(
    split: Split,
    output: Path,
    config: TrainingConfig,
    report: Callable[[Progress], None] = lambda progress: None,
) -> TrainingResult:
    """Train an adapter or a model, or go on with a run that was stopped in the same folder.

    Several processes that a launcher started train together; the main one alone writes and reports.

    Args:
        split: The examples.
        output: Folder of the run: checkpoints, log, and at the end the adapter itself.
        config: A run that is resumed must have the same.
        report: Called every ten steps, at the end of each epoch and after each validation.

    Raises:
        ModelError: The base model is missing or broken, or the `lm` extra is not installed.
        TrainingError: The folder holds another run, there is no example of the allowed length, the
            loss is no longer a number, or there are more processes than batches in a step.
    """
    require_lm_extra()
    processes = Processes.from_environment()
    if processes.count > config.accumulate:
        raise TrainingError(
            f"{processes.count} processes share the batches of a step, which has "
            f"{config.accumulate}: give --accumulate {processes.count} or a multiple of it."
        )
    folder, settings = RunFolder(output), _settings(config, split)
    device = processes.device()
    with processes.joined(device):
        if processes.is_main:
            folder.check(settings)
        loop = TrainingLoop(split, folder, config, processes, device, report)
        # Only now, so that a model that cannot be loaded leaves nothing behind.
        if processes.is_main:
            folder.claim(settings)
        loop.resume()
        loop.run()
        loop.finish()
    return loop.result()


def _settings(config: TrainingConfig, split: Split) -> dict[str, object]:
    """Collect what makes a run this one and no other."""
    examples = [[example.question, example.target] for example in (*split.train, *split.valid)]
    return {
        "schema_version": _SCHEMA_VERSION,
        **asdict(config),
        "train_examples": len(split.train),
        "valid_examples": len(split.valid),
        "examples_sha256": hashlib.sha256(json.dumps(examples).encode()).hexdigest(),
    }
