"""The command `kbqa train-crp`."""

from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

import click

from kbqa.engine.cli import check_key
from kbqa.engine.commands.options import check_output
from kbqa.engine.writing.checkpoint import adapter_config, base_model, require_lm_extra
from kbqa.engine.writing.generate import PROMPT_FILE, load_prompt_format
from kbqa.engine.writing.steering import CONSTRAINED_FORMS
from kbqa.kb.commands.options import (
    GraphChoice,
    graph_options,
    is_given,
    json_option,
    option_names,
    options_of,
    print_json,
    print_note,
    print_result,
)
from kbqa.kb.graph import Graph
from kbqa.sparql.errors import ModelError
from kbqa.training.config import (
    FULL_LEARNING_RATE,
    GRPO_DEFAULTS,
    PRESETS,
    GrpoConfig,
    Stage,
    TrainingConfig,
)
from kbqa.training.data.training_set import Fold, suggest_relations
from kbqa.training.options import (
    DataChoice,
    check_composed,
    composed_option,
    exclude_option,
    files_option,
    output_option,
    print_left_out,
    weight_option,
)

if TYPE_CHECKING:
    from kbqa.training.writer import TrainingProgress


_DEFAULT = TrainingConfig()
_SFT_ONLY = (
    "template",
    "demo_questions",
    "composed_questions",
    "accumulate",
    "full",
    "lora_dropout",
    "format",
    "suggested_relations",
    "max_length",
    "gradient_checkpointing",
)
"""Options without a meaning in stage ``grpo``. Rank, alpha and layers are checked by `--start`."""


class _FoldNumber(click.ParamType[Fold]):
    """One of some folds, as in ``1/2``."""

    name = "k/n"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Fold:
        at, _, of = str(value).partition("/")
        if not (at.isdecimal() and of.isdecimal() and 1 <= int(at) <= int(of) and int(of) > 1):
            self.fail(f"{value!r} is not K/N, such as 1/2 for the first of two", param, ctx)
        return Fold(int(at), int(of))


config_options = options_of(TrainingConfig, "config")
preset_option = click.option(
    "--preset",
    type=click.Choice(list(PRESETS)),
    default="kbqa",
    help="Named settings, listed below; other options override them.",
)


def preset_help() -> str:
    """Describe the presets for `--help`."""
    paragraphs = []
    for name, preset in PRESETS.items():
        settings = ", ".join(
            f"{one.replace('_', ' ')} {_shown(value)}" for one, value in preset.settings.items()
        )
        paragraphs.append(f"Preset {name} ({preset.source}): {settings or 'the defaults above'}.")
    defaults = ", ".join(f"{n.replace('_', ' ')} {_shown(v)}" for n, v in GRPO_DEFAULTS.items())
    paragraphs.append(f"With --stage grpo the defaults are: {defaults}.")
    return "\n\n".join(paragraphs)


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


