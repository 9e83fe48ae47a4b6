"""What a run would take is estimated without asking the general model."""

import json
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from kbqa.engine.chat.cache import StandIn
from kbqa.engine.chat.model import Message, Price
from kbqa.engine.cli import main
from kbqa.engine.engine import Engine
from kbqa.engine.evaluation.evaluate import Estimate, Taken, estimate_run
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
    separate,
    separate_right,
    sign_test,
)
from kbqa.engine.questions.question_sets import Question
from kbqa.kb.graph import Graph
from kbqa.sparql.errors import ModelError

ASKED = [
    Question(str(at), f"which city is the capital of Jamaica {'really ' * at}?", (), ())
    for at in range(8)
]
TAKEN = Taken(3, 2, 400, 1024, 0.25, 0.5)


def show(questions: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["eval", "--questions", str(questions), "--show", *arguments])


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    path = tmp_path / "questions.jsonl"
    rows = [{"id": each.id, "question": each.text, "answers": []} for each in ASKED]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_token_is_four_letters_and_a_reply_as_long_as_it_may_be() -> None:
    model = StandIn("smol", Price(1.0, 10.0))
    usage = model.complete([Message("user", "x" * 9)], max_tokens=100).usage
    assert (usage.calls, usage.input_tokens, usage.output_tokens) == (1, 3, 100)
    assert usage.cost_usd == pytest.approx(1.003e-3)
    assert StandIn("smol").complete([Message("user", "x")]).usage.cost_usd is None


@pytest.mark.parametrize("method", ["cot", "bpc"])
def test_nothing_is_sent(server, small_store: Path, questions: Path, method: str) -> None:
    arguments = ("--method", method, "--llm", server.url, "--llm-price", "1/10", "--json")
    result = show(questions, "--store", str(small_store), *arguments)
    assert result.exit_code == 0, result.output
    assert server.asked == []
    shown = json.loads(result.stdout)
    assert (shown["questions"], shown["sampled"], shown["failed"]) == (8, 5, [])
    taken = shown["a_question"]
    assert taken["calls"]["mean"] >= 1
    assert taken["input_tokens"]["least"] < taken["input_tokens"]["most"]
    assert taken["cost_usd"]["mean"] > 0


def test_a_run_without_a_general_model_takes_decisions_alone(graph: Graph, scripted) -> None:
    with Engine(graph, scripted(*[[]] * 2), call_budget=3) as engine:
        estimate = estimate_run(engine, ASKED[:2], 100)
    assert [(each.decisions, each.calls) for each in estimate.taken] == [(1, 0)] * 2
    first, *_ = estimate.describe()
    assert first == "Estimated from 2 of 100 questions. There is no general model to ask."


def test_a_question_that_fails_is_left_out_and_told(graph: Graph, scripted) -> None:
    with Engine(graph, scripted(ModelError("out of memory"), [])) as engine:
        estimate = estimate_run(engine, ASKED[:2], 2)
    assert (len(estimate.taken), estimate.failed) == (1, ("out of memory",))
    assert "1 more failed; the first: out of memory" in estimate.describe()


def test_the_run_is_the_sample_many_times() -> None:
    most = replace(TAKEN, calls=4)
    lines = Estimate(100, (TAKEN, most), (), "smol").describe()
    assert lines[0] == "Estimated from 2 of 100 questions. Nothing was sent to smol."
    [calls] = [line.split("  ") for line in lines if line.startswith("calls")]
    assert [each.strip() for each in calls if each] == ["calls", "3 (2 to 4)", "300 (200 to 400)"]


def test_an_unknown_price_is_told() -> None:
    lines = Estimate(100, (replace(TAKEN, cost_usd=None),), (), "smol").describe()
    assert any("the price is not known: give --llm-price" in line for line in lines)


def test_a_run_needs_an_output_and_an_estimate_none(questions: Path) -> None:
    result = CliRunner().invoke(main, ["eval", "--questions", str(questions)])
    assert result.exit_code == 2
    assert "Missing option '--output'." in result.output


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
