import json
import resource
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_runs import make_failed_row, make_row, write_run

from kbqa.engine.answer import Answer, AnswerEntity
from kbqa.engine.chat.model import Usage
from kbqa.engine.evaluation.rows import (
    SCHEMA_VERSION,
    GoldShape,
    Row,
    RowFile,
    answered_row,
    failed_row,
    flatten_manifest,
    gold_paths,
    read_row,
    read_run,
    take_over,
)
from kbqa.engine.evaluation.scores import METRICS
from kbqa.engine.questions.question_sets import Question
from kbqa.engine.running.evidence import PathTrace
from kbqa.engine.writing.generate import Candidate
from kbqa.sparql.crp_match import CrpMatch
from kbqa.sparql.errors import InputError, ModelError, OutputError
from kbqa.sparql.terms import LiteralTerm

QUESTION = Question("q", "what?", (), (frozenset({"m.1", "480"}),), "independent", "conjunction")
ANSWER = Answer(
    "what?",
    (AnswerEntity("m.1", "One"), AnswerEntity(LiteralTerm("480"), "480")),
    PathTrace((), None),
    seconds={"link": 0.5},
)
CANDIDATES = [
    Candidate("a", -1.0, 10, input_tokens=30),
    Candidate("b", -2.0, 4, input_tokens=30),
]
FIRST_PATH = CrpMatch(exact=False, skeleton=False, main_path=True, depth=True)
SHAPE = GoldShape(hops=2, constraints=1, ordered=False)


def test_the_row_of_an_answer() -> None:
    row = answered_row(QUESTION, ANSWER, CANDIDATES, SHAPE, timings=True).to_dict()
    expected = {
        "schema_version": 3,
        "id": "q",
        "question": "what?",
        "tier": "independent",
        "type": "conjunction",
        "gold": (("480", "m.1"),),
        "gold_shape": {"hops": 2, "constraints": 1, "ordered": False},
        "answers": (
            {"mid": "m.1", "name": "One", "origin": "graph"},
            {"value": "480", "name": "480", "origin": "graph"},
        ),
        "calls": 1,
        "tokens": 40,
        "cost_usd": 0.0,
        "seconds": {"link": 0.5},
        "error": None,
    }
    assert {key: row[key] for key in expected} == expected
    assert row["scores"]["f1"] == 1.0
    assert row["usage"] == {
        "specialised": {
            "calls": 1,
            "input_tokens": 30,
            "output_tokens": 14,
            "best_tokens": 10,
        },
        "general": {
            "calls": 0,
            "cached_calls": 0,
            "input_tokens": 0,
            "output_tokens": 0,
            "cost_usd": 0.0,
            "seconds": 0.0,
        },
    }


@pytest.mark.parametrize(
    "answer",
    [ANSWER, replace(ANSWER, boolean=False), replace(ANSWER, count=2)],
    ids=["answers", "boolean", "count"],
)
def test_a_row_has_all_fields_of_an_answer(answer: Answer) -> None:
    row = json.loads(
        json.dumps(answered_row(QUESTION, answer, CANDIDATES, SHAPE, timings=True).to_dict())
    )
    record = answer.to_dict()
    assert read_row(row, "line 1").to_dict().keys() == row.keys()
    assert list(record) == [name for name in row if name in record]
    assert {**row, "usage": None} == {**row, **record, "usage": None}


def test_a_boolean_and_a_count_are_in_a_record_only_if_they_are_set() -> None:
    assert {"boolean", "count"}.isdisjoint(ANSWER.to_dict())
    assert list(replace(ANSWER, boolean=False).to_dict())[:3] == ["question", "answers", "boolean"]
    assert replace(ANSWER, count=0).to_dict()["count"] == 0
    assert replace(ANSWER, answers=(), count=0).is_answered
    assert replace(ANSWER, answers=(), boolean=False).is_answered
    assert not replace(ANSWER, answers=()).is_answered


def test_a_row_has_the_names_of_the_gold_answers_if_the_set_has_them() -> None:
    named = replace(QUESTION, gold_names=(("One", "480"),))
    row = answered_row(named, ANSWER, CANDIDATES, SHAPE, timings=True).to_dict()
    assert row["gold_names"] == (("480", "One"),)
    assert failed_row(named, ModelError("broken"), None).gold_names == (("480", "One"),)
    assert "gold_names" not in failed_row(QUESTION, ModelError("broken"), None).to_dict()


