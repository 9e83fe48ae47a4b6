from pathlib import Path

from click.testing import CliRunner

from kbqa.kb.loading.load import load_freebase
from tools.bench.worker import main


def test_each_form_is_asked_in_each_way(tmp_path: Path, made_dump: Path) -> None:
    load_freebase([made_dump], tmp_path / "store")
    told = CliRunner().invoke(main, [str(tmp_path / "store"), "--entities", "20"])
    assert told.exit_code == 0, told.output
    _, times, limited = told.output.split("\n\n")
    rows = [line[38:].split() for line in times.splitlines()[1:4]]
    assert [len(row) for row in rows] == [1 + 3 * 3] * 3
    # So few triples are sorted within the limit, unless the machine is busy.
    ends = [line.split(" after ")[0] for line in limited.splitlines()[1:]]
    assert [end.split(": ")[0] for end in ends] == ["worker", "oxigraph server"]
    assert {end.split(": ")[1] for end in ends} <= {"answered", "QueryTimeout"}
