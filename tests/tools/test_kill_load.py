from pathlib import Path

from click.testing import CliRunner

from kbqa.kb.loading.load import load_freebase
from tools.bench.loading.kill_load import main
from tools.make.dump import main as make_dump
from tools.store_content import store_content

NS = "http://rdf.freebase.com/ns/"


def test_the_content_of_a_store_does_not_depend_on_the_order_of_its_dump(tmp_path: Path) -> None:
    lines = [f"<{NS}m.{n}> <{NS}a.p> <{NS}m.{n % 7}> .\n" for n in range(100)]
    contents = []
    for name, ordered in (("one", lines), ("other", lines[::-1]), ("less", lines[1:])):
        dump = tmp_path / f"{name}.nt"
        dump.write_text("".join(ordered))
        load_freebase([dump], tmp_path / name)
        contents.append(store_content(tmp_path / name))
    assert contents[0] == contents[1]
    assert contents[0]["triples"].total == 100
    assert contents[2]["triples"].total == 99
    assert contents[2]["triples"].digest != contents[0]["triples"].digest


def test_loads_that_are_killed_end_with_the_same_store(tmp_path: Path) -> None:
    dump = tmp_path / "dump.nt.gz"
    made = CliRunner().invoke(make_dump, ["--lines", "20000", "--output", str(dump)])
    assert made.exit_code == 0
    options = ["--work", str(tmp_path / "work"), "--kills", "2", "--shard-triples", "3000"]
    told = CliRunner().invoke(main, [str(dump), *options])
    assert told.exit_code == 0, told.output
    assert "nothing differs" in told.output
    assert not list((tmp_path / "work").iterdir())
