"""Options of the training commands, and those of `kbqa train-crp` that are settings of the run.

The question sets that the user chose for training, not yet read.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, get_args

import click

from kbqa.engine.cli import check_key
from kbqa.engine.writing.checkpoint import adapter_config
from kbqa.engine.writing.generate import PROMPT_FILE, load_prompt_format
from kbqa.kb.commands.options import (
    GraphChoice,
    is_given,
    option_names,
    options_of,
    print_note,
)
from kbqa.kb.graph import Graph
from kbqa.sparql.errors import InputError, ModelError
from kbqa.training.composed import add_composed
from kbqa.training.config import (
    FULL_LEARNING_RATE,
    GRPO_DEFAULTS,
    PRESETS,
    GrpoConfig,
    Stage,
    TrainingConfig,
)
from kbqa.training.data.targets import TargetForm
from kbqa.training.data.training_set import (
    ExampleSet,
    Fold,
    Split,
    draw_mixture,
    leave_out_fold,
    load_examples,
    split_examples,
)

_NAMED_ROWS = 3

_DEFAULT = TrainingConfig()
_SFT_ONLY = (
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

composed_option = click.option(
    "--composed-questions",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="Number of questions to compose from those of the question sets and from facts of the "
    "graph; needs --store or --endpoint.",
)
exclude_option = click.option(
    "--exclude",
    "scored",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    multiple=True,
    metavar="FILE",
    help="Test set to keep out of training; repeatable. Leaves out its questions, and questions "
    "made from them or that they were made from. Rows marked test_parent are always left out.",
)
output_option = click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    metavar="DIR",
    help="Folder of the run. Run the same command again to resume an interrupted run.",
)


class SetWeight(click.ParamType[tuple[str, float]]):
    """A question set and a number, as in ``webqsp.train=2``."""

    name = "set=number"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, float]:
        """Read the text."""
        source, _, number = str(value).rpartition("=")
        try:
            weight = float(number)
        except ValueError:
            weight = -1.0
        if not source or not 0 <= weight < float("inf"):
            self.fail(f"{value!r} is not SET=NUMBER, such as webqsp.train=2", param, ctx)
        return source, weight


class FoldNumber(click.ParamType[Fold]):
    """One of some folds, as in ``1/2``."""

    name = "k/n"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Fold:
        """Read the text."""
        at, _, of = str(value).partition("/")
        if not (at.isdecimal() and of.isdecimal() and 1 <= int(at) <= int(of) and int(of) > 1):
            self.fail(f"{value!r} is not K/N, such as 1/2 for the first of two", param, ctx)
        return Fold(int(at), int(of))


config_options = options_of(TrainingConfig, "config")
grpo_options = options_of(GrpoConfig, "grpo")
preset_option = click.option(
    "--preset",
    type=click.Choice(list(PRESETS)),
    default="kbqa",
    help="Named settings, listed below; other options override them.",
)
stage_option = click.option(
    "--stage",
    type=click.Choice(get_args(Stage)),
    default="sft",
    help="Train on gold paths (sft), or train an adapter further by the F1 of the paths that "
    "it writes (grpo).",
)


def complete_config(config: TrainingConfig, preset: str, stage: Stage = "sft") -> TrainingConfig:
    """Return the settings of a run, where a chosen option overrides the preset and the stage.

    Raises:
        UsageError: An option contradicts the adapter to start from.
        ModelError: That adapter is missing or cannot be trained further.
    """
    by_reward = stage == "grpo"
    settings: dict[str, Any] = dict(GRPO_DEFAULTS if by_reward else {})
    settings |= _preset_of(TrainingConfig, preset)
    if config.full:
        settings.setdefault("learning_rate", FULL_LEARNING_RATE)
    settings |= _given(config)
    if settings.get("start"):
        settings |= _settings_of_start(settings)
        if not by_reward:  # Training by reward reads the prompt of its start itself.
            dropout = adapter_config(Path(settings["start"])).get("lora_dropout", 0.0)
            settings.setdefault("lora_dropout", dropout)
            settings.setdefault("suggested_relations", _shown_by_start(settings["start"]))
    return replace(_DEFAULT, **settings)


def complete_grpo(grpo: GrpoConfig, preset: str) -> GrpoConfig:
    """Return the settings of training by reward; a chosen option overrides the preset."""
    return replace(grpo, **(_preset_of(GrpoConfig, preset) | _given(grpo)))


def _preset_of(config: type[Any], preset: str) -> dict[str, Any]:
    """Return the settings of a preset that a configuration has."""
    names = {each.name for each in fields(config)}
    return {name: value for name, value in PRESETS[preset].settings.items() if name in names}


def _given(config: TrainingConfig | GrpoConfig) -> dict[str, Any]:
    """Return the settings that the user chose."""
    options = option_names(type(config))
    return {name: getattr(config, name) for name, option in options.items() if is_given(option)}


def check_stage(
    stage: Stage,
    preset: str,
    files: tuple[Path, ...],
    config: TrainingConfig,
    grpo: GrpoConfig,
    graph: GraphChoice,
) -> None:
    """Check that all chosen options fit the stage, and that it has what it needs.

    Raises:
        UsageError: They do not, or something is missing.
        InputError: The configuration file has a key sent to a server.
    """
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


def check_composed(count: int, graph: GraphChoice) -> None:
    """Check that there is a graph to compose questions on.

    Raises:
        UsageError: Questions are wanted, and no graph is given.
    """
    if count and graph.is_demo:
        raise click.UsageError("--composed-questions needs a graph: give --store or --endpoint")


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


def _shown_by_start(start: str) -> int:
    """Return how many relations an adapter to start from is shown; 0 if it has no prompt."""
    folder = Path(start)
    return load_prompt_format(folder).relations if (folder / PROMPT_FILE).exists() else 0


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


def print_counts(gathered: ExampleSet) -> None:
    """Print how many examples there are, and which rows were left out and why."""
    print_note(f"{len(gathered.examples):,} examples")
    print_left_out(gathered)


def print_left_out(gathered: ExampleSet) -> None:
    """Print which rows were left out and why."""
    for reason, count in gathered.skipped.most_common():
        rows = gathered.skipped_rows.get(reason, [])
        named = f" ({', '.join(rows[:_NAMED_ROWS])}{', …' if count > _NAMED_ROWS else ''})"
        print_note(f"  left out {count:,}: {reason}{named if rows else ''}")


@dataclass(frozen=True, slots=True)
class DataChoice:
    """The question sets that the user chose, not yet read."""

    files: tuple[Path, ...]
    scored: tuple[Path, ...]  # test sets to keep out of training
    demo_questions: int  # on the demo graph, at most
    composed_questions: int  # of those of the files and of facts of the graph
    seed: int  # of the demo questions, and of the part that is taken of a set
    weights: Mapping[str, float] = field(default_factory=dict)  # by set; once if it is missing
    valid_size: int = 0  # questions of each set to hold out
    fold: Fold | None = None  # families that are left out as well

    def load(self, form: TargetForm, graph: Graph | None) -> ExampleSet:
        """Read the examples; see `load_examples`.

        The graph names entities that a file does not name. Without it, nothing is composed.
        """
        gathered = load_examples(
            self.files,
            demo_questions=self.demo_questions,
            seed=self.seed,
            form=form,
            names=None if graph is None else graph.labels,
            scored=self.scored,
        )
        if self.composed_questions and graph is not None:
            add_composed(
                gathered,
                self.files,
                graph,
                count=self.composed_questions,
                seed=self.seed,
                form=form,
                scored=self.scored,
            )
        return gathered

    def split(self, gathered: ExampleSet) -> Split:
        """Hold out questions, and leave out those of the fold, which are counted."""
        split = split_examples(gathered.examples, self.valid_size)
        if self.fold is not None:
            split = leave_out_fold(split, self.fold)
        for example in split.in_fold:
            gathered.skip(example.source, example.id, f"in fold {self.fold}")
        return split

    def weigh(self, split: Split, gathered: ExampleSet) -> Split:
        """Weigh the sets that are trained on, and count the examples that are not drawn.

        Raises:
            InputError: A weight is for a set that is not there.
        """
        counts = Counter(example.source for example in split.train)
        if unknown := self.weights.keys() - counts.keys():
            raise InputError(
                f"--weight {min(unknown)}: there is no such set, only {', '.join(sorted(counts))}"
            )
        train = draw_mixture(split.train, self.weights, self.seed)
        for source, count in counts.items():
            left_out = count - len({each.id for each in train if each.source == source})
            if left_out:
                gathered.skipped[f"{source}: not drawn"] = left_out
        return split._replace(train=train)
