from pathlib import Path

from bench_stages import main
from click.testing import CliRunner


def test_each_stage_has_its_share(tmp_path: Path, made_dump: Path) -> None:
    told = CliRunner().invoke(main, [str(made_dump), "--work", str(tmp_path), "--loaders", "1"])
    assert told.exit_code == 0, told.output
    _, table, shares = told.output.split("\n\n")
    stages = [line.split("  ")[0] for line in table.splitlines()[1:]]
    assert stages == ["only reading", "starting", "reading", "loading", "compacting", "indexing"]
    assert [line[0] for line in shares.splitlines()] == list("gfwcn")
    assert not list(tmp_path.glob("stages"))
