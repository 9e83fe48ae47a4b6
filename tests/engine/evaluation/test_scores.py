"""Scores of answers and names; an independent implementation gives the same official scores."""

import gzip
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbqa.engine.answer import Answer, AnswerEntity
from kbqa.engine.evaluation.report import make_report
from kbqa.engine.evaluation.rows import RecordedRun, Row, answered_row, failed_row
from kbqa.engine.evaluation.scores import (
    NameScores,
    OfficialScores,
    Predicted,
    Scores,
    average,
    bootstrap_mean,
    is_webqsp_id,
    match_values,
    normalise_answer,
    official_means,
    official_score,
    score,
    score_answer,
    score_best,
    score_names,
)
from kbqa.engine.questions.question_sets import Question, read_questions
from kbqa.engine.running.evidence import PathTrace
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
    answer = Answer(question.text, answers, PathTrace((), None))
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


PERFECT = Scores(1.0, 1.0, 1.0, 1.0, 1.0, 1.0)
NOTHING = Scores(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)

answers = st.lists(st.sampled_from(["m.1", "m.2", "m.3", "m.4", "1990", "1990-08:00"]), max_size=6)


@given(answers, answers)
def test_every_score_lies_between_0_and_1(predicted, gold):
    assert all(0 <= value <= 1 for value in asdict(score(predicted, gold)).values())


@given(answers, answers)
def test_f1_and_exact_match_do_not_change_when_gold_and_predicted_swap(predicted, gold):
    there, back = score(predicted, gold), score(gold, predicted)
    assert (there.f1, there.exact_match, there.hit) == (back.f1, back.exact_match, back.hit)
    assert (there.precision, there.recall) == (back.recall, back.precision)


@given(answers)
def test_a_prediction_of_itself_is_perfect(predicted):
    assert score(predicted, predicted) == PERFECT


@given(answers, answers)
def test_repetitions_count_once(predicted, gold):
    assert score(predicted * 2, gold * 2) == score(predicted, gold)


@pytest.mark.parametrize(
    ("predicted", "gold", "expected"),
    [
        ([], [], PERFECT),
        ([], ["m.1"], NOTHING),
        (["m.1"], [], NOTHING),
        (["m.1"], ["m.2"], NOTHING),
        (["m.1", "m.2"], ["m.2"], Scores(1.0, 0.0, 0.0, 0.5, 1.0, 2 / 3)),
        (["m.2", "m.1"], ["m.2"], Scores(1.0, 1.0, 0.0, 0.5, 1.0, 2 / 3)),
        (["m.1"], ["m.1", "m.2", "m.3"], Scores(1.0, 1.0, 0.0, 1.0, 1 / 3, 0.5)),
        (["1968-03-29"], ["1968-03-29-08:00"], PERFECT),
    ],
    ids=[
        "both empty",
        "nothing predicted",
        "nothing to find",
        "wrong",
        "right one second",
        "right one first",
        "one of three",
        "the gold store's time zone",
    ],
)
def test_scores(predicted, gold, expected):
    assert score(predicted, gold) == expected


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("1990-08:00", "1990"),
        ("1990-05-08:00", "1990-05"),
        ("1990-05-12Z", "1990-05-12"),
        ("1990-05-12T10:00:00+01:00", "1990-05-12T10:00:00"),
        ("-0044-03-15-08:00", "-0044-03-15"),
        ("1990-05", "1990-05"),
        ("1990-05-12", "1990-05-12"),
        ("m.0abc", "m.0abc"),
        ("12:30-08:00", "12:30-08:00"),
        ("", ""),
    ],
)
def test_only_a_dates_time_zone_is_taken_off(text, normal):
    assert normalise_answer(text) == normal


def test_the_parse_that_fits_best_counts():
    assert score_best(["m.1"], [{"m.2"}, {"m.1", "m.3"}, {"m.1"}]) == PERFECT
    assert score_best(["m.1"], [{"m.2"}]) == NOTHING


@given(answers, st.lists(answers, min_size=1, max_size=4))
def test_the_best_parse_is_no_worse_than_any(predicted, golds):
    best = score_best(predicted, golds)
    assert all(best.f1 >= score(predicted, gold).f1 for gold in golds)


def test_without_a_gold_set_there_is_no_score():
    with pytest.raises(ValueError, match="empty"):
        score_best(["m.1"], [])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_an_interval_lies_within_0_and_1_and_is_the_same_again(values):
    mean = bootstrap_mean(values, resamples=50)
    assert mean.n == len(values)
    assert mean.mean == pytest.approx(sum(values) / len(values))
    assert 0 <= mean.low <= mean.high <= 1 + 1e-9
    assert mean == bootstrap_mean(values, resamples=50)


def test_an_interval_is_about_as_wide_as_theory_says():
    mean = bootstrap_mean([0.0, 1.0] * 200)
    assert mean.low == pytest.approx(0.5 - 1.96 * 0.025, abs=0.01)
    assert mean.high == pytest.approx(0.5 + 1.96 * 0.025, abs=0.01)


