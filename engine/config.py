"""Read `kbqa.toml`, which gives the command line's options other defaults.

    store = "/data/freebase"     # every command that has --store

    [ask]                        # kbqa ask only
    gold-entities = true

    [crp.run]                    # kbqa crp run only
    timeout = 5

Keys are the options' long names without dashes in front. A flag wins over the environment, the
environment over the file.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path

import click

from kbqa.sparql.errors import InputError

CONFIG_FILE = Path("kbqa.toml")
"""Looked for in the working folder."""


def read_config(path: Path = CONFIG_FILE) -> Mapping[str, object]:
    """Read a configuration file; an absent one is empty.

    Raises:
        InputError: The file cannot be read, or is not TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error


def check_tables(config: Mapping[str, object], commands: Mapping[str, object]) -> None:
    """Check that every table of a configuration names a command.

    Raises:
        InputError: One does not.
    """
    for name, value in config.items():
        if isinstance(value, Mapping) and name not in commands:
            raise InputError(f"{CONFIG_FILE}: [{name}] is not a command of kbqa")


def command_defaults(
    config: Mapping[str, object], command: click.Command, name: str
) -> dict[str, object]:
    """Pick a command's defaults out of a configuration, in the shape of click's `default_map`.

    Raises:
        InputError: The command's table holds a key that is none of its options.
    """
    shared = {key: value for key, value in config.items() if not isinstance(value, Mapping)}
    return _defaults(shared, config.get(name, {}), command, name)


def _defaults(
    shared: Mapping[str, object], table: object, command: click.Command, name: str
) -> dict[str, object]:
    if not isinstance(table, Mapping):
        raise InputError(f"{CONFIG_FILE}: {name} is a command, so [{name}] must be a table")
    if isinstance(command, click.Group):
        options: dict[str, str] = dict.fromkeys(command.commands, "")
    else:
        options = _option_names(command)
    for key in table:
        if key not in options:
            raise InputError(f"{CONFIG_FILE}: [{name}] has no option {key!r}")
    if isinstance(command, click.Group):
        return {
            key: _defaults(shared, table.get(key, {}), below, f"{name}.{key}")
            for key, below in command.commands.items()
        }
    values = {**shared, **table}
    return {options[key]: value for key, value in values.items() if key in options}


def _option_names(command: click.Command) -> dict[str, str]:
    """Map the long names of a command's options to the names of its parameters."""
    return {
        text.removeprefix("--"): parameter.name
        for parameter in command.params
        for text in parameter.opts
        if text.startswith("--") and parameter.name is not None
    }
