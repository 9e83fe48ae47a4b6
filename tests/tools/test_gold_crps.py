import json
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kbqa.engine.files import read_rows
from kbqa.kb.loading.load import load_freebase
from tools.convert.gold_crps import main

MONEY = "SELECT DISTINCT ?x { ns:m.03_r3 ns:location.country.currency_used ?x }"
BIRTH = "SELECT DISTINCT ?x { ns:m.06w2sn5 ns:people.person.date_of_birth ?x }"
TOTAL = "SELECT (MIN(?x) AS ?n) { ns:m.03_r3 ns:location.country.currency_used ?x }"


def question(sparql: str, answer: str, number: int = 1) -> dict[str, object]:
    return {
        "id": str(number),
        "question": "what?",
        "sparql": sparql,
        "answers": [{"arg": answer}],
        "evidence": "independent" if number % 2 else "annotated",
    }


def parse(sparql: str, answer: str, quality: str = "Complete") -> dict[str, object]:
    return {
        "Sparql": sparql,
        "Answers": [{"AnswerArgument": answer}],
        "AnnotatorComment": {"QuestionQuality": "Good", "ParseQuality": quality},
    }


def run(
    store: Path, folder: Path, rows: Sequence[Mapping[str, object]]
) -> tuple[list[list[str]], list[dict[str, Any]]]:
    """Run the tool on these rows; return the cells of its table and the failures."""
    file, failures = folder / "some.jsonl", folder / "failures.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    arguments = ["--store", store, "--questions", file, "--failures", failures]
    done = CliRunner().invoke(main, [*map(str, arguments)])
    assert done.exit_code == 0, done.output
    table = [line.strip("| ").split(" | ") for line in done.stdout.splitlines()[2:]]
    return table, [row for _, row in read_rows(failures)]


def test_table_by_tier_and_failures(small_store: Path, tmp_path: Path) -> None:
    rows = [
        question(MONEY, "m.04xc2m", 1),
        question(TOTAL, "1", 2),
        question(MONEY, "m.0none", 3),
        question(BIRTH, "1994-03-01-08:00", 4),  # with the time zone of the store that was asked
        {**question(MONEY, "m.0none", 5), "answers": []},  # nothing to score
    ]
    table, failures = run(small_store, tmp_path, rows)
    assert [(row[1], row[2], row[3][:6], row[5]) for row in table] == [
        ("all", "4", "0.5000", "projection 1"),
        ("independent", "2", "0.5000", "none"),
        ("annotated", "2", "0.5000", "projection 1"),
        ("independent + annotated", "4", "0.5000", "projection 1"),
    ]
    assert [failure["id"] for failure in failures] == ["2", "3"]
    [refused], [wrong] = (failure["attempts"] for failure in failures)
    assert (refused["problem"], refused["crp"], refused["compiled"]) == ("projection", None, None)
    assert (wrong["missing"], wrong["extra"]) == (["m.0none"], ["m.04xc2m"])
    assert wrong["sparql"] == MONEY
    assert wrong["crp"].startswith("m.03_r3 -> location.country.currency_used")


@pytest.mark.parametrize(
    ("parses", "f1"),
    [
        pytest.param([parse(BIRTH, "x"), parse(MONEY, "m.04xc2m")], "1.0000", id="best parse"),
        pytest.param([parse(TOTAL, "1"), parse(MONEY, "m.04xc2m")], "1.0000", id="one refused"),
        pytest.param(
            [parse(BIRTH, "x"), parse(MONEY, "m.04xc2m", "Partial")], "0.0000", id="incomplete"
        ),
    ],
)
def test_the_parse_that_scores_best_stands_for_a_question(
    parses: list[dict[str, object]], f1: str, small_store: Path, tmp_path: Path
) -> None:
    table, _ = run(small_store, tmp_path, [{"id": "1", "question": "what?", "parses": parses}])
    assert [row[3][:6] for row in table] == [f1]


def test_gold_queries_of_the_shared_data_find_their_answers(shared: Path, tmp_path: Path) -> None:
    load_freebase([shared / "data/fidelity/graph.nt.gz"], tmp_path / "store")
    queries = read_rows(shared / "data/fidelity/queries-half.jsonl.gz")
    rows = [
        {**row, "id": f"{row['set']} {row['id']}", "answers": [{"arg": arg} for arg in row["gold"]]}
        for _, row in islice(queries, 0, None, 280)
    ]
    assert len(rows) >= 20
    table, failures = run(tmp_path / "store", tmp_path, rows)
    assert failures == []
    assert table[0][1:4] == ["all", str(len(rows)), "1.0000 [1.0000, 1.0000]"]
