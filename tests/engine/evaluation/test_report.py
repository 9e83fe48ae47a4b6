import json
from pathlib import Path

import pytest
from made_runs import MadeRow, make_failed_row, make_row, make_walked_row, write_run

from kbqa.engine.evaluation.report import Answered, Errors, Report, make_report, report_sections
from kbqa.engine.evaluation.rows import read_run
from kbqa.engine.evaluation.scores import METRICS, bootstrap_mean
from kbqa.engine.evaluation.statistics import Tenth
from kbqa.engine.evaluation.tables import (
    DEFINITIONS,
    METRIC_NAMES,
    WIDTH,
    render_markdown,
    render_text,
)

SHAPE = {"hops": 2, "constraints": 1, "ordered": False}
ROWS = [
    make_row("a", ["m.1"], tier="independent", type="conjunction", gold_shape=SHAPE),
    make_row("b", ["m.2", "m.1"], tier="annotated", level="entity", confidence=0.9),
    make_row("c", ["m.3"], tier="none", stage="general", level="main_path", confidence=0.2),
    make_row("d", tier="annotated", type="superlative", gold_shape=SHAPE),
    make_row("e", ["m.1"], gold=[], scores=None),
    make_failed_row("f", "QueryTimeout: no result after 5 s", tier="none"),
    make_failed_row("g", "QueryTimeout: no result after 5 s"),
    make_failed_row("h", "ModelError: out of memory"),
]


def _report(directory: Path, rows: list[MadeRow], **manifest: object) -> Report:
    return make_report(read_run(write_run(directory, rows, **manifest)))


@pytest.fixture
def report(tmp_path: Path) -> Report:
    return _report(tmp_path, ROWS, model="small", gold_entities=True)


def test_scores_are_those_of_the_rows(report: Report) -> None:
    assert (report.rows, report.scored, report.entities) == (8, 7, "gold")
    assert {tier: means["f1"].n for tier, means in report.scores.items()} == {
        "all": 7,
        "independent": 1,
        "annotated": 2,
        "independent + annotated": 3,
        "none": 2,
    }
    everything = report.scores["all"]
    assert set(everything) == set(METRICS) == set(METRIC_NAMES)
    assert everything["f1"] == bootstrap_mean([1, 2 / 3, 0, 0, 0, 0, 0])
    assert everything["precision"].mean == pytest.approx(1.5 / 7)
    assert everything["hits_at_1"].mean == pytest.approx(1 / 7)


def test_answers_are_counted_by_stage_and_relaxation(report: Report) -> None:
    assert report.answered["all"] == Answered(
        8, {"specialised": {"full": 2, "entity": 1}, "general": {"main_path": 1}}, {"graph": 4}, 4
    )
    assert report.answered["none"] == Answered(2, {"general": {"main_path": 1}}, {"graph": 1}, 1)


def test_any_method_can_be_reported_on(tmp_path: Path) -> None:
    rows = [
        make_walked_row("a", ["m.1"], tier="independent"),
        make_walked_row("b", ["m.1", "m.2"], tier="annotated"),
        make_walked_row("c", tier="annotated"),
    ]
    report = _report(tmp_path, rows, method={"name": "walker", "beam": 3})
    assert report.method == "walker"
    assert report.answered["all"] == Answered(3, {"found": {"found": 2}}, {"graph": 2}, 1)
    assert set(report.breakdowns) == {"answers", "stage"}
    assert [group.name for group in report.breakdowns["stage"]] == ["found", "no answer"]
    text = render_text(report_sections(report))
    assert "Run run, method walker, linked entities" in text
    assert "Answered, by stage\n" in text
    assert "found      2 (66.7%)" in text
    assert "relaxation" not in text
    assert "origin" not in text


def test_stages_go_by_name(tmp_path: Path) -> None:
    rows = [
        make_walked_row("a", ["m.1"]) | {"stage": "walk"},
        make_walked_row("b", ["m.1"]) | {"stage": "guess"},
        make_row("c", ["m.1"], stage="general"),
        make_row("d", ["m.1"], level="string"),
    ]
    report = _report(tmp_path, rows)
    assert report.answered["all"].stages == {
        "guess": {"found": 1},
        "walk": {"found": 1},
        "specialised": {"string": 1},
        "general": {"full": 1},
    }
    assert "guess                1 (25.0%)\n" in render_text(report_sections(report))


