"""What a question measures, read from its words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbqa.engine.questions.measures import (
    Bound,
    Extreme,
    Kind,
    find_directions,
    find_measures,
    find_values,
)
from kbqa.sparql.terms import LiteralTerm

KINDS: tuple[Kind, ...] = ("number", "date")
PHRASES = st.sampled_from(["more than", "no less than", "before", "the largest", "at least", ""])


@pytest.mark.parametrize(
    ("question", "operator", "value"),
    [
        ("which countries have a calling code greater than 372?", ">", "372"),
        ("what country with an ISO less that 056 borders Russia?", "<", "056"),
        ("which film was released after 2009-08-27?", ">", "2009-08-27"),
        ("what event ended prior to 4 March 1865?", "<", "1865-03-04"),
        ("who was born before June 5th, 1999?", "<", "1999-06-05"),
        ("later than Sept 1998", ">", "1998-09"),
        ("what was adopted after the year 1933?", ">", "1933"),
        ("cities with over 1.5 million people", ">", "1500000"),
        ("who has no more than 5 children?", "<=", "5"),
        ("countries with at least 1,000 islands", ">=", "1000"),
        ("which costs under $20?", "<", "20"),
    ],
)
def test_a_comparison_is_read_with_its_value(question: str, operator: str, value: str) -> None:
    [bound] = find_measures(question)
    assert isinstance(bound, Bound)
    assert (bound.operator, bound.value.text) == (operator, value)


@pytest.mark.parametrize(
    ("question", "extreme"),
    [
        ("what is the largest city in Kenya?", Extreme("number", True)),
        ("which language has the most speakers?", Extreme("number", True)),
        ("which country has the smallest army?", Extreme("number", False)),
        ("what was the most recent film with her?", Extreme("date", True)),
        ("who was the first president of Kenya?", Extreme("date", False)),
    ],
)
def test_an_end_of_an_order_is_read(question: str, extreme: Extreme) -> None:
    assert find_measures(question) == [extreme]


@pytest.mark.parametrize(
    "question",
    [
        "who was first lady in 1990?",
        "what is his last name?",
        "what happened after the war?",
        "which countries border Kenya and Sudan?",
        "who is above 127.0.0.1?",
    ],
)
def test_other_words_measure_nothing(question: str) -> None:
    assert not find_measures(question)


@pytest.mark.parametrize(
    ("bound", "kinds"),
    [
        (Bound(">", LiteralTerm("372")), {"number"}),
        (Bound(">", LiteralTerm("1865-03-04")), {"date"}),
        (Bound(">", LiteralTerm("1933")), {"number", "date"}),
    ],
)
def test_a_year_can_be_compared_as_a_number_and_as_a_date(bound: Bound, kinds: set[str]) -> None:
    assert {kind for kind in KINDS if bound.measures(kind)} == kinds


@pytest.mark.parametrize(
    ("question", "values"),
    [
        ("who was born on 1976-04-05 in the city?", ["1976-04-05"]),
        ("with an army of 445,000, what country is it?", ["445000"]),
        ("who did he play for in 2011?", ["2011"]),
        ("which country has the ISO numeric 056?", ["ISO", "056", "iso"]),
        ("which language has the initials EPO.?", ["EPO", "epo"]),
        ('which program has a "thetvdb_id" of 72143?', ["72143", "thetvdb_id"]),
        ("which country has a calling code greater than 372?", []),
        ("what are the 4 nations of the UK?", ["UK", "uk"]),
        ("which computer has the address 127.0.0.1?", []),
    ],
)
def test_values_are_those_that_nothing_is_compared_with(question: str, values: list[str]) -> None:
    assert sorted(each.text for each in find_values(question)) == sorted(values)


@given(st.text(st.sampled_from('0123456789.,-/ $"²٣AB') | st.characters(), max_size=30), PHRASES)
def test_any_text_can_be_read(text: str, phrase: str) -> None:
    for question in (text, f"{phrase} {text}", f"{text} {phrase} 12 {text} March {text} 1999"):
        assert all(each.text for each in find_values(question))
        find_measures(question)


@pytest.mark.parametrize(
    ("question", "kind", "orders", "directions"),
    [
        ("is it larger than that?", "number", False, {True}),
        ("is it older than that?", "date", False, {False}),
        ("is he older than her?", "number", False, {True}),
        ("is he older than her?", None, False, set()),
        ("which is the youngest?", "date", True, {True}),
        ("which is the largest?", "number", False, set()),
        ("which is the largest with fewer people?", "number", True, {True, False}),
        ("which is not larger?", "number", False, set()),
        ("has it at least 5, or more than 7?", "number", True, set()),
        ("what is its first name?", "date", True, set()),
    ],
)
def test_comparison_words_have_a_direction(question, kind, orders, directions):
    assert find_directions(question, kind, orders=orders) == directions
