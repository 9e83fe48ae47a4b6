import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbqa.engine.evaluation.scores.by_name import NameScores, average_names, score_names

NAMES = st.lists(st.text(alphabet="aB ,é\t", max_size=5), max_size=4)


@pytest.mark.parametrize(
    ("predicted", "golds", "scores"),
    [
        (["New  York", "Albany"], [["new york"]], NameScores(1.0, 2 / 3, 1.0)),
        (["Albany", "New York"], [["new york"]], NameScores(0.0, 2 / 3, 1.0)),
        (["York"], [["New York"]], NameScores(0.0, 0.0, 1.0)),
        (["New York City"], [["New York"]], NameScores(0.0, 0.0, 1.0)),
        (["newyork"], [["New York"]], NameScores(0.0, 0.0, 1.0)),
        (["Paris"], [["New York"]], NameScores(0.0, 0.0, 0.0)),
        # In the papers' code, an empty answer is part of every gold name.
        ([], [["New York"]], NameScores(0.0, 0.0, 0.0)),
        (["", "  "], [["New York"]], NameScores(0.0, 0.0, 0.0)),
        (["Paris"], [["", "New York"]], NameScores(0.0, 0.0, 0.0)),
        (["a"], [["b"], ["a", "c"], ["a"]], NameScores(1.0, 1.0, 1.0)),
        # All answers are one text there, so one of two is not part of a longer name.
        (["York", "Paris"], [["New York"]], NameScores(0.0, 0.0, 0.0)),
        ([], [[]], NameScores(1.0, 1.0, 0.0)),
    ],
)
def test_names_are_scored(predicted: list[str], golds: list[list[str]], scores: NameScores) -> None:
    assert score_names(predicted, golds) == scores


@given(NAMES, st.lists(NAMES, min_size=1, max_size=3))
def test_scores_by_name_are_shares(predicted: list[str], golds: list[list[str]]) -> None:
    found = score_names(predicted, golds)
    assert all(0.0 <= value <= 1.0 for value in (found.hits_at_1, found.f1, found.contained))
    if any(name.strip() for name in predicted):
        assert found.contained >= (found.f1 > 0)


def test_names_are_averaged_over_questions() -> None:
    means = average_names([NameScores(1.0, 0.5, 1.0), NameScores(0.0, 0.0, 1.0)])
    assert (means.hits_at_1.mean, means.f1.mean, means.contained.mean) == (0.5, 0.25, 1.0)
