import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tools.retrieval.recall import main

pytest.importorskip("sentence_transformers", reason="needs the lm extra")

SPARQL = """PREFIX ns: <http://rdf.freebase.com/ns/>
SELECT DISTINCT ?x WHERE { FILTER (?x != ns:m.03_r3) ns:m.03_r3 ns:%s ?x . }"""
JAMAICA = {"topic_entities": [{"mid": "m.03_r3", "name": "Jamaica"}], "evidence": "annotated"}


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    money = {"question": "What is the currency of Jamaica?", "answers": [{"arg": "m.04xc2m"}]}
    city = {"question": "What is the capital of Jamaica?", "answers": [{"arg": "m.03yl7"}]}
    nothing = {"question": "Who is Jamaica?", "answers": [{"arg": "m.0x"}]}
    rows = [
        {"id": "money", **JAMAICA, **money, "sparql": SPARQL % "location.country.currency_used"},
        {"id": "city", **JAMAICA, **city, "sparql": SPARQL % "location.country.capital"},
        {"id": "who", **JAMAICA, **nothing, "sparql": SPARQL % "people.person.sibling_s"},
        {"id": "none", **JAMAICA, **city, "evidence": "none"},
    ]
    path = tmp_path / "questions.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def run(store: Path, questions: Path, *more: str) -> list[str]:
    arguments = ["--store", str(store), "--questions", str(questions), *more]
    told = CliRunner().invoke(main, [*arguments, "--scorer", "cosine", "--scorer", "cosine"])
    assert told.exit_code == 0, told.output
    return told.stdout.splitlines()


def test_what_questions_need_is_among_the_first_triples(small_store: Path, questions: Path) -> None:
    lines = run(small_store, questions)
    assert lines[:2] == [
        "2 questions of questions.jsonl, gold entities.",
        "Left out 1: its query finds nothing in the graph.",
    ]
    paths = [line for line in lines if line.startswith("| cosine | path")]
    assert len(paths) == 2
    assert all(line.endswith("| 1.000 [1.000, 1.000] |") for line in paths)
    assert "| triples | +0.000 [+0.000, +0.000] |" in "\n".join(lines)


def test_some_questions_can_be_chosen(small_store: Path, questions: Path, tmp_path: Path) -> None:
    (tmp_path / "ids.jsonl").write_text('{"id": "city"}\n')
    lines = run(small_store, questions, "--ids", str(tmp_path / "ids.jsonl"), "--linked")
    assert lines[0] == "1 questions of questions.jsonl, linked entities."
