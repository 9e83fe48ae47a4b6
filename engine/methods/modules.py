"""Find the module of a method, and make the method from its settings."""

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Protocol, cast

from kbqa.engine.method import Method
from kbqa.engine.methods import METHODS
from kbqa.engine.methods.settings import read_settings
from kbqa.engine.resources import Resources
from kbqa.sparql.errors import InputError


class MethodModule(Protocol):
    """What the module of a method offers."""

    SETTINGS: type[Any]

    def make(self, resources: Resources, settings: Any) -> Method:
        """Make the method ready to answer.

        Raises:
            InputError: The settings contradict each other or what there is to work with.
            ModelError: A model that the method needs is missing or broken.
            GraphError: The graph does not answer.
        """


def find_method(name: str) -> MethodModule:
    """Import the module of a method.

    Raises:
        InputError: There is no such method.
    """
    if name not in METHODS:
        known = ", ".join(METHODS)
        raise InputError(f"there is no method {name!r}. The methods are: {known}.")
    return cast(MethodModule, importlib.import_module(METHODS[name].module))


def make_method(resources: Resources, name: str, settings: Mapping[str, object]) -> Method:
    """Make a method ready to answer.

    Args:
        resources: What it works with.
        name: In the table of methods.
        settings: By name, typed or as text.

    Raises:
        InputError: There is no such method or setting, a value does not fit, or a general model is
            to decide and there is none.
        ModelError: A model that the method needs is missing or broken.
        GraphError: The graph does not answer.
    """
    module = find_method(name)
    _check_owner(module, name, settings)
    if resources.chosen_chooser == "llm" and resources.chat is None:
        raise InputError("--chooser llm needs a general model: add --llm URL or --llm-model NAME")
    return module.make(resources, read_settings(module.SETTINGS, settings, name))


def _check_owner(module: MethodModule, name: str, settings: Mapping[str, object]) -> None:
    """Check that no setting belongs to other methods only."""
    own = {each.name for each in fields(module.SETTINGS)}
    for setting in settings:
        if setting not in own:
            owners = [
                other
                for other in METHODS
                if setting in {each.name for each in fields(find_method(other).SETTINGS)}
            ]
            if owners:
                raise InputError(
                    f"{setting} is a setting of {_listed(owners)}, not of {name}. "
                    f"See `kbqa methods {name}`."
                )


def _listed(names: Sequence[str]) -> str:
    """Write names as a list in English: ``a, b and c``."""
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
