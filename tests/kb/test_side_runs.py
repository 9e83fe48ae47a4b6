from pathlib import Path

import pytest
from store_content import store_content

from kbqa.kb import side_runs
from kbqa.kb.layout import StoreLayout
from kbqa.kb.load import load_freebase
from kbqa.kb.rules import profile
from kbqa.kb.side_runs import merge_runs


@pytest.mark.parametrize("rows", [1, 3, 1000])
def test_many_ranges_make_the_indexes_of_one(
    rows: int, small_dump: Path, small_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(side_runs, "_RANGE_ROWS", rows)
    # In three files, so that nodes come in several shards.
    lines = small_dump.read_text(encoding="utf-8").splitlines(keepends=True)
    parts = [tmp_path / f"part{number}.nt" for number in range(3)]
    for part, start in zip(parts, (0, 15, 30), strict=True):
        part.write_text("".join(lines[start : start + 15]), encoding="utf-8")
    parts[-1].write_text("".join(lines[30:]), encoding="utf-8")
    load_freebase(parts, tmp_path / "store", rules=profile("full"))
    found, expected = store_content(tmp_path / "store"), store_content(small_store)
    assert found == expected


def test_no_rows_are_no_range(tmp_path: Path) -> None:
    assert list(merge_runs(StoreLayout(tmp_path).runs, 0)) == []
