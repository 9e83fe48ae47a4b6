import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_runs import MadeRow, make_failed_row, make_row, make_walked_row, write_run

from kbqa.engine.chat.model import find_price
from kbqa.engine.evaluation.breakdowns import (
    GoldAnswers,
    ShapeCell,
    StepCosts,
    WalkEnd,
    break_down,
    cost_per_10_000,
    count_gold,
    count_steps,
    cross_shapes,
    measure_costs,
    measure_stops,
    rows_by_tier,
    share_right,
    spread,
    writer_cost_per_10_000,
)
from kbqa.engine.evaluation.report import make_report, report_sections
from kbqa.engine.evaluation.rows import Row, read_run
from kbqa.engine.evaluation.tables import WIDTH, render_text


def _rows(*made: MadeRow) -> list[Row]:
    return [Row.model_validate(row) for row in made]


def _shape(hops: int, constraints: int) -> dict[str, object]:
    return {"hops": hops, "constraints": constraints, "ordered": False}


def test_tiers_stand_in_order_and_join() -> None:
    tiers = ["none", "annotated", "independent", "annotated", None, "else"]
    rows = _rows(*(make_row(str(at), tier=tier) for at, tier in enumerate(tiers)))
    grouped = rows_by_tier(rows)
    assert {tier: [row.id for row in members] for tier, members in grouped.items()} == {
        "all": ["0", "1", "2", "3", "4", "5"],
        "independent": ["2"],
        "annotated": ["1", "3"],
        "independent + annotated": ["1", "2", "3"],
        "none": ["0"],
        "else": ["5"],
    }
    assert list(grouped) == [
        "all",
        "independent",
        "annotated",
        "independent + annotated",
        "none",
        "else",
    ]


@pytest.mark.parametrize("tier", ["independent", "annotated"])
def test_one_tier_alone_is_not_joined_with_nothing(tier: str) -> None:
    assert list(rows_by_tier(_rows(make_row("a", tier=tier)))) == ["all", tier]


def test_groups_hold_their_scores() -> None:
    rows = _rows(
        make_row("a", ["m.1"], type="superlative", gold_shape=_shape(1, 0)),
        make_row("b", ["m.2"], type="conjunction", gold_shape=_shape(4, 3)),
        make_row("c", ["m.1", "m.2"], type="conjunction", gold_shape=_shape(5, 7), level="string"),
        make_row("d", type="conjunction"),
        make_row("e", ["m.1"], type="conjunction", scores=None),
    )
    found = break_down(rows)
    table = {
        way: [(g.name, g.n, round(g.f1.mean, 2), round(g.answered, 2)) for g in groups]
        for way, groups in found.items()
    }
    assert table == {
        "type": [("conjunction", 3, 0.22, 0.67), ("superlative", 1, 1.0, 1.0)],
        "depth": [("1", 1, 1.0, 1.0), ("4+", 2, 0.33, 1.0), ("not known", 1, 0.0, 0.0)],
        "constraints": [("0", 1, 1.0, 1.0), ("3+", 2, 0.33, 1.0), ("not known", 1, 0.0, 0.0)],
        "answers": [("1", 4, 0.42, 0.75)],
        "stage": [("specialised", 3, 0.56, 1.0), ("no answer", 1, 0.0, 0.0)],
        "level": [("full", 2, 0.5, 1.0), ("string", 1, 0.67, 1.0), ("no answer", 1, 0.0, 0.0)],
    }
    assert found["type"][0].hit.mean == pytest.approx(1 / 3)


def test_what_nothing_is_known_of_is_left_out() -> None:
    assert list(break_down(_rows(make_row("a", ["m.1"])))) == ["answers", "stage", "level"]


def test_what_a_set_says_of_its_questions_sets_them_apart() -> None:
    yes = {"gold_boolean": True, "boolean": True, "stage": "specialised"}
    rows = _rows(
        make_row("a", ["m.1"], category="list", generalization="i.i.d.", function="none"),
        make_row("b", category="yes-no", **yes),
        make_row("c", ["m.1"]),
        make_row("d", ["m.1"], scores=None, category="list"),
    )
    shares = {
        way: {name: (mean.n, mean.mean) for name, mean in groups.items()}
        for way, groups in share_right(rows).items()
    }
    assert shares == {
        "kind": {"answers": (2, 1.0), "boolean": (1, 0.0)},
        "category": {"list": (1, 1.0), "yes-no": (1, 0.0), "not known": (1, 1.0)},
        "generalization": {"i.i.d.": (1, 1.0), "not known": (2, 0.5)},
        "function": {"none": (1, 1.0), "not known": (2, 0.5)},
    }
    broken_down = break_down(rows)
    assert {way: len(groups) for way, groups in broken_down.items() if way in shares} == {
        way: len(groups) for way, groups in shares.items()
    }
    assert [group.answered for group in broken_down["kind"]] == [1.0, 1.0]
    assert "kind" not in share_right(rows[:1])
    assert share_right(rows[2:3]) == {}


