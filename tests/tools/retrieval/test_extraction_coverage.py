import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tools.retrieval.coverage import main

QUESTION = {
    "question": "Who is the brother of Justin Bieber?",
    "topic_entities": [{"mid": "m.06w2sn5", "name": "Justin Bieber"}],
}


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    answers = [[{"arg": "m.0gxnnwq"}, {"arg": "m.0nobody"}], [{"arg": "m.0gxnnwd"}]]
    rows = [QUESTION | {"answers": each, "evidence": "annotated"} for each in answers]
    rows.append(QUESTION | {"answers": [{"arg": "m.0nobody"}], "evidence": "none"})
    path = tmp_path / "questions.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def run(*arguments: str | Path) -> list[list[str]]:
    told = CliRunner().invoke(main, [*map(str, arguments)])
    assert told.exit_code == 0, told.output
    lines = [line for line in told.stdout.splitlines() if line.startswith("|")]
    return [line.strip("| ").split(" | ") for line in lines[2:]]


@pytest.mark.parametrize("linked", [[], ["--linked"]])
def test_the_share_of_gold_answers_around_the_topics(
    small_store: Path, questions: Path, linked: list[str], tmp_path: Path
) -> None:
    output = tmp_path / "out.jsonl"
    common = ["--store", small_store, "--questions", questions, "--output", output]
    two, one = run(*common, "--caps", "", "--caps", "hops=1,frontier=9", *linked)
    assert (two[1], two[2][:5], two[5][:5]) == ("2", "0.750", "1.000")
    assert one[0].startswith("hops 1, ")
    assert "frontier 9" in one[0]
    assert one[2][:5] == "0.000"
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert [row["coverage"] for row in rows] == [0.5, 1, 0, 0]


def test_a_cap_that_does_not_exist(small_store: Path, questions: Path) -> None:
    arguments = ["--store", str(small_store), "--questions", str(questions), "--caps", "size=1"]
    told = CliRunner().invoke(main, arguments)
    assert "the names are hops, per_relation" in str(told.exception)
