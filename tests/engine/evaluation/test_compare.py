import json
from pathlib import Path

import pytest
from made_runs import MadeRow, make_failed_row, make_row, make_walked_row, write_run

from kbqa.engine.evaluation.breakdowns import measure_costs
from kbqa.engine.evaluation.compare import (
    Change,
    RunComparison,
    compare_runs,
    compare_sections,
)
from kbqa.engine.evaluation.rows import read_run
from kbqa.engine.evaluation.scores import METRICS, Mean
from kbqa.engine.evaluation.statistics import Signs
from kbqa.engine.evaluation.tables import WIDTH, render_markdown, render_text
from kbqa.sparql.errors import InputError

PERFECT = dict.fromkeys(METRICS, 1.0)
FIRST = [
    make_row("win", tier="independent"),
    make_row("small win", ["m.1", "m.2"], tier="annotated"),
    make_row("loss", ["m.1"], tier="annotated"),
    make_row("tie", ["m.1"]),
    make_row("only a", ["m.1"]),
    make_row("not scored", gold=[], scores=None),
]
SECOND = [
    make_row("tie", ["m.1"]),
    make_row("loss", ["m.9"], tier="annotated"),
    make_row("small win", ["m.1"], tier="annotated"),
    make_row("win", ["m.1"], tier="independent"),
    make_row("not scored", ["m.1"]),
    make_row("only b"),
]


def _compare(
    directory: Path,
    first: list[MadeRow] = FIRST,
    second: list[MadeRow] = SECOND,
    metric: str = "f1",
    names: bool = False,
    resamples: int = 1000,
    **manifest: object,
) -> RunComparison:
    a = read_run(write_run(directory, first, "a"))
    b = read_run(write_run(directory, second, "b", **manifest))
    return compare_runs(a, b, metric, names=names, resamples=resamples)


def _costly(id_: str, calls: int, tokens: int, **changes: object) -> MadeRow:
    general = {"calls": calls, "input_tokens": tokens, "output_tokens": 10 * calls}
    return make_row(id_, calls=calls, usage={"general": general}, **changes)


def test_questions_that_both_scored_are_compared(tmp_path: Path) -> None:
    compared = _compare(tmp_path)
    assert (compared.common, compared.only_a, compared.only_b) == (4, 1, 2)
    f1 = compared.differences["all"]["f1"]
    assert (f1.a, f1.b) == (pytest.approx((2 / 3 + 2) / 4), 0.75)
    assert f1.difference.mean == pytest.approx(f1.b - f1.a)
    assert f1.difference.low < 0 < f1.difference.high
    assert (f1.signs, f1.p_value) == (Signs(2, 1, 1), 1.0)
    assert set(compared.differences["all"]) == set(METRICS)
    assert {tier: one["f1"].difference.n for tier, one in compared.differences.items()} == {
        "all": 4,
        "independent": 1,
        "annotated": 2,
        "independent + annotated": 3,
    }


def test_wins_and_losses_are_listed_the_largest_first(tmp_path: Path) -> None:
    compared = _compare(tmp_path)
    assert [(pair.a.id, round(pair.change, 2)) for pair in compared.wins] == [
        ("win", 1.0),
        ("small win", 0.33),
    ]
    assert [(pair.a.id, pair.change) for pair in compared.losses] == [("loss", -1.0)]
    assert [pair.a.id for pair in compared.ties] == ["tie"]


def test_lists_go_by_the_metric_that_was_asked_for(tmp_path: Path) -> None:
    compared = _compare(tmp_path, metric="recall")
    assert [pair.a.id for pair in compared.wins] == ["win"]
    assert {pair.a.id for pair in compared.ties} == {"tie", "small win"}


def test_runs_that_agree_have_no_lists(tmp_path: Path) -> None:
    compared = _compare(tmp_path, SECOND, SECOND)
    assert (compared.wins, compared.losses, len(compared.ties)) == ([], [], 6)
    assert compared.differences["all"]["f1"].difference == Mean(0.0, 0.0, 0.0, 6)