def test_answers_that_the_graph_did_not_give_are_counted_apart(tmp_path: Path) -> None:
    mixed = make_walked_row("d", ["m.1", "m.2"])
    mixed["answers"][1]["origin"] = "text"
    rows = [
        make_walked_row("a", ["m.1"]),
        make_walked_row("b", ["m.1"], origin="named"),
        make_walked_row("c", ["m.9"], origin="text"),
        mixed,
        make_walked_row("e"),
    ]
    report = _report(tmp_path, rows)
    assert report.answered["all"].origins == {"graph": 1, "graph + text": 1, "named": 1, "text": 1}
    groups = {group.name: group.f1.mean for group in report.breakdowns["origin"]}
    assert groups == {
        "graph": 1.0,
        "graph + text": pytest.approx(2 / 3),
        "named": 1.0,
        "text": 0.0,
        "no answer": 0.0,
    }
    text = render_text(report_sections(report))
    assert "Answered, by origin of the answers\n" in text
    assert "graph + text  1 (20.0%)\n" in text
    assert "By origin of the answers, all scored questions\n" in text


def test_scores_by_name_are_given_where_they_are_asked_for(tmp_path: Path) -> None:
    rows = [
        make_row("a", ["m.1"], gold_names=[["Name of  m.1"]], tier="independent"),
        make_row("b", ["m.9"], gold_names=[["m.9"], ["else"]]),
        make_row("c", gold_names=[["else"]]),
        make_failed_row("d", gold_names=[["else"]]),
        make_row("e", ["m.1"]),
    ]
    run = read_run(write_run(tmp_path, rows))
    assert make_report(run).name_scores is None
    report = make_report(run, names=True)
    assert report.name_scores is not None
    means = report.name_scores["all"]
    found = (means["hits_at_1"], means["f1"], means["contained"])
    assert [(each.mean, each.n) for each in found] == [(0.25, 4), (0.25, 4), (0.5, 4)]
    assert json.loads(json.dumps(report.to_dict()))["name_scores"]["independent"]["f1"]["n"] == 1
    text = render_text(report_sections(report))
    assert "contained, ToG" in text
    assert "Hits@1, SubgraphRAG" in text
    assert "an empty answer is wrong here" in text
    assert max(map(len, text.splitlines())) <= WIDTH


def test_a_question_set_without_names_is_not_sent_to_be_run_again(tmp_path: Path) -> None:
    unnamed = make_report(read_run(write_run(tmp_path, [make_row("a")], "old")), names=True)
    text = " ".join(render_text(report_sections(unnamed)).split())
    assert "have no names of gold answers. They come from the question set. If it has names" in text


def test_names_are_scored_by_the_question_too(tmp_path: Path) -> None:
    row = make_row("a", ["m.1"], question="when was it?", gold_names=[["2001-02-03"]])
    row["answers"][0]["name"] = "2001"
    [scores] = [each.name_scores for each in read_run(write_run(tmp_path, [row])).rows]
    assert scores is not None
    assert (scores.f1, scores.rog_f1, scores.subgraphrag_f1) == (0.0, 0.0, 1.0)


def test_more_resamples_are_told(tmp_path: Path) -> None:
    rows = [make_row("a", ["m.1"], type="x"), make_row("b", type="x"), make_row("WebQTest-1")]
    run = read_run(write_run(tmp_path, rows))
    few, many = (make_report(run, resamples=n) for n in (100, 2000))
    assert "2,000 resamples" in " ".join(render_text(report_sections(many)).split())
    assert (many.to_dict()["resamples"], few.resamples) == (2000, 100)
    assert few.scores["all"]["f1"].mean == many.scores["all"]["f1"].mean


def test_stages_of_walking_methods_have_an_order(tmp_path: Path) -> None:
    rows = [
        make_walked_row(stage, ["m.1"], origin=origin) | {"stage": stage}
        for stage, origin in (("direct", "text"), ("fallback", "named"), ("explored", "graph"))
    ]
    report = _report(tmp_path, rows)
    assert list(report.answered["all"].stages) == ["explored", "fallback", "direct"]
    assert [group.name for group in report.breakdowns["stage"]] == [
        "explored",
        "fallback",
        "direct",
    ]


def test_failures_are_counted_by_kind(report: Report) -> None:
    assert report.errors == [
        Errors("QueryTimeout", 2, "f", "QueryTimeout: no result after 5 s"),
        Errors("ModelError", 1, "h", "ModelError: out of memory"),
    ]


def test_confidence_is_compared_with_f1(report: Report) -> None:
    assert report.calibration == [Tenth(0.2, 0.0, 1), Tenth(0.9, round(2 / 3, 4), 1)]
    assert report.calibration_error == pytest.approx((0.2 + 0.2333) / 2, abs=1e-4)


def test_the_official_score_is_given_for_webqsp_alone(tmp_path: Path) -> None:
    rows = [
        make_row("WebQTest-1"),
        make_row("WebQTest-2", ["m.1"], gold=[]),
        make_failed_row("WebQTest-3"),
        make_row("WebQTest-4", ["m.1"]),
    ]
    official = _report(tmp_path, rows).official
    assert official is not None
    means = official["all"]
    assert (means.precision.mean, means.recall.mean, means.f1.mean) == (0.5, 0.5, 0.25)
    assert _report(tmp_path, [*rows, make_row("WebQTrn-1_0a")]).official is None


