"""Train a writer by the reward of its paths, with group-relative policy optimisation (GRPO).

This is the entry point. It reserves the folder of the run; `kbqa.training.writer.grpo.loop` trains.

Source: Shao et al. 2024, DeepSeekMath (arXiv 2402.03300), §4.1.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from kbqa.engine.writing.constraints.decoding import Decoding
from kbqa.engine.writing.models.adapter_files import adapter_sha256
from kbqa.engine.writing.models.base_models import require_lm_extra
from kbqa.engine.writing.models.precision import Precision, fastest_precision
from kbqa.sparql.errors import TrainingError
from kbqa.training.writer.config import TrainingConfig
from kbqa.training.writer.grpo.config import GrpoConfig
from kbqa.training.writer.grpo.loop import RewardLoop, RewardSplit
from kbqa.training.writer.grpo.reward import RewardFunction
from kbqa.training.writer.processes import Processes
from kbqa.training.writer.report.training_log import RewardProgress
from kbqa.training.writer.run_folder import RewardResult, RunFolder

_SCHEMA_VERSION = 1


def check_processes() -> None:
    """Check that a launcher has started only this process.

    Raises:
        TrainingError: It has started several.
    """
    count = Processes.from_environment().count
    if count > 1:
        raise TrainingError(
            f"--stage grpo trains in one process, and {count} were started. Start it without "
            "torchrun."
        )


def train_by_reward(
    split: RewardSplit,
    output: Path,
    config: TrainingConfig,
    grpo: GrpoConfig,
    decoding: Decoding,
    reward: RewardFunction,
    report: Callable[[RewardProgress], None] = lambda progress: None,
) -> RewardResult:
    """Train an adapter further, or resume an interrupted run in the same folder.

    Args:
        split: The questions.
        output: Folder of the run, for checkpoints, the log and finally the adapter itself.
        config: The settings; `start` is the adapter to start from. To resume a run, these and
            those of `grpo` must be the same.
        grpo: The settings that only this training has.
        decoding: Constrains the paths, at level ``graph``.
        reward: Rewards the paths.
        report: Called after each step.

    Raises:
        InputError: ``KBQA_PRECISION`` names no precision.
        ModelError: The base model or the adapter is missing or broken, the adapter's texts cannot
            be constrained, a server that draws paths failed, or an extra is not installed.
        EndpointDown: Nothing answers at the graph's endpoint.
        TrainingError: The folder holds another run or another process writes to it, there is
            nothing to train on, a gradient is not a number, or a launcher started several
            processes.
    """
    require_lm_extra()
    check_processes()
    device = Processes().device()
    settings = _settings(config, grpo, split, fastest_precision(device.type))
    folder = RunFolder(output)
    folder.check(settings)
    loop = RewardLoop(split, folder, config, grpo, decoding, reward, device, report)
    # Only now, so that a model that cannot be loaded leaves nothing behind.
    with folder.claimed(settings):
        loop.resume()
        loop.run()
        loop.finish()
    return loop.result()


def _settings(
    config: TrainingConfig, grpo: GrpoConfig, split: RewardSplit, precision: Precision
) -> dict[str, object]:
    """Collect everything that identifies a run."""
    questions = [asdict(question) for question in (*split.train, *split.valid)]
    return {
        "schema_version": _SCHEMA_VERSION,
        "stage": "grpo",
        **asdict(config),
        **asdict(grpo),
        "rollouts": bool(grpo.rollouts),  # a resumed run may use another server
        "start_sha256": adapter_sha256(Path(config.start)),
        "precision": precision,
        "train_questions": len(split.train),
        "valid_questions": len(split.valid),
        "questions_sha256": hashlib.sha256(json.dumps(questions).encode()).hexdigest(),
    }
