import pytest

from kbqa.engine.questions.words import find_aggregate, unlike_a_question


@pytest.mark.parametrize("text", ["hello", "thanks", "Good morning!", "?"])
def test_small_talk_is_not_searched_for_a_better_reason(text: str) -> None:
    assert unlike_a_question(text) == "this does not look like a question"


@pytest.mark.parametrize(
    "text",
    [
        "Quelle est la capitale du Mali ?",
        "Wer ist der Autor von Faust?",
        "Где находится Киев?",
        "Wer hat Apple gegründet?",
        "In quale paese si trova Salisburgo?",
    ],
)
def test_a_question_in_another_language_is_called_so(text: str) -> None:
    assert unlike_a_question(text) == "the question does not look like English"


@pytest.mark.parametrize(
    "text", ["capital of Mali", "france capital", "who wrote La Vie en Rose", "who is Los Lobos"]
)
def test_key_words_and_foreign_titles_are_let_through(text: str) -> None:
    assert unlike_a_question(text) is None


@pytest.mark.parametrize(
    ("question", "form"),
    [
        ("average area of the countries in Europe", "average"),
        ("how tall are the Beatles on average?", "average"),
        ("what is the mean height of mountains in Peru?", "average"),
        ("what is the total area of all the countries in South America?", "sum"),
        ("total population of Kenya and Uganda", "sum"),
        ("how many people live in France and Germany together", "sum"),
        ("how many counties do Texas and Georgia have between them?", "sum"),
        ("what is the combined population of Kenya and Uganda?", "sum"),
        ("how much bigger is Sudan than Kenya in square km", "difference"),
        ("how many more people live in France than in Spain?", "difference"),
        ("what's the difference in elevation between Quito and La Paz?", "difference"),
        ("what is the height difference between Ben and Tom?", "difference"),
        ("which waterfall has an average rate of flow of 934?", None),
        ("which county has 1.19 as total CO2 emissions?", None),
        ("what is the total number of counties in Texas?", None),
        ("who directed let us cling together", None),
        ("what is the difference between a crocodile and an alligator?", None),
        ("how much water does the Nile carry?", None),
        ("what does the word mean?", None),
    ],
)
def test_a_question_asks_for_a_sum_an_average_or_a_difference(
    question: str, form: str | None
) -> None:
    assert find_aggregate(question) == form
