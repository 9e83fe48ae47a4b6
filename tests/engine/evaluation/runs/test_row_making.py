import json
from dataclasses import replace
from typing import Any

import pytest

from kbqa.engine.answer import Answer, AnswerEntity
from kbqa.engine.chat.model import Usage
from kbqa.engine.evaluation.runs.row_making import answered_row, failed_row, gold_shapes
from kbqa.engine.evaluation.runs.rows import GoldShape, read_row
from kbqa.engine.methods.router.trace import RouterTrace
from kbqa.engine.questions.question_sets import Question
from kbqa.engine.writing.generate import Candidate
from kbqa.sparql.errors import ModelError
from kbqa.sparql.terms import LiteralTerm

QUESTION = Question("q", "what?", (), (frozenset({"m.1", "480"}),), "independent", "conjunction")
ANSWER = Answer(
    "what?",
    (AnswerEntity("m.1", "One"), AnswerEntity(LiteralTerm("480"), "480")),
    RouterTrace((), None),
    seconds={"link": 0.5},
)
CANDIDATES = [Candidate("a", -1.0, 10), Candidate("b", -2.0, 4)]
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
        "tokens": 14,
        "cost_usd": 0.0,
        "seconds": {"link": 0.5},
        "error": None,
    }
    assert {key: row[key] for key in expected} == expected
    assert row["scores"]["f1"] == 1.0
    assert row["usage"] == {
        "specialised": {"calls": 1, "output_tokens": 14},
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
    assert (row["stage"], row["calls"], row["tokens"], row["cost_usd"]) == ("general", 3, 134, 0.25)
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
    assert row["usage"]["specialised"] == {"calls": 0, "output_tokens": 0}


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
        QUESTION, ModelError("broken"), None, [Candidate("x", -1.0, 7)], paid
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
        ("SELECT (SUM(?x) AS ?n) { ns:m.0k ns:a.b.c ?x }", None),
        ("what?", None),
        (None, None),
    ],
    ids=["hop", "constraint", "ordered", "not convertible", "no query", "none"],
)
def test_the_shape_of_a_gold_query(sparql: str | None, shape: tuple[int, int, bool] | None) -> None:
    found = gold_shapes([replace(QUESTION, sparql=sparql)]).get("q")
    assert (found and (found.hops, found.constraints, found.ordered)) == shape
