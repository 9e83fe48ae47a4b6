"""Write the model card of a training run from its manifest and log.

The card can be written again at any time, because an adapter is usually measured later.

The manifest of a training run.

The manifest has all numbers of the model card. The losses along the way are in the log.
"""

import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from kbqa.engine.files import git_revision, hardware, package_versions
from kbqa.engine.writing.checkpoint import SHIPPED_MODELS, adapter_sha256, fastest_precision
from kbqa.training.config import ALL_LAYERS, Stage, TrainingConfig
from kbqa.training.data.training_set import ExampleSet, Split, data_lines, data_record
from kbqa.training.run import (
    CURVES_FILE,
    Processes,
    RewardResult,
    TrainingResult,
    read_log,
    read_reward_log,
    reward_stretches,
    stretches,
)

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


CARD_FILE = "README.md"

Record = Mapping[str, Any]


class Measured(NamedTuple):
    """A measurement of a trained model.

    Attributes:
        what: The measure, such as ``exact match``.
        on: Question set, entities and settings, such as ``WebQSP test half, gold entities, n = 5``.
        value: The number as printed, with its interval.
        n: Number of questions.
    """

    what: str
    on: str
    value: str
    n: int


def write_model_card(output: Path, measured: Sequence[Measured] = ()) -> None:
    """Write the card next to the weights: what they are, how they were trained, and on what.

    Args:
        output: Folder of the run, with its manifest and log.
        measured: Measurements of the finished model.
    """
    manifest: Record = json.loads((output / MANIFEST_FILE).read_text(encoding="utf-8"))
    settings, data, result = manifest["settings"], manifest["data"], manifest["result"]
    stage = manifest.get("stage", "sft")  # the only one that older manifests know
    lines = [
        *_front_matter(manifest),
        "# CRP writer",
        "",
        *_introduction(settings),
        "",
        "## Data",
        "",
        *data_lines(data),
        "",
        "## Training",
        "",
        *(_rewarding if stage == "grpo" else _training)(manifest),
        "",
        *(_reward_curve if stage == "grpo" else _curve)(output, result),
        "",
        "## Measured",
        "",
        *_measured(measured),
        "",
        "## Versions",
        "",
        f"- kbqa {manifest['kbqa']}, git {manifest['git'] or 'unknown'}",
        f"- Python {manifest['python']}",
        *(f"- {name} {found}" for name, found in manifest["packages"].items() if found),
        "",
    ]
    (output / CARD_FILE).write_text("\n".join(lines), encoding="utf-8")


def _front_matter(manifest: Record) -> Iterator[str]:
    library, way = ("transformers", "") if manifest["settings"]["full"] else ("peft", ", lora")
    yield from ("---", f"base_model: {manifest['base']['name']}", f"library_name: {library}")
    shipped = SHIPPED_MODELS.get(manifest["base"]["name"])
    if shipped is not None:  # the licences of others are not known here
        yield f"license: {shipped.licence}"
    yield f"tags: [knowledge-graph-question-answering, freebase, sparql{way}]"
    yield from ("---", "")


def _introduction(settings: Record) -> Iterator[str]:
    what = "A small language model that" if settings["full"] else "A LoRA adapter with which a"
    model = "" if settings["full"] else " small language model"
    yield f"{what}{model} writes constraint-aware reasoning paths"
    yield f"(CRPs, text form `{settings['crp_format']}`) for questions over Freebase. Written by"
    yield "`kbqa train-crp` and used by `kbqa ask`. It knows the relations of its training"
    yield "questions, but no facts."


def _training(manifest: Record) -> Iterator[str]:
    settings, result = manifest["settings"], manifest["result"]
    yield from _model(manifest)
    batches = f"{settings['accumulate']} × " if settings["accumulate"] > 1 else ""
    yield (
        f"- epochs: {settings['epochs']} of {result['train_examples']:,} examples at most,"
        f" {result['steps']:,} steps of {batches}{settings['batch_size']} taken"
        f"{', then stopped early' if result['stopped_early'] else ''}"
    )
    if number := settings.get("suggested_relations"):
        yield f"- suggested with each question: {number} relations at most, the retriever's best"
    yield f"- {_optimizer(settings)}"
    yield "- loss on target tokens only, not on the prompt"
    yield (
        f"- {result['seconds']:,.0f} seconds, {result['trained_tokens']:,} tokens,"
        f" {result['tokens_per_second']:,.0f} tokens a second, validation included"
    )
    yield f"- {_machine(manifest)}"


