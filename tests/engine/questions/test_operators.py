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
        ("when was the euro introduced?", "when"),
        ("how old is the euro?", "how old"),
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
        ("when is the final?", "Cup -> time.event.start_date"),
        ("when did they win?", "Team -> sports.sports_team.championships"),
        ("when I go to Kenya, what do I pay with?", "Kenya -> location.country.currency_used"),
        ("how long is the Nile?", "Nile -> geography.river.length"),
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
            "how long is the largest river of Europe?",
            "Europe -> a.contains\nlargest ?x -> geography.river.length",
            ("how long",),
        ),
        (
            "how long is the largest river of Europe?",
            "Europe -> a.contains -> geography.river.length\nlargest ?1 -> a.basin",
            (),
        ),
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


@pytest.mark.parametrize(
    ("question", "value", "words"),
    [
        ("which countries have more than 60 million people?", "60000000", ()),
        ("which countries have more than 60 million people?", "6000000", ("60 million",)),
        ("which countries have more than sixty million people?", "600", ("sixty million",)),
        ("which have over two and a half million people?", "2500000", ()),
        ("which have over half a million people?", "1000000", ("half a million",)),
        ("which have over 1,500 people?", "1500", ()),
        ("which have over 1,5 million people?", "1500000", ()),
        ("which have over 1,234.5 people?", "1234.5", ()),
        ("which of the 27 have over two hundred and fifty?", "250", ()),
        ("which have more than 2.5e+07 people?", "25000000", ()),
        ("which have more people than most?", "100", ()),
        ("which of the 27 had it then?", "1993", ()),
    ],
)
def test_a_path_compares_with_the_numbers_that_the_question_says(question, value, words):
    path = f"{CONTAINS}\n?x -> location.statistical_region.population > {value}"
    assert unaccounted(question, path) == words


@pytest.mark.parametrize(
    ("question", "constraint", "words"),
    [
        ("which city of a billion is in Europe?", "", ("billion",)),
        ("which city of 2,500,000 people is in Europe?", "", ("2,500,000",)),
        ("what was in Europe in 1848?", "", ()),
        ("what in Europe has the address 127.0.0.1?", "", ()),
        ("what are the four nations of Europe?", "", ()),
        ("which city of a billion is in Europe?", "?x -> a.founded > 1848", ("billion",)),
        ("where in Europe is the calling code 501?", '?x -> a.calling_code reads "501"', ()),
        ("where in Europe is the ISO 3166 code AT?", '?x -> a.iso3166_1 reads "AT"', ()),
        ("what are the 100 largest cities of Europe?", "largest 100 ?x -> a.population", ()),
        ("which of the Fortune 500 are in Europe?", "?x -> a.list = Fortune 500 (list)", ()),
    ],
)
def test_a_large_number_is_somewhere_in_the_path(question, constraint, words):
    assert unaccounted(question, f"{CONTAINS}\n{constraint}") == words


@pytest.mark.parametrize(
    ("question", "form", "words"),
    [
        ("what countries use both the euro and the franc?", "ask", ("what",)),
        ("in which countries is the euro used?", "count", ("which",)),
        ("what is the number of countries with the euro?", "count", ()),
        ("is the euro used?", "ask", ()),
        ("name the countries with the euro", "ask", ()),
    ],
)
def test_yes_no_and_counts_do_not_say_which(question, form, words):
    assert unaccounted(question, f"{USES}\n?x = France\n{form}") == words


@pytest.mark.parametrize("number", ["1e99", "15e3", "1e+5", "1.5e3", "2,5e-3", "1e999"])
def test_a_number_with_an_exponent_is_read(number: str) -> None:
    crp = read_crp("Kenya -> a.b").crp
    assert isinstance(find_unaccounted(f"more than {number}", crp, {}), tuple)
