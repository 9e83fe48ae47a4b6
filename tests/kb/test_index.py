from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rapidfuzz.distance import OSA

from kbqa.kb.names import (
    allowed_errors,
    deletion_forms,
    is_spelled,
    reshaped,
    respelled,
    word_errors,
)

WORDS = st.text("abcd", min_size=2, max_size=12)


@pytest.mark.parametrize(
    ("text", "errors"),
    [("", 0), ("abc", 0), ("abcd", 1), ("abcdefg", 1), ("abcdefgh", 2), ("ab cd ef gh", 2)],
)
def test_allowed_errors(text: str, errors: int) -> None:
    assert allowed_errors(text) == errors


@pytest.mark.parametrize(
    ("word", "spelled"),
    [("of", True), ("東京", True), ("a", False), ("2012", False), ("!!", False)],
)
def test_words_that_may_hold_errors(word: str, spelled: bool) -> None:
    assert is_spelled(word) == spelled


@given(typed=WORDS, meant=WORDS)
def test_near_words_have_a_form_in_common(typed: str, meant: str) -> None:
    errors = word_errors(typed)
    if OSA.distance(typed, meant) <= errors:
        # Each side deletes what it may itself.
        assert deletion_forms(typed, errors) & deletion_forms(meant, word_errors(meant))


def test_the_forms_of_a_word_are_bounded() -> None:
    assert len(deletion_forms("abcdefghijkl" * 1000, 2)) == 29
    assert deletion_forms("ab", 2) == {"ab", "a", "b"}


@given(words=st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=4))
def test_every_error_at_a_blank(words: list[str]) -> None:
    text = " ".join(words)
    wrong = {
        text[:at] + change
        for at in range(len(text) + 1)
        for change in (
            *([text[at + 1 :]] if text[at : at + 1] == " " else []),
            " " + text[at:],
            *([" " + text[at + 1 :]] if text[at : at + 1] != " " else []),
            *([text[at + 1] + text[at] + text[at + 2 :]] if " " in text[at : at + 2] != "" else []),
        )
        if at < len(text) - 1
    }
    texts = {" ".join(one.split()) for one in wrong if one.split() and one == " ".join(one.split())}
    assert texts - {text} <= set(reshaped(words))


def test_errors_within_words() -> None:
    near = [{"ba": 1, "bc": 2}, {}, {"x": 1, "z": 1}]
    words = ["a", "b", "c"]
    assert set(respelled(words, near, 1, 10)) == {"ba b c", "a b x", "a b z"}
    pairs = {f"ba b {last}" for last in "xz"}
    assert set(respelled(words, near, 2, 10)) == {"bc b c", *pairs}
    # The likelier words, where not all can be written.
    assert set(respelled(words, near, 2, 1)) == {"bc b c", "ba b x"}


def test_pairs_of_errors_are_bounded() -> None:
    near = [{f"{letter}{other}": 1 for letter, other in product("abcdefgh", repeat=2)}] * 5
    assert len(list(respelled("12345", near, 2, 1000))) <= 1000
