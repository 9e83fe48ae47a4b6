import pytest

from kbqa.engine.questions.operators import find_unaccounted
from kbqa.sparql.forms import read_crp

USES = "Euro <- location.country.currency_used"
CONTAINS = "Europe -> location.location.contains"
HIGHEST = "Alps -> location.location.contains\nlargest{} ?x -> geography.mountain.elevation"


def unaccounted(
    question: str, text: str, *names: str, are_numbers: bool = False
) -> tuple[str, ...]:
    crp, problems = read_crp(text)
    assert not problems
    return find_unaccounted(question, crp, names, are_numbers=are_numbers)


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


def test_the_words_of_names_and_quotations_do_not_count():
    assert unaccounted("who plays in the third man?", "The Third Man -> film.film.starring") == ()
    assert unaccounted("who sings “How Many Roads”?", USES) == ()
    assert unaccounted("who is in the fifth element?", USES, "the fifth element") == ()


def test_numbers_answer_how_many():
    assert unaccounted("how many floors has it?", USES, are_numbers=True) == ()
