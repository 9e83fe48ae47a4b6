import gzip
import json
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbqa.engine.commands.doctor import read_needs
from kbqa.engine.questions.question_sets import (
    Question,
    gold_warning,
    read_questions,
    sample_questions,
)
from kbqa.sparql.crp import Entity
from kbqa.sparql.errors import InputError

CWQ = {
    "id": "CWQ-1",
    "question": "what money?",
    "topic_entities": [{"mid": "m.03_r3", "name": "Jamaica"}, {"mid": None, "name": "1990"}],
    "answers": [{"arg": "m.04xc2m", "name": "Jamaican dollar"}, {"arg": None, "name": ""}],
    "evidence": "independent",
    "compositionality_type": "composition",
    "sparql": "SELECT ?x { }",
}


def _parse(*answers: str, question: str = "Good", parse: str = "Complete") -> dict[str, Any]:
    return {
        "AnnotatorComment": {"QuestionQuality": question, "ParseQuality": parse},
        "Answers": [{"AnswerArgument": answer} for answer in answers],
    }


def _write(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_a_question_is_read_with_what_its_set_says(tmp_path: Path) -> None:
    assert read_questions(_write(tmp_path / "q.jsonl", CWQ)) == [
        Question(
            id="CWQ-1",
            text="what money?",
            topics=(Entity("Jamaica", "m.03_r3"),),
            golds=(("m.04xc2m",),),
            tier="independent",
            type="composition",
            sparql="SELECT ?x { }",
            gold_names=(("Jamaican dollar",),),
        )
    ]


def test_a_question_needs_nothing_but_its_text(tmp_path: Path) -> None:
    path = _write(tmp_path / "q.jsonl", {"question": "a?"}, {"question": "b?"})
    assert read_questions(path) == [Question("1", "a?", (), ()), Question("2", "b?", (), ())]


def test_each_complete_parse_of_a_good_question_is_a_gold_set(tmp_path: Path) -> None:
    parses = [
        _parse("m.1", "m.2"),
        _parse("m.3", parse="Partial"),
        _parse("m.4", question="Bad"),
        _parse(),
    ]
    [question] = read_questions(
        _write(
            tmp_path / "q.jsonl", {"question": "a?", "parses": parses, "answers": CWQ["answers"]}
        )
    )
    assert question.golds == (("m.1", "m.2"), ())


@pytest.mark.parametrize(
    ("answers", "names"),
    [
        ([{"arg": "m.2", "name": "B"}, {"arg": "m.1", "name": "A"}], (("A", "B"),)),
        ([{"arg": "m.1", "name": "A"}, {"arg": "m.2", "name": "A"}], (("A",),)),
        ([{"arg": "m.1", "name": "A"}, {"arg": "m.2", "name": None}], (("A", "m.2"),)),
        ([{"arg": "m.1"}, {"arg": 480}], ()),  # no entity is named
        (["m.1"], ()),
        ([480, {"arg": "1990-01-01"}], (("1990-01-01", "480"),)),
        ([], ()),
        ([{"arg": None, "name": "A"}, {"name": "B"}], (("A", "B"),)),  # gold by name alone
        ([{"arg": "m.1"}, {"name": "A"}], ()),
    ],
)
def test_the_names_of_gold_answers_are_kept(
    tmp_path: Path, answers: list[object], names: tuple[tuple[str, ...], ...]
) -> None:
    [question] = read_questions(
        _write(tmp_path / "q.jsonl", {"question": "a?", "answers": answers})
    )
    assert question.gold_names == names


def test_each_parse_that_counts_has_its_names(tmp_path: Path) -> None:
    parses = [_parse("m.2", "m.1"), _parse("m.3", parse="Partial"), _parse("480"), _parse()]
    for parse, name in zip(parses[:2], ("B", "C"), strict=True):
        parse["Answers"][0]["EntityName"] = name
    [question] = read_questions(_write(tmp_path / "q.jsonl", {"question": "a?", "parses": parses}))
    assert question.gold_names == (("B", "m.1"), ("480",), ())


def test_the_official_files_are_read_as_they_are(tmp_path: Path) -> None:
    parse = {**_parse("m.1"), "TopicEntityMid": "m.0t", "TopicEntityName": "T", "Sparql": "S"}
    webqsp = {"QuestionId": "WebQTest-1", "RawQuestion": "a?", "Parses": [parse]}
    cwq = {
        "ID": "c",
        "question": "b?",
        "sparql": "?c ns:a.b ns:m.0t . ?c ns:common.topic.notable_types ns:m.0u . ?x ns:c.d ns:g.1",
        "answers": [{"answer_id": "m.2"}],
        "compositionality_type": "conjunction",
    }
    grailqa = {
        "qid": 2101,
        "question": "d?",
        "sparql_query": "SELECT",
        "s_expression": "(COUNT x)",
        "level": "zero-shot",
        "function": "count",
        "graph_query": {
            "nodes": [
                {"node_type": "class", "id": "a.b", "friendly_name": "B"},
                {"node_type": "entity", "id": "m.0t", "friendly_name": "T"},
            ]
        },
        "answer": [{"answer_type": "Value", "answer_argument": "36"}],
    }
    free917 = {"utterance": "e?", "targetFormula": "(count (!fb:a.b.c fb:en.t))"}
    routerkgqa = {"instruction": "", "input": "Question: { c? }", "output": "", "history": []}
    expected = {
        json.dumps({"Questions": [webqsp]}): Question(
            "WebQTest-1", "a?", (Entity("T", "m.0t"),), (("m.1",),), sparql="S"
        ),
        json.dumps([cwq]): Question(
            "c",
            "b?",
            (Entity(mid="m.0t"), Entity(mid="g.1")),
            (("m.2",),),
            type="conjunction",
            sparql=cwq["sparql"],
        ),
        json.dumps([grailqa, {"qid": 2102, "question": "f?"}]): Question(
            "2101",
            "d?",
            (Entity("T", "m.0t"),),
            (("36",),),
            sparql="SELECT",
            gold_names=(("36",),),
            count=36,
            generalization="zero-shot",
            function="count",
        ),
        json.dumps([free917]): Question("1", "e?", (), ()),
        json.dumps([routerkgqa]): Question("1", "c?", (), ()),
    }
    for text, question in expected.items():
        (tmp_path / "q.json").write_text(text)
        assert read_questions(tmp_path / "q.json")[0] == question


BIEBER = "what is the name of justin bieber brother?"
NAMES = ("Jaxon Bieber", 'Jazmyn "J" Bieber')
BY_NAME = {
    "WebQuestions": {
        "url": "http://www.freebase.com/view/en/justin_bieber",
        "targetValue": '(list (description "Jazmyn \\"J\\" Bieber") (description "Jaxon Bieber"))',
        "utterance": BIEBER,
    },
    "WebQuestions of KnowPath": {"url": "http://a", "question": BIEBER, "answers": [*NAMES]},
    "WebQuestions of ToG": {
        "url": "http://a",
        "question": BIEBER,
        "answers": [*NAMES],
        "topic_entity": {"m.06w2sn5": "Justin Bieber"},
        "qid_topic_entity": {"Q34086": "Justin Bieber"},
    },
    "RoG": {
        "id": "WebQTrn-0",
        "question": BIEBER,
        "answer": [*NAMES],
        "q_entity": ["Justin Bieber"],
        "a_entity": [*NAMES],
        "graph": [["Justin Bieber", "people.person.sibling_s", "m.0gxnnwp"]],
        "choices": [],
    },
}


@pytest.mark.parametrize("ending", ["json", "jsonl", "parquet"])
@pytest.mark.parametrize("name", BY_NAME)
def test_sets_with_gold_by_name_are_read_and_said_to_be_scored_by_name(
    tmp_path: Path, name: str, ending: str
) -> None:
    record, path = BY_NAME[name], tmp_path / f"set.{ending}"
    if ending == "parquet":
        polars.DataFrame([record]).write_parquet(path)
    else:
        path.write_text(json.dumps([record] if ending == "json" else record), encoding="utf-8")
    [question] = read_questions(path)
    topics = (Entity("Justin Bieber", "m.06w2sn5"),) if name.endswith("ToG") else ()
    id_ = str(record.get("id", "1"))
    assert question == Question(id_, BIEBER, topics, (), gold_names=(NAMES,))
    assert gold_warning(path, [question]) == (
        f"1 of 1 questions in {path} have gold by name alone. "
        "They are not scored by id, but by name: kbqa report RUN.jsonl --names"
    )


def test_the_other_files_of_tog_are_read(tmp_path: Path) -> None:
    simple = {
        "topic_entity": {"m.02qkg8m": "Madam Satan"},
        "answer": "United States of America",
        "question": "where is the madam satan located",
        "relation": "country",
    }
    cwq = {
        "ID": "WebQTest-832_c3",
        "compositionality_type": "composition",
        "question": "b?",
        "sparql": "SELECT ?x { ?x ns:a.b ns:m.03_dwn . ?x ns:c.d ns:m.0u }",
        "topic_entity": {"m.03_dwn": "Lou Seal"},
        "answer": "2014 World Series",
    }
    path = tmp_path / "tog.json"
    path.write_text(json.dumps([simple, cwq]))
    first, second = read_questions(path)
    assert (first.topics, first.golds) == ((Entity("Madam Satan", "m.02qkg8m"),), ())
    assert first.gold_names == (("United States of America",),)
    assert (second.id, second.type, second.sparql) == (cwq["ID"], "composition", cwq["sparql"])
    assert second.topics == (Entity("Lou Seal", "m.03_dwn"),)
    assert (second.golds, second.gold_names) == ((), (("2014 World Series",),))


def test_answers_that_are_all_ids_are_compared_by_id(tmp_path: Path) -> None:
    rows = [{"q_entity": ["m.1", "Kenya"], "answer": ["m.2"]}, {"q_entity": [], "answer": []}]
    first, second = read_questions(_write(tmp_path / "rog.jsonl", *rows))
    assert (first.topics, first.golds, first.kind) == ((Entity(mid="m.1"),), (("m.2",),), "answers")
    assert (second.golds, second.gold_names) == ((), ())


def test_each_parse_of_freebaseqa_has_its_answers_and_query(tmp_path: Path) -> None:
    parse = {
        "Parse-Id": "FreebaseQA-eval-0.P0",
        "PotentialTopicEntityMention": "valentino rossi",
        "TopicEntityName": "valentino rossi",
        "TopicEntityMid": "m.01xk7r",
        "InferentialChain": "a.b.c..d.e.f",
        "Answers": [{"AnswersMid": "m.02", "AnswersName": ["italy"]}],
    }
    other = {**parse, "InferentialChain": "g.h.i", "Answers": []}
    record = {"Question-ID": "FreebaseQA-eval-0", "RawQuestion": "c?", "Parses": [parse, other]}
    path = tmp_path / "FreebaseQA-eval.json"
    path.write_text(json.dumps({"Dataset": "FreebaseQA-eval", "Questions": [record]}))
    [question] = read_questions(path)
    assert (question.id, question.text) == ("FreebaseQA-eval-0", "c?")
    assert (question.golds, question.gold_names) == ((("m.02",), ()), (("italy",), ()))
    assert question.topics == (Entity("valentino rossi", "m.01xk7r"),)
    query = "SELECT DISTINCT ?x WHERE { ns:m.01xk7r ns:a.b.c ?y1 . ?y1 ns:d.e.f ?x }"
    assert question.sparql == query
    assert [each.relations for [needs] in [list(read_needs(path))] for each in needs.parses] == [
        {"a.b.c", "d.e.f"},
        {"g.h.i"},
    ]


def test_counts_and_topics_of_agentbench_are_read(tmp_path: Path) -> None:
    record = {
        "qid": "3205922013000_grailqa",
        "question": "how many mac models used motorola 68040 processors?",
        "source": "grailqa",
        "entities": {"mac": "m.0zd6", "Motorola 68040": "m.05397"},
        "s_expression": "(COUNT (AND a.b (JOIN (R c.d) m.0zd6)))",
        "actions": ["count(#2)"],
        "answer": [{"answer_type": "Value", "answer_argument": "1"}],
    }
    path = tmp_path / "std.json"
    path.write_text(json.dumps([record]))
    [question] = read_questions(path)
    assert (question.kind, question.count) == ("count", 1)
    assert question.topics == (Entity("mac", "m.0zd6"), Entity("Motorola 68040", "m.05397"))


@pytest.mark.parametrize("ending", ["json", "jsonl"])
@pytest.mark.parametrize(
    "wrong",
    [{"q_entity": 7}, {"topic_entity": "Kenya"}, {"targetValue": 7}, {"q_entity": [], "answer": 7}],
)
def test_a_record_of_others_that_is_damaged_is_told_by_its_place(
    tmp_path: Path, wrong: dict[str, object], ending: str
) -> None:
    path = tmp_path / f"set.{ending}"
    record = {"question": "a?", **wrong}
    path.write_text(json.dumps([record] if ending == "json" else record))
    with pytest.raises(InputError, match=r"set\.jsonl?, (record|line) 1: not a"):
        read_questions(path)


def test_a_parquet_file_that_is_none_is_told(tmp_path: Path) -> None:
    path = tmp_path / "set.parquet"
    with pytest.raises(InputError, match="there is no file"):
        read_questions(path)
    path.write_text("nonsense")
    with pytest.raises(InputError, match=r"set\.parquet cannot be read"):
        read_questions(path)


def test_facts_of_simplequestions_become_questions(tmp_path: Path) -> None:
    site = "www.freebase.com"
    line = f"{site}/m/0t\t{site}/film/film/genre\t{site}/m/1\twhat genre is t"
    (tmp_path / "q.txt").write_text(f"{line}\n", encoding="utf-8")
    fact = {"subject": "m.0t", "relation": "film.film.genre", "object": "m.1"}
    row = {"id": "1", "question": "what genre is t", "mention": "t", **fact}
    [official] = read_questions(tmp_path / "q.txt")
    [ours] = read_questions(_write(tmp_path / "q.jsonl", row))
    query = "SELECT DISTINCT ?x WHERE { ns:m.0t ns:film.film.genre ?x }"
    assert official.sparql == ours.sparql == query
    assert (official.topics, ours.topics) == ((Entity(mid="m.0t"),), (Entity("T", "m.0t"),))
    assert official.golds == ours.golds == (("m.1",),)
    (tmp_path / "q.txt").write_text(f"{line}\nno fact\n", encoding="utf-8")
    with pytest.raises(InputError, match="record 2: not a record of"):
        read_questions(tmp_path / "q.txt")


@pytest.mark.parametrize(
    ("record", "kind"),
    [
        ({"answers": ["m.1"]}, "answers"),
        ({"answers": ["m.1"], "unanswerable": False}, "answers"),
        ({"answers": [], "boolean": False}, "boolean"),
        ({"answers": [], "count": 0, "unanswerable": False}, "count"),
        ({"answers": [], "unanswerable": True}, "unanswerable"),
        ({"answers": [{"arg": "36"}], "function": "count"}, "count"),
        ({"answers": [{"name": "36"}], "formula": "(count (!fb:a fb:en.b))"}, "count"),
        ({"answers": [{"name": "Kenya"}], "formula": "(!fb:a fb:en.b)"}, None),
        ({"answers": [], "unanswerable": False}, None),
    ],
)
def test_a_question_has_one_kind_of_gold(
    tmp_path: Path, record: dict[str, object], kind: str | None
) -> None:
    [question] = read_questions(_write(tmp_path / "q.jsonl", {"question": "a?", **record}))
    assert question.kind == kind
    assert question.compares_values == ("unanswerable" in record or kind == "boolean")


def _write(path: Path, *rows: dict[str, object]) -> Path:
    text = "".join(json.dumps({"question": f"{n}?", **row}) + "\n" for n, row in enumerate(rows))
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("field", ["answer", "a_entity", "gold", "gold_answers", "answer_entities"])
def test_gold_in_a_field_that_is_not_read_is_said_by_its_name(tmp_path: Path, field: str) -> None:
    path = _write(tmp_path / "set.jsonl", {field: ["Nairobi"]}, {"answers": ["m.05d49"]})
    warning = gold_warning(path, read_questions(path))
    assert warning is not None
    assert warning.startswith(
        f'1 of 2 questions in {path} have no gold and are not scored: "{field}" is not read. Write'
    )


def test_a_set_without_gold_is_said_to_have_none_and_a_part_may_have_none(tmp_path: Path) -> None:
    path = _write(tmp_path / "set.jsonl", {"answer": None}, {"answer_type": "Value"})
    warning = f"2 of 2 questions in {path} have no gold and are not scored"
    assert gold_warning(path, read_questions(path)) == warning
    path = _write(tmp_path / "part.jsonl", {}, {"answers": ["m.05d49"], "answer": "Nairobi"})
    assert gold_warning(path, read_questions(path)) is None


@pytest.mark.parametrize(
    "marks",
    [
        {"s_expression": "(COUNT (JOIN (R a.b) m.0h7x))"},
        {"sparql": "PREFIX ns: <http://x/> SELECT (COUNT(?x) AS ?v) WHERE { ns:m.0h7x ns:a.b ?x }"},
        {"sparql": "select count(distinct ?x) where { ns:m.0h7x ns:a.b ?x }"},
        {"formula": "(count (!fb:a.b fb:en.austria))"},
        {"function": "count"},
    ],
)
def test_a_question_whose_query_counts_has_a_count(tmp_path: Path, marks: dict[str, str]) -> None:
    path = _write(tmp_path / "set.jsonl", {"answers": [{"arg": "8"}], **marks})
    assert [(each.kind, each.count) for each in read_questions(path)] == [("count", 8)]


@pytest.mark.parametrize(
    "marks",
    [
        {"s_expression": "(ARGMAX (JOIN (R a.count) m.0h7x) a.b)"},
        {"sparql": "SELECT ?x { { SELECT (COUNT(?y) AS ?n) { ?x ns:a.b ?y } } }"},
        {"sparql": "SELECT ?count { ns:m.0h7x ns:a.count ?count }"},
    ],
)
def test_a_number_that_a_query_finds_is_no_count(tmp_path: Path, marks: dict[str, str]) -> None:
    path = _write(tmp_path / "set.jsonl", {"answers": [{"arg": "8"}], **marks})
    assert [(each.kind, each.count) for each in read_questions(path)] == [("answers", None)]


@pytest.mark.parametrize("inside", ["\x85", "\u2028", "\x0b", "\x1c", "\r"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_line_of_simplequestions_ends_only_at_its_end(
    tmp_path: Path, inside: str, end: str
) -> None:
    site = "www.freebase.com"
    fact = f"{site}/m/04\t{site}/a/b/c\t{site}/m/0f\t"
    texts = ["who is x?", f"what is {inside} this?", "who is y?"]
    path = tmp_path / "annotated_fb_data_test.txt"
    path.write_bytes("".join(f"{fact}{text}{end}" for text in texts).encode())
    assert [each.text for each in read_questions(path)] == texts
    path.write_bytes((f"{fact}{texts[1]}{end}" + "no fact" + end).encode())
    with pytest.raises(InputError, match="record 2: not a record"):
        read_questions(path)


def test_compressed_facts_are_read_as_plain_ones(tmp_path: Path) -> None:
    path = tmp_path / "annotated_fb_data_test.txt.gz"
    site = "www.freebase.com"
    path.write_bytes(gzip.compress(f"{site}/m/04\t{site}/a/b\t{site}/m/0f\twhy?\n".encode()))
    assert [question.text for question in read_questions(path)] == ["why?"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("set.jsonl", b'{"id": "a", "question": "why?"}\n'),
        ("set.json", b'[{"qid": 1, "question": "why?"}]'),
        ("set.txt", b"www.freebase.com/m/04\twww.freebase.com/a/b\twww.freebase.com/m/0f\twhy?\n"),
        ("set.jsonl.gz", gzip.compress(b'\xef\xbb\xbf{"id": "a", "question": "why?"}\n', mtime=0)),
    ],
)
def test_a_byte_order_mark_before_questions_is_passed_over(
    tmp_path: Path, name: str, content: bytes
) -> None:
    path = tmp_path / name
    path.write_bytes(content if name.endswith(".gz") else b"\xef\xbb\xbf" + content)
    assert [question.text for question in read_questions(path)] == ["why?"]


def test_a_sample_is_the_same_for_the_same_seed() -> None:
    questions = [Question(str(number), "?", (), ()) for number in range(20)]
    sample = sample_questions(questions, 5, 7)
    assert len(sample) == 5
    assert sample == sorted(sample, key=questions.index)
    assert {q.id for q in sample} == {q.id for q in sample_questions(questions[::-1], 5, 7)}
    assert sample != sample_questions(questions, 5, 8)
    assert sample_questions(questions, 99, 7) == questions


def test_gzip_and_empty_lines(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl.gz"
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.write(f'\n{json.dumps(CWQ)}\n\n{{"question": "é?", "id": 7}}\n')
    assert [(question.id, question.text) for question in read_questions(path)] == [
        ("CWQ-1", "what money?"),
        ("7", "é?"),
    ]


GOOD = json.dumps({"question": "a?", "id": "1"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no questions"),
        (f"{GOOD}\nnonsense\n", "line 2: not JSON"),
        (f"{GOOD}\n[]\n", "line 2: not a JSON object"),
        (f'{GOOD}\n{{"id": "2"}}\n', "line 2: not a question record"),
        ('{"question": 7}', "line 1: not a question record"),
        ('{"question": "a?", "evidence": 7}', "line 1: not a question record"),
        ('{"question": "a?", "sparql": ["SELECT"]}', "line 1: not a question record"),
        ('{"question": "a?", "id": []}', "line 1: not a question record"),
        ('{"question": "a?", "topic_entities": ["Kenya"]}', "line 1: .*'Kenya' is neither a mid"),
        ('{"question": "a?", "topic_entities": [{"mid": 7}]}', "line 1: .* is not a text"),
        ('{"question": "a?", "answers": [null]}', "line 1: .*None is neither a mid nor"),
        ('{"question": "a?", "answers": [true]}', "line 1: .*True is neither a mid nor"),
        ('{"question": "a?", "answers": [{"mid": "m.1"}]}', 'line 1: .* has no "arg"'),
        ('{"question": "a?", "answers": 7}', "line 1: not a question record"),
        ('{"question": "a?", "parses": [{}]}', "line 1: not a question record"),
        ('{"question": "a?", "boolean": "yes"}', "line 1: .* neither true nor false"),
        ('{"question": "a?", "count": -1}', "line 1: .* not a whole number"),
        ('{"question": "a?", "count": true}', "line 1: .* not a whole number"),
        ('{"question": "a?", "unanswerable": 1}', "line 1: .* neither true nor false"),
        ('{"question": "a?", "unanswerable": true, "count": 0}', "line 1: .* has an answer"),
        ('{"question": "a?", "category": 7}', "line 1: .* is not a text"),
        (f"{GOOD}\n\n{GOOD}\n", "line 3: an earlier question also has the id '1'"),
    ],
)
def test_what_is_no_question_set_is_told_with_its_line(
    tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        read_questions(path)


def test_an_answer_given_by_name_shows_the_form_of_an_answer(tmp_path: Path) -> None:
    path = tmp_path / "my.jsonl"
    path.write_text('{"question": "capital of Kenya", "answers": ["Nairobi"]}\n')
    with pytest.raises(InputError) as raised:
        read_questions(path)
    assert str(raised.value).startswith(f"{path}, line 1: not a question record: ")
    assert '{"arg": "m.…", "name": "Nairobi"}' in str(raised.value)


def test_answers_and_topics_may_be_plain_ids_and_literals(tmp_path: Path) -> None:
    path = tmp_path / "my.jsonl"
    answers = ["m.2", "1968-03-29", "480", "-1.5", 7, 2.5, {"arg": "Nairobi"}, {"arg": None}]
    row = {"question": "a?", "topic_entities": ["m.1"], "answers": answers}
    path.write_text(json.dumps(row), encoding="utf-8")
    [question] = read_questions(path)
    assert question.topics == (Entity(mid="m.1"),)
    expected = ("-1.5", "1968-03-29", "2.5", "480", "7", "Nairobi", "m.2")
    assert question.golds == (expected,)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["mid", "name", "arg", "Answers", "AnswerArgument", "AnnotatorComment"]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=6,
)
FIELDS = ["id", "question", "topic_entities", "answers", "sparql", "parses", "evidence"]
FIELDS += ["boolean", "count", "unanswerable", "formula"]


@given(row=st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=5))
def test_a_record_of_any_shape_is_read_or_refused_with_its_line(row: dict[str, object]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder, "q.jsonl")
        path.write_text(json.dumps({"question": "a?", **row}), encoding="utf-8")
        for read in (read_questions, lambda path: list(read_needs(path))):
            try:
                read(path)
            except InputError as error:
                assert str(error).startswith(f"{path}, line 1: not a question record: ")


def _broken_gzip() -> bytes:
    data = bytearray(gzip.compress(b"".join(b"%d" % (n * n) for n in range(9000)), mtime=0))
    data[40:60] = b"\xff" * 20
    return bytes(data)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("q.jsonl", b'{"question": "\xff"}\n'),
        ("q.jsonl.gz", b"no gzip"),
        ("q.jsonl.gz", gzip.compress(GOOD.encode() * 999, mtime=0)[:-20]),
        ("q.jsonl.gz", _broken_gzip()),
    ],
    ids=["no UTF-8", "no gzip", "cut short", "damaged"],
)
def test_a_file_that_cannot_be_read_is_told(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError, match=f"{name}, .*line"):
        read_questions(path)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no file"):
        read_questions(tmp_path / "none.jsonl")


@pytest.mark.parametrize(("name", "rows"), [("webqsp.test-half", 840), ("cwq.test-half", 1753)])
def test_the_benchmarks_are_read_in_full(shared: Path, name: str, rows: int) -> None:
    questions = read_questions(shared / "data" / "qa" / f"{name}.jsonl.gz")
    assert len(questions) == rows
    assert {question.tier for question in questions} == {"independent", "annotated", "none"}
    assert sum(bool(question.golds) for question in questions) > 0.95 * rows
    assert sum(question.sparql is not None for question in questions) > 0.95 * rows
    assert all(bool(question.type) == name.startswith("cwq") for question in questions)


def test_the_everyday_questions_have_all_kinds_of_gold(shared: Path) -> None:
    questions = read_questions(shared / "data" / "qa" / "everyday.dev.jsonl")
    kinds = Counter(question.kind for question in questions)
    assert kinds == {"answers": 64, "unanswerable": 14, "boolean": 6, "count": 6}
    assert all(question.category for question in questions)
