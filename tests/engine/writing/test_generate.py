"""Beams are written question by question, also where the graph fails for some."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kbqa.engine.questions.question_sets import Question
from kbqa.engine.writing.generate import (
    CHATML,
    PLAIN,
    PROMPT_FILE,
    Candidate,
    Request,
    load_prompt_format,
    prompt_template,
    read_beams,
    write_beams,
    written_record,
    written_text,
)
from kbqa.sparql.errors import AnsweringError, EndpointDown, GraphError, ModelError

QUESTIONS = [Question(name, f"{name}?", (), ()) for name in ("a", "b", "c", "d", "e")]
WRITTEN = [Candidate("Main Path:\n Kenya -[location , country , capital]-> ?x", -1.5, 9)]


def _write(folder: Path, failing: dict[str, Exception], batch_size: int = 4) -> list[int]:
    source, asked = folder / "questions.jsonl", []
    source.write_text("{}")

    def generate(requests: Sequence[Request]) -> list[list[Candidate]]:
        asked.append(len(requests))
        for request in requests:
            if request.question in failing:
                raise failing[request.question]
        return [WRITTEN] * len(requests)

    write_beams(
        generate,
        QUESTIONS,
        folder / "beams.jsonl",
        source=source,
        settings={},
        gold_entities=False,
        batch_size=batch_size,
    )
    return asked


def test_what_is_written_is_read(tmp_path: Path) -> None:
    assert _write(tmp_path, {}) == [4, 1]
    assert read_beams(tmp_path / "beams.jsonl") == {question.id: WRITTEN for question in QUESTIONS}


def test_the_topics_of_a_walked_path_are_kept(tmp_path: Path) -> None:
    source, output = tmp_path / "questions.jsonl", tmp_path / "beams.jsonl"
    source.write_text("{}")
    walked = [
        replace(candidate, topics=("m.019rg5", "g.1"), input_tokens=31) for candidate in WRITTEN
    ]
    write_beams(
        lambda requests: [walked for _ in requests],
        QUESTIONS[:1],
        output,
        source=source,
        settings={},
        gold_entities=True,
        batch_size=4,
    )
    assert read_beams(output) == {"a": walked}
    assert {candidate.input_tokens for candidate in read_beams(output)["a"]} == {31}


def test_a_question_for_which_the_graph_fails_is_left_out_and_tried_again(tmp_path: Path) -> None:
    failing = {"b?": GraphError("no result after 5 s")}
    with pytest.raises(GraphError, match=r"1 of 5 questions.*the first is b: no result after 5 s"):
        _write(tmp_path, failing)
    assert set(read_beams(tmp_path / "beams.jsonl")) == {"a", "c", "d", "e"}
    assert _write(tmp_path, {}) == [1]
    assert len(read_beams(tmp_path / "beams.jsonl")) == 5


def test_a_question_that_cannot_be_written_for_fails_alone(tmp_path: Path) -> None:
    failing = {"b?": TypeError("not a text")}
    with pytest.raises(AnsweringError, match=r"writing failed for 1 of 5 .*b: TypeError\('not"):
        _write(tmp_path, failing)
    assert set(read_beams(tmp_path / "beams.jsonl")) == {"a", "c", "d", "e"}


def test_a_model_that_fails_ends_it(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="out of memory"):
        _write(tmp_path, {"b?": ModelError("out of memory")})


def test_half_a_surrogate_pair_is_replaced() -> None:
    assert Request("\ud83d what is \U0001f600?").question == "? what is \U0001f600?"


def test_a_graph_that_is_gone_ends_it(tmp_path: Path) -> None:
    with pytest.raises(EndpointDown):
        _write(tmp_path, {"e?": EndpointDown("gone")})
    assert set(read_beams(tmp_path / "beams.jsonl")) == {"a", "b", "c", "d"}


def test_beams_of_others_need_no_count_of_tokens(tmp_path: Path) -> None:
    path = tmp_path / "beams.jsonl"
    path.write_text('{"id": "a", "crps": [{"crp": "Kenya -> a.b", "logprob": -1}]}\n')
    assert read_beams(path) == {"a": [Candidate("Kenya -> a.b", -1.0, 1)]}
    assert read_beams(path)["a"][0].input_tokens is None


@pytest.mark.parametrize("logprob", ["-Infinity", "NaN", "Infinity", "-1e999"])
def test_a_log_probability_that_is_no_number_is_written_as_json(
    tmp_path: Path, logprob: str
) -> None:
    source, read, output = (tmp_path / name for name in ("q.jsonl", "a.jsonl", "b.jsonl"))
    source.write_text("{}")
    read.write_text(f'{{"id": "a", "crps": [{{"crp": "Kenya -> a.b", "logprob": {logprob}}}]}}\n')
    [candidate] = read_beams(read)["a"]
    assert candidate.logprob == -9999
    write_beams(
        lambda requests: [[replace(candidate, logprob=float(logprob))] for _ in requests],
        QUESTIONS[:1],
        output,
        source=source,
        settings={},
        gold_entities=False,
        batch_size=4,
    )
    assert '"logprob": -9999.0' in output.read_text()


THEIRS = "Main Path:\n Jamaica -[location , country , capital]-> ?x"
OURS = "Jamaica -> location.country.capital"


@pytest.mark.parametrize(
    ("text", "crp"),
    [(THEIRS, OURS), (f"{THEIRS}\nand so on", OURS), ("nonsense", None), ("", None)],
    ids=["whole", "in part", "not at all", "empty"],
)
def test_a_text_is_kept_beside_what_can_be_read_of_it(text: str, crp: str | None) -> None:
    record = written_record(text)
    assert record == {"crp": crp, "routerkgqa": text}
    assert written_text(record) == text


@pytest.mark.parametrize(
    ("text", "theirs"),
    [(OURS, THEIRS), (f"{OURS}\n?x no -> people.person.gender", None)],
    ids=["both can say it", "more than theirs can say"],
)
def test_a_text_in_our_form_is_kept_as_it_is(text: str, theirs: str | None) -> None:
    assert written_record(text) == {"crp": text, "routerkgqa": theirs}


@pytest.mark.parametrize(
    "record", [{"crp": OURS}, {"crp": OURS, "routerkgqa": None}], ids=["absent", "not sayable"]
)
def test_our_form_serves_where_the_other_is_missing(record: dict[str, str | None]) -> None:
    assert written_text(record) == OURS


@pytest.mark.parametrize("record", [{}, {"crp": None, "routerkgqa": None}, {"crp": 7}])
def test_a_record_without_a_text_is_none(record: dict[str, object]) -> None:
    with pytest.raises(TypeError, match="neither routerkgqa nor crp"):
        written_text(record)


@pytest.mark.parametrize(
    "content",
    [
        b'{"template": -1, "crp_format": "routerkgqa"}',
        b'{"template": ["x"], "crp_format": "routerkgqa"}',
        b'{"template": "\xff", "crp_format": "routerkgqa"}',
        b"[" * 200_000,
        b"[]",
        b'{"template": "x", "crp_format": "routerkgqa", "relations": -1}',
        b'{"template": "x", "crp_format": "routerkgqa", "relations": true}',
    ],
    ids=["a number", "a list", "not UTF-8", "nested without end", "no object", "-1", "true"],
)
def test_a_damaged_prompt_is_an_error_that_names_the_file(content: bytes, tmp_path: Path) -> None:
    (tmp_path / PROMPT_FILE).write_bytes(content)
    with pytest.raises(ModelError, match=f"{PROMPT_FILE} cannot be read"):
        load_prompt_format(tmp_path)


def test_a_prompt_suggests_as_many_relations_as_its_format_says() -> None:
    relations = ("a.b.c", "d.e.f", "g.h.i")
    two = replace(PLAIN, relations=2)
    assert two.render("who?", relations) == (
        "Question: who?\nRelations: a.b.c d.e.f\nReasoning path:\n"
    )
    assert two.render("who?") == PLAIN.render("who?", relations) == PLAIN.render("who?")


def test_a_format_is_read_as_it_was_saved_and_older_files_suggest_nothing(tmp_path: Path) -> None:
    saved = replace(CHATML, crp_format="extended", relations=8)
    saved.save(tmp_path)
    assert load_prompt_format(tmp_path) == saved
    file = tmp_path / PROMPT_FILE
    older = file.read_text(encoding="utf-8").replace(',\n  "relations": 8', "")
    file.write_text(older, encoding="utf-8")
    assert load_prompt_format(tmp_path) == replace(saved, relations=0)


@pytest.mark.parametrize(
    ("vocabulary", "chat", "asked", "prompt"),
    [
        (["<|im_start|>"], "", "{question}", CHATML.template),
        ([], "", "{question}", PLAIN.template),
        ([], "", "Q: {question}", "Q: {question}\n"),
        ([], "… [INST] …", "Q: {question}", "<s>[INST] Q: {question} [/INST]"),
        (
            ["<|start_header_id|>"],
            "",
            "Q: {question}",
            "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nQ: {question}<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n",
        ),
    ],
)
def test_what_is_asked_is_put_into_the_chat_form_of_the_model(
    vocabulary: list[str], chat: str, asked: str, prompt: str
) -> None:
    assert prompt_template(vocabulary, chat, asked) == prompt