@click.command("train-crp", epilog=preset_help())
@files_option(
    "--data",
    "files",
    "Question set with SPARQL or CRPs, ours or official; repeatable. Missing names of "
    "entities are looked up in --store or --endpoint.",
)
@exclude_option
@click.option(
    "--demo-questions",
    type=click.IntRange(0),
    default=800,
    metavar="N",
    help="Number of questions on the demo graph to add.",
)
@composed_option
@weight_option
@output_option
@click.option(
    "--valid-size",
    type=click.IntRange(0),
    default=200,
    help="Questions of each set to hold out for validation; at most a tenth of it.",
)
@click.option(
    "--leave-out-fold",
    "fold",
    type=_FoldNumber(),
    metavar="K/N",
    help="Leave out the Kth of N parts of the questions, so that a judge can learn from what this "
    "model writes for them; see kbqa train-judge.",
)
@graph_options
@click.option(
    "--stage",
    type=click.Choice(get_args(Stage)),
    default="sft",
    help="Train on gold paths (sft), or train an adapter further by the F1 of the paths that "
    "it writes (grpo).",
)
@options_of(GrpoConfig, "grpo")
@preset_option
@config_options
@json_option
def train_crp(
    files: tuple[Path, ...],
    scored: tuple[Path, ...],
    demo_questions: int,
    composed_questions: int,
    weights: tuple[tuple[str, float], ...],
    output: Path,
    valid_size: int,
    fold: Fold | None,
    stage: Stage,
    grpo: GrpoConfig,
    preset: str,
    config: TrainingConfig,
    graph: GraphChoice,
    as_json: bool,
) -> None:
    """Fine-tune a model to write reasoning paths for questions.

    Keeps the weights that write most main paths of held-out questions exactly, or with --stage grpo
    those with the highest F1 on them. To train on several GPUs, start one process for each:
    `torchrun --nproc-per-node 4 -m kbqa.engine.cli train-crp --accumulate 4 …`
    """
    check_stage(stage, preset, files, config, grpo, graph)
    grpo = replace(grpo, **_chosen(grpo, preset))
    demo_questions = _of_preset(preset, "demo_questions", demo_questions)
    valid_size = _of_preset(preset, "valid_size", valid_size)
    config = complete_config(config, preset, stage)
    if not files and not demo_questions:
        raise click.UsageError("nothing to train on: give --data FILE or --demo-questions N")
    check_output(output)
    check_composed(composed_questions, graph)
    if config.suggested_relations and graph.is_demo:
        wanted_by = "--suggested-relations"
        if not is_given("suggested_relations"):
            wanted_by = f"the adapter in {config.start} is shown relations, which"
        raise click.UsageError(
            f"{wanted_by} needs a graph: give --store or --endpoint, or --suggested-relations 0"
        )
    require_lm_extra()
    base_model(config.base)  # a missing model is an error now, not after minutes of reading
    data = DataChoice(
        files,
        scored,
        demo_questions,
        composed_questions,
        config.seed,
        dict(weights),
        valid_size,
        fold,
    )
    if stage == "grpo":
        from kbqa.training.grpo.train import train_on_graph

        train_on_graph(data, output, config, grpo, graph, as_json)
    else:
        _train_on_paths(data, output, config, graph, as_json)


def _train_on_paths(
    data: DataChoice, output: Path, config: TrainingConfig, graph: GraphChoice, as_json: bool
) -> None:
    from tqdm import tqdm

    from kbqa.training.card import write_writer_reports
    from kbqa.training.run import Processes
    from kbqa.training.writer import train_adapter

    is_main = Processes.from_environment().is_main
    choice: AbstractContextManager[Graph | None] = nullcontext()
    if not graph.is_demo:
        choice = closing(graph.open())
    with choice as opened:
        gathered = data.load(config.crp_format, opened)
        split = data.split(gathered)
        if is_main:
            print_note(f"{len(gathered.examples):,} examples")
            print_left_out(gathered)
        split = data.weigh(split, gathered)
        if opened is not None and config.suggested_relations:
            with tqdm(desc="suggesting relations", unit="question", disable=None) as bar:
                split = suggest_relations(split, opened, config.suggested_relations, bar.update)
    result = train_adapter(split, output, config, _print_progress)
    if not is_main:
        return
    write_writer_reports(output, config, gathered, split, result)
    if as_json:
        print_json({**result._asdict(), "adapter": str(result.adapter)})
        return
    if result.stopped_early:
        print_note(f"stopped early at step {result.steps:,}")
    free = "" if config.crp_format in CONSTRAINED_FORMS else " --decoding none"
    ask = f"kbqa ask --adapter {result.adapter}{free}"
    print_result(f"adapter in {result.adapter}: ask with `{ask}`")


def _print_progress(progress: "TrainingProgress") -> None:
    loss, paths = progress.valid_loss, progress.valid_main_path
    print_note(
        f"step {progress.step:,}/{progress.steps:,}  epoch {progress.epoch:.2f}  "
        f"loss {progress.loss:.4f}"
        f"{'' if loss is None else f'  held out {loss:.4f}'}"
        f"{'' if paths is None else f'  main paths {paths:.1%}'}"
    )


