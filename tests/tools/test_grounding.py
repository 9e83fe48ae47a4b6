import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kbqa.engine.files import read_rows
from kbqa.kb.names.search import open_names
from kbqa.kb.open import open_graph
from tools.score.grounding import main

GEORGIA = "Main Path:\n Georgia -[location , country , capital]-> ?x"


@pytest.fixture(scope="module")
def mids(demo_store: Path) -> dict[str, list[str]]:
    """Mids of the demo graph by name, the best known first."""
    graph = open_graph(demo_store)
    names = open_names(graph)
    try:
        return {
            name: [match.mid for match in names.lookup(name)] for name in ("Georgia", "Tbilisi")
        }
    finally:
        names.close()
        graph.close()


def run(
    folder: Path, store: Path, rows: Sequence[Mapping[str, object]], *options: str
) -> tuple[list[list[str]], list[dict[str, Any]], str]:
    """Run the tool on these rows; return the table's cells, the misses and all that is printed."""
    file, misses = folder / "some.jsonl", folder / "misses.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    arguments = [str(file), "--store", str(store), "--misses", str(misses), *options]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    lines = [line for line in done.stdout.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]
    return cells, [row for _, row in read_rows(misses)], done.stdout


def row(mid: str, **fields: object) -> dict[str, object]:
    sparql = f"SELECT DISTINCT ?x {{ ns:{mid} ns:location.country.capital ?x }}"
    record = {"id": "1", "question": "what is the capital of georgia?", "sparql": sparql}
    return {**record, "crp_routerkgqa": GEORGIA, "evidence": "independent", **fields}


def test_right_names_and_the_best_known_are_counted(
    tmp_path: Path, demo_store: Path, mids: dict[str, list[str]]
) -> None:
    state, country = mids["Georgia"]
    cells, misses, _ = run(tmp_path, demo_store, [row(country), row(state)])
    assert [line[:2] for line in cells] == [
        ["all", "2"],
        ["topics", "2"],
        ["tier independent", "2"],
        ["groundable", "2"],
        ["groundable topics", "2"],
    ]
    shares = [cell.split(" %")[0] for cell in cells[0][2:]]
    assert shares == ["50.0", "100.0", "50.0", "100.0"]
    assert [(miss["gold"], miss["proposed"][0]) for miss in misses] == [([state], country)]


def test_names_without_a_known_gold_entity_are_shown_and_wrong(
    tmp_path: Path, demo_store: Path, mids: dict[str, list[str]]
) -> None:
    capital = mids["Tbilisi"][0]
    named = [{"mid": "m.0nobody", "name": "Georgia"}]
    rows = [row(capital), row("m.0nobody", entities_in_sparql=named)]
    cells, _, printed = run(tmp_path, demo_store, rows)
    assert "2 names: 1 without a known gold entity, 1 that the graph cannot ground" in printed
    assert [line[0] for line in cells] == ["all", "topics", "tier independent"]
    assert cells[0][2].startswith("0.0 %")


def test_texts_that_cannot_be_read_are_told(
    tmp_path: Path, demo_store: Path, mids: dict[str, list[str]]
) -> None:
    rows = [row(mids["Georgia"][1]), row("m.0a", crp_routerkgqa="no path")]
    assert "2 CRPs, 1 of them cannot be read" in run(tmp_path, demo_store, rows)[2]


def test_crps_are_made_from_the_sparql_of_rows_to_develop_on(
    tmp_path: Path, demo_store: Path, mids: dict[str, list[str]]
) -> None:
    country = mids["Georgia"][1]
    named = [{"mid": country, "name": "Georgia"}]
    rows = [
        row(country, crp_routerkgqa=None, entities_in_sparql=named),
        row(country, crp_routerkgqa=None, entities_in_sparql=named, test_parent="1"),
    ]
    cells, misses, _ = run(tmp_path, demo_store, rows, "--converted")
    assert (cells[0][1], misses) == ("1", [])