@pytest.mark.parametrize(
    ("gold", "answer", "field"),
    [
        ({"boolean": True}, replace(ANSWER, answers=(), boolean=True), ("gold_boolean", True)),
        ({"count": 2}, replace(ANSWER, count=2), ("gold_count", 2)),
        ({"unanswerable": True}, replace(ANSWER, answers=()), ("gold_unanswerable", True)),
    ],
    ids=["boolean", "count", "unanswerable"],
)
def test_a_row_has_gold_of_other_kinds(
    gold: dict[str, Any], answer: Answer, field: tuple[str, object]
) -> None:
    question = replace(QUESTION, golds=(), category="everyday", function="none", **gold)
    row = answered_row(question, answer, [], None, timings=True)
    assert row.scores is not None and row.scores.exact_match == 1.0
    assert row.kind == question.kind
    assert row.to_dict().items() >= {field, ("category", "everyday"), ("function", "none")}
    assert {"gold_boolean", "gold_count", "gold_unanswerable"} & row.to_dict().keys() == {field[0]}
    failed = failed_row(question, ModelError("broken"), None)
    assert failed.scores is not None and failed.scores.f1 == 0.0
    assert read_row(json.loads(json.dumps(row.to_dict())), "line 1") == row


def test_a_row_says_what_general_models_took() -> None:
    usage = Usage(2, 1, 100, 20, 1.5, 0.25)
    answer = replace(ANSWER, stage="general", usage=usage)
    row = answered_row(QUESTION, answer, CANDIDATES, SHAPE, timings=True).to_dict()
    assert (row["stage"], row["calls"], row["tokens"], row["cost_usd"]) == ("general", 3, 160, 0.25)
    assert row["usage"]["general"] == {
        "calls": 2,
        "cached_calls": 1,
        "input_tokens": 100,
        "output_tokens": 20,
        "cost_usd": 0.25,
        "seconds": 1.5,
    }


def test_a_model_that_was_not_asked_is_not_counted() -> None:
    row = answered_row(QUESTION, ANSWER, [], None, timings=True).to_dict()
    assert (row["calls"], row["tokens"]) == (0, 0)
    assert set(row["usage"]["specialised"].values()) == {0}


def test_beams_of_an_older_kbqa_leave_the_tokens_of_the_prompt_unknown() -> None:
    older = [replace(each, input_tokens=None) for each in CANDIDATES]
    row = answered_row(QUESTION, ANSWER, older, None, timings=True)
    assert row.usage is not None
    assert (row.tokens, row.usage.input_tokens, row.usage.output_tokens) == (None, None, 10)


def test_tokens_that_a_server_did_not_count_are_unknown() -> None:
    row = answered_row(QUESTION, replace(ANSWER, usage=Usage(2)), CANDIDATES, None, timings=True)
    assert row.usage is not None
    assert (row.tokens, row.usage.input_tokens, row.usage.output_tokens) == (None, None, None)


def test_rows_of_an_older_kbqa_have_tokens_only_without_the_small_model() -> None:
    general = {"calls": 2, "input_tokens": 50, "output_tokens": 5}
    written, walked = (
        read_row(make_row("a", usage={"specialised": of, "general": general}), "").usage
        for of in ({"calls": 1, "output_tokens": 100}, {"calls": 0, "output_tokens": 0})
    )
    assert written is not None and (written.input_tokens, written.tokens) == (None, None)
    assert walked is not None and (walked.input_tokens, walked.tokens) == (50, 55)


def test_a_failed_question_scores_0_and_its_costs_are_unknown() -> None:
    row = failed_row(QUESTION, ModelError("broken"), None).to_dict()
    assert row["error"] == "ModelError: broken"
    assert set(row["scores"].values()) == {0.0}
    assert (row["answers"], row["gold_shape"]) == ((), None)
    unknown = ("stage", "trace", "calls", "tokens", "usage", "cost_usd")
    assert [row[key] for key in unknown] == [None] * len(unknown)


def test_a_question_that_failed_after_calls_took_these() -> None:
    paid = Usage(calls=2, cached_calls=1, input_tokens=30, output_tokens=5, cost_usd=0.5)
    row = failed_row(
        QUESTION, ModelError("broken"), None, [Candidate("x", -1.0, 7, input_tokens=0)], paid
    ).to_dict()
    assert (row["calls"], row["tokens"], row["cost_usd"]) == (3, 42, 0.5)
    assert row["usage"]["general"]["cached_calls"] == 1
    assert row["error"] == "ModelError: broken"


def test_what_has_no_gold_answers_is_not_scored() -> None:
    question = replace(QUESTION, golds=())
    assert failed_row(question, ModelError("broken"), None).scores is None
    assert answered_row(question, ANSWER, [], None, timings=True).scores is None


