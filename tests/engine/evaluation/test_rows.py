import json
from dataclasses import replace

import pytest

from kbqa.engine.answer import Answer, AnswerEntity
from kbqa.engine.chat.model import Usage
from kbqa.engine.evaluation.rows import Shape, answered_row, failed_row, gold_shapes
from kbqa.engine.generate import Candidate
from kbqa.engine.questions import Question
from kbqa.sparql.errors import ModelError
from kbqa.sparql.terms import Literal

QUESTION = Question("q", "what?", (), (frozenset({"m.1", "480"}),), "independent", "conjunction")
ANSWER = Answer(
    "what?",
    (AnswerEntity("m.1", "One"), AnswerEntity(Literal("480"), "480")),
    None,
    (),
    (),
    (),
    seconds={"link": 0.5},
)
CANDIDATES = [Candidate("a", -1.0, 10), Candidate("b", -2.0, 4)]
SHAPE = Shape(2, 1, False)


def test_the_row_of_an_answer() -> None:
    row = answered_row(QUESTION, ANSWER, CANDIDATES, SHAPE, timings=True)
    expected = {
        "schema_version": 2,
        "id": "q",
        "question": "what?",
        "tier": "independent",
        "type": "conjunction",
        "gold": [["480", "m.1"]],
        "gold_shape": {"hops": 2, "constraints": 1, "ordered": False},
        "answers": [{"mid": "m.1", "name": "One"}, {"value": "480", "name": "480"}],
        "level": None,
        "beam": None,
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


def test_what_general_models_took_is_told() -> None:
    usage = Usage(2, 1, 100, 20, 1.5, 0.25)
    answer = replace(ANSWER, stage="general", usage=usage)
    row = answered_row(QUESTION, answer, CANDIDATES, SHAPE, timings=True)
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
    row = answered_row(QUESTION, ANSWER, [], None, timings=True)
    assert (row["calls"], row["tokens"]) == (0, 0)
    assert row["usage"]["specialised"] == {"calls": 0, "output_tokens": 0}


def test_a_failed_question_scores_0_and_took_what_nobody_knows() -> None:
    row = failed_row(QUESTION, ModelError("broken"), None)
    assert row["error"] == "ModelError: broken"
    assert set(row["scores"].values()) == {0.0}
    assert (row["answers"], row["gold_shape"]) == ([], None)
    unknown = ("stage", "level", "beam", "calls", "tokens", "usage", "cost_usd", "repair")
    assert [row[key] for key in unknown] == [None] * len(unknown)


def test_a_question_that_failed_after_calls_took_these() -> None:
    paid = Usage(calls=2, cached_calls=1, input_tokens=30, output_tokens=5, cost_usd=0.5)
    row = failed_row(QUESTION, ModelError("broken"), None, [Candidate("x", -1.0, 7)], paid)
    assert (row["calls"], row["tokens"], row["cost_usd"]) == (3, 42, 0.5)
    assert row["usage"]["general"]["cached_calls"] == 1
    assert row["error"] == "ModelError: broken"


def test_what_has_no_gold_answers_is_not_scored() -> None:
    question = replace(QUESTION, golds=())
    assert failed_row(question, ModelError("broken"), None)["scores"] is None
    assert answered_row(question, ANSWER, [], None, timings=True)["scores"] is None


def test_without_timings_nothing_differs_from_run_to_run() -> None:
    quick, slow = (
        answered_row(
            QUESTION,
            replace(ANSWER, seconds={"link": s}, usage=Usage(2, cached, seconds=s)),
            CANDIDATES,
            None,
            timings=False,
        )
        for s, cached in ((0.1, 2), (0.2, 0))
    )
    assert json.dumps(quick) == json.dumps(slow)
    assert "cached_calls" not in quick["usage"]["general"]


@pytest.mark.parametrize(
    ("sparql", "shape"),
    [
        ("SELECT ?x { ns:m.0k ns:a.b.c ?x . FILTER (?x != ns:m.0k) }", Shape(1, 0, False)),
        ("SELECT ?x { ns:m.0k ns:a.b.c ?y . ?y ns:d.e.f ?x . ?x ns:g.h.i ns:m.1 }", (2, 1, False)),
        ("SELECT ?x { ns:m.0k ns:a.b.c ?x . ?x ns:d.e.f ?v } ORDER BY ?v LIMIT 1", (1, 1, True)),
        ("SELECT (COUNT(?x) AS ?n) { ns:m.0k ns:a.b.c ?x }", None),
        ("what?", None),
        (None, None),
    ],
    ids=["hop", "constraint", "ordered", "not convertible", "no query", "none"],
)
def test_the_shape_of_a_gold_query(sparql: str | None, shape: Shape | None) -> None:
    assert gold_shapes([replace(QUESTION, sparql=sparql)]).get("q") == shape
