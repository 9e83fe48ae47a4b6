"""Make a method from its settings, which people write as ``name=value``.

The settings of a method are the fields of a dataclass, ``Annotated[type, "help"]`` with a default.
"""

import importlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    NamedTuple,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from kbqa.engine.files import FORMER_METHODS
from kbqa.engine.methods import METHODS
from kbqa.sparql.errors import InputError

if TYPE_CHECKING:
    from kbqa.engine.answer import Answer
    from kbqa.engine.asked import Method
    from kbqa.engine.deciding.session import Session, WalkingMethod
    from kbqa.engine.resources import MethodMaker, Resources

logger = logging.getLogger(__name__)

T = TypeVar("T")


class SettingHelp(NamedTuple):
    """What `kbqa methods NAME` prints about a setting."""

    name: str
    values: str
    default: str
    text: str


def describe_settings(settings: type[Any]) -> list[SettingHelp]:
    """List the settings of a method, in order."""
    hints = get_type_hints(settings, include_extras=True)
    defaults = settings()
    described = []
    for field in fields(settings):
        kind, text = get_args(hints[field.name])
        default = _written(getattr(defaults, field.name))
        described.append(SettingHelp(field.name, _values(kind), default, text))
    return described


def read_settings(settings: type[T], given: Mapping[str, object], method: str) -> T:
    """Make the settings of a method from values by name: typed, or as text.

    A text of several values has commas between them.

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
    """Raise an `InputError` if a whole number among the settings of a method is below `least`."""
    for name in names:
        value = getattr(settings, name)
        if value < least:
            raise InputError(f"{name} is {value}: use {least} or more")


def check_temperature(temperature: float) -> None:
    """Raise an `InputError` if a temperature is not one that servers of models take."""
    if not 0 <= temperature <= 2:
        raise InputError(f"temperature is {temperature}: use 0 to 2")


def split_settings(texts: Sequence[str]) -> dict[str, object]:
    """Split texts of the form ``name=value``; a value may have another equals sign.

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


def find_method(name: str) -> "MethodMaker":
    """Return how a method is made, from its module; raise an `InputError` if there is none."""
    if name in FORMER_METHODS:
        logger.warning("the method %s is now called %s", name, FORMER_METHODS[name])
        name = FORMER_METHODS[name]
    if name not in METHODS:
        known = ", ".join(METHODS)
        raise InputError(f"there is no method {name!r}. The methods are: {known}.")
    module = importlib.import_module(METHODS[name].module)
    return cast("MethodMaker", getattr(module, name.upper().replace("-", "_")))


def make_method(resources: "Resources", name: str, settings: Mapping[str, object]) -> "Method":
    """Make a method ready to answer, from the values of its settings by name.

    Raises:
        InputError: There is no such method or setting, a value does not fit, or a general model is
            to decide and there is none.
        ModelError: A model that the method needs is missing or broken.
        GraphError: The graph does not answer.
    """
    maker = find_method(name)
    _check_owner(maker, name, settings)
    if resources.chosen_chooser == "llm" and resources.chat is None:
        raise InputError("--chooser llm needs a general model: add --llm URL or --llm-model NAME")
    return maker.make(resources, read_settings(maker.settings, settings, name))


def _check_owner(maker: "MethodMaker", name: str, settings: Mapping[str, object]) -> None:
    """Check that no setting belongs to other methods only."""
    own = {each.name for each in fields(maker.settings)}
    for setting in settings:
        if setting not in own:
            owners = [
                other
                for other in METHODS
                if setting in {each.name for each in fields(find_method(other).settings)}
            ]
            if owners:
                raise InputError(
                    f"{setting} is a setting of {_listed(owners)}, not of {name}. "
                    f"See `kbqa methods {name}`."
                )


def _listed(names: Sequence[str]) -> str:
    """Write names as a list in English: ``a, b and c``."""
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def walking_method(
    name: str,
    settings: type[Any],
    limits: Mapping[str, object],
    answer: "Callable[[Session, Any], Answer]",
    *,
    needs_model: Callable[[Any], str | None] = lambda _: None,
    needs_embedder: Callable[[Any], bool] = lambda _: False,
) -> "MethodMaker":
    """Return how a method is made that answers each question in a session.

    `limits` are what decides its answers besides the settings, for manifests. `needs_model` says
    which of the settings are for a language model alone, and `needs_embedder` whether the embedder
    is needed even if another chooser decides.
    """
    from kbqa.engine.deciding.session import SEED, WalkingMethod
    from kbqa.engine.resources import MethodMaker

    def make(resources: "Resources", chosen: Any) -> "WalkingMethod":
        if needed := needs_model(chosen):
            resources.require_language_model(needed)
        values = asdict(chosen)
        walkers = resources.walkers(values.get("seed", SEED))
        if needs_embedder(chosen):
            walkers.load_embedder()
        decided = {**values, **limits}
        return WalkingMethod(name, walkers, decided, lambda session: answer(session, chosen))

    return MethodMaker(settings, make)