def test_an_interval_leaves_out_a_fortieth_of_the_resamples_at_each_end():
    values = [2.0**at for at in range(20)]
    rng = random.Random(7)
    means = sorted(sum(rng.choices(values, k=20)) / 20 for _ in range(40))
    assert len(set(means)) == 40
    mean = bootstrap_mean(values, seed=7, resamples=40)
    assert (mean.low, mean.high) == (means[1], means[38])


def test_more_resamples_are_those_that_were_asked_for():
    scores = [Scores(*[at**2 / 99**2] * 6) for at in range(100)]
    [mean] = average(scores, ("f1",), resamples=10_000).values()
    assert mean == bootstrap_mean([one.f1 for one in scores], resamples=10_000)
    assert mean != bootstrap_mean([one.f1 for one in scores])


def test_published_intervals_stay_as_they_are():
    mean = bootstrap_mean([at**2 / 99**2 for at in range(100)])
    assert mean.low == pytest.approx(268_393 / 980_100, abs=1e-9)
    assert mean.high == pytest.approx(386_173 / 980_100, abs=1e-9)


def test_without_values_there_is_no_mean():
    with pytest.raises(ValueError, match="no values"):
        bootstrap_mean([])


QUESTION = Question("q", "what?", (), ())
YES = replace(QUESTION, boolean=True)
THREE = replace(QUESTION, count=3)
OPEN = replace(QUESTION, unanswerable=True)


@pytest.mark.parametrize(
    ("question", "predicted", "is_right"),
    [
        (YES, Predicted([], boolean=True), True),
        (YES, Predicted([], boolean=False), False),
        (YES, Predicted(["true"]), False),
        (YES, Predicted([]), False),
        (replace(YES, boolean=False), Predicted([], boolean=False), True),
        (replace(YES, boolean=False), Predicted([]), False),
        (THREE, Predicted(["m.1"], count=3), True),
        (THREE, Predicted(["m.1", "m.2", "m.3"], count=4), False),
        (THREE, Predicted(["m.1", "m.2", "m.3"]), False),
        (THREE, Predicted(["3"]), True),
        (THREE, Predicted(["3.0"]), True),
        (THREE, Predicted(["3", "4"]), False),
        (THREE, Predicted(["3"], count=2), False),
        (THREE, Predicted([]), False),
        (replace(THREE, count=0), Predicted([], count=0), True),
        (replace(THREE, count=0), Predicted([]), False),
        (OPEN, Predicted([]), True),
        (OPEN, Predicted(["m.1"]), False),
        (OPEN, Predicted([], boolean=False), False),
        (OPEN, Predicted([], count=0), False),
        (OPEN, Predicted(["m.1"], status="unsure"), True),
        (OPEN, Predicted(["m.1"], status="none"), True),
        (OPEN, Predicted(["m.1"], status="sure"), False),
    ],
)
def test_other_kinds_are_right_or_wrong(
    question: Question, predicted: Predicted, is_right: bool
) -> None:
    scores = score_answer(predicted, question)
    assert scores is not None
    assert (scores.f1, scores.exact_match, scores.hits_at_1) == (float(is_right),) * 3


@pytest.mark.parametrize(
    ("predicted", "gold", "f1"),
    [
        (["103000"], ["103000.0"], 1.0),
        (["1084.6200001"], ["1084.62"], 1.0),
        (["1084.7"], ["1084.62"], 0.0),
        (["1774-08-01"], ["1774"], 1.0),
        (["1774-08-01-08:00"], ["1774"], 1.0),
        (["1775-08-01"], ["1774"], 0.0),
        (["1774"], ["1774-08-01"], 0.0),
        (["6037"], ["06037"], 0.0),
        (["m.1", "2.0"], ["2", "m.2"], 0.5),
        (["2.0", "2"], ["2"], 1.0),
        (["1774-08-01", "1774"], ["1774-08-01", "1774"], 1.0),
        (["nan"], ["nan"], 1.0),
        (["1_0"], ["10"], 0.0),
    ],
)
def test_literals_are_compared_by_value_if_the_set_says_so(
    predicted: list[str], gold: list[str], f1: float
) -> None:
    question = replace(QUESTION, golds=(gold,), compares_values=True)
    scores = score_answer(Predicted(predicted), question)
    assert scores is not None
    assert scores.f1 == f1


TEXTS = st.lists(st.sampled_from(["m.1", "m.2", "1990", "1990-01-01", "2", "2.0"]), max_size=4)


@given(TEXTS, st.lists(TEXTS, min_size=1, max_size=3))
def test_benchmarks_compare_the_texts_of_literals(
    predicted: list[str], golds: list[list[str]]
) -> None:
    question = replace(QUESTION, golds=tuple(golds))
    assert score_answer(Predicted(predicted), question) == score_best(predicted, golds)


@given(TEXTS, TEXTS)
def test_gold_answers_themselves_are_matched(predicted: list[str], gold: list[str]) -> None:
    found = match_values(predicted, gold)
    assert len(found) == len(predicted)
    assert all(now == then for now, then in zip(found, predicted, strict=True) if then in gold)


