"""The confidence of candidates, from outcomes that are written out."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from kbqa.engine.linking.ground import Grounding
from kbqa.engine.running.tried import (
    ASKED_LEAD,
    SHIPPED_CONFIDENCE,
    ConfidenceModel,
    Tried,
    answer_confidences,
    describe_tried,
    rank_tried,
)
from kbqa.engine.writing.generate import Candidate
from kbqa.kb.graph import Table
from kbqa.sparql.crp import Constraint, Hop, Order
from kbqa.sparql.errors import ModelError
from kbqa.sparql.forms import parse_crp
from kbqa.sparql.relax import Level, Relaxation

CRP = parse_crp("Kenya -> a.b").crp
CONSTRAINT = Constraint(1, (Hop("a.c"),), None)


def _tried(logprob: float, *answers: str, level: Level = "full", dropped: int = 0, **rest) -> Tried:
    return Tried(
        Candidate("text", logprob, tokens=10),
        "reachable",
        grounding=Grounding(CRP, (), {}),
        relaxation=Relaxation(level, CRP, (CONSTRAINT,) * dropped),
        table=Table(("x",), tuple((answer,) for answer in answers)),
        **rest,
    )


def test_candidates_are_measured_against_each_other() -> None:
    likely, same, other = describe_tried(
        [_tried(-1.0, "m.1", "m.2"), _tried(-2.0, "m.2", "m.1"), _tried(-2.0, "m.3")]
    )
    e = math.e
    assert likely["share"] == pytest.approx(e / (e + 2))
    assert likely["support"] == same["support"] == pytest.approx((e + 1) / (e + 2))
    assert other["support"] == other["share"] == pytest.approx(1 / (e + 2))
    assert (likely["answers"], likely["token_logprob"]) == (pytest.approx(math.log(2)), -0.1)


def test_an_answer_of_several_lists_is_surer_than_each() -> None:
    sure = answer_confidences(
        [
            _tried(-1.0, "m.1", "m.2", confidence=0.5),
            _tried(-1.0, "m.2", "m.1", confidence=0.25),
            _tried(-1.0, "m.2", confidence=0.2),
            _tried(-1.0, "m.3", count=1, confidence=0.9),
            _tried(-1.0, "m.4"),
        ]
    )
    assert sure == {"m.1": 0.5, "m.2": pytest.approx(0.6), "m.4": 0.0}


def test_answers_lead_by_the_likelihood_of_the_question() -> None:
    first, same, second, unasked = describe_tried(
        [
            _tried(-1.0, "m.1", question_logprob=-12.0),
            _tried(-1.0, "m.1", question_logprob=-15.0),
            _tried(-1.0, "m.2", question_logprob=-14.0),
            _tried(-1.0, "m.3"),
        ]
    )
    assert (first[ASKED_LEAD], same[ASKED_LEAD], second[ASKED_LEAD]) == (2.0, 2.0, -2.0)
    assert unasked[ASKED_LEAD] == -2.0
    far, behind = describe_tried(
        [_tried(-1.0, "m.1", question_logprob=-5.0), _tried(-1.0, "m.2", question_logprob=-50.0)]
    )
    assert (far[ASKED_LEAD], behind[ASKED_LEAD]) == (8.0, -8.0)
    [alone] = describe_tried([_tried(-1.0, "m.1", question_logprob=-5.0)])
    assert alone[ASKED_LEAD] == 0.0
    [never] = describe_tried([_tried(-1.0, "m.1")])
    assert ASKED_LEAD not in never


def test_what_was_relaxed_supports_nobody() -> None:
    full, relaxed = describe_tried(
        [_tried(-1.0, "m.1"), _tried(-1.0, "m.1", level="entity", dropped=1, mentioned=2)]
    )
    assert full["support"] == relaxed["support"] == pytest.approx(0.5)
    assert (full["mentioned"], relaxed["mentioned"]) == (0.0, 2.0)


def test_what_says_the_same_supports_itself_whatever_shows_it() -> None:
    tried = [
        _tried(-1.0, "m.1", "m.2", boolean=True),
        _tried(-1.0, "m.3", boolean=True),
        _tried(-1.0, "m.4", boolean=False),
        _tried(-1.0, "m.4", boolean=False),
        _tried(-1.0, "m.5", boolean=False),
        _tried(-1.0, "m.6", count=1),
        _tried(-1.0, "m.7", count=1),
        _tried(-1.0, "m.1", "m.2"),
    ]
    supports = [round(8 * each["support"]) for each in describe_tried(tried)]
    assert supports == [2, 2, 2, 2, 1, 2, 2, 1]


def test_answers_lead_by_what_their_best_fit_is_above_others_and_none() -> None:
    tried = [
        _tried(-1.0, "m.1", fit=1.0),
        _tried(-1.0, "m.1", fit=3.0),
        _tried(-1.0, "m.2", fit=2.0),
        _tried(-1.0, "m.3"),
    ]
    assert [each.get("fit lead") for each in describe_tried(tried)] == [1.0, 1.0, -1.0, None]
    [alone] = describe_tried([_tried(-1.0, "m.1", fit=-2.0)])
    assert alone["fit lead"] == -2.0


def test_a_long_list_behind_a_count_or_a_no_is_still_one_answer() -> None:
    many = [f"m.{number}" for number in range(30)]
    counted, no, listed = describe_tried(
        [_tried(-1.0, *many, count=30), _tried(-1.0, *many, boolean=False), _tried(-1.0, *many)]
    )
    assert (counted["answers"], counted["many answers"]) == (0.0, 0.0)
    assert (no["answers"], no["many answers"]) == (0.0, 0.0)
    assert listed["many answers"] == 1.0


def test_zero_is_as_sure_as_a_path_whose_constraints_were_dropped_and_goes_last() -> None:
    tried = [_tried(-1.0, count=0, mentioned=2), _tried(-9.0, "m.1", level="main_path")]
    zero, _ = describe_tried(tried)
    assert (zero["mentioned"], zero["answers"], zero["level main_path"]) == (0.0, 0.0, 1.0)
    model = ConfidenceModel.load()
    judged = [replace(t, confidence=c) for t, c in zip(tried, model.judge(tried), strict=True)]
    assert 0 < (judged[0].confidence or 0) < 1
    assert rank_tried(judged) == [1, 0]


def test_what_has_no_answers_has_no_features_and_no_confidence() -> None:
    features = describe_tried([Tried(Candidate("x", -1.0, 5), "unreachable")])
    assert features == [{}]
    assert ConfidenceModel(5.0, {}).confidence(features[0]) == 0.0
    assert describe_tried([]) == []


def test_of_candidates_with_the_same_answers_the_likeliest_in_full_stands_for_them() -> None:
    tried = [
        _tried(-3.0, "m.9"),
        _tried(-1.0, "m.1", level="entity"),
        _tried(-2.0, "m.1", topic_score=0.1),
        _tried(-4.0, "m.1", topic_score=0.9),
        Tried(Candidate("x", -0.5, 5), "unreachable"),
    ]
    confidences = ConfidenceModel(0.0, {"topic": 1.0}).judge(tried)
    assert confidences[1] == confidences[2] == confidences[3] > confidences[0] > 0
    assert confidences[4] == 0.0
    judged = [replace(t, confidence=c) for t, c in zip(tried, confidences, strict=True)]
    assert rank_tried(judged) == [2, 3, 1, 0, 4]


def test_the_level_and_what_was_dropped_are_told() -> None:
    [features] = describe_tried([_tried(-1.0, "m.1", level="entity", dropped=2)])
    assert (features["level entity"], features["dropped"]) == (1.0, 2.0)
    assert "level full" not in features


def test_an_order_counts_as_a_constraint() -> None:
    tried = _tried(-1.0, "m.1")
    order = replace(CRP, constraints=(CONSTRAINT,), order=Order(1, (Hop("a.d"),), descending=True))
    ordered = replace(tried, grounding=Grounding(order, (), {}))
    assert [each["constraints"] for each in describe_tried([tried, ordered])] == [0.0, 2.0]


def test_each_figure_has_the_value_that_the_model_is_fitted_on() -> None:
    ordered = replace(CRP, constraints=(CONSTRAINT,), order=Order(1, (Hop("a.d"),), True))
    written = replace(
        _tried(-2.0, "m.1", "m.2", dropped=1, level="entity", topic_score=0.25, mentioned=2),
        grounding=Grounding(ordered, ("Zorblax",), {}),
    )
    searched = replace(
        _tried(0.0, "m.3", topic_score=0.5),
        candidate=Candidate("text", 0.0, 1, source="search", rank=3),
    )
    narrowed = replace(searched, candidate=Candidate("text", 0.0, 1, (), "search", 4, narrows=True))
    first, second, third = map(dict, describe_tried([written, searched, narrowed]))
    assert first == {
        "logprob": -2.0,
        "token_logprob": -0.2,
        "share": 1.0,
        "support": 0.0,
        "hops": 1.0,
        "constraints": 2.0,
        "dropped": 1.0,
        "level entity": 1.0,
        "answers": math.log(2),
        "many answers": 0.0,
        "topic": 0.25,
        "mentioned": 2.0,
        "replaced": 1.0,
    }
    same = {
        "searched": 1.0,
        "share": 0.0,
        "support": 0.0,
        "hops": 1.0,
        "constraints": 0.0,
        "dropped": 0.0,
        "level full": 1.0,
        "answers": 0.0,
        "many answers": 0.0,
        "topic": 0.5,
        "mentioned": 0.0,
        "replaced": 0.0,
    }
    assert second == {**same, "rank": 3.0, "narrows": 0.0}
    assert third == {**same, "rank": 4.0, "narrows": 1.0}


@pytest.mark.parametrize(("answers", "many"), [(1, 0.0), (20, 0.0), (21, 1.0)])
def test_more_than_twenty_answers_are_many(answers: int, many: float) -> None:
    [features] = describe_tried([_tried(-1.0, *(f"m.{at}" for at in range(answers)))])
    assert features["many answers"] == many
    assert features["answers"] == pytest.approx(math.log(answers))


def test_a_share_of_the_questions_stays_below_the_threshold() -> None:
    model = ConfidenceModel(0.0, {}, spread=[0.1, 0.4, 0.6, 0.9])
    assert [model.threshold(share) for share in (0.0, 0.5, 0.74, 1.0)] == [0.1, 0.6, 0.6, 0.9]


@pytest.mark.parametrize("value", [-1e9, -1.0, 0.0, 1.0, 1e9])
def test_a_confidence_lies_between_0_and_1(value: float) -> None:
    model = ConfidenceModel(0.0, {"share": 2.0})
    confidence = model.confidence({"share": value, "unknown": 7.0})
    assert 0 <= confidence <= 1
    assert (confidence > 0.5) == (value > 0)


def test_a_model_is_read_as_it_was_saved(tmp_path: Path) -> None:
    model = ConfidenceModel(0.5, {"share": 1.0}, "some questions", [(0.1, 0.2, 3)], [0.1, 0.5])
    model.save(tmp_path / "model.json")
    assert ConfidenceModel.load(tmp_path / "model.json") == model


def test_the_shipped_model_is_valid(tmp_path: Path) -> None:
    copy = tmp_path / "model.json"
    copy.write_bytes(SHIPPED_CONFIDENCE.read_bytes())
    read, shipped = ConfidenceModel.load(copy), ConfidenceModel.load()
    assert read.digest() == shipped.digest()
    assert read.calibration == [tuple(tenth) for tenth in shipped.calibration]
    assert (read.spread, read.fitted_on) == (shipped.spread, shipped.fitted_on)


def test_the_shipped_model_trusts_what_likely_candidates_agree_on() -> None:
    model = ConfidenceModel.load()
    likely, unlikely = describe_tried(
        [_tried(-1.0, "m.1", topic_score=1.0), _tried(-9.0, "m.2", topic_score=1.0)]
    )
    assert model.confidence(likely) > 0.5 > model.confidence(unlikely)
    assert "webqsp.train" in model.fitted_on
    confidences = [confidence for confidence, _, _ in model.calibration]
    assert confidences == sorted(confidences)
    assert model.threshold(0.1) < model.threshold(0.9)


@pytest.mark.parametrize("text", ["", "[]", "{}", json.dumps({"schema_version": 99, "bias": 0.0})])
def test_what_is_no_model_is_told(tmp_path: Path, text: str) -> None:
    path = tmp_path / "model.json"
    path.write_text(text)
    with pytest.raises(ModelError, match="cannot read the confidence model"):
        ConfidenceModel.load(path)


def test_a_missing_model_is_told(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"none\.json is missing"):
        ConfidenceModel.load(tmp_path / "none.json")


@pytest.mark.parametrize("logprob", [-math.inf, math.nan])
def test_a_log_probability_that_is_no_number_makes_nothing_sure(logprob: float) -> None:
    model = ConfidenceModel.load()
    [odd], [least] = (model.judge([_tried(each, "m.1")]) for each in (logprob, -9999.0))
    assert odd == least < 0.5
    assert model.confidence({"fit": math.nan}) == pytest.approx(0, abs=1e-9)
    # The question, given the path, likewise.
    candidates = [
        _tried(-1.0, answer, question_logprob=read)
        for answer, read in (("m.1", logprob), ("m.2", -5.0))
    ]
    assert describe_tried(candidates)[0][ASKED_LEAD] < 0