def test_the_metric_is_compared_by_what_the_gold_queries_are_like(tmp_path: Path) -> None:
    def rows(*answers: list[str]) -> list[MadeRow]:
        shapes = [{"hops": hops, "constraints": 0, "ordered": False} for hops in (1, 1, 2)]
        pairs = zip(answers, shapes, strict=True)
        return [make_row(str(at), one, gold_shape=shape) for at, (one, shape) in enumerate(pairs)]

    compared = _compare(tmp_path, rows([], ["m.1"], []), rows(["m.1"], ["m.1"], ["m.2"]))
    assert list(compared.breakdowns) == ["depth", "constraints", "answers"]
    depth = compared.breakdowns["depth"]
    assert {name: (one.a, one.b, one.signs) for name, one in depth.items()} == {
        "1": (0.5, 1.0, Signs(1, 0, 1)),
        "2": (0.0, 0.0, Signs(0, 0, 1)),
    }
    assert compared.to_dict()["breakdowns"]["depth"]["1"]["difference"]["n"] == 2
    text = render_text(compare_sections(compared, 0))
    assert "F1 by hops of the gold path\n" in text
    assert "1  2  0.500  1.000  +0.500 [+0.000, +1.000]" in text


def test_what_a_question_takes_is_compared(tmp_path: Path) -> None:
    first = [_costly("a", 2, 1000), _costly("b", 4, 3000)]
    second = [_costly("a", 2, 500), _costly("b", 2, 1500, seconds={"answer": 3.0})]
    compared = _compare(tmp_path, first, second)
    found = {name: (one.a, one.b, one.change.mean) for name, one in compared.costs.items()}
    assert {name: found[name] for name in found if " of " not in name} == {
        "calls": (3.0, 2.0, pytest.approx(-1 / 3)),
        "general_calls": (3.0, 2.0, pytest.approx(-1 / 3)),
        "input_tokens": (2000.0, 1000.0, -0.5),
        "output_tokens": (30.0, 20.0, pytest.approx(-1 / 3)),
        "tokens": (2030.0, 1020.0, pytest.approx(-1010 / 2030)),
        "general_input_tokens": (2000.0, 1000.0, -0.5),
        "general_output_tokens": (30.0, 20.0, pytest.approx(-1 / 3)),
        "seconds": (1.5, 2.25, 0.5),
        "input_tokens_per_call": (pytest.approx(4000 / 6), 500.0, -0.25),
    }
    assert compared.costs["input_tokens"].change == Mean(-0.5, -0.5, -0.5, 2)
    assert compared.to_dict()["costs"]["calls"]["n"] == 2
    text = render_text(compare_sections(compared, 0))
    assert "2  2,000.00  1,000.00  -50.0% [-50.0%, -50.0%]\n" in text


def test_a_comparison_has_the_costs_of_both_reports(tmp_path: Path) -> None:
    """It once counted the tokens of the general model alone."""
    general = {"calls": 2, "input_tokens": 1000, "output_tokens": 20}
    writer = {"calls": 1, "input_tokens": 60, "output_tokens": 100, "best_tokens": 40}
    both = make_row("a", calls=3, usage={"specialised": writer, "general": general})
    paths = [write_run(tmp_path, [row], name) for row, name in ((both, "a"), (make_row("a"), "b"))]
    a, b = map(read_run, paths)
    costs = compare_runs(a, b).costs
    assert (costs["input_tokens"].a, costs["input_tokens"].b) == (1060, 60)
    assert (costs["output_tokens"].a, costs["output_tokens"].b) == (60, 40)
    assert (costs["general_input_tokens"].a, costs["general_input_tokens"].b) == (1000, 0)
    reports = measure_costs(a.rows), measure_costs(b.rows)
    for name in costs.keys() & reports[0].keys():
        assert (costs[name].a, costs[name].b) == tuple(one[name].mean for one in reports)