def test_levels_stand_in_the_order_of_relaxation() -> None:
    levels = ["main_path", "entity", "full", "string", "numeric"]
    rows = _rows(*(make_row(level, ["m.1"], level=level) for level in levels), make_row("none"))
    assert [group.name for group in break_down(rows)["level"]] == [
        "full",
        "string",
        "numeric",
        "entity",
        "main_path",
        "no answer",
    ]


def test_hops_and_constraints_are_crossed() -> None:
    rows = _rows(
        make_row("a", ["m.1"], gold_shape=_shape(2, 1)),
        make_row("b", gold_shape=_shape(2, 1)),
        make_row("c", ["m.1"], gold_shape=_shape(1, 4)),
        make_row("d", ["m.1"]),
        make_row("e", ["m.1"], gold_shape=_shape(1, 4), scores=None),
    )
    assert cross_shapes(rows) == [ShapeCell("1", "3+", 1, 1.0), ShapeCell("2", "1", 2, 0.5)]


@settings(max_examples=15)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=6))
def test_each_question_is_in_one_group_of_each_way(shapes: Sequence[tuple[int, int]]) -> None:
    rows = _rows(*(make_row(str(at), gold_shape=_shape(*shape)) for at, shape in enumerate(shapes)))
    for groups in break_down(rows).values():
        assert sum(group.n for group in groups) == len(rows)
    assert sum(cell.n for cell in cross_shapes(rows)) == len(rows)


OFFERED = {"offered": ["a.b", "c.d"], "chosen": ["a.b"]}


def _walked(id_: str, steps: object, stop: object = "depth", **changes: object) -> MadeRow:
    trace = {"steps": steps, "stop": stop, "decisions": 2, "queries": 7}
    return make_walked_row(id_, ["m.1"]) | {"trace": trace, **changes}


def _asked(kind: str, **changes: object) -> dict[str, object]:
    return {"kind": kind, "hop": 1, **OFFERED, "input_tokens": 100, "output_tokens": 5, **changes}


ROWS = [
    _walked(
        "a",
        [
            _asked("relations", hidden=3, unread=["x", "y"], clipped=2),
            _asked("relations", hidden=1, is_truncated=True),
            _asked("answer"),
        ],
        seconds={"relations": 1.5, "answer": 0.5, "explore": 0.1},
    ),
    _walked(
        "b",
        [{"kind": "relations", "hop": 1}, {"kind": "relations", "hop": 2, "no_decision": True}],
        "nothing",
        seconds={"relations": 0.5},
    ),
    make_failed_row("c"),
    make_row("d", ["m.1"]),
]


def _read(rows: list[MadeRow]) -> list[Row]:
    return [Row.model_validate(row) for row in rows]


def test_steps_are_added_up_by_kind() -> None:
    assert count_steps(_read(ROWS)) == [
        StepCosts("relations", 3, 2, 200, 10, 2.0, 1, 1, 4, 2, 2, 1),
        StepCosts("answer", 1, 1, 100, 5, 0.5, 0, 0, 0, 0, 0, 0),
    ]
    assert count_steps(_read([ROWS[1] | {"seconds": None}]))[0].seconds is None


def test_walks_end_at_a_depth_and_with_or_without_an_answer() -> None:
    silent = _walked("e", [_asked("relations", hop=4), _asked("answer", hop=0)]) | {"answers": []}
    assert measure_stops(_read([*ROWS, silent])) == [
        WalkEnd("depth", 2, 2.5, 1),
        WalkEnd("nothing", 1, 0.0, 0),
        WalkEnd("all", 3, pytest.approx(5 / 3), 1),
    ]
    assert measure_stops(_read(ROWS[2:])) == []


def test_a_walk_is_not_as_deep_as_the_hop_at_which_it_was_stopped() -> None:
    stopped = [_asked("relations"), _asked("relations", hop=2, chosen=[]), _asked("answer", hop=0)]
    [end, _] = measure_stops(_read([_walked("f", stopped, "stopped")]))
    assert end == WalkEnd("stopped", 1, 1.0, 0)


def test_questions_are_told_apart_by_their_number_of_gold_answers() -> None:
    rows = _rows(
        make_row("a", ["m.1"]),
        make_row("b", gold=["m.1", "m.2", "m.3"]),
        make_row("c", ["m.1"]) | {"gold": [["m.1"], ["m.1", "m.2"]]},
        make_row("d", gold_boolean=True, boolean=True),
    )
    groups = {group.name: (group.n, group.f1.mean) for group in break_down(rows)["answers"]}
    assert groups == {"1": (1, 1.0), "2+": (2, 0.5), "not known": (1, 0.0)}
    assert count_gold(rows) == GoldAnswers(3, 2.0, pytest.approx(1 / 3))
    assert count_gold(rows[3:]) is None