def test_without_timings_nothing_differs_from_run_to_run() -> None:
    quick, slow = (
        answered_row(
            QUESTION,
            replace(ANSWER, seconds={"link": s}, usage=Usage(2, cached, seconds=s)),
            CANDIDATES,
            None,
            timings=False,
        ).to_dict()
        for s, cached in ((0.1, 2), (0.2, 0))
    )
    assert json.dumps(quick) == json.dumps(slow)
    assert "cached_calls" not in quick["usage"]["general"]


@pytest.mark.parametrize(
    ("sparql", "shape"),
    [
        ("SELECT ?x { ns:m.0k ns:a.b.c ?x . FILTER (?x != ns:m.0k) }", (1, 0, False)),
        ("SELECT ?x { ns:m.0k ns:a.b.c ?y . ?y ns:d.e.f ?x . ?x ns:g.h.i ns:m.1 }", (2, 1, False)),
        ("SELECT ?x { ns:m.0k ns:a.b.c ?x . ?x ns:d.e.f ?v } ORDER BY ?v LIMIT 1", (1, 1, True)),
        ("SELECT (MIN(?x) AS ?n) { ns:m.0k ns:a.b.c ?x }", None),
        ("what?", None),
        (None, None),
    ],
    ids=["hop", "constraint", "ordered", "not convertible", "no query", "none"],
)
def test_the_shape_of_a_gold_query(sparql: str | None, shape: tuple[int, int, bool] | None) -> None:
    path = gold_paths([replace(QUESTION, sparql=sparql)]).get("q")
    found = None if path is None else GoldShape.of(path)
    assert (found and (found.hops, found.constraints, found.ordered)) == shape


def test_a_run_is_read_back(tmp_path: Path) -> None:
    rows = [
        make_row("a", ["m.1", "m.2"], tier="independent", type="conjunction", confidence=0.5),
        make_row("b", scores=None, gold=[]),
        make_failed_row("c", "QueryTimeout: no result"),
    ]
    run = read_run(write_run(tmp_path, rows, "first", gold_entities=True, model="some"))
    assert (run.name, run.entities, run.manifest["model"]) == ("first", "gold", "some")
    answered, unscored, failed = run.rows
    assert answered.predicted == ("m.1", "m.2")
    assert answered.gold == (("m.1",),)
    assert (answered.tier, answered.type, answered.confidence) == (
        "independent",
        "conjunction",
        0.5,
    )
    assert answered.scores is not None and answered.scores.hit == 1.0
    assert unscored.scores is None
    assert (failed.error, failed.calls) == ("QueryTimeout: no result", None)


@pytest.mark.parametrize("timings", [True, False], ids=["timed", "not timed"])
def test_what_eval_writes_is_read(tmp_path: Path, timings: bool) -> None:
    question = Question("q", "what?", (), (frozenset({"m.1", "480"}),), "annotated", "superlative")
    answers = (AnswerEntity("m.1", "One"), AnswerEntity(LiteralTerm("480"), "480"))
    answer = Answer("what?", answers, PathTrace((), None), seconds={"link": 0.5})
    shape = GoldShape(hops=2, constraints=1, ordered=True)
    rows = [
        answered_row(
            question,
            answer,
            [Candidate("a", -1.0, 7, input_tokens=5)],
            shape,
            first_path=FIRST_PATH,
            timings=timings,
        ),
        failed_row(Question("f", "?", (), (frozenset({"m.1"}),)), ModelError("out"), None),
    ]
    assert {row.schema_version for row in rows} == {SCHEMA_VERSION}
    records = [row.to_dict() for row in rows]
    assert [read_row(json.loads(json.dumps(record)), "") for record in records] == rows
    first, second = read_run(write_run(tmp_path, records)).rows
    assert first.predicted == ("m.1", "480")
    assert first.gold_shape == shape
    assert first.first_path == FIRST_PATH
    assert (first.tokens, first.seconds) == (12, {"link": 0.5} if timings else None)
    assert second.error == "ModelError: out"


