import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tools.retrieval import check_reader, time_stages

pytest.importorskip("sentence_transformers", reason="needs the lm extra")


def test_readers_are_right_where_an_answer_was_retrieved(tmp_path: Path) -> None:
    triple = {"subject": "m.1", "relation": "a.b.c", "object": "m.2"}
    row = {"gold": [["m.2"], ["m.9"]], "error": None, "trace": {"triples": [triple]}}
    rows = [
        row | {"id": "right", "answers": [{"mid": "m.2"}]},
        row | {"id": "missed", "answers": [{"value": "m.3"}]},
        row | {"id": "guessed", "answers": [{"mid": "m.9"}], "trace": {"triples": []}},
        row | {"id": "failed", "answers": [], "error": "it broke", "trace": None},
    ]
    path = tmp_path / "run.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in rows))
    told = CliRunner().invoke(check_reader.main, [str(path)], catch_exceptions=False)
    assert told.stdout.splitlines() == [
        "run.jsonl: 3 questions, 2 with an answer among the triples, 2 answered",
        "  guessed: not retrieved",
        "  missed: not answered",
    ]


def test_stages_are_timed(small_store: Path, tmp_path: Path) -> None:
    path = tmp_path / "questions.jsonl"
    path.write_text('{"id": "1", "question": "what is the capital of Jamaica?", "answers": []}\n')
    arguments = ["--store", str(small_store), "--questions", str(path), "--gold-entities"]
    told = CliRunner().invoke(time_stages.main, arguments, catch_exceptions=False)
    head, _, times = told.stdout.splitlines()[-3:]
    assert head == "| link | extract | score | pool | all | CPU |"
    assert times.count(",") == 6
