import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_runs import make_failed_row, make_row

from kbqa.engine.evaluation.runs.costs import cost_per_10_000, measure_costs, spread
from kbqa.engine.evaluation.runs.rows import Row


def _row(id_: str, **changes: object) -> Row:
    return Row.model_validate(make_row(id_, ["m.1"], **changes))


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50))
def test_a_spread_lies_within_its_values(values: list[float]) -> None:
    found = spread(values)
    assert found is not None and found.n == len(values)
    for value in (found.mean, found.median, found.p95):
        assert min(values) - 1e-6 <= value <= max(values) + 1e-6
    assert sum(value <= found.p95 for value in values) >= 0.95 * len(values)
    assert found.p95 in values


@pytest.mark.parametrize(
    ("values", "p95"), [([7.0], 7.0), (list(range(1, 21)), 19), (list(range(1, 101)), 95)]
)
def test_95_percent_do_not_exceed_p95(values: list[float], p95: float) -> None:
    found = spread(values)
    assert found is not None and found.p95 == p95


def test_costs_of_questions_are_summarised() -> None:
    general = {"general": {"calls": 3, "cached_calls": 1}}
    rows = [
        _row("a", seconds={"link": 1.0, "generate": 2.0}, repair={"queries": 10}),
        _row(
            "b", calls=4, tokens=500, usage=general, seconds={"link": 3.0}, repair={"queries": 20}
        ),
        _row("c", seconds=None, usage={"general": {"calls": 0}}, repair={"queries": 30}),
        Row.model_validate(make_failed_row("d")),
    ]
    costs = measure_costs(rows)
    assert {name: (one.mean, one.n) for name, one in costs.items()} == {
        "calls": (2.0, 3),
        "general_calls": (1.0, 3),
        "cached_calls": (0.5, 2),
        "tokens": (pytest.approx(700 / 3), 3),
        "queries of a repair": (20.0, 3),
        "seconds": (3.0, 2),
        "seconds of link": (2.0, 2),
        "seconds of generate": (2.0, 1),
    }
    assert costs["calls"].total == 6


def test_walking_takes_decisions_and_queries() -> None:
    trace = {"decisions": 4, "queries": 20, "stop": "depth"}
    costs = measure_costs([_row("a", trace=trace), _row("b", trace={**trace, "queries": "?"})])
    assert (costs["decisions"].total, costs["queries"].total, costs["queries"].n) == (8, 20, 1)


def test_cost_is_known_only_if_prices_are() -> None:
    rows = [_row("a", cost_usd=0.002), _row("b", cost_usd=0.0), _row("c", cost_usd=None)]
    assert cost_per_10_000(rows) == pytest.approx(10.0)
    assert cost_per_10_000(rows[2:]) is None


def test_a_run_whose_costs_are_unknown_has_none() -> None:
    assert measure_costs([Row.model_validate(make_failed_row("a"))]) == {}
