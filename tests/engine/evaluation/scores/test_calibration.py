import pytest

from kbqa.engine.evaluation.scores.calibration import (
    Covered,
    Tenth,
    brier_score,
    calibrate,
    calibration_error,
    cover,
    separate,
    separate_right,
)


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
