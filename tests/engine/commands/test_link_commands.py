import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kbqa.engine.cli import main
from kbqa.kb.endpoint import EndpointNames
from kbqa.sparql.errors import QueryTimeout

JAMAICA = "m.03_r3"
BIEBER = "m.06w2sn5"


def link(store: Path, *arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["link", "--store", str(store), *map(str, arguments)])


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    """A question set, gzipped, one row without an id."""
    rows = [
        {"id": "q1", "question": "what is the capital of Jamaica?"},
        {"question": "why?"},
        {"id": 3, "question": "is justin bieber tall?", "topic_entities": [{"mid": "m.0wrong"}]},
    ]
    path = tmp_path / "questions.jsonl.gz"
    path.write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))
    return path


def test_shows_candidates_with_scores_and_mentions(small_store: Path) -> None:
    result = link(small_store, "what was Jamaica's capital in 1962?")
    assert result.exit_code == 0
    first, *_, last = result.stdout.splitlines()
    score, mid, name, mention = first.split()
    assert (mid, name, mention) == (JAMAICA, "Jamaica", "“Jamaica's”")
    assert 0 < float(score) <= 1
    assert last.split() == ["date", "“1962”"]


def test_says_where_nothing_is_named(small_store: Path) -> None:
    result = link(small_store, "why?")
    assert result.exit_code == 0
    assert result.stdout == "The graph has no entity of any name in the question.\n"


def test_says_that_an_endpoint_forgives_no_typing_errors(small_endpoint: str) -> None:
    result = CliRunner().invoke(main, ["link", "--endpoint", small_endpoint, "where is Jamiaca?"])
    assert "an endpoint forgives no typing errors" in result.stdout


def test_json_of_one_question(small_store: Path) -> None:
    record = json.loads(link(small_store, "what was Jamaica's capital in 1962?", "--json").stdout)
    assert record["question"] == "what was Jamaica's capital in 1962?"
    assert "Jamaica's" in record["mentions"]
    assert record["values"] == [{"text": "1962", "kind": "date"}]
    assert record["candidates"][0]["mid"] == JAMAICA


def test_json_lines_of_a_question_set(small_store: Path, questions: Path) -> None:
    result = link(small_store, "--questions", questions, "--json", "--limit", "1")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["id"] for row in rows] == ["q1", "2", "3"]
    assert [set(row) for row in rows] == [{"id", "candidates"}] * 3
    found = [[c["mid"] for c in row["candidates"]] for row in rows]
    assert found == [[JAMAICA], [], [BIEBER]]
    assert set(rows[0]["candidates"][0]) == {"mid", "name", "score", "mention"}


def test_a_question_set_for_people(small_store: Path, questions: Path) -> None:
    lines = link(small_store, "--questions", questions).stdout.splitlines()
    assert lines[0] == "# what is the capital of Jamaica?"
    assert lines[1].split()[1:] == [JAMAICA, "Jamaica", "“Jamaica”"]
    assert lines.count("") == 2


def test_a_question_that_fails_does_not_end_the_run(
    small_endpoint: str, questions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    match_spans = EndpointNames.match_spans

    def fail_once(self, tokens, *rest):
        if "capital" in tokens:
            raise QueryTimeout("", 1, "there", "no result in time")
        return match_spans(self, tokens, *rest)

    monkeypatch.setattr(EndpointNames, "match_spans", fail_once)
    result = CliRunner().invoke(
        main,
        ["link", "--endpoint", small_endpoint, "--questions", str(questions), "--json"],
    )
    failed, *others = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.exit_code == 0
    assert failed == {"id": "q1", "candidates": [], "error": "no result in time"}
    assert len(others) == 2


def test_questions_of_standard_input(small_store: Path) -> None:
    asked = b"is justin bieber tall?\n\nwhy\xff?\n"
    command = ["link", "-", "--store", str(small_store), "--json"]
    result = CliRunner().invoke(main, command, input=asked)
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(row["id"], len(row["candidates"]) > 0) for row in rows] == [("1", True), ("2", False)]


@pytest.mark.parametrize("question", ["", "  "])
def test_an_empty_question_is_an_error(small_store: Path, question: str) -> None:
    result = link(small_store, question)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "the question is empty" in result.stderr


def test_what_a_terminal_would_obey_is_not_printed(small_store: Path, tmp_path: Path) -> None:
    file = tmp_path / "odd.jsonl"
    file.write_text(json.dumps({"question": "is\x1b[2J justin\nbieber \ud800 tall?"}))
    result = link(small_store, "--questions", file)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[0] == "# is�[2J justin bieber � tall?"
    assert "“justin bieber”" in result.stdout


def test_a_graph_that_does_not_answer_is_told_at_once(questions: Path) -> None:
    command = ["link", "--endpoint", "http://127.0.0.1:9/sparql", "--questions", str(questions)]
    result = CliRunner().invoke(main, command)
    assert (result.exit_code, result.stdout) == (1, "")


@pytest.mark.parametrize(
    "arguments", [[], ["where?", "--questions", "FILE"]], ids=["neither", "both"]
)
def test_a_question_or_a_set(small_store: Path, questions: Path, arguments: list[str]) -> None:
    given = [questions if argument == "FILE" else argument for argument in arguments]
    result = link(small_store, *given)
    assert result.exit_code == 2
    assert "give a QUESTION" in result.stderr


def test_a_set_that_is_none_is_refused(small_store: Path, tmp_path: Path) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_text('{"id": 1, "question": "where?"}\n[]\n')
    result = link(small_store, "--questions", file)
    assert result.exit_code == 2
    assert "line 2" in result.stderr
    assert result.stdout == ""


def test_accents_are_read_in_a_locale_without_utf_8(demo_store: Path) -> None:
    old = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    code = "from kbqa.engine.cli import main; main()"
    command = [sys.executable, "-c", code, "link", "--json", "--store", str(demo_store)]
    run = subprocess.run(
        [*command, "where is São Paulo?"], env=os.environ | old, capture_output=True, check=True
    )
    assert json.loads(run.stdout)["candidates"][0]["name"] == "São Paulo"
