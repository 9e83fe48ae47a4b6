from pathlib import Path

import pytest
from click.testing import CliRunner

from kbqa.kb.loading.job import KEPT_SHARE
from tools.bench.loading.stages import LINES, StageCosts, at_full_size, estimate, main
from tools.make.dump import main as make_dump

KEPT = round(LINES * KEPT_SHARE)


def test_stages_of_two_loads_and_the_estimate(tmp_path: Path, made_dump: Path) -> None:
    larger = tmp_path / "larger.nt.gz"
    made = CliRunner().invoke(make_dump, ["--lines", "40000", "--output", str(larger)])
    assert made.exit_code == 0, made.output
    work = tmp_path / "work"
    told = CliRunner().invoke(main, [str(made_dump), str(larger), "--work", str(work)])
    assert told.exit_code == 0, told.output
    _, small, large, full = told.output.split("\n\n")
    for name, load in ((made_dump.name, small), (larger.name, large)):
        lines = load.splitlines()
        assert lines[0].startswith(f"{name}: ")
        assert [line.split("  ")[0] for line in lines[2:8]] == [
            *("only reading", "starting", "reading", "loading", "compacting", "indexing")
        ]
        assert [line.strip()[0] for line in lines[9:14]] == list("gfwcn")
        assert lines[14].endswith("bytes were written to the disk for each triple")
    assert full.splitlines()[-1].startswith("in all, --no-compact")
    assert not list(work.iterdir())


def test_the_slowest_part_of_a_load_is_what_it_takes() -> None:
    costs = StageCosts(KEPT, reading=0.3, filling=1.0, writing=9.0, compacting=3.0, indexing=20.0)
    few, many = (estimate(costs, 10.0, cores) for cores in (2, 64))
    assert few.loading == few.work == pytest.approx((LINES + 10 * KEPT) / 2 / 1e6)
    assert many.loading == many.writing == pytest.approx(10 * KEPT / 8 / 1e6)
    assert many.total - many.loading == many.compacting == few.compacting > many.indexing


@pytest.mark.parametrize(
    ("small", "large", "full"),
    [
        pytest.param(2.0, 2.0, 2.0, id="what does not grow"),
        pytest.param(2.0, 1.0, 1.0, id="what shrinks is not taken to shrink on"),
        pytest.param(1.0, 2.0, 4.0, id="what doubles doubles again"),
    ],
)
def test_growth_is_carried_on(small: float, large: float, full: float) -> None:
    assert at_full_size(small, large, KEPT // 10_000, KEPT // 100) == pytest.approx(full, rel=1e-6)
