import pytest

import kbqa.sparql


def test_a_former_name_still_works_and_names_the_new_one() -> None:
    with pytest.warns(DeprecationWarning, match=r"kbqa\.sparql\.LiteralTerm"):
        former = kbqa.sparql.Literal
    assert former is kbqa.sparql.LiteralTerm


def test_a_name_that_never_was_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'Literals'"):
        kbqa.sparql.Literals  # noqa: B018