def test_costs_that_a_run_does_not_know_are_left_out(tmp_path: Path) -> None:
    first = [_costly("a", 2, 1000), _costly("b", 4, 3000, seconds=None)]
    # The server counted no tokens, and one question failed.
    second = [_costly("a", 2, 0), make_failed_row("b")]
    costs = _compare(tmp_path, first, second).costs
    assert {name: one.n for name, one in costs.items()} == {
        "calls": 1,
        "general_calls": 1,
        "queries of a repair": 1,
        "seconds": 1,
        "seconds of write": 1,
        "seconds of execute": 1,
    }
    failed = [make_failed_row("a")]
    compared = _compare(tmp_path, failed, failed)
    assert compared.costs == {}
    assert "What a question takes" not in render_text(compare_sections(compared, 0))


def test_a_run_that_asked_no_general_model_has_no_change_from_it(tmp_path: Path) -> None:
    costs = _compare(tmp_path, [_costly("a", 0, 0)], [_costly("a", 1, 50)]).costs
    assert (costs["input_tokens"].b, costs["input_tokens"].change) == (50.0, None)
    assert "input_tokens_per_call" not in costs


def test_scores_by_names_are_compared_if_asked_for(tmp_path: Path) -> None:
    first = [make_row("a", gold_names=[["name of m.1"]]), make_row("b", ["m.1"])]
    second = [make_row("a", ["m.1"], gold_names=[["name of m.1"]]), make_row("b", ["m.1"])]
    assert _compare(tmp_path, first, second).name_differences is None
    compared = _compare(tmp_path, first, second, names=True)
    assert compared.name_differences is not None
    one = compared.name_differences["all"]["subgraphrag_f1"]
    assert (one.a, one.b, one.signs, one.difference.n) == (0.0, 1.0, Signs(1, 0, 0), 1)
    assert compared.to_dict()["name_tiers"]["all"]["f1"]["signs"]["wins"] == 1
    text = render_text(compare_sections(compared, 0))
    assert "Tier all by names, n = 1\n" in text
    assert max(map(len, text.splitlines())) <= WIDTH
    unnamed = _compare(tmp_path, first[1:], second[1:], names=True)
    assert "no names of gold answers" in render_text(compare_sections(unnamed, 0))


def test_more_resamples_are_told(tmp_path: Path) -> None:
    compared = _compare(tmp_path, resamples=2000)
    assert "2,000 resamples" in render_text(compare_sections(compared, 0)).replace("\n", " ")
    assert compared.to_dict()["resamples"] == 2000
    assert "2,000 resamples" in compared.to_dict()["definitions"]["interval"]


def test_other_gold_answers_are_refused(tmp_path: Path) -> None:
    changed = [make_row("win", ["m.1"], gold=["m.2"]), *SECOND[:3]]
    with pytest.raises(InputError, match=r"the gold answers of 1 questions differ \(win\)"):
        _compare(tmp_path, second=changed)


def test_gold_answers_that_are_alike_are_not_refused(tmp_path: Path) -> None:
    first = make_row("a", gold=["1968-03-29-08:00"])
    second = make_row("a", gold=["1968-03-29"])
    second["gold"] *= 2
    assert _compare(tmp_path, [first], [second]).common == 1


def test_runs_without_a_question_in_common_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="have no scored question in common"):
        _compare(tmp_path, second=[make_row("else")])


def test_gold_against_linked_entities_is_warned_of(tmp_path: Path) -> None:
    [warning] = _compare(tmp_path, gold_entities=True).warnings
    assert warning.startswith("A was given linked entities and B gold ones")
    assert not _compare(tmp_path).warnings


def test_failures_are_warned_of(tmp_path: Path) -> None:
    [warning] = _compare(tmp_path, second=[make_failed_row("win"), *SECOND[:3]]).warnings
    assert warning.startswith("1 questions of B failed and score 0")


