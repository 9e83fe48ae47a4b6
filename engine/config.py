"""Settings from outside the command line: `kbqa.toml`, and KBQA_ variables.

    store = "/data/freebase"     # every command that has --store

    [ask]                        # kbqa ask only
    set = ["order=full-first"]

    [crp.run]                    # kbqa crp run only
    timeout = 5

Keys are the options' long names without dashes in front. A flag wins over the environment, the
environment over the file. The file may come with a folder of somebody else, so it can neither have
a key of the environment sent anywhere nor open `kbqa serve` to other machines. A key that no
command has is refused, and a variable that none reads is reported, since a typing error would
otherwise ask the wrong graph without a word.
"""

import difflib
import os
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import click
from click.core import ParameterSource

from kbqa.sparql.errors import InputError

CONFIG_FILE = Path("kbqa.toml")
"""Looked for in the working folder."""

_VARIABLES = (
    "KBQA_CACHE",
    "KBQA_DEBUG",
    "KBQA_LLM_KEY",
    "KBQA_PRECISION",
    "KBQA_QUERY_MEMORY_GB",
    "KBQA_SERVER_API_KEY",
    "KBQA_STORE",
    "KBQA_ENDPOINT",
    "KBQA_TIMEOUT",
    "KBQA_VIA",
    "KBQA_VIA_KEY",
    "KBQA_VERBOSE",
)
"""Variables that are not named after a command."""


def read_config(path: Path = CONFIG_FILE) -> Mapping[str, object]:
    """Read a configuration file; an absent one is empty.

    Raises:
        InputError: The file cannot be read, or is not TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error


def check_config(config: Mapping[str, object], commands: Mapping[str, click.Command]) -> None:
    """Check that every table of a configuration names a command, and every key above an option.

    Args:
        config: As `read_config` returns it.
        commands: By name; looked at only if there is something to check.

    Raises:
        InputError: A table names no command, or a key is no option of its command, or of any.
    """
    for name, value in config.items():
        if isinstance(value, Mapping):
            if name not in commands:
                raise InputError(f"{CONFIG_FILE}: [{name}] is not a command of kbqa")
            command_defaults(config, commands[name], name)
            continue
        known = {option for command in commands.values() for option in _all_options(command)}
        if name not in known:
            raise InputError(
                f"{CONFIG_FILE}: no command has an option {name!r}{_meant(name, sorted(known))}"
            )


def unknown_variables(command: click.Command, name: str, others: Iterable[str]) -> list[str]:
    """Describe the KBQA_ variables of the environment that nothing reads, a sentence each.

    Args:
        command: The command that is called.
        name: Its name.
        others: Names of all commands; variables of the others are not looked at.
    """
    known = {*_VARIABLES, *_variables(command)}
    prefixes = [f"KBQA_{other.replace('-', '_').upper()}_" for other in others if other != name]
    passed_over = ("KBQA_TEST_", *prefixes)
    return [
        f"nothing reads {variable}{_meant(variable, sorted(known), 'KBQA_')}"
        for variable in sorted(os.environ)
        if variable.startswith("KBQA_")
        and variable not in known
        and not variable.startswith(passed_over)
    ]


def is_from_file(parameter: str) -> bool:
    """Return whether a parameter of the command that runs has its value from `kbqa.toml`."""
    source = click.get_current_context().get_parameter_source(parameter)
    return source is ParameterSource.DEFAULT_MAP


def check_key(parameter: str, server: str, variable: str) -> None:
    """Check that a key of the environment goes only to a server that the user has named.

    The file in the working folder may be somebody else's.

    Args:
        parameter: What names the server.
        server: Its URL, or what else to call it.
        variable: Where the key is.

    Raises:
        InputError: The file names the server.
    """
    from kbqa.kb.endpoint.address import hide_secrets

    if os.environ.get(variable) and is_from_file(parameter):
        command = click.get_current_context().command
        option = next(each for each in command.params if each.name == parameter)
        raise InputError(
            f"{CONFIG_FILE} in the working folder has the key in {variable} sent to "
            f"{hide_secrets(server)}. If you trust that server, name it by {option.opts[0]} or "
            f"{option.envvar}; if not, take it out of {CONFIG_FILE} or unset {variable}"
        )


def _all_options(command: click.Command) -> list[str]:
    """List the long names of the options of a command and of those below it."""
    if isinstance(command, click.Group):
        return [each for below in command.commands.values() for each in _all_options(below)]
    return list(_options(command))


def _variables(command: click.Command) -> list[str]:
    """List the variables that the options of a command are read from."""
    if isinstance(command, click.Group):
        return [each for below in command.commands.values() for each in _variables(below)]
    found: list[str] = []
    for parameter in command.params:
        names = parameter.envvar or ()
        found += [names] if isinstance(names, str) else names
    return found


def _meant(name: str, known: Sequence[str], prefix: str = "") -> str:
    """Return a question about the name that was probably meant, or nothing."""
    rest = [each.removeprefix(prefix) for each in known]  # what all share makes none alike
    close = difflib.get_close_matches(name.removeprefix(prefix), rest, 1)
    return f"; did you mean {prefix}{close[0]}?" if close else ""


def command_defaults(
    config: Mapping[str, object], command: click.Command, name: str
) -> dict[str, object]:
    """Pick a command's defaults out of a configuration, in the shape of click's `default_map`.

    Raises:
        InputError: The command's table holds a key that is none of its options, or a value that no
            option can have.
    """
    shared = {key: value for key, value in config.items() if not isinstance(value, Mapping)}
    return _defaults(shared, config.get(name, {}), command, name)


def _defaults(
    shared: Mapping[str, object], table: object, command: click.Command, name: str
) -> dict[str, object]:
    if not isinstance(table, Mapping):
        raise InputError(f"{CONFIG_FILE}: {name} is a command, so [{name}] must be a table")
    if isinstance(command, click.Group):
        known = list(command.commands)
    else:
        options = _options(command)
        known = list(options)
    for key in table:
        if key not in known:
            raise InputError(f"{CONFIG_FILE}: [{name}] has no option {key!r}")
    if isinstance(command, click.Group):
        return {
            key: _defaults(shared, table.get(key, {}), below, f"{name}.{key}")
            for key, below in command.commands.items()
        }
    values = {**shared, **table}
    return {
        str(options[key].name): _as_typed(value, key, options[key])
        for key, value in values.items()
        if key in options
    }


def _as_typed(value: object, key: str, option: click.Option) -> object:
    """Return a value of the file as it would be typed: text, or a list of texts if repeatable."""
    several = value if isinstance(value, list) and option.multiple else [value]
    if not all(isinstance(each, str | int | float) for each in several):
        raise InputError(f"{CONFIG_FILE}: {key} is {value!r}, which no option can be")
    texts = [str(each) for each in several]
    if any("\0" in text for text in texts):  # not even the command line can hold it
        raise InputError(f"{CONFIG_FILE}: {key} holds a NUL character, which no option can")
    return texts if option.multiple else texts[0]


def _options(command: click.Command) -> dict[str, click.Option]:
    """Map the long names of a command's options to the options."""
    return {
        text.removeprefix("--"): parameter
        for parameter in command.params
        if isinstance(parameter, click.Option)
        for text in parameter.opts
        if text.startswith("--")
    }
