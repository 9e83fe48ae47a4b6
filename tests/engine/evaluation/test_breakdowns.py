import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_runs import MadeRow, make_failed_row, make_row, make_walked_row, write_run

from kbqa.engine.evaluation.breakdowns import (
    ShapeCell,
    StepCosts,
    break_down,
    count_steps,
    count_stops,
    cross_shapes,
    rows_by_tier,
    share_right,
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
        "stage": [("specialised", 3, 0.56, 1.0), ("no answer", 1, 0.0, 0.0)],
        "level": [("full", 2, 0.5, 1.0), ("string", 1, 0.67, 1.0), ("no answer", 1, 0.0, 0.0)],
    }
    assert found["type"][0].hit.mean == pytest.approx(1 / 3)


def test_what_nothing_is_known_of_is_left_out() -> None:
    assert list(break_down(_rows(make_row("a", ["m.1"])))) == ["stage", "level"]


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
    assert count_stops(_read([*ROWS, _walked("e", [])])) == {"depth": 2, "nothing": 1}


def test_the_report_of_a_run_has_its_steps(tmp_path: Path) -> None:
    report = make_report(read_run(write_run(tmp_path, ROWS)))
    assert report.steps == count_steps(_read(ROWS))
    record = json.loads(json.dumps(report.to_dict()))
    assert record["steps"][0]["hidden"] == 4
    assert record["stops"] == {"depth": 1, "nothing": 1}
    assert record["costs"]["queries"]["median"] == 7
    text = render_text(report_sections(report))
    assert max(map(len, text.splitlines())) <= WIDTH
    rows = [" ".join(line.split()) for line in text.splitlines()]
    for said in (
        "relations 3 2 200 10 2.0",
        "relations 1 (50.0%) 1 (50.0%) 4 (2) 2 (1)",
        "all 1 (33.3%) 1 (33.3%) 4 (2) 2 (1)",
        "depth 1 50.0%",
    ):
        assert said in rows


def test_the_report_of_a_method_that_does_not_walk_has_no_steps(tmp_path: Path) -> None:
    report = make_report(read_run(write_run(tmp_path, ROWS[2:])))
    assert (report.steps, report.stops) == ([], {})
    assert "step" not in render_text(report_sections(report))
    assert "decisions" not in report.costs


@pytest.mark.parametrize(
    "trace",
    [
        {"steps": 3, "stop": 4},
        {"steps": ["relations", None, {"hop": 1}], "stop": None},
        {"steps": [{"kind": "x", "hidden": "many", "input_tokens": None}], "queries": "?"},
    ],
)
def test_a_trace_of_any_shape_is_reported(tmp_path: Path, trace: dict[str, object]) -> None:
    run = read_run(write_run(tmp_path, [_walked("a", []) | {"trace": trace}]))
    assert render_text(report_sections(make_report(run)))
