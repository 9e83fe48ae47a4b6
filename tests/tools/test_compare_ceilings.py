"""Runs of the perfect chooser against ceilings that they reach, miss and exceed."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from made_runs import make_walked_row, write_run

from tools.methods.compare_ceilings import main


@pytest.mark.parametrize(
    ("ceiling", "code", "cells"), [(1.0, 0, "0 | 1 |"), (0.5, 0, "0 | 0 |"), (0.4, 1, "1 | 0 |")]
)
def test_questions_above_and_below_their_ceiling_are_named(
    ceiling: float, code: int, cells: str, tmp_path: Path
) -> None:
    row = make_walked_row("one", ["m.1", "m.2", "m.3"])
    run = write_run(tmp_path, [row, make_walked_row("other")], method={"name": "bpc"})
    ceilings = tmp_path / "ceilings.jsonl"
    limit = {"bpc": {"f1": ceiling, "reason": "nodes are hidden"}}
    ceilings.write_text(json.dumps({"id": "one", "ceilings": limit}) + "\n")
    result = CliRunner().invoke(main, [str(ceilings), str(run)])
    assert result.exit_code == code, result.output
    assert f"| run | bpc | 1 | {ceiling:.4f} | 0.5000 | {cells}" in result.output
    assert ("one: 0.500" in result.output) == (ceiling != 0.5)


def test_ceilings_of_another_method_are_refused(tmp_path: Path) -> None:
    run = write_run(tmp_path, [make_walked_row("one")], method={"name": "tog"})
    ceilings = tmp_path / "ceilings.jsonl"
    ceilings.write_text(json.dumps({"id": "one", "ceilings": {"bpc": {"f1": 1}}}) + "\n")
    result = CliRunner().invoke(main, [str(ceilings), str(run)])
    assert result.exit_code == 1
    assert "no ceilings of tog" in result.output
