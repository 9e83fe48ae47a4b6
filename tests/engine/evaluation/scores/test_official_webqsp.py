"""Our scores are those of WebQSP's official rule, by an implementation that shares nothing."""

import gzip
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbqa.engine.answer import Answer, AnswerEntity
from kbqa.engine.evaluation.reports.report import make_report
from kbqa.engine.evaluation.runs.recorded_run import RecordedRun
from kbqa.engine.evaluation.runs.row_making import answered_row, failed_row
from kbqa.engine.evaluation.runs.rows import Row
from kbqa.engine.evaluation.scores.official_webqsp import (
    OfficialScores,
    is_webqsp_id,
    official_means,
    official_score,
)
from kbqa.engine.methods.router.trace import RouterTrace
from kbqa.engine.questions.question_sets import Question, read_questions
from kbqa.sparql.errors import ModelError
from kbqa.sparql.terms import LiteralTerm, is_mid

Predictions = Mapping[str, Sequence[str]]


def official_rule(records: Sequence[Any], predictions: Predictions) -> dict[str, float]:
    """Score predictions by the published rule, from the records as they were released."""
    precisions, recalls, f1s = [], [], []
    for record in records:
        counting = [
            parse
            for parse in record["parses"]
            if parse["AnnotatorComment"]["QuestionQuality"] == "Good"
            and parse["AnnotatorComment"]["ParseQuality"] == "Complete"
        ]
        if not counting:
            continue  # passed over: not even counted
        best = (0.0, 0.0, -1.0)
        for parse in counting:
            gold = [answer["AnswerArgument"] for answer in parse["Answers"]]
            if record["id"] not in predictions:
                trial = (0.0, 0.0, 0.0)  # missing: counted, and nothing gained
            else:
                trial = _trial(gold, predictions[record["id"]])
            if trial[2] > best[2]:
                best = trial
        precisions.append(best[0])
        recalls.append(best[1])
        f1s.append(best[2])
    total = len(f1s)
    return {
        "n": total,
        "precision": sum(precisions) / total,
        "recall": sum(recalls) / total,
        "f1": sum(f1s) / total,
        "true_accuracy": sum(f1 == 1.0 for f1 in f1s) / total,
    }


def _trial(gold: Sequence[str], predicted: Sequence[str]) -> tuple[float, float, float]:
    if not gold and not predicted:
        return 1.0, 1.0, 1.0
    if not gold:
        return 0.0, 1.0, 0.0
    if not predicted:
        return 1.0, 0.0, 0.0
    # As in the script: a trick of its own keeps it from dividing by 0.
    right, missed = 1e-40, 0.0
    for answer in gold:
        if answer in predicted:
            right += 1
        else:
            missed += 1
    wrong = sum(answer not in gold for answer in predicted)
    precision, recall = right / (right + wrong), right / (right + missed)
    return precision, recall, 2 * precision * recall / (precision + recall)


def _perfect(records: Sequence[Any]) -> Predictions:
    return {r["id"]: [a["AnswerArgument"] for a in r["parses"][0]["Answers"]] for r in records}


def _empty(records: Sequence[Any]) -> Predictions:
    return {record["id"]: [] for record in records}


def _noisy(records: Sequence[Any]) -> Predictions:
    """Drop answers, add those of other questions, answer nothing, and leave questions out."""
    rng = random.Random(20161)
    all_answers = [a["AnswerArgument"] for r in records for p in r["parses"] for a in p["Answers"]]
    predictions = {}
    for record in records:
        if rng.random() < 0.03:
            continue
        parse = rng.choice(record["parses"])
        kept = [a["AnswerArgument"] for a in parse["Answers"] if rng.random() < 0.7]
        wrong = rng.sample(all_answers, rng.choice((0, 0, 0, 1, 2, 9)))
        answers = list(dict.fromkeys(kept + wrong))
        rng.shuffle(answers)
        predictions[record["id"]] = answers if rng.random() < 0.9 else []
    return predictions


