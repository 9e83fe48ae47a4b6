import random
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbqa.engine.evaluation.scores.metrics import (
    Scores,
    bootstrap_mean,
    normalise_answer,
    score,
    score_best,
)

PERFECT = Scores(1.0, 1.0, 1.0, 1.0, 1.0, 1.0)
NOTHING = Scores(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)

answers = st.lists(st.sampled_from(["m.1", "m.2", "m.3", "m.4", "1990", "1990-08:00"]), max_size=6)


@given(answers, answers)
def test_every_score_lies_between_0_and_1(predicted, gold):
    assert all(0 <= value <= 1 for value in asdict(score(predicted, gold)).values())


@given(answers, answers)
def test_f1_and_exact_match_do_not_change_when_gold_and_predicted_swap(predicted, gold):
    there, back = score(predicted, gold), score(gold, predicted)
    assert (there.f1, there.exact_match, there.hit) == (back.f1, back.exact_match, back.hit)
    assert (there.precision, there.recall) == (back.recall, back.precision)


@given(answers)
def test_a_prediction_of_itself_is_perfect(predicted):
    assert score(predicted, predicted) == PERFECT


@given(answers, answers)
def test_repetitions_count_once(predicted, gold):
    assert score(predicted * 2, gold * 2) == score(predicted, gold)


@pytest.mark.parametrize(
    ("predicted", "gold", "expected"),
    [
        ([], [], PERFECT),
        ([], ["m.1"], NOTHING),
        (["m.1"], [], NOTHING),
        (["m.1"], ["m.2"], NOTHING),
        (["m.1", "m.2"], ["m.2"], Scores(1.0, 0.0, 0.0, 0.5, 1.0, 2 / 3)),
        (["m.2", "m.1"], ["m.2"], Scores(1.0, 1.0, 0.0, 0.5, 1.0, 2 / 3)),
        (["m.1"], ["m.1", "m.2", "m.3"], Scores(1.0, 1.0, 0.0, 1.0, 1 / 3, 0.5)),
        (["1968-03-29"], ["1968-03-29-08:00"], PERFECT),
    ],
    ids=[
        "both empty",
        "nothing predicted",
        "nothing to find",
        "wrong",
        "right one second",
        "right one first",
        "one of three",
        "the gold store's time zone",
    ],
)
def test_scores(predicted, gold, expected):
    assert score(predicted, gold) == expected


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("1990-08:00", "1990"),
        ("1990-05-08:00", "1990-05"),
        ("1990-05-12Z", "1990-05-12"),
        ("1990-05-12T10:00:00+01:00", "1990-05-12T10:00:00"),
        ("-0044-03-15-08:00", "-0044-03-15"),
        ("1990-05", "1990-05"),
        ("1990-05-12", "1990-05-12"),
        ("m.0abc", "m.0abc"),
        ("12:30-08:00", "12:30-08:00"),
        ("", ""),
    ],
)
def test_only_a_dates_time_zone_is_taken_off(text, normal):
    assert normalise_answer(text) == normal


def test_the_parse_that_fits_best_counts():
    assert score_best(["m.1"], [{"m.2"}, {"m.1", "m.3"}, {"m.1"}]) == PERFECT
    assert score_best(["m.1"], [{"m.2"}]) == NOTHING


@given(answers, st.lists(answers, min_size=1, max_size=4))
def test_the_best_parse_is_no_worse_than_any(predicted, golds):
    best = score_best(predicted, golds)
    assert all(best.f1 >= score(predicted, gold).f1 for gold in golds)


def test_without_a_gold_set_there_is_no_score():
    with pytest.raises(ValueError, match="empty"):
        score_best(["m.1"], [])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_an_interval_lies_within_0_and_1_and_is_the_same_again(values):
    mean = bootstrap_mean(values, resamples=50)
    assert mean.n == len(values)
    assert mean.mean == pytest.approx(sum(values) / len(values))
    assert 0 <= mean.low <= mean.high <= 1 + 1e-9
    assert mean == bootstrap_mean(values, resamples=50)


def test_an_interval_is_about_as_wide_as_theory_says():
    mean = bootstrap_mean([0.0, 1.0] * 200)
    assert mean.low == pytest.approx(0.5 - 1.96 * 0.025, abs=0.01)
    assert mean.high == pytest.approx(0.5 + 1.96 * 0.025, abs=0.01)


def test_an_interval_leaves_out_a_fortieth_of_the_resamples_at_each_end():
    values = [2.0**at for at in range(20)]
    rng = random.Random(7)
    means = sorted(sum(rng.choices(values, k=20)) / 20 for _ in range(40))
    assert len(set(means)) == 40
    mean = bootstrap_mean(values, seed=7, resamples=40)
    assert (mean.low, mean.high) == (means[1], means[38])


def test_published_intervals_stay_as_they_are():
    mean = bootstrap_mean([at**2 / 99**2 for at in range(100)])
    assert mean.low == pytest.approx(268_393 / 980_100, abs=1e-9)
    assert mean.high == pytest.approx(386_173 / 980_100, abs=1e-9)


def test_without_values_there_is_no_mean():
    with pytest.raises(ValueError, match="no values"):
        bootstrap_mean([])
