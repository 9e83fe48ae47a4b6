from pathlib import Path

from click.testing import CliRunner

from tools.bench.loading.load import main


def test_like_stands_beside_like(tmp_path: Path, made_dump: Path) -> None:
    work = tmp_path / "work"
    told = CliRunner().invoke(main, [str(made_dump), "--work", str(work), "--repeats", "1"])
    assert told.exit_code == 0, told.output
    *_, as_loaded, ours, loaded, optimized, ratio_as_loaded, ratio = told.stdout.splitlines()
    assert as_loaded.startswith("kbqa load-freebase --no-compact  ")
    assert ours.startswith("kbqa load-freebase  ")
    assert loaded.startswith("oxigraph load --lenient  ")
    assert optimized.startswith("oxigraph load, then optimize  ")
    assert "times the rate of oxigraph load --lenient (goal" in ratio_as_loaded
    assert "times the rate of oxigraph load, then optimize (goal" in ratio
    assert not (work / "store").exists()


def test_memory_is_shown_for_each_dump_and_the_last_store_stays(
    tmp_path: Path, made_dump: Path
) -> None:
    work = tmp_path / "work"
    told = CliRunner().invoke(main, [str(made_dump)] * 2 + ["--work", str(work), "--memory"])
    assert told.exit_code == 0, told.output
    *_, first, second = told.output.splitlines()
    assert first.split()[:2] == second.split()[:2]
    assert first.split()[0] == made_dump.name
    assert (work / "store/manifest.json").exists()
