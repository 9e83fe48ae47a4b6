"""The options of `kbqa train-crp` that decide the result of a run: a preset, and what differs."""

import functools
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, get_args

import click

from kbqa.training.config import FULL_LEARNING_RATE, PRESETS, TrainingConfig
from kbqa.training.crp_targets import TargetForm

Command = Callable[..., None]

_DEFAULT = TrainingConfig()
_NAMES = frozenset(field.name for field in fields(TrainingConfig))


def config_options(command: Command) -> Command:
    """Add `--preset` and an option for each setting; the command takes `config: TrainingConfig`.

    An option that is given, by flag, environment or file, wins over the preset.
    """

    @click.option(
        "--preset",
        type=click.Choice(list(PRESETS)),
        default="kbqa",
        show_default=True,
        help="Settings by name, below; each option that is given wins over the preset's.",
    )
    @_setting("base", str, "Model id or folder.")
    @_setting("epochs", click.IntRange(1), "Passes over the examples, at most.")
    @_setting("batch_size", click.IntRange(1), "Examples a batch.")
    @_setting(
        "accumulate",
        click.IntRange(1),
        "Batches a step. Processes that `torchrun` started share them: give at least as many.",
    )
    @_setting(
        "learning_rate",
        click.FloatRange(0, min_open=True),
        "The highest, reached at the end of the warm-up.",
        shown=f"{_DEFAULT.learning_rate:g}, with --full {FULL_LEARNING_RATE:g}",
    )
    @_flag("full", "Train all weights, and write a whole model instead of an adapter.")
    @_setting("lora_rank", click.IntRange(1), "Rank of the update matrices.")
    @_setting("lora_alpha", click.IntRange(1), "Scale of the update, divided by the rank.")
    @_setting(
        "lora_dropout",
        click.FloatRange(0, 1, max_open=True),
        "Share of its inputs that the adapter does not see in training.",
    )
    @click.option(
        "--lora-targets",
        callback=_names,
        metavar="NAME,…",
        show_default=",".join(_DEFAULT.lora_targets),
        help="Linear layers that are adapted; `all` for all but the one that writes out.",
    )
    @click.option(
        "--format",
        "crp_format",
        type=click.Choice(get_args(TargetForm)),
        show_default=_DEFAULT.crp_format,
        help="Text form to learn: RouterKGQA's, or kbqa's own.",
    )
    @_setting("max_length", click.IntRange(16), "Longer examples, in tokens, are left out.")
    @_flag("gradient_checkpointing", "Need less memory, and take more time.")
    @_setting(
        "checkpoint_steps",
        click.IntRange(1),
        "Steps between checkpoints, besides the one at the end of each epoch.",
    )
    @_setting(
        "validate_every",
        click.IntRange(1),
        "Steps between validations.",
        shown="one at the end of each epoch",
    )
    @_setting(
        "valid_generate",
        click.IntRange(0),
        "Held-out questions to answer at each validation: the best weights are those that write "
        "most main paths exactly. With 0 they are those of the lowest loss.",
    )
    @_setting(
        "patience",
        click.IntRange(0),
        "Validations without a better one after which the run stops early; 0 for never.",
    )
    @_setting(
        "seed",
        int,
        "Decides initial weights, dropout, and which examples are drawn, held out and come when.",
    )
    @functools.wraps(command)
    def with_config(*args: object, preset: str, **rest: object) -> None:
        given: dict[str, Any] = {name: rest.pop(name) for name in _NAMES & rest.keys()}
        settings: dict[str, Any] = dict(PRESETS[preset].settings)
        if given["full"] and "learning_rate" not in settings:
            settings["learning_rate"] = FULL_LEARNING_RATE
        settings |= {name: value for name, value in given.items() if value is not None}
        command(*args, config=replace(_DEFAULT, **settings), **rest)

    return with_config


def preset_help() -> str:
    """Say what each preset means, for `--help`."""
    paragraphs = []
    for name, preset in PRESETS.items():
        settings = ", ".join(
            f"{one.replace('_', ' ')} {_shown(value)}" for one, value in preset.settings.items()
        )
        paragraphs.append(f"Preset {name} ({preset.source}): {settings or 'the defaults above'}.")
    return "\n\n".join(paragraphs)


def _setting(
    name: str, kind: "click.ParamType[Any] | type", says: str, shown: str | None = None
) -> Callable[[Command], Command]:
    return click.option(
        _flag_name(name),
        type=kind,
        show_default=shown or _shown(getattr(_DEFAULT, name)),
        help=says,
    )


def _flag(name: str, says: str) -> Callable[[Command], Command]:
    return click.option(_flag_name(name), is_flag=True, default=None, help=says)


def _flag_name(setting: str) -> str:
    return f"--{setting.replace('_', '-')}"


def _names(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> tuple[str, ...] | None:
    """Split names at their commas."""
    if value is None:
        return None
    names = tuple(name.strip() for name in value.split(",") if name.strip())
    if not names:
        raise click.BadParameter("names no layer")
    return names


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
