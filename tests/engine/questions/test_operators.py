from collections.abc import Mapping

import pytest

from kbqa.engine.questions.operators import find_unaccounted
from kbqa.sparql.forms import read_crp

USES = "Euro <- location.country.currency_used"
CONTAINS = "Europe -> location.location.contains"
HIGHEST = "Alps -> location.location.contains\nlargest{} ?x -> geography.mountain.elevation"
ELEMENT = "m.0f3m1 -> film.film.starring"


def unaccounted(
    question: str, text: str, mentions: Mapping[str, str] = {}, *, are_numbers: bool = False
) -> tuple[str, ...]:
    crp, problems = read_crp(text)
    assert not problems
    return find_unaccounted(question, crp, mentions, are_numbers=are_numbers)


@pytest.mark.parametrize(
    ("question", "word"),
    [
        ("which European countries do not use the euro?", "not"),
        ("which countries don't use the euro?", "don't"),
        ("which countries use no euro?", "no"),
        ("which countries except France use the euro?", "except"),
        ("how many countries use the euro?", "how many"),
        ("does France use the euro?", "does"),
        ("what is the third country that uses the euro?", "third"),
        ("what is the second-largest country with the euro?", "second-largest"),
        ("who was the first to use the euro?", "first"),
        ("which countries with more than 50 million people use the euro?", "more than"),
        ("which countries with at least half a million people use the euro?", "at least"),
        ("which countries use the euro since 2007?", "since"),
        ("which countries use both the euro and the franc?", "both"),
        ("the average area of the countries with the euro", "average"),
    ],
)
def test_a_word_that_a_path_passes_over_is_found(question, word):
    assert word in unaccounted(question, USES)


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("which countries in Europe do not use the euro?", f"{CONTAINS}\n?x no -> a.b"),
        ("how many countries are in Europe?", f"{CONTAINS}\ncount"),
        ("how many members has the union?", "Union -> organization.organization.number_of_members"),
        ("is Paris in Europe?", f"{CONTAINS}\n?x = Paris\nask"),
        ("do you know the currency?", USES),
        ("what is the highest mountain of the Alps?", HIGHEST.format("")),
        ("the third highest mountain of the Alps", HIGHEST.format(" 1 after 2")),
        ("who wrote it first?", "Book -> book.written_work.date_of_first_publication"),
        ("which schools teach no less than 50 pupils?", f"{CONTAINS}\n?x -> a.pupils >= 50"),
    ],
)
def test_a_word_that_a_path_expresses_is_not(question, text):
    assert unaccounted(question, text) == ()


@pytest.mark.parametrize(
    ("question", "text", "words"),
    [
        (
            "which European countries do not use the euro?",
            "Euro <- a.currency_used\n?x no -> a.containedby = Europe",
            ("not",),
        ),
        (
            "which European countries do not use the euro?",
            "Europe -> a.contains\n?x no -> a.currency_used = Euro",
            (),
        ),
        (
            "which countries with the euro are not in Europe?",
            "Euro <- a.currency_used\n?x no -> a.containedby = Europe",
            (),
        ),
        ("which countries with the euro have no king?", "Euro <- a.b\n?x no -> a.king", ()),
        (
            "which neighbours of France, except Spain, use the euro?",
            "France -> a.adjoins\n?x != Spain\n?x -> a.currency_used = Euro",
            (),
        ),
    ],
)
def test_what_is_negated_stands_behind_the_word(
    question: str, text: str, words: tuple[str, ...]
) -> None:
    assert unaccounted(question, text) == words


def test_the_words_of_names_and_quotations_do_not_count():
    assert unaccounted("who plays in the third man?", "The Third Man -> film.film.starring") == ()
    assert unaccounted("who sings “How Many Roads”?", USES) == ()
    assert (
        unaccounted("who is in the fifth element?", ELEMENT, {"m.0f3m1": "the fifth element"}) == ()
    )


def test_numbers_answer_how_many():
    assert unaccounted("how many floors has it?", USES, are_numbers=True) == ()