def test_one_setting_that_differs_is_named(tmp_path: Path) -> None:
    compared = _compare(tmp_path, n=9, git="0b1", beams=None)
    assert compared.settings == {"n": Change("5", "9")}
    assert compared.notes == {"git": Change(None, "0b1")}
    assert not compared.warnings
    text = render_text(compare_sections(compared, 0))
    assert "Settings that differ\n────────────────────\nn  5 → 9\n\n" in text
    assert "Also different\n──────────────\ngit  none → 0b1\n\n" in text
    assert compared.to_dict()["settings"] == {"n": {"a": "5", "b": "9"}}


def test_settings_of_one_method_are_compared_one_by_one(tmp_path: Path) -> None:
    method = {"name": "kbqa", "order": "confidence", "repair": None}
    other = {"name": "kbqa", "order": "full-first", "repair": {"route": "reachability"}}
    a = read_run(write_run(tmp_path, FIRST, "a", method=method))
    compared = compare_runs(a, read_run(write_run(tmp_path, SECOND, "b", method=other)))
    assert compared.settings == {
        "method.order": Change("confidence", "full-first"),
        "method.repair": Change(None, "route reachability"),
    }
    [warning] = compared.warnings
    assert warning.startswith("2 settings differ (method.order, method.repair), so the difference")


BPC = {"name": "bpc", "history": 1, "chooser": "llm", "embedder": None, "seed": 42}


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"history": 2}, {"method.history": Change("1", "2")}),
        # What the chooser brings with it is no second difference.
        (
            {"chooser": "embedder", "embedder": "mini", "hop_cost": 0.1},
            {"method.chooser": Change("llm", "embedder")},
        ),
        (
            {"name": "tog", "history": 5, "seed": 7},
            {
                "method": Change(
                    "bpc (history 1, chooser llm, embedder none, seed 42)",
                    "tog (history 5, chooser llm, embedder none, seed 7)",
                ),
                "method.seed": Change("42", "7"),
            },
        ),
    ],
    ids=["one setting", "another chooser", "another method and seed"],
)
def test_the_path_of_a_nested_setting_is_named(
    tmp_path: Path, changes: dict[str, object], found: dict[str, Change]
) -> None:
    a = read_run(write_run(tmp_path, FIRST, "a", method=BPC))
    compared = compare_runs(a, read_run(write_run(tmp_path, SECOND, "b", method=BPC | changes)))
    assert compared.settings == found
    assert len(compared.warnings) == (len(found) > 1)
    name, change = next(iter(found.items()))
    text = " ".join(render_text(compare_sections(compared, 0)).split())
    assert f"{name} {change.a} → {change.b}" in text


def test_two_methods_are_one_difference(tmp_path: Path) -> None:
    method = {"name": "kbqa", "order": "confidence", "without": []}
    a = read_run(write_run(tmp_path, FIRST, "a", method=method))
    walker = write_run(tmp_path, [make_walked_row("win", ["m.1"])], "b", method={"name": "walker"})
    compared = compare_runs(a, read_run(walker))
    assert compared.settings == {
        "method": Change("kbqa (order confidence, without none)", "walker")
    }
    assert not compared.warnings
    text = render_text(compare_sections(compared, 1))
    assert "method  kbqa (order confidence, without none) → walker\n" in text
    assert "Win +1.000, win: question win?\nA     nothing\nB     name of m.1\n" in text


def test_equal_settings_are_reported(tmp_path: Path) -> None:
    text = render_text(compare_sections(_compare(tmp_path), 0))
    assert "Settings that differ\n────────────────────\nNone: both runs have the same" in text


def test_gold_answers_have_the_names_that_a_run_gives_them(tmp_path: Path) -> None:
    row = make_row("a", gold=["m.1"])
    row["gold"] = [["m.1"], ["m.1", "m.unnamed"], ["m.1"]]
    right = {**row, "answers": [{"mid": "m.1", "name": "One"}], "scores": PERFECT}
    [win] = _compare(tmp_path, [row], [right]).to_dict()["wins"]
    assert win["gold"] == [["One"], ["One", "m.unnamed"]]


