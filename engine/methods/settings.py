"""Settings of methods, as people write them: ``name=value``, typed by the method's dataclass."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from kbqa.sparql.errors import InputError

T = TypeVar("T")


class SettingHelp(NamedTuple):
    """What `kbqa methods NAME` prints about a setting."""

    name: str
    values: str
    default: str
    text: str


def describe_settings(settings: type[Any]) -> list[SettingHelp]:
    """List the settings of a method, in order.

    Args:
        settings: A dataclass whose fields are ``Annotated[type, "help"]``, each with a default.
    """
    hints = get_type_hints(settings, include_extras=True)
    defaults = settings()
    described = []
    for field in fields(settings):
        kind, text = get_args(hints[field.name])
        default = _written(getattr(defaults, field.name))
        described.append(SettingHelp(field.name, _values(kind), default, text))
    return described


def read_settings(settings: type[T], given: Mapping[str, object], method: str) -> T:
    """Make the settings of a method from names and values.

    Args:
        settings: As for `describe_settings`.
        given: Values by name: typed, or as text; a text of several values has commas between them.
        method: Its name, for messages.

    Raises:
        InputError: A name is none of the method's settings, or a value does not fit.
    """
    from pydantic import TypeAdapter, ValidationError

    known = {each.name: each for each in describe_settings(settings)}
    hints = get_type_hints(settings)
    values: dict[str, object] = {}
    for name, value in given.items():
        if name not in known:
            names = ", ".join(known) or "none"
            raise InputError(f"the method {method} has no setting {name!r}. It has: {names}.")
        if isinstance(value, str) and get_origin(hints[name]) is tuple:
            parts = [part.strip() for part in value.split(",") if part.strip()]
            value = [] if parts == ["none"] else parts
        values[name] = None if value == "none" and type(None) in get_args(hints[name]) else value
    try:
        return TypeAdapter(settings).validate_python(values)
    except ValidationError as error:
        name = str(error.errors()[0]["loc"][0])
        raise InputError(
            f"--set {name}={given[name]}: {name} is {known[name].values}. "
            f"See `kbqa methods {method}`."
        ) from None


def check_counts(settings: Any, *names: str, least: int = 1) -> None:
    """Check that whole numbers among the settings of a method are not too small.

    Raises:
        InputError: One is below `least`.
    """
    for name in names:
        value = getattr(settings, name)
        if value < least:
            raise InputError(f"{name} is {value}: use {least} or more")


def check_temperature(temperature: float) -> None:
    """Check that a temperature is one that servers of models take.

    Raises:
        InputError: It is not between 0 and 2.
    """
    if not 0 <= temperature <= 2:
        raise InputError(f"temperature is {temperature}: use 0 to 2")


def split_settings(texts: Sequence[str]) -> dict[str, object]:
    """Split texts of the form ``name=value``.

    >>> split_settings(["width=5", "embedder=a=b"])
    {'width': '5', 'embedder': 'a=b'}

    Raises:
        InputError: A text is of another form, or names a setting twice.
    """
    values: dict[str, object] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise InputError(f"--set {text}: write it as name=value, as in --set width=5")
        if name in values:
            raise InputError(f"--set {name} is given twice")
        values[name] = value
    return values


def _values(kind: Any) -> str:
    """Name the values that a setting may have."""
    if get_origin(kind) is Literal:
        return " or ".join(map(str, get_args(kind)))
    if get_origin(kind) is tuple:
        return f"any of {', '.join(map(str, get_args(get_args(kind)[0])))}, with commas"
    if arguments := [each for each in get_args(kind) if each is not type(None)]:
        return " or ".join(map(_values, arguments))
    return {int: "a whole number", float: "a number", bool: "yes or no", str: "a text"}.get(
        kind, "the path of a file"
    )


def _written(default: object) -> str:
    if isinstance(default, bool):
        return "yes" if default else "no"
    if isinstance(default, tuple):
        return ",".join(map(str, default)) or "none"
    return "none" if default is None else str(default)
