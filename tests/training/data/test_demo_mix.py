import json
from pathlib import Path

import pytest

from kbqa.training.data.training_set import ASKED, DEMO_SOURCE, Example, load_examples
from kbqa.training.demo import demo_examples

SEED = 0


@pytest.fixture(scope="module")
def drawn() -> list[Example]:
    return load_examples([], demo_questions=50, seed=SEED).examples


def test_as_many_demo_questions_as_wanted(drawn: list[Example]) -> None:
    assert len(drawn) == 50
    assert {example.source for example in drawn} == {DEMO_SOURCE}
    assert len({example.id for example in drawn}) == 50


def test_none_that_is_kept_for_testing(drawn: list[Example]) -> None:
    kept = {one.question.casefold() for one in demo_examples(SEED) if one.split == "valid"}
    assert not {example.question.casefold() for example in drawn} & kept


def test_none_that_a_test_set_asks(drawn: list[Example], tmp_path: Path) -> None:
    path = tmp_path / "test.jsonl"
    path.write_text(json.dumps({"id": "1", "question": drawn[7].question.upper()}))
    gathered = load_examples([], demo_questions=50, seed=SEED, scored=[path])
    assert gathered.skipped_rows == {ASKED: [f"demo {drawn[7].id}"]}
    assert gathered.examples == [*drawn[:7], *drawn[8:]]


def test_question_sets_come_first_and_demo_questions_only_if_wanted(tmp_path: Path) -> None:
    crp = "Main Path:\n Kenya -[location , country , capital]-> ?x"
    path = tmp_path / "own.jsonl"
    rows = [{"id": "q1", "question": "kenya's capital?", "crp_routerkgqa": crp}, {"id": "q2"}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    gathered = load_examples([path], demo_questions=0, seed=SEED)
    assert gathered.examples == [Example("q1", "kenya's capital?", crp, "own")]
    assert gathered.skipped == {"no question": 1}
    assert [file.name for file in gathered.files] == ["own.jsonl"]
