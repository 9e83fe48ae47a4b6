import json
import resource
from pathlib import Path

import pytest

from kbqa.engine.evaluation.runs.row_file import RowFile, take_over
from kbqa.engine.evaluation.runs.rows import Row, read_row
from kbqa.engine.evaluation.scores.metrics import METRICS
from kbqa.sparql.errors import InputError, OutputError


def _row(id_: str, error: str | None = None) -> Row:
    scores = dict.fromkeys(METRICS, 0.0)
    return Row(
        schema_version=3, id=id_, question="?", gold=(), answers=(), scores=scores, error=error
    )


def _write(path: Path, *rows: Row) -> Path:
    with RowFile(path) as file:
        for row in rows:
            file.append(row)
    return path


def test_rows_are_added_at_the_end(tmp_path: Path) -> None:
    path = _write(tmp_path / "run.jsonl", _row("é"))
    _write(path, _row("b"))
    first, second = path.read_text("utf-8").splitlines()
    assert '"id": "é"' in first and '"id": "b"' in second


def test_half_a_character_stays_what_it_is(tmp_path: Path) -> None:
    path = _write(tmp_path / "run.jsonl", _row("\ud83d"))
    assert json.loads(path.read_bytes())["id"] == "\ud83d"
    assert take_over(path, read_row) == {"\ud83d": _row("\ud83d")}


def test_rows_that_do_not_fit_leave_nothing_behind(tmp_path: Path) -> None:
    path = _write(tmp_path / "run.jsonl", _row("a"))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with RowFile(path) as file:
        # A limit on the size of files stands in for a full disk, on which a short row still fits.
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 400, before[1]))
        try:
            for _ in range(2):
                with pytest.raises(OutputError, match="cannot be written"):
                    file.append(_row("long" * 100))
            file.append(_row("b"))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert take_over(path, read_row) == {"a": _row("a"), "b": _row("b")}


def test_what_failed_and_what_is_not_whole_goes(tmp_path: Path) -> None:
    path = _write(tmp_path / "run.jsonl", _row("a"), _row("b", "broken"), _row("c"))
    with path.open("a") as file:
        file.write('{"id": "d", "err')
    assert take_over(path, read_row) == {"a": _row("a"), "c": _row("c")}
    assert take_over(path, read_row) == {"a": _row("a"), "c": _row("c")}
    assert len(path.read_text().splitlines()) == 2
    assert list(tmp_path.iterdir()) == [path]


def test_a_run_that_is_broken_in_the_middle_is_left_alone(tmp_path: Path) -> None:
    path = _write(tmp_path / "run.jsonl", _row("a"))
    path.write_text("nonsense\n" + path.read_text())
    before = path.read_bytes()
    with pytest.raises(InputError, match="line 1: not JSON"):
        take_over(path, read_row)
    assert path.read_bytes() == before


def test_a_file_that_cannot_be_opened_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        RowFile(tmp_path / "none" / "run.jsonl")