def test_booleans_and_counts_are_shown_as_words(tmp_path: Path) -> None:
    right, wrong = dict.fromkeys(METRICS, 1.0), dict.fromkeys(METRICS, 0.0)
    yes, many = {"gold_boolean": True, "gold": []}, {"gold_count": 1200, "gold": []}
    nothing = {"gold_unanswerable": True, "gold": []}
    first = [
        make_row("yes", **yes, boolean=False, scores=wrong),
        make_row("many", ["m.1"], **many, scores=wrong),
        make_row("nothing", ["m.1"], **nothing, scores=wrong),
    ]
    second = [
        make_row("yes", **yes, boolean=True, scores=right),
        make_row("many", ["m.1"], **many, count=1200, scores=right),
        make_row("nothing", **nothing, scores=right),
    ]
    wins = _compare(tmp_path, first, second).to_dict()["wins"]
    assert {win["id"]: (win["a"], win["b"], win["gold"]) for win in wins} == {
        "yes": (["no"], ["yes"], [["yes"]]),
        "many": (["name of m.1"], ["1,200"], [["1,200"]]),
        "nothing": (["name of m.1"], [], [["no answer"]]),
    }
    with pytest.raises(InputError, match="differ"):
        _compare(tmp_path, first[:1], [{**second[0], "gold_boolean": False}])


def test_json_has_all_wins_and_losses(tmp_path: Path) -> None:
    record = json.loads(json.dumps(_compare(tmp_path).to_dict()))
    assert record["schema_version"] == 1
    assert (record["common"], record["only_a"], record["only_b"]) == (4, 1, 2)
    assert record["wins"][0] == {
        "id": "win",
        "question": "question win?",
        "tier": "independent",
        "change": 1.0,
        "a": [],
        "b": ["name of m.1"],
        "gold": [["name of m.1"]],
    }
    assert [pair["id"] for pair in record["losses"]] == ["loss"]
    assert record["tiers"]["all"]["f1"]["signs"] == {"wins": 2, "losses": 1, "ties": 1}
    assert record["tiers"]["all"]["f1"]["p_value"] == 1.0


def test_text_reads_like_this(tmp_path: Path) -> None:
    text = render_text(compare_sections(_compare(tmp_path, gold_entities=True), 1))
    assert max(map(len, text.splitlines())) <= WIDTH
    for said in (
        "Run b (B) against a (A)\n═",
        "4 questions that both scored; 1 that only A scored and 2 that only B scored are left",
        "Tier independent + annotated, n = 3",
        "B − A, 95 % interval",
        "two-sided exact sign test",
        "B scores higher on 2 questions, lower on 1, and the same on 1. Shown: 1 wins and 1 losses",
        "Win +1.000, win: question win?\nA     nothing\nB     name of m.1\ngold  name of m.1",
        "Loss -1.000, loss: question loss?\nA     name of m.1\nB     name of m.9",
    ):
        assert said in text or said in text.replace("\n", " ")
    assert "small win" not in text


def test_examples_tell_failures_and_cut_long_lists(tmp_path: Path) -> None:
    many = [f"m.{at}" for at in range(1, 9)]
    first, second = [make_row("a", many)], [make_failed_row("a", "ModelError: out of memory")]
    text = render_text(compare_sections(_compare(tmp_path, first, second), 1))
    assert "name of m.5, … (8 in all)\n" in text
    assert "B     failed: ModelError: out of memory" in text


def test_markdown_has_a_table_for_each_tier(tmp_path: Path) -> None:
    markdown = render_markdown(compare_sections(_compare(tmp_path), 1))
    assert markdown.count("|  | A | B | B − A, 95 % interval | wins | losses | ties | p |") == 4
    assert "### Win +1.000, win: question win?" in markdown