def test_what_no_report_uses_may_be_anything(tmp_path: Path) -> None:
    row = make_row("a", ["m.1"], beams="nonsense", unheard_of={"x": [1]})
    assert len(read_run(write_run(tmp_path, [row])).rows) == 1


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "has no rows"),
        (['{"id": "a", "crps": []}'], r"line 1 is not a row of `kbqa eval`"),
        (["nonsense"], "line 1: not JSON"),
        ([json.dumps(make_row("a"))[:-9]], "line 1: not JSON"),
        (
            [json.dumps(make_row("a", schema_version=2))],
            "schema_version 2, and this kbqa reads 3. Run `kbqa eval` again",
        ),
        ([json.dumps(make_row("a", schema_version=4))], "line 1 is a row of schema_version 4"),
        ([json.dumps(make_row("a", stage=4))], "line 1 is not a row of .*: stage: "),
        ([json.dumps(make_row("a", gold_shape={"hops": -1}))], "gold_shape"),
        ([json.dumps(make_row("a"))] * 2, "line 2: a second row of question 'a'"),
    ],
    ids=[
        "empty",
        "beams",
        "no JSON",
        "a line that was being written",
        "the version before",
        "a later version",
        "a stage that is no text",
        "a shape that cannot be",
        "a question twice",
    ],
)
def test_a_file_that_is_not_a_run_is_refused(
    tmp_path: Path, lines: list[str], message: str
) -> None:
    path = write_run(tmp_path, [])
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    with pytest.raises(InputError, match=message):
        read_run(path)


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no file"):
        read_run(tmp_path / "none.jsonl")


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        (None, "not a run of `kbqa eval`: .*run.manifest.json is missing. The manifest must be"),
        ("nonsense", "cannot be read"),
        ("[]", "is not a JSON object"),
        ('{"schema_version": 1, "n": 5}', "does not say whether entities were given"),
    ],
    ids=["missing", "no JSON", "a list", "of beams"],
)
def test_a_run_without_its_manifest_is_refused(
    tmp_path: Path, manifest: str | None, message: str
) -> None:
    path = write_run(tmp_path, [make_row("a")])
    beside = tmp_path / "run.manifest.json"
    if manifest is None:
        beside.unlink()
    else:
        beside.write_text(manifest, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        read_run(path)


def test_manifests_are_laid_flat() -> None:
    manifest = {
        "timeout_s": 5.0,
        "beams_sha256": None,
        "store": {"dumps": [{"name": "x"}], "versions": {"kbqa": "1"}},
    }
    assert flatten_manifest(manifest) == {
        "timeout s": "5.0",
        "store, dumps": "x",
        "store, versions, kbqa": "1",
    }


def _line(id_: str, error: str | None = None) -> Row:
    scores = dict.fromkeys(METRICS, 0.0)
    return Row(
        schema_version=3, id=id_, question="?", gold=(), answers=(), scores=scores, error=error
    )


def _write(path: Path, *rows: Row) -> Path:
    with RowFile(path) as file:
        for row in rows:
            file.append(row)
    return path


def test_rows_are_added_at_the_end(tmp_path: Path) -> None:
    path = _write(tmp_path / "run.jsonl", _line("é"))
    _write(path, _line("b"))
    first, second = path.read_text("utf-8").splitlines()
    assert '"id": "é"' in first and '"id": "b"' in second


def test_half_a_character_stays_what_it_is(tmp_path: Path) -> None:
    path = _write(tmp_path / "run.jsonl", _line("\ud83d"))
    assert json.loads(path.read_bytes())["id"] == "\ud83d"
    assert take_over(path, read_row) == {"\ud83d": _line("\ud83d")}


def test_rows_that_do_not_fit_leave_nothing_behind(tmp_path: Path) -> None:
    path = _write(tmp_path / "run.jsonl", _line("a"))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with RowFile(path) as file:
        # A limit on the size of files stands in for a full disk, on which a short row still fits.
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 400, before[1]))
        try:
            for _ in range(2):
                with pytest.raises(OutputError, match="cannot be written"):
                    file.append(_line("long" * 100))
            file.append(_line("b"))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert take_over(path, read_row) == {"a": _line("a"), "b": _line("b")}


def test_what_failed_and_what_is_not_whole_goes(tmp_path: Path) -> None:
    path = _write(tmp_path / "run.jsonl", _line("a"), _line("b", "broken"), _line("c"))
    with path.open("a") as file:
        file.write('{"id": "d", "err')
    assert take_over(path, read_row) == {"a": _line("a"), "c": _line("c")}
    assert take_over(path, read_row) == {"a": _line("a"), "c": _line("c")}
    assert len(path.read_text().splitlines()) == 2
    assert list(tmp_path.iterdir()) == [path]


def test_a_run_that_is_broken_in_the_middle_is_left_alone(tmp_path: Path) -> None:
    path = _write(tmp_path / "run.jsonl", _line("a"))
    path.write_text("nonsense\n" + path.read_text())
    before = path.read_bytes()
    with pytest.raises(InputError, match="line 1: not JSON"):
        take_over(path, read_row)
    assert path.read_bytes() == before


def test_a_file_that_cannot_be_opened_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        RowFile(tmp_path / "none" / "run.jsonl")