def complete_config(config: TrainingConfig, preset: str, stage: Stage = "sft") -> TrainingConfig:
    """Return the settings of a run, where a chosen option overrides the preset and the stage."""
    by_reward = stage == "grpo"
    settings: dict[str, Any] = {"learning_rate": FULL_LEARNING_RATE} if config.full else {}
    settings |= GRPO_DEFAULTS if by_reward else {}
    settings |= _chosen(config, preset)
    if settings.get("start"):
        settings |= _settings_of_start(settings)
        if not by_reward:  # Training by reward reads the prompt of its start itself.
            start = Path(settings["start"])
            settings.setdefault("lora_dropout", adapter_config(start).get("lora_dropout", 0.0))
            has_prompt = (start / PROMPT_FILE).exists()
            shown = load_prompt_format(start).relations if has_prompt else 0
            settings.setdefault("suggested_relations", shown)
    return replace(_DEFAULT, **settings)


def _chosen(config: TrainingConfig | GrpoConfig, preset: str) -> dict[str, Any]:
    """Return the settings of a configuration that its preset has or the user chose."""
    names = {each.name for each in fields(config)}
    options = option_names(type(config))
    return {
        **{name: value for name, value in PRESETS[preset].settings.items() if name in names},
        **{name: getattr(config, name) for name, option in options.items() if is_given(option)},
    }


def _of_preset(preset: str, name: str, given: int) -> int:
    """Return a number of questions that the user chose, or else that of the preset."""
    settings = PRESETS[preset].settings
    return cast(int, settings[name]) if name in settings and not is_given(name) else given


def check_stage(
    stage: Stage,
    preset: str,
    files: tuple[Path, ...],
    config: TrainingConfig,
    grpo: GrpoConfig,
    graph: GraphChoice,
) -> None:
    """Check that all chosen options fit the stage, and that it has what it needs."""
    others = _SFT_ONLY if stage == "grpo" else tuple(option_names(GrpoConfig).values())
    others = (*others, "preset") if PRESETS[preset].stage != stage else others
    for name in filter(is_given, others):
        option = f"--{name.replace('_', '-')}"
        raise click.UsageError(f"{option} does not go with --stage {stage}. Leave it out.")
    if stage == "sft":
        return
    if not config.start:
        raise click.UsageError("--stage grpo needs --start DIR, an adapter trained on gold paths")
    if not files:
        raise click.UsageError("--stage grpo needs --data FILE, questions to write paths for")
    if graph.is_demo:
        raise click.UsageError(
            "--stage grpo needs a graph to run paths on: --store DIR or --endpoint URL"
        )
    check_key("rollouts", grpo.rollouts, "KBQA_SERVER_API_KEY")


def _settings_of_start(settings: dict[str, Any]) -> dict[str, Any]:
    """Read the settings that an adapter to start from decides; given ones may not contradict it."""
    folder = Path(settings["start"])
    if settings.get("full"):
        raise click.UsageError("--start is for adapters: with --full, give the folder as --base")
    config = adapter_config(folder)
    try:
        layers = config["target_modules"]
        decided = {
            "start": str(folder),
            "base": config["base_model_name_or_path"],
            "lora_rank": config["r"],
            "lora_alpha": config["lora_alpha"],
            "lora_targets": (layers,) if isinstance(layers, str) else tuple(sorted(layers)),
        }
        replace(_DEFAULT, **decided)
    except (KeyError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ModelError(f"the adapter in {folder} cannot be trained further: {reason}") from None
    for name, value in decided.items():
        given = settings.get(name, value)
        if name != "start" and _shown(given) != _shown(value):
            raise click.UsageError(
                f"--{name.replace('_', '-')} {_shown(given)}: the adapter in {folder} has "
                f"{_shown(value)}. Leave the option out."
            )
    return decided