@pytest.mark.parametrize("predict", [_perfect, _empty, _noisy])
def test_our_scores_are_those_of_the_official_rule(
    shared: Path, predict: Callable[[Sequence[Any]], Predictions]
) -> None:
    file = shared / "data/qa/webqsp.test-half.jsonl.gz"
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    predictions = predict(records)
    expected = official_rule(records, predictions)

    # Without tiers, whose means take time and are not looked at.
    questions = [replace(question, tier=None) for question in read_questions(file)]
    rows = [_row(question, predictions.get(question.id)) for question in questions]
    report = make_report(RecordedRun(file, {"gold_entities": True}, tuple(rows)))
    means = report.scores["all"]
    assert (means["f1"].n, means["f1"].mean) == (expected["n"], expected["f1"])
    assert (expected["n"], len(records)) == (840, 840)
    assert means["exact_match"].mean == expected["true_accuracy"]

    assert report.official is not None
    official = report.official["all"]
    assert official.f1.mean == expected["f1"]
    assert official.precision.mean == expected["precision"]
    assert official.recall.mean == expected["recall"]
    assert official.true_accuracy.mean == expected["true_accuracy"]
    if predict is _perfect:
        assert expected["f1"] == 1.0
    if predict is _empty:
        assert expected["f1"] == 5 / 840, "where nothing is gold, nothing is right"
        assert (expected["precision"], means["precision"].mean) == (1.0, 5 / 840)
    if predict is _noisy:
        assert 0.4 < expected["f1"] < 0.8
        assert means["precision"].mean < expected["precision"]


def _row(question: Question, predicted: Sequence[str] | None) -> Row:
    if predicted is None:
        return failed_row(question, ModelError("out of memory"), None)
    answers = tuple(
        AnswerEntity(one if is_mid(one) else LiteralTerm(one), one) for one in predicted
    )
    answer = Answer(question.text, answers, RouterTrace((), None))
    return answered_row(question, answer, [], None, timings=False)


@pytest.mark.parametrize(
    ("predicted", "golds", "expected"),
    [
        ([], [[]], OfficialScores(1.0, 1.0, 1.0)),
        ([], [["a"]], OfficialScores(1.0, 0.0, 0.0)),
        (["a"], [[]], OfficialScores(0.0, 1.0, 0.0)),
        (["a"], [["b"]], OfficialScores(0.0, 0.0, 0.0)),
        (["a", "a"], [["a"]], OfficialScores(1.0, 1.0, 1.0)),
        (["a", "b"], [["a"], ["a", "b", "c"]], OfficialScores(1.0, 2 / 3, 0.8)),
        (["1990"], [["1990-08:00"]], OfficialScores(0.0, 0.0, 0.0)),
        (["a"], [[], ["b"]], OfficialScores(0.0, 0.0, 0.0)),
        (["a", "c"], [["a", "a", "b"]], OfficialScores(2 / 3, 2 / 3, 2 / 3)),
    ],
    ids=[
        "both empty",
        "nothing predicted",
        "nothing gold",
        "wrong",
        "named twice",
        "the best of two parses",
        "by the letter",
        "an empty parse before another",
        "gold twice",
    ],
)
def test_the_official_rule_of_one_question(predicted, golds, expected):
    assert official_score(predicted, golds) == expected


@given(
    predicted=st.lists(st.sampled_from("abcd"), unique=True),
    golds=st.lists(st.lists(st.sampled_from("abcd"), max_size=5), min_size=1, max_size=4),
)
def test_any_parses_score_as_in_the_official_script(
    predicted: list[str], golds: list[list[str]]
) -> None:
    good = {"QuestionQuality": "Good", "ParseQuality": "Complete"}
    parses = [
        {"AnnotatorComment": good, "Answers": [{"AnswerArgument": one} for one in gold]}
        for gold in golds
    ]
    record = {"id": "WebQTest-1", "parses": parses}
    expected = official_rule([record], {"WebQTest-1": predicted})
    found = official_score(predicted, golds)
    assert found.precision == pytest.approx(expected["precision"])
    assert found.recall == pytest.approx(expected["recall"])
    assert found.f1 == pytest.approx(expected["f1"])


def test_the_f1_of_means_is_that_of_the_mean_precision_and_recall():
    means = official_means([OfficialScores(1.0, 0.0, 0.0), OfficialScores(0.5, 1.0, 2 / 3)])
    assert (means.precision.mean, means.recall.mean) == (0.75, 0.5)
    assert means.f1_of_means == pytest.approx(0.6)
    assert means.true_accuracy.mean == 0.0


@pytest.mark.parametrize(
    ("id_", "is_one"),
    [("WebQTest-1", True), ("WebQTrn-3777", True), ("WebQTrn-3_a0f", False), ("7", False)],
)
def test_webqsp_questions_are_known_by_their_ids(id_, is_one):
    assert is_webqsp_id(id_) == is_one