def test_a_run_without_gold_answers_is_reported_without_scores(tmp_path: Path) -> None:
    report = _report(tmp_path, [make_row("a", ["m.1"], gold=[], scores=None)])
    assert (report.scores, report.official, report.breakdowns, report.scored) == ({}, None, {}, 0)
    assert "nothing to score" in render_text(report_sections(report))


def test_gold_by_name_alone_is_scored_by_name(tmp_path: Path) -> None:
    rows = [
        make_row("a", ["m.1"], gold=[], scores=None, gold_names=[["Name of m.1"]]),
        make_row("b", ["m.2"], gold=[], scores=None, gold_names=[["Nairobi"]]),
        make_row("c", ["m.2"], gold=[], scores=None),
    ]
    report = make_report(read_run(write_run(tmp_path, rows)), names=True)
    assert (report.scores, report.scored) == ({}, 0)
    assert report.name_scores is not None
    means = report.name_scores["all"].values()
    assert {(mean.mean, mean.n) for mean in means} == {(0.5, 2)}
    assert "--names scores those" in " ".join(render_text(report_sections(report)).split())


def test_json_holds_everything(report: Report) -> None:
    record = json.loads(json.dumps(report.to_dict()))
    assert record["schema_version"] == 1
    assert record["definitions"]["f1"] == DEFINITIONS["f1"]
    assert record["scores"]["all"]["f1"]["n"] == 7
    assert set(record["scores"]["all"]["f1"]) == {"mean", "low", "high", "n"}
    assert record["manifest"]["model"] == "small"
    assert record["costs"]["tokens"]["median"] == 100
    assert record["breakdowns"]["type"][0]["name"] == "conjunction"
    assert record["shapes"] == [{"hops": "2", "constraints": "1", "n": 2, "f1": 0.5}]
    assert record["calibration"][0] == {"confidence": 0.2, "f1": 0.0, "n": 1}


def test_text_fits_a_terminal_and_says_what_the_numbers_mean(report: Report) -> None:
    text = render_text(report_sections(report))
    assert max(map(len, text.splitlines())) <= WIDTH
    for said in (
        "Run run, gold entities",
        "8, 7 with gold answers, 3 failed",
        "independent + annotated",
        *DEFINITIONS["hit"].split(),
        "are both empty, each score is 1",
        "specialised, full",
        "general, main path",
        "Tokens: the small model's prompt and first path",
        "Cost of general models per 10,000",
        "gold answers, mean  1.00\none gold answer     100.0% of 7 questions",
        "conjunction",
        "0.500 (2)",
        "Mean distance",
        "2 QueryTimeout  first: f: QueryTimeout: no result after 5 s\n1 ModelError",
    ):
        assert said in text or said in text.replace("\n", " ")


def test_webqsp_reports_name_the_official_rule(tmp_path: Path) -> None:
    report = _report(tmp_path, [make_row("WebQTest-1", ["m.1"])])
    text = render_text(report_sections(report))
    assert "Scores by WebQSP's official rule, linked entities" in text
    assert "Its F1 is ours. Its precision is 1 if nothing is predicted" in text
    assert report.to_dict()["official_rule"].startswith("The rule of WebQSP's official script")


@pytest.mark.parametrize(
    ("manifest", "questions", "said"),
    [
        ({"question_count": 9}, 9, "unfinished  8 of 9 questions; continue with --resume\n"),
        ({"question_count": 8}, 8, None),
        ({}, None, None),
    ],
    ids=["unfinished", "finished", "of an older kbqa"],
)
def test_an_unfinished_run_is_reported(
    tmp_path: Path, manifest: dict[str, int], questions: int | None, said: str | None
) -> None:
    report = _report(tmp_path, ROWS, **manifest)
    text = render_text(report_sections(report))
    assert report.to_dict()["questions"] == questions
    assert said in text if said else "unfinished" not in text
    assert "question count" not in text


def test_markdown_has_whole_tables(report: Report) -> None:
    lines = render_markdown(report_sections(report)).splitlines()
    [header] = [line for line in lines if line.startswith("| tier of evidence | n | hit |")]
    cells = header.count("|")
    rows = lines[lines.index(header) :][: 2 + len(report.scores)]
    assert all(row.count("|") == cells for row in rows)
    assert rows[2].startswith("| all | 7 | 0.286 [")


def test_settings_are_shown_and_long_ones_cut(tmp_path: Path) -> None:
    report = _report(
        tmp_path,
        [make_row("a")],
        questions_sha256="0123456789abcdef" * 4,
        store={"rules": "long " * 99, "dumps": None},
        store_summary={"kept": 9},
        timings=True,
    )
    text = render_text(report_sections(report))
    assert "questions sha256  0123456789ab\n" in text
    assert text.count("long") < 40
    assert "timings           yes\n" in text
    assert "kept" not in text and "dumps" not in text
