"""Find how a method is made, and make the method from its settings."""

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import cast

from kbqa.engine.method import Method
from kbqa.engine.methods import METHODS
from kbqa.engine.methods.settings import read_settings
from kbqa.engine.resources import MethodMaker, Resources
from kbqa.sparql.errors import InputError


def find_method(name: str) -> MethodMaker:
    """Return how a method is made, from its module.

    Raises:
        InputError: There is no such method.
    """
    if name not in METHODS:
        known = ", ".join(METHODS)
        raise InputError(f"there is no method {name!r}. The methods are: {known}.")
    module = importlib.import_module(METHODS[name].module)
    return cast(MethodMaker, getattr(module, name.upper().replace("-", "_")))


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
    maker = find_method(name)
    _check_owner(maker, name, settings)
    if resources.chosen_chooser == "llm" and resources.chat is None:
        raise InputError("--chooser llm needs a general model: add --llm URL or --llm-model NAME")
    return maker.make(resources, read_settings(maker.settings, settings, name))


def _check_owner(maker: MethodMaker, name: str, settings: Mapping[str, object]) -> None:
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
