"""Options of the training commands, and those of `kbqa train-crp` that are settings of the run.

The question sets that the user chose for training, not yet read.
"""

import functools
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, get_args

import click
from click.core import ParameterSource
from pydantic import TypeAdapter

from kbqa.engine.cli import check_key
from kbqa.engine.writing.checkpoint import adapter_config
from kbqa.engine.writing.generate import PROMPT_FILE, load_prompt_format
from kbqa.kb.commands.options import GraphChoice, print_note
from kbqa.kb.graph import Graph
from kbqa.sparql.errors import InputError, ModelError
from kbqa.training.composed import add_composed
from kbqa.training.config import (
    FULL_LEARNING_RATE,
    GRPO_DEFAULTS,
    PRESETS,
    GrpoConfig,
    Preset,
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

Command = Callable[..., None]

_DEFAULT = TrainingConfig()
_SFT_ONLY = (
    "demo_questions",
    "composed_questions",
    "accumulate",
    "full",
    "lora_dropout",
    "crp_format",
    "suggested_relations",
    "max_length",
    "gradient_checkpointing",
)
"""Options without a meaning in stage ``grpo``. Rank, alpha and layers are checked by `--start`."""

composed_option = click.option(
    "--composed-questions",
    type=click.IntRange(0),
    default=0,
    show_default=True,
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


def config_options(command: Command) -> Command:
    """Add `--preset` and an option for each setting; the command takes `config: TrainingConfig`.

    An option that is given, as a flag, in the environment or in a file, overrides the preset.
    """

    @functools.wraps(command)
    def with_config(*args: object, preset: str, **rest: object) -> None:
        context = click.get_current_context()
        chosen = {name: rest.pop(name) for name in schema}
        by_reward = context.params.get("stage") == "grpo"
        settings: dict[str, Any] = dict(GRPO_DEFAULTS if by_reward else {})
        settings |= _of(TrainingConfig, PRESETS[preset])
        if chosen["full"]:
            settings.setdefault("learning_rate", FULL_LEARNING_RATE)
        settings |= {name: value for name, value in chosen.items() if is_given(name)}
        if settings.get("start"):
            settings |= _settings_of_start(settings)
            if not by_reward:  # Training by reward reads the prompt of its start itself.
                dropout = adapter_config(Path(settings["start"])).get("lora_dropout", 0.0)
                settings.setdefault("lora_dropout", dropout)
                settings.setdefault("suggested_relations", _shown_by_start(settings["start"]))
        command(*args, config=replace(_DEFAULT, **settings), **rest)

    schema = _described(TrainingConfig)
    decorated = _with_options(with_config, schema, _DEFAULT)
    return click.option(
        "--preset",
        type=click.Choice(list(PRESETS)),
        default="kbqa",
        show_default=True,
        help="Named settings, listed below; other options override them.",
    )(decorated)


def stage_options(command: Command) -> Command:
    """Add `--stage` and the options of stage ``grpo``, and check that all options fit the stage.

    The command takes `stage: Stage` and `grpo: GrpoConfig`.
    """

    @functools.wraps(command)
    def with_stage(*args: object, stage: Stage, **rest: object) -> None:
        chosen: dict[str, Any] = {name: rest.pop(name) for name in schema}
        preset = PRESETS[click.get_current_context().params["preset"]]
        chosen |= {n: value for n, value in _of(GrpoConfig, preset).items() if not is_given(n)}
        others = _SFT_ONLY if stage == "grpo" else tuple(schema)
        others = (*others, "preset") if preset.stage != stage else others
        for name in filter(is_given, others):
            option = next(each for each in _parameters() if each.name == name).opts[0]
            raise click.UsageError(f"{option} does not go with --stage {stage}. Leave it out.")
        if stage == "grpo":
            _check_needs_of_grpo(rest)
            check_key("rollouts", chosen["rollouts"], "KBQA_SERVER_API_KEY")
        command(*args, stage=stage, grpo=GrpoConfig(**chosen), **rest)

    schema = _described(GrpoConfig)
    decorated = _with_options(with_stage, schema, GrpoConfig())
    return click.option(
        "--stage",
        type=click.Choice(get_args(Stage)),
        default="sft",
        show_default=True,
        help="Train on gold paths (sft), or train an adapter further by the F1 of the paths that "
        "it writes (grpo).",
    )(decorated)


def _of(config: type[Any], preset: Preset) -> dict[str, Any]:
    """Return the settings of a preset that a configuration has."""
    names = {each.name for each in fields(config)}
    return {name: value for name, value in preset.settings.items() if name in names}


def check_composed(count: int, graph: GraphChoice) -> None:
    """Check that there is a graph to compose questions on.

    Raises:
        UsageError: Questions are wanted, and no graph is given.
    """
    if count and graph.is_demo:
        raise click.UsageError("--composed-questions needs a graph: give --store or --endpoint")


def is_given(name: str) -> bool:
    """Return whether the user chose a parameter, as a flag, in the environment or in a file."""
    source = click.get_current_context().get_parameter_source(name)
    return source not in (None, ParameterSource.DEFAULT)


def _parameters() -> list[click.Parameter]:
    return click.get_current_context().command.params


def _check_needs_of_grpo(given: Mapping[str, object]) -> None:
    if not given["start"]:
        raise click.UsageError("--stage grpo needs --start DIR, an adapter trained on gold paths")
    if not given["files"]:
        raise click.UsageError("--stage grpo needs --data FILE, questions to write paths for")
    graph = given["graph"]
    assert isinstance(graph, GraphChoice)
    if graph.is_demo:
        raise click.UsageError(
            "--stage grpo needs a graph to run paths on: --store DIR or --endpoint URL"
        )


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


def _described(config: type[Any]) -> dict[str, dict[str, Any]]:
    """Return the JSON schemas of the settings that have a description, by name."""
    properties = TypeAdapter(config).json_schema()["properties"]
    return {name: setting for name, setting in properties.items() if "description" in setting}


def _with_options(command: Command, schema: dict[str, dict[str, Any]], defaults: object) -> Command:
    for name, setting in reversed(schema.items()):
        command = _option(name, setting, getattr(defaults, name))(command)
    return command


def _option(name: str, setting: dict[str, Any], default: Any) -> Callable[[Command], Command]:
    is_list = setting["type"] == "array"
    return click.option(
        "--format" if name == "crp_format" else f"--{name.replace('_', '-')}",
        name,
        type=_click_type(setting),
        is_flag=setting["type"] == "boolean",
        callback=_names if is_list else None,
        metavar="NAME,…" if is_list else None,
        default=_shown(default) if is_list else default,
        show_default=default is not False,
        help=setting["description"],
    )


def _click_type(setting: dict[str, Any]) -> "click.ParamType[Any]":
    match setting:
        case {"enum": values}:
            return click.Choice(values)
        case {"type": "integer", "minimum": least}:
            return click.IntRange(least)
        case {"type": "number", "exclusiveMinimum": least}:
            return click.FloatRange(least, min_open=True)
        case {"type": "number", "minimum": least, "exclusiveMaximum": limit}:
            return click.FloatRange(least, limit, max_open=True)
        case {"type": "number", "minimum": least}:
            return click.FloatRange(least)
        case {"type": "integer"}:
            return click.INT
        case {"type": "boolean"}:
            return click.BOOL
        case _:
            return click.STRING


def _names(_context: click.Context, _parameter: click.Parameter, value: str) -> tuple[str, ...]:
    """Split names at their commas."""
    names = tuple(name.strip() for name in value.split(",") if name.strip())
    if not names:
        raise click.BadParameter("names no layer")
    return names


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
    """The question sets that the user chose.

    Attributes:
        files: Question sets.
        scored: Test sets to keep out of training.
        demo_questions: How many questions on the demo graph to add at most.
        composed_questions: How many to compose of those of the files and of facts of the graph.
        seed: Decides which questions on the demo graph and which part of a set are taken.
        weights: How often to take the examples of a set, by its name; once if it is missing.
        valid_size: Questions of each set to hold out.
        fold: Families that are left out as well; none if it is None.
    """

    files: tuple[Path, ...]
    scored: tuple[Path, ...]
    demo_questions: int
    composed_questions: int
    seed: int
    weights: Mapping[str, float] = field(default_factory=dict)
    valid_size: int = 0
    fold: Fold | None = None

    def load(self, form: TargetForm, graph: Graph | None) -> ExampleSet:
        """Read the examples; see `load_examples`.

        Args:
            form: The text form of the targets.
            graph: Names entities that a file does not name. Without it, nothing is composed.

        Raises:
            InputError: A file is missing or unreadable, or names few of its entities and there is
                no graph to name them.
            GraphError: The graph does not answer.
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