def _rewarding(manifest: Record) -> Iterator[str]:
    """Tell how a model was trained by reward."""
    settings, result = manifest["settings"], manifest["result"]
    yield from _model(manifest)
    yield (
        f"- by reward from the graph, with GRPO: {settings['group']} paths drawn for each question"
        f" at temperature {settings['temperature']:g}, constrained by the graph"
    )
    if settings.get("rollouts"):
        yield "- the paths were drawn by a vLLM server, so the run cannot be repeated to the bit"
    yield (
        f"- the reward is the F1 of a path's answers, less {settings['relaxed_cost']:.0%} of it if"
        f" the path is relaxed and {settings['part_cost']:.0%} for each hop and constraint"
    )
    yield (
        f"- epochs: {settings['epochs']} of {result['train_questions']:,} questions at most,"
        f" {result['steps']:,} steps of {settings['questions']} taken"
        f"{', then stopped early' if result['stopped_early'] else ''};"
        f" {settings['passes']} updates a step, clip {settings['clip']:g},"
        f" weight of the KL divergence {settings['kl']:g}"
    )
    yield f"- {_optimizer(settings)}"
    yield f"- {result['seconds']:,.0f} seconds, validation included"
    yield f"- {_machine(manifest)}"


def _model(manifest: Record) -> Iterator[str]:
    settings, result = manifest["settings"], manifest["result"]
    yield f"- base model: {manifest['base']['name']} ({manifest['base']['revision'] or 'unknown'})"
    if manifest.get("start_sha256"):
        yield f"- started from the adapter in {settings['start']} ({manifest['start_sha256']})"
    yield f"- {_method(settings)}; {result['trainable_parameters']:,} parameters, saved in bf16"


def _optimizer(settings: Record) -> str:
    return (
        f"AdamW, highest learning rate {settings['learning_rate']:g}, reached after"
        f" {settings['warmup']:.0%} of the steps, cosine schedule down to"
        f" {settings['final_rate']:.0%} of it; seed {settings['seed']}"
    )


def _machine(manifest: Record) -> str:
    hardware = manifest["hardware"]
    return ", ".join(hardware["gpus"]) or f"{hardware['processor']}, {hardware['cores']} cores"


def _method(settings: Record) -> str:
    if settings["full"]:
        return "full fine-tuning"
    targets = settings["lora_targets"]
    layers = "all linear layers" if targets == list(ALL_LAYERS) else ", ".join(targets)
    return (
        f"LoRA: rank {settings['lora_rank']}, alpha {settings['lora_alpha']},"
        f" dropout {settings['lora_dropout']:g}, on {layers}"
    )


def _curve(output: Path, result: Record) -> Iterator[str]:
    """Tabulate the run from validation to validation."""
    yield "Losses are means per target token, natural log. Main paths are the share of the"
    yield "held-out questions asked whose main path greedy decoding writes exactly."
    if result["valid_loss"] is not None:
        yield f"The weights are those of step {result['best_step']:,}, the best validation."
    yield ""
    yield "| step | epoch | loss, trained on | loss, held out | main paths, held out |"
    yield "|---|---|---|---|---|"
    for one in stretches(read_log(output)):
        yield (
            f"| {one.step:,} | {one.epoch:.3g} | {one.loss:.4f} | {_number(one.valid_loss)}"
            f" | {_number(one.valid_main_path)} |"
        )
    yield from _picture(output, "Losses and validations by step")


def _reward_curve(output: Path, result: Record) -> Iterator[str]:
    """Tabulate a run of training by reward from validation to validation."""
    yield "F1 is that of the path that greedy decoding, constrained by the graph, writes for"
    yield "held-out questions. The other columns are means over the steps since the row before:"
    yield "the reward, the share of questions whose paths differ in reward, and for each choice"
    yield "the KL divergence from the start in nats and the share that was clipped."
    if result["valid_f1"] is not None:
        yield f"The weights are those of step {result['best_step']:,}, the best validation."
    yield ""
    yield "| step | reward | with spread | KL | clipped | F1, held out |"
    yield "|---|---|---|---|---|---|"
    for one in reward_stretches(read_reward_log(output)):
        numbers = (one.reward, one.spread, one.kl, one.clipped, one.valid_f1)
        yield f"| {one.step:,} | {' | '.join(map(_number, numbers))} |"
    yield from _picture(output, "Rewards and validations by step")


def _picture(output: Path, title: str) -> Iterator[str]:
    if (output / CURVES_FILE).is_file():
        yield from ("", f"![{title}]({CURVES_FILE})")


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


def _measured(measured: Sequence[Measured]) -> Iterator[str]:
    if not measured:
        yield "Nothing yet, except the table above."
        return
    yield "| measure | on | value | n |"
    yield "|---|---|---|---|"
    for one in measured:
        yield f"| {one.what} | {one.on} | {one.value} | {one.n:,} |"