def test_without_gold_there_is_no_score() -> None:
    assert score_answer(Predicted(["m.1"]), QUESTION) is None


NAMES = st.lists(st.text(alphabet="aB ,é\t", max_size=5), max_size=4)


@pytest.mark.parametrize(
    ("predicted", "golds", "scores"),
    [
        (["New  York", "Albany"], [["new york"]], (1.0, 2 / 3, 1.0)),
        (["Albany", "New York"], [["new york"]], (0.0, 2 / 3, 1.0)),
        (["York"], [["New York"]], (0.0, 0.0, 1.0)),
        (["New York City"], [["New York"]], (0.0, 0.0, 1.0)),
        (["newyork"], [["New York"]], (0.0, 0.0, 1.0)),
        (["Paris"], [["New York"]], (0.0, 0.0, 0.0)),
        # In the papers' code, an empty answer is part of every gold name.
        ([], [["New York"]], (0.0, 0.0, 0.0)),
        (["", "  "], [["New York"]], (0.0, 0.0, 0.0)),
        (["Paris"], [["", "New York"]], (0.0, 0.0, 0.0)),
        (["a"], [["b"], ["a", "c"], ["a"]], (1.0, 1.0, 1.0)),
        # All answers are one text there, so one of two is not part of a longer name.
        (["York", "Paris"], [["New York"]], (0.0, 0.0, 0.0)),
        ([], [[]], (1.0, 1.0, 0.0)),
    ],
)
def test_names_are_scored(
    predicted: list[str], golds: list[list[str]], scores: tuple[float, ...]
) -> None:
    assert score_names(predicted, golds)[:3] == scores


@given(NAMES, st.lists(NAMES, min_size=1, max_size=3))
def test_scores_by_name_are_shares(predicted: list[str], golds: list[list[str]]) -> None:
    found = score_names(predicted, golds)
    assert all(0.0 <= value <= 1.0 for value in found)
    if any(name.strip() for name in predicted):
        assert found.contained >= (found.f1 > 0)
    # SubgraphRAG strips punctuation, and nothing is left of a comma.
    if all(any(map(str.isalnum, name)) for name in predicted):
        assert found.subgraphrag_hits_at_1 >= found.hits_at_1


@pytest.mark.parametrize(
    ("predicted", "golds", "scores"),
    [
        (["The New-York!"], [["newyork"]], (1.0, 1.0, 1.0, 1.0)),
        (["Albany", "New York City"], [["New York"]], (1.0, 2 / 3, 0.0, 2 / 3)),
        (["York"], [["New York"]], (0.0, 0.0, 0.0, 0.0)),
        # One text in RoG's script; SubgraphRAG's takes answers one by one.
        (["New", "York"], [["New York"]], (1.0, 2 / 3, 0.0, 0.0)),
        # RoG counts gold names, of which one answer may have two.
        (["York and Albany", "Paris"], [["York", "Albany"]], (1.0, 1.0, 1.0, 0.5)),
        (["York and Albany"], [["York", "Albany"]], (1.0, 1.0, 1.0, 2 / 3)),
        (["York", "York"], [["York"]], (1.0, 1.0, 1.0, 1.0)),
        (["The"], [["A"]], (0.0, 0.0, 0.0, 0.0)),
        (["The The"], [["The The"]], (1.0, 1.0, 1.0, 1.0)),
        (["a"], [["b"], ["a", "c"], ["a"]], (1.0, 1.0, 1.0, 1.0)),
        ([], [["York"]], (0.0, 0.0, 0.0, 0.0)),
        (["York"], [["", " "]], (0.0, 0.0, 0.0, 0.0)),
        ([], [[]], (1.0, 1.0, 1.0, 1.0)),
    ],
)
def test_normalised_names_match_if_they_contain_the_gold_one(
    predicted: list[str], golds: list[list[str]], scores: tuple[float, ...]
) -> None:
    assert score_names(predicted, golds)[3:] == scores


@pytest.mark.parametrize(
    ("question", "predicted", "gold", "f1"),
    [
        ("Where is it?", "York", "New York", 1.0),
        ("what is it?", "York", "New York", 0.0),
        ("when was it built?", "in 1774", "1774-08-01", 1.0),
        ("what was built?", "in 1774", "1774-08-01", 0.0),
        ("when was it built?", "1775", "1774-08-01", 0.0),
    ],
)
def test_some_questions_are_scored_loosely_by_subgraphrag(
    question: str, predicted: str, gold: str, f1: float
) -> None:
    found = score_names([predicted], [[gold]], question)
    assert (found.subgraphrag_hits_at_1, found.subgraphrag_f1) == (f1, f1)
    assert found.rog_f1 == score_names([predicted], [[gold]]).rog_f1


def test_names_are_averaged_over_questions() -> None:
    scores = [score_names(["b"], [["b", "c", "d"]]), score_names(["ab"], [["b"]])]
    means = average(scores, NameScores._fields)
    assert [mean.mean for mean in means.values()] == [0.5, 0.25, 1.0, 1.0, 0.75, 1.0, 0.75]
