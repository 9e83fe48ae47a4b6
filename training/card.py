"""What is written about a run of the writer: its manifest, its card and a picture of its log.

The card is made from the manifest and the log, and can be written again at any time.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from kbqa.engine.evaluation.plots import new_figure
from kbqa.engine.files import hardware
from kbqa.engine.writing.checkpoint import SHIPPED_MODELS, adapter_sha256, fastest_precision
from kbqa.kb.commands.options import print_note
from kbqa.training.config import ALL_LAYERS, Stage, TrainingConfig
from kbqa.training.data.training_set import (
    ExampleSet,
    Split,
    data_lines,
    data_record,
    write_untrained,
)
from kbqa.training.run import Processes, Record, read_log, read_manifest, write_card, write_manifest
from kbqa.training.writer import RewardResult, TrainingResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes


CURVES_FILE = "training_curves.png"
_PACKAGES = ("accelerate", "peft", "safetensors", "tokenizers", "torch", "transformers")
_MEANS = ("reward", "spread", "kl", "clipped")


def write_writer_reports(
    output: Path,
    config: TrainingConfig,
    gathered: ExampleSet,
    split: Split,
    result: TrainingResult | RewardResult,
    of_stage: Mapping[str, object] | None = None,
) -> None:
    """Write all that a run's folder has besides the adapter and its log.

    `of_stage` has the settings that only stage ``grpo`` has, and the graph.
    """
    stage: Stage = "sft" if isinstance(result, TrainingResult) else "grpo"
    processes = Processes.from_environment()
    of_result = result._asdict()
    del of_result["adapter"]
    of_result["seconds"] = round(result.seconds, 1)
    left_out = {}
    if isinstance(result, TrainingResult):
        reason = f"to be trained on, but longer than {config.max_length} tokens"
        left_out[reason] = of_result.pop("too_long")
        del of_result["base_revision"]
        of_result["tokens_per_second"] = round(result.trained_tokens / result.seconds, 1)
    record = {
        "hardware": {
            **hardware(),
            "processes": processes.count,
            "precision": fastest_precision(processes.device().type),
        },
        "base": {"name": config.base, "revision": result.base_revision},
        "start_sha256": adapter_sha256(Path(config.start)) if config.start else None,
        "settings": {**asdict(config), **(of_stage or {})},
        "data": data_record(gathered, split, left_out),
        "result": of_result,
    }
    write_manifest(output, _PACKAGES, record, stage)
    write_untrained(output, split)
    try:
        draw_curves(output, stage)
    except ImportError:
        print_note(
            "no curves drawn. To draw them: pip install 'kbqa[plots]', and run this command again"
        )
    write_model_card(output)


def write_model_card(output: Path) -> None:
    """Write the card next to the weights: what they are, how they were trained, and on what."""
    manifest = read_manifest(output)
    by_reward = manifest.get("stage") == "grpo"  # older manifests name no stage
    table = (_reward_table if by_reward else _table)(read_log(output), manifest["result"])
    training = [*_training(manifest, by_reward=by_reward), "", *table]
    if (output / CURVES_FILE).is_file():
        what = "Rewards" if by_reward else "Losses"
        training += ["", f"![{what} and validations by step]({CURVES_FILE})"]
    write_card(
        output,
        manifest,
        before=_front_matter(manifest),
        title="CRP writer",
        introduction=_introduction(manifest["settings"]),
        sections={
            "Data": data_lines(manifest["data"]),
            "Training": training,
            "Measured": ["Nothing yet, except the table above."],
        },
    )


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


def _training(manifest: Record, *, by_reward: bool) -> Iterator[str]:
    settings, result, machine = manifest["settings"], manifest["result"], manifest["hardware"]
    stopped = ", then stopped early" if result["stopped_early"] else ""
    yield f"- base model: {manifest['base']['name']} ({manifest['base']['revision'] or 'unknown'})"
    if manifest.get("start_sha256"):
        yield f"- started from the adapter in {settings['start']} ({manifest['start_sha256']})"
    layers = settings["lora_targets"]
    way = (
        f"LoRA: rank {settings['lora_rank']}, alpha {settings['lora_alpha']},"
        f" dropout {settings['lora_dropout']:g},"
        f" on {'all linear layers' if layers == list(ALL_LAYERS) else ', '.join(layers)}"
    )
    if settings["full"]:
        way = "full fine-tuning"
    yield f"- {way}; {result['trainable_parameters']:,} parameters, saved in bf16"
    if by_reward:
        yield (
            f"- by reward from the graph, with GRPO: {settings['group']} paths drawn for each"
            f" question at temperature {settings['temperature']:g}, constrained by the graph"
        )
        if settings.get("rollouts"):
            yield (
                "- the paths were drawn by a vLLM server, so the run cannot be repeated to the bit"
            )
        yield (
            f"- the reward is the F1 of a path's answers, less {settings['relaxed_cost']:.0%} of it"
            f" if the path is relaxed and {settings['part_cost']:.0%} for each hop and constraint"
        )
        yield (
            f"- epochs: {settings['epochs']} of {result['train_questions']:,} questions at most,"
            f" {result['steps']:,} steps of {settings['questions']} taken{stopped};"
            f" {settings['passes']} updates a step, clip {settings['clip']:g},"
            f" weight of the KL divergence {settings['kl']:g}"
        )
    else:
        batches = f"{settings['accumulate']} × " if settings["accumulate"] > 1 else ""
        yield (
            f"- epochs: {settings['epochs']} of {result['train_examples']:,} examples at most,"
            f" {result['steps']:,} steps of {batches}{settings['batch_size']} taken{stopped}"
        )
        if number := settings.get("suggested_relations"):
            most = f"{number} relations at most, the retriever's best"
            yield f"- suggested with each question: {most}"
    yield (
        f"- AdamW, highest learning rate {settings['learning_rate']:g}, reached after"
        f" {settings['warmup']:.0%} of the steps, cosine schedule down to"
        f" {settings['final_rate']:.0%} of it; seed {settings['seed']}"
    )
    tokens = ""
    if not by_reward:
        yield "- loss on target tokens only, not on the prompt"
        a_second = f"{result['tokens_per_second']:,.0f} tokens a second"
        tokens = f" {result['trained_tokens']:,} tokens, {a_second},"
    yield f"- {result['seconds']:,.0f} seconds,{tokens} validation included"
    cores = f"{machine['processor']}, {machine['cores']} cores"
    yield f"- {', '.join(machine['gpus']) or cores}"


def _table(log: Sequence[Record], result: Record) -> Iterator[str]:
    """Tabulate a run from validation to validation."""
    yield "Losses are means per target token, natural log. Main paths are the share of the"
    yield "held-out questions asked whose main path greedy decoding writes exactly."
    if result["valid_loss"] is not None:
        yield f"The weights are those of step {result['best_step']:,}, the best validation."
    yield ""
    yield "| step | epoch | loss, trained on | loss, held out | main paths, held out |"
    yield "|---|---|---|---|---|"
    for row in _stretches(log):
        yield (
            f"| {row['step']:,} | {row['epoch']:.3g} | {row['loss']:.4f}"
            f" | {_number(row['valid_loss'])} | {_number(row.get('valid_main_path'))} |"
        )


def _stretches(log: Sequence[Record]) -> Iterator[Record]:
    """Sum up a log from validation to validation, or by epochs if nothing is held out."""
    validates = any(row["valid_loss"] is not None for row in log)
    last_step, loss, steps = 0, 0.0, 0
    for row in log:
        loss += row["loss"] * (row["step"] - last_step)
        steps += row["step"] - last_step
        last_step = row["step"]
        if row["valid_loss"] is not None if validates else row["epoch"] == int(row["epoch"]):
            yield {**row, "loss": loss / steps}
            loss, steps = 0.0, 0


def _reward_table(log: Sequence[Record], result: Record) -> Iterator[str]:
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
    for row in _reward_stretches(log):
        numbers = (row[name] for name in (*_MEANS, "valid_f1"))
        yield f"| {row['step']:,} | {' | '.join(map(_number, numbers))} |"


def _reward_stretches(log: Sequence[Record]) -> Iterator[Record]:
    """Sum up a log: its rows with a validation, and the last, with means over the steps before."""
    since: list[Record] = []
    for row in log:
        since.append(row)
        if row["valid_f1"] is not None or row is log[-1]:
            known = {n: [each[n] for each in since if each[n] is not None] for n in _MEANS}
            yield {**row, **{n: fmean(values) if values else None for n, values in known.items()}}
            since = []


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


def draw_curves(output: Path, stage: Stage = "sft") -> Path:
    """Draw the losses or rewards, and the validations, of a run by step, in its folder."""
    log = read_log(output)
    figure, axes = new_figure(8, 4.5)
    if stage == "grpo":
        rows = list(_reward_stretches(log))
        axes.set(xlabel="step", ylabel="reward, F1, share", ylim=(0, 1))
        _plot(axes, rows, "reward", "C0o-", "mean reward")
        _plot(axes, rows, "valid_f1", "C1s-", "F1 of held-out questions")
        _plot(axes, rows, "spread", "C2:", "questions with spread")
        if any(row["kl"] is not None for row in rows):
            nats = axes.twinx()
            nats.set(ylabel="KL divergence from the start for each choice, nats")
            _plot(nats, rows, "kl", "C3--", "KL divergence")
    else:
        axes.set(xlabel="step", ylabel="loss per target token, nats", yscale="log")
        _plot(axes, log, "loss", "C0", "training loss")
        _plot(axes, log, "valid_loss", "C1o-", "loss on held-out examples")
        if any(row.get("valid_main_path") is not None for row in log):
            shares = axes.twinx()
            shares.set(ylabel="main paths written exactly", ylim=(0, 1))
            _plot(shares, log, "valid_main_path", "C2s--", "main paths of held-out questions")
    figure.legend(loc="outside upper center", ncols=3, frameon=False)
    picture = output / CURVES_FILE
    figure.savefig(picture, dpi=150)
    return picture


def _plot(axes: "Axes", rows: Sequence[Record], name: str, style: str, label: str) -> None:
    """Plot the values that are known by step; nothing if there are none."""
    known = [(row["step"], row[name]) for row in rows if row.get(name) is not None]
    if known:
        axes.plot(*zip(*known, strict=True), style, label=label)
