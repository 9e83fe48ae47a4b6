import pytest

from kbqa.engine.questions.words import unlike_a_question


@pytest.mark.parametrize("text", ["hello", "thanks", "Good morning!", "?"])
def test_small_talk_is_not_searched_for_a_better_reason(text: str) -> None:
    assert unlike_a_question(text) == "this does not look like a question"


@pytest.mark.parametrize(
    "text",
    ["Quelle est la capitale du Mali ?", "Wer ist der Autor von Faust?", "Где находится Киев?"],
)
def test_a_question_in_another_language_is_called_so(text: str) -> None:
    assert unlike_a_question(text) == "the question does not look like English"


@pytest.mark.parametrize(
    "text", ["capital of Mali", "france capital", "who wrote La Vie en Rose", "who is Los Lobos"]
)
def test_key_words_and_foreign_titles_are_let_through(text: str) -> None:
    assert unlike_a_question(text) is None
