import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from kbqa.engine.files import read_rows
from tools.convert.fidelity import ENGINES, main, measure, open_engines, spread
from tools.graph_servers import VIRTUOSO_IS_MISSING

ROW = {
    "set": "webqsp_test",
    "id": "1",
    "question": "what is jamaican money called?",
    "sparql": "SELECT DISTINCT ?x { ns:m.03_r3 ns:location.country.currency_used ?x }",
    "gold": ["m.04xc2m"],
}

PICTURES = "grailqa-dev-2100214000000"  # asks for pictures, which the loader leaves out


@pytest.mark.skipif(shutil.which("virtuoso-t") is None, reason=VIRTUOSO_IS_MISSING)
@pytest.mark.parametrize("name", ["fidelity", "fidelity2"])
def test_every_engine_gives_the_recorded_answers(shared: Path, name: str) -> None:
    folder = shared / "data" / name
    rows = [row for _, row in read_rows(folder / "queries-half.jsonl.gz") if row["id"] != PICTURES]
    with open_engines(ENGINES, folder / "graph.nt.gz") as graphs:
        outcomes = [measure(row, graphs) for row in spread(rows, 60)]
    compiled = [outcome for outcome in outcomes if outcome.compiled is not None]
    assert len(compiled) >= 59
    for outcome in compiled:
        for engine in ENGINES:
            assert outcome.is_exact(engine), (outcome.row["id"], engine, outcome.answers[engine])


def test_tables_and_failures(small_dump: Path, tmp_path: Path) -> None:
    queries, failures = tmp_path / "queries.jsonl", tmp_path / "failures.jsonl"
    wrong = {**ROW, "id": "2", "gold": ["m.0none"]}
    refused = {
        **ROW,
        "id": "3",
        "sparql": "SELECT (MIN(?x) AS ?n) { ns:m.0a ns:b ?x }",
    }
    queries.write_text("".join(f"{json.dumps(row)}\n" for row in (ROW, wrong, refused)))
    arguments = ["--queries", queries, "--graph", small_dump, "--failures", failures]
    done = CliRunner().invoke(main, [*map(str, arguments), "--engine", "embedded"])
    assert done.exit_code == 0, done.output
    tables = [line.split() for line in done.output.splitlines()]
    assert ["1", "projection"] in tables
    assert ["wrong", "on", "embedded:", "2"] in tables
    whole = next(words for words in tables if words[:1] == ["all"])
    assert whole[:5] == ["all", "3", "1", "33.3", "%"]
    assert whole[-4:] == ["1", "1", "91.7", "%"]
    listed = [json.loads(line) for line in failures.read_text().splitlines()]
    assert [row["id"] for row in listed] == ["2", "3"]
    assert listed[0]["answers"] == {"embedded": ["m.04xc2m"]}
    assert listed[1]["refused"] == "projection"
