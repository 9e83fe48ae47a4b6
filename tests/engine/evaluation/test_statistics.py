"""Confidences against scores, and the difference of two runs."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbqa.engine.evaluation.scores import Mean, bootstrap_mean
from kbqa.engine.evaluation.statistics import (
    Covered,
    Signs,
    Tenth,
    brier_score,
    calibrate,
    calibration_error,
    count_signs,
    cover,
    paired_bootstrap,
    relative_change,
    separate,
    separate_right,
    sign_test,
)

counts = st.integers(0, 200)
pairs = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=20)


@pytest.mark.parametrize(
    ("wins", "losses", "p"),
    [
        (0, 0, 1.0),
        (5, 5, 1.0),
        (1, 0, 1.0),
        (0, 5, 0.0625),
        (5, 0, 0.0625),
        (6, 0, 0.03125),
        (9, 1, 0.021484375),
        (15, 5, 0.04138946533203125),
        (7, 6, 1.0),
    ],
)
def test_the_sign_test_gives_known_values(wins, losses, p):
    assert sign_test(wins, losses) == p


@pytest.mark.parametrize(("wins", "losses"), [(3, 1), (2, 4), (0, 7), (8, 2)])
def test_the_sign_test_counts_outcomes_as_far_from_even(wins, losses):
    m, far = wins + losses, abs(wins - losses)
    outcomes = [abs(2 * sum(tosses) - m) >= far for tosses in product((0, 1), repeat=m)]
    assert sign_test(wins, losses) == sum(outcomes) / len(outcomes)


@given(counts, counts)
def test_the_sign_test_has_no_side(wins, losses):
    p = sign_test(wins, losses)
    assert 0 < p <= 1
    assert p == sign_test(losses, wins)
    if wins >= losses:
        assert sign_test(wins + 1, losses) <= p


def test_the_sign_test_of_many_questions_is_small_and_no_overflow():
    assert sign_test(3000, 2000) < 1e-40
    assert sign_test(100_000, 0) == 0.0


@pytest.mark.parametrize(("wins", "losses"), [(-1, 2), (2, -1)])
def test_negative_counts_are_refused(wins, losses):
    with pytest.raises(ValueError, match="negative"):
        sign_test(wins, losses)


@given(pairs)
def test_wins_losses_and_ties_are_all_questions(values):
    first, second = zip(*values, strict=True)
    signs = count_signs(first, second)
    assert sum(signs) == len(values)
    back = count_signs(second, first)
    assert (signs.wins, signs.losses) == (back.losses, back.wins)


def test_scores_that_differ_in_the_last_digit_are_alike():
    assert count_signs([0.1 + 0.2], [0.3]) == Signs(0, 0, 1)
    assert count_signs([0.3, 0.3, 0.3, 1.0], [0.3001, 0.2999, 0.4, 0.0]) == Signs(2, 2, 0)


@given(pairs)
def test_the_interval_of_a_difference_turns_round_with_the_runs(values):
    first, second = zip(*values, strict=True)
    there = paired_bootstrap(first, second, resamples=40)
    back = paired_bootstrap(second, first, resamples=40)
    assert (back.mean, back.low, back.high) == (-there.mean, -there.high, -there.low)


def test_a_run_does_not_differ_from_itself():
    assert paired_bootstrap([0.2, 0.9, 0.5], [0.2, 0.9, 0.5]) == Mean(0.0, 0.0, 0.0, 3)


def test_pairs_that_differ_alike_leave_no_doubt():
    first = [at / 100 for at in range(50)]
    second = [value + 0.5 for value in first]
    mean = paired_bootstrap(first, second)
    assert (mean.low, mean.high) == (pytest.approx(0.5), pytest.approx(0.5))
    apart = bootstrap_mean(second)
    assert apart.high - apart.low > 0.05, "the runs by themselves vary, their difference does not"


def test_the_interval_is_about_as_wide_as_theory_says():
    mean = paired_bootstrap([0.0] * 400, [1.0, -1.0] * 200)
    assert mean.low == pytest.approx(-1.96 * 0.05, abs=0.01)
    assert mean.high == pytest.approx(1.96 * 0.05, abs=0.01)


def test_the_interval_of_a_difference_is_drawn_as_that_of_a_mean():
    second = [at**2 / 99**2 for at in range(100)]
    assert paired_bootstrap([0.0] * 100, second) == bootstrap_mean(second)


def test_runs_of_other_lengths_are_refused():
    with pytest.raises(ValueError, match="shorter"):
        paired_bootstrap([0.0, 1.0], [0.0])
    with pytest.raises(ValueError, match="no values"):
        paired_bootstrap([], [])


def test_a_relative_change_is_that_of_the_totals():
    mean = relative_change([100.0, 300.0], [150.0, 150.0])
    assert (mean.mean, mean.n) == (-0.25, 2)
    assert (mean.low, mean.high) == (-0.5, 0.5), "of each question alone"


def test_a_change_that_every_question_has_leaves_no_doubt():
    first = [float(at) for at in range(1, 50)]
    mean = relative_change(first, [0.75 * each for each in first])
    assert (mean.mean, mean.low, mean.high) == (-0.25, -0.25, -0.25)


def test_a_change_of_a_unit_is_that_of_the_quotients():
    mean = relative_change([100.0, 100.0], [90.0, 90.0], ([1.0, 1.0], [2.0, 2.0]))
    assert mean.mean == mean.low == mean.high == pytest.approx(-0.55)


def test_from_nothing_there_is_no_change():
    assert relative_change([0.0, 0.0], [1.0, 0.0]) is None
    rare = relative_change([0.0] * 9 + [1.0], [0.0] * 9 + [2.0])
    assert (rare.low, rare.high) == (1.0, 1.0)


def test_tenths_rise_and_hold_every_pair():
    table = calibrate((at / 25, 1.0) for at in range(25))
    assert [tenth.confidence for tenth in table] == sorted(tenth.confidence for tenth in table)
    assert sum(tenth.n for tenth in table) == 25
    assert calibrate([]) == []


def test_answers_of_one_confidence_are_not_parted_by_their_f1():
    tenths = calibrate((0.5, float(at % 2)) for at in range(200))
    assert calibration_error(tenths) == 0.0


def test_fewer_pairs_than_tenths_are_each_their_own():
    assert calibrate([(0.9, 1.0), (0.1, 0.0)]) == [Tenth(0.1, 0.0, 1), Tenth(0.9, 1.0, 1)]


@pytest.mark.parametrize(
    ("tenths", "error"),
    [
        ([Tenth(0.5, 0.5, 3)], 0.0),
        ([Tenth(0.5, 1.0, 3), Tenth(0.9, 0.9, 1)], 0.375),
        ([Tenth(1.0, 0.0, 2)], 1.0),
    ],
)
def test_the_error_is_the_mean_distance(tenths, error):
    assert calibration_error(tenths) == pytest.approx(error)


def test_no_answers_have_no_error():
    with pytest.raises(ValueError, match="no answers"):
        calibration_error([])


def test_the_surest_are_answered_first():
    pairs = [(at / 10, float(at > 4)) for at in range(10)]
    covered = cover(pairs)
    assert covered[0] == Covered(0.1, 1.0, 0.9)
    assert covered[4] == Covered(0.5, 1.0, 0.5)
    assert covered[-1] == Covered(1.0, 0.5, 0.0)
    assert cover([]) == []
    assert cover([(0.3, 1.0)]) == [Covered(1.0, 1.0, 0.3)]


def test_confidences_that_separate_right_from_wrong():
    assert separate([0.9, 0.8], [0.1, 0.2]) == 1.0
    assert separate([0.1], [0.9]) == 0.0
    assert separate([0.5, 0.5], [0.5]) == 0.5
    assert separate([], [0.5]) is None
    assert separate([0.4, 0.6, 0.6], [0.7, 0.1, 0.6, 0.5]) == 0.5
    pairs = [(0.9, 1.0), (0.5, 0.5), (0.6, 0.4), (0.1, 0.0)]
    assert separate_right(pairs) == separate_right(iter(pairs)) == 0.75


def test_the_brier_score_is_the_mean_squared_distance():
    assert brier_score([(1.0, 0.0), (0.0, 0.0)]) == 0.5
    assert brier_score([(0.7, 0.7)]) == 0.0
    assert brier_score([(0.5, 0.0), (0.5, 1.0), (1.0, 1.0)]) == 0.1667
