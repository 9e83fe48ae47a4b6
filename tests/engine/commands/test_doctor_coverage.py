import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbqa.engine.commands.doctor import Share, measure_coverage
from kbqa.engine.questions.question_sets import read_question_rows
from kbqa.kb.graph import Graph
from kbqa.kb.open import open_graph
from kbqa.sparql.errors import InputError

MONEY = "SELECT ?x { ns:m.03_r3 ns:location.country.currency_used ?x }"
HEIGHT = "SELECT ?x { ns:m.06w2sn5 ns:people.person.height_meters ?x }"
COVERED = {
    "id": "1",
    "question": "what money?",
    "sparql": MONEY,
    "topic_entities": [{"mid": "m.03_r3", "name": "Jamaica"}],
    "answers": [{"arg": "m.04xc2m", "name": "Jamaican dollar"}],
}
UNCOVERED = {
    "id": "2",
    "question": "how tall?",
    "sparql": HEIGHT,
    "topic_entities": [{"mid": "m.0none", "name": "Nobody"}],
    "answers": [{"arg": "1.7", "name": None}],
}
UNREADABLE = {"id": "3", "question": "why?", "sparql": "FOR GOD'S SAKE", "answers": []}
SIMPLE = {
    "id": "4",
    "question": "capital?",
    "subject": "m.03_r3",
    "relation": "location.country.capital",
    "object": "m.03yl7",
}


def _parse(sparql: str, *answers: str, quality: str = "Complete") -> dict[str, object]:
    return {
        "Sparql": sparql,
        "TopicEntityMid": "m.03_r3",
        "TopicEntityName": "Jamaica",
        "AnnotatorComment": {"QuestionQuality": "Good", "ParseQuality": quality},
        "Answers": [{"AnswerArgument": answer} for answer in answers],
    }


@pytest.fixture(scope="module")
def graph(small_store: Path) -> Iterator[Graph]:
    opened = open_graph(small_store)
    yield opened
    opened.close()


def _write(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_what_the_graph_holds_is_counted(graph: Graph, tmp_path: Path) -> None:
    path = _write(tmp_path / "q.jsonl", COVERED, UNCOVERED, UNREADABLE, SIMPLE)
    coverage = measure_coverage(graph, path)
    assert (coverage.n, coverage.unreadable) == (4, 1)
    assert coverage.topics == Share(1, 2)
    assert coverage.relations == Share(2, 3)
    assert coverage.answers == Share(2, 3)
    assert coverage.covered == Share(2, 3)
    assert coverage.missing_topics == (("m.0none", 1),)
    assert coverage.missing_relations == (("people.person.height_meters", 1),)
    assert not coverage.is_complete


def test_the_most_frequent_missing_relations_come_first(graph: Graph, tmp_path: Path) -> None:
    rows = [
        {"id": str(at), "question": "?", "sparql": f"ASK {{ ?x ns:no.such.r{at // 2} ?y }}"}
        for at in range(3)
    ]
    coverage = measure_coverage(graph, _write(tmp_path / "q.jsonl", *rows))
    assert coverage.missing_relations == (("no.such.r0", 2), ("no.such.r1", 1))


def test_one_parse_of_several_is_enough(graph: Graph, tmp_path: Path) -> None:
    parses = [_parse(HEIGHT, "1.7"), _parse(MONEY, "m.04xc2m"), _parse("no", quality="Partial")]
    path = _write(tmp_path / "q.jsonl", {"id": "1", "question": "?", "parses": parses})
    coverage = measure_coverage(graph, path)
    assert coverage.covered == Share(1, 1)
    assert coverage.unreadable == 0


def test_dates_are_found_in_the_store_s_own_form(graph: Graph, tmp_path: Path) -> None:
    row = UNCOVERED | {"answers": [{"arg": "1994-03-01-08:00", "name": None}]}
    coverage = measure_coverage(graph, _write(tmp_path / "q.jsonl", row))
    assert coverage.answers == Share(1, 1)


def test_entities_of_the_query_stand_in_for_topics(graph: Graph, tmp_path: Path) -> None:
    row = {"id": "1", "question": "?", "sparql": MONEY.replace("m.03_r3", "m.0gone")}
    coverage = measure_coverage(graph, _write(tmp_path / "q.jsonl", row))
    assert coverage.missing_topics == (("m.0gone", 1),)


def test_the_official_file_of_webqsp(graph: Graph, tmp_path: Path) -> None:
    record = {
        "QuestionId": "WebQTest-0",
        "RawQuestion": "what money?",
        "Parses": [_parse(MONEY, "m.04xc2m")],
    }
    path = tmp_path / "WebQSP.test.json"
    path.write_text(json.dumps({"Version": "1.0", "Questions": [record]}, indent=2))
    coverage = measure_coverage(graph, path)
    assert coverage.is_complete
    assert coverage.covered == Share(1, 1)


def test_the_official_file_of_complexwebquestions(graph: Graph, tmp_path: Path) -> None:
    record = {
        "ID": "WebQTest-0_a",
        "question": "what money?",
        "sparql": MONEY,
        "answers": [{"answer_id": "m.04xc2m", "answer": "Jamaican dollar", "aliases": []}],
    }
    path = tmp_path / "ComplexWebQuestions_dev.json"
    path.write_text(json.dumps([record], indent=2))
    assert measure_coverage(graph, path).is_complete
    [(_, row)] = read_question_rows(path)
    assert row["answers"] == [{"arg": "m.04xc2m", "name": "Jamaican dollar"}]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("q.jsonl", "", "has no questions"),
        ("q.jsonl", "nonsense", "line 1: not JSON"),
        ("q.json", "nonsense", "line 1: not JSON"),
        ("q.json", '[{"ID": 1}]', "record 1: not a record of WebQSP"),
        ("q.json", '{"Questions": [{}]}', "record 1: not a record of WebQSP"),
        ("q.json", "[]", "has no questions"),
        ("q.jsonl", '{"question": "?", "parses": [{}]}', "line 1: not a question record"),
        ("q.json.gz", "no gzip", "cannot be read"),
    ],
)
def test_what_is_no_question_set_is_told(
    graph: Graph, tmp_path: Path, name: str, text: str, message: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=message):
        measure_coverage(graph, tmp_path / name)