def test_the_report_of_a_run_has_its_steps(tmp_path: Path) -> None:
    report = make_report(read_run(write_run(tmp_path, ROWS)))
    assert report.steps == count_steps(_read(ROWS))
    record = json.loads(json.dumps(report.to_dict()))
    assert record["steps"][0]["hidden"] == 4
    assert record["stops"][0] == {"stop": "depth", "n": 1, "depth": 1.0, "unanswered": 0}
    assert record["costs"]["queries"]["median"] == 7
    text = render_text(report_sections(report))
    assert max(map(len, text.splitlines())) <= WIDTH
    rows = [" ".join(line.split()) for line in text.splitlines()]
    for said in (
        "relations 3 2 200 10 2.0",
        "all 4 3 300 15 2.5",
        "relations 1 (50.0%) 1 (50.0%) 4 (2) 2 (1)",
        "all 1 (33.3%) 1 (33.3%) 4 (2) 2 (1)",
        "depth 1 50.0% 1.00 0 (0.0%)",
        "all 2 100.0% 0.50 0 (0.0%)",
    ):
        assert said in rows


def test_the_report_of_a_method_that_does_not_walk_has_no_steps(tmp_path: Path) -> None:
    report = make_report(read_run(write_run(tmp_path, ROWS[2:])))
    assert (report.steps, report.stops) == ([], [])
    assert "step" not in render_text(report_sections(report))
    assert "decisions" not in report.costs


@pytest.mark.parametrize(
    "trace",
    [
        {"steps": 3, "stop": 4},
        {"steps": ["relations", None, {"hop": 1}], "stop": None},
        {"steps": [{"kind": "x", "hidden": "many", "input_tokens": None}], "queries": "?"},
        {"steps": [{"kind": "x", "hop": "deep"}], "stop": "depth"},
    ],
)
def test_a_trace_of_any_shape_is_reported(tmp_path: Path, trace: dict[str, object]) -> None:
    run = read_run(write_run(tmp_path, [_walked("a", []) | {"trace": trace}]))
    assert render_text(report_sections(make_report(run)))


def _row(id_: str, **changes: object) -> Row:
    return Row.model_validate(make_row(id_, ["m.1"], **changes))


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50))
def test_a_spread_lies_within_its_values(values: list[float]) -> None:
    found = spread(values)
    assert found is not None and found.n == len(values)
    for value in (found.mean, found.median, found.p95, found.most):
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
    general = {"general": {"calls": 3, "cached_calls": 1, "input_tokens": 90, "output_tokens": 10}}
    rows = [
        _row("a", seconds={"link": 1.0, "generate": 2.0}, repair={"queries": 10}),
        _row("b", calls=4, usage=general, seconds={"link": 3.0}, repair={"queries": 20}),
        _row("c", seconds=None, usage={"general": {"calls": 0}}, repair={"queries": 30}),
        Row.model_validate(make_failed_row("d")),
    ]
    costs = measure_costs(rows)
    assert {name: (one.mean, one.n) for name, one in costs.items()} == {
        "calls": (2.0, 3),
        "general_calls": (1.0, 3),
        "cached_calls": (0.5, 2),
        "input_tokens": (50.0, 3),
        "output_tokens": (pytest.approx(50 / 3), 3),
        "tokens": (pytest.approx(200 / 3), 3),
        "general_input_tokens": (30.0, 3),
        "general_output_tokens": (pytest.approx(10 / 3), 3),
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


def test_the_cost_of_the_small_model_is_that_of_the_prompt_and_the_first_path() -> None:
    llama = find_price("meta-llama/Llama-2-7b-chat-hf")
    rows = [_row("a"), _row("b"), Row.model_validate(make_failed_row("c"))]
    expected = (60 * 0.05 + 40 * 0.25) / 1e6 * 10_000
    assert writer_cost_per_10_000(rows, llama) == pytest.approx(expected)
    assert writer_cost_per_10_000(rows, None) is None
    older = _row("d", usage={"specialised": {"calls": 1}, "general": {"calls": 0}})
    assert writer_cost_per_10_000([*rows, older], llama) is None
    assert writer_cost_per_10_000([_row("e", usage={"general": {"calls": 0}})], None) == 0


def test_what_right_and_wrong_answers_took_stands_apart() -> None:
    rows = [_row("a", calls=2), _row("b", calls=4), _row("c", calls=9, scores=None)]
    rows += _rows(make_row("d", ["m.9"], calls=6), make_row("e", calls=11))
    calls = measure_costs(rows)["calls"]
    assert (calls.mean, calls.most, calls.right, calls.wrong) == (6.4, 11, 3.0, 8.5)
    assert measure_costs(rows[:3])["calls"].wrong is None


def test_a_run_whose_costs_are_unknown_has_none() -> None:
    assert measure_costs([Row.model_validate(make_failed_row("a"))]) == {}
