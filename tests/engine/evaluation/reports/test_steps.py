import json
from pathlib import Path

import pytest
from made_runs import MadeRow, make_failed_row, make_row, make_walked_row, write_run

from kbqa.engine.evaluation.reports.report import make_report
from kbqa.engine.evaluation.reports.report_sections import report_sections
from kbqa.engine.evaluation.reports.steps import StepCosts, count_steps, count_stops, step_sections
from kbqa.engine.evaluation.reports.tables import WIDTH, render_text
from kbqa.engine.evaluation.runs.recorded_run import read_run
from kbqa.engine.evaluation.runs.rows import Row

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
    assert list(step_sections(report.steps, report.stops)) == []
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
