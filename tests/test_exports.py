"""Each package lists what it offers, sorted, and offers nothing else."""

import importlib
from types import ModuleType

import pytest


@pytest.mark.parametrize("name", ["kbqa", "kbqa.sparql", "kbqa.kb"])
def test_public_names_are_listed_and_sorted(name: str) -> None:
    package = importlib.import_module(name)
    assert package.__all__ == sorted(set(package.__all__))
    assert all(hasattr(package, exported) for exported in package.__all__)
    assert _offered(package) <= set(package.__all__)


@pytest.mark.parametrize("name", ["kbqa.engine", "kbqa.training"])
def test_packages_behind_the_facade_offer_modules_only(name: str) -> None:
    assert _offered(importlib.import_module(name)) == set()


def _offered(package: ModuleType) -> set[str]:
    return {
        name
        for name, value in vars(package).items()
        if not name.startswith("_")
        and name != "TYPE_CHECKING"
        and not isinstance(value, ModuleType)
    }


def test_a_name_that_never_was_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'Literals'"):
        importlib.import_module("kbqa.sparql").Literals  # noqa: B018
