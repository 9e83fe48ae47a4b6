import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from made_runs import make_failed_row, make_row, write_run

from kbqa.engine.chat.model import ChatModel
from kbqa.engine.cli import main
from kbqa.engine.engine import Engine
from kbqa.engine.evaluation.breakdowns import score_tiers
from kbqa.engine.evaluation.evaluate import (
    EvaluationConfig,
    EvaluationProgress,
    Recorded,
    evaluate,
    record_beams,
    record_graph,
    record_method,
    record_model,
    record_questions,
)
from kbqa.engine.evaluation.rows import Row, read_row
from kbqa.engine.evaluation.scores import METRICS
from kbqa.engine.questions.question_sets import read_questions
from kbqa.engine.writing.generate import Candidate, ModelChoice, read_beams
from kbqa.kb.endpoint import SparqlEndpoint
from kbqa.kb.graph import Graph
from kbqa.sparql.errors import InputError, ModelError, SpendingLimitReached

MONEY = [("Main Path:\n Jamaica -[location , country , currency used]-> ?x", -0.5)]
SEAT = [("Main Path:\n Jamaica -[location , country , capital]-> ?x", -0.5)]
NONSENSE = [("nonsense", -9.0)]
ATLANTIS = [("Main Path:\n Atlantis -[location , country , capital]-> ?x", -0.5)]

MONEY_IS = [{"arg": "m.04xc2m", "name": "Jamaican dollar"}]
ROWS = [
    {"id": "a", "question": "money?", "answers": MONEY_IS, "evidence": "independent"},
    {"id": "b", "question": "seat?", "answers": [{"arg": "m.0other"}], "evidence": "annotated"},
    {"id": "c", "question": "no gold?", "answers": [], "evidence": "none"},
]


class Run:
    """A question set on disk, and what is needed to run it."""

    def __init__(self, directory: Path, graph: Graph, rows: Sequence[object]) -> None:
        self.file = directory / "questions.jsonl"
        self.file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        self.output = directory / "run.jsonl"
        self.graph = graph
        self.config = EvaluationConfig(
            recorded=Recorded({"model": "scripted", "n": 5}, {"where": "a"})
        )

    def __call__(self, model, config: EvaluationConfig | None = None, **settings) -> list[Row]:
        config = config or self.config
        engine = Engine(self.graph, model, n=5, timeout_s=5, settings={"judge": "confidence"})
        try:
            return evaluate(engine, read_questions(self.file), self.output, config, **settings)
        finally:
            engine.close()

    def written(self) -> list[Row]:
        lines = self.output.read_text("utf-8").splitlines()
        return [read_row(json.loads(line), "") for line in lines]


@pytest.fixture
def run(tmp_path: Path, graph: Graph) -> Run:
    return Run(tmp_path, graph, ROWS)


def _untimed(rows: Sequence[Row]) -> list[Row]:
    return [row.model_copy(update={"seconds": None}) for row in rows]


def _with(config: EvaluationConfig, **settings: object) -> EvaluationConfig:
    return replace(config, recorded=config.recorded | Recorded(settings, {}))


def test_each_question_becomes_a_row(run, scripted):
    reported = []
    rows = run(scripted(MONEY, SEAT, NONSENSE), report=reported.append)
    assert rows == reported == run.written()
    assert [row.id for row in rows] == ["a", "b", "c"]
    assert [[(each.mid, each.name) for each in row.answers] for row in rows] == [
        [("m.04xc2m", "Jamaican dollar")],
        [("m.03yl7", "Kingston")],
        [],
    ]
    assert all(each.confidence == row.confidence for row in rows for each in row.answers)
    assert [row.scores and row.scores.f1 for row in rows] == [1.0, 0.0, None]
    assert [row.stage for row in rows] == ["specialised", "specialised", None]
    assert all(row.error is None for row in rows)
    assert rows[0].gold == (("m.04xc2m",),)


def test_literals_are_scored_by_their_text(tmp_path, graph, scripted):
    answers = [{"arg": "480", "name": ""}]
    run = Run(tmp_path, graph, [{"id": "a", "question": "area?", "answers": answers}])
    [row] = run(scripted([("Main Path:\n Kingston -[location , location , area]-> ?x", 0.0)]))
    [answer] = row.answers
    assert (answer.value, answer.name, answer.origin) == ("480", "480", "graph")
    assert row.scores.exact_match == 1.0


def test_a_failure_is_recorded_and_the_run_goes_on(run, scripted, caplog):
    [failed, *rest] = run(scripted(ModelError("out of memory"), SEAT, MONEY), batch_size=1)
    assert failed.error == "ModelError: out of memory"
    assert failed.scores.f1 == 0.0
    assert [row.error for row in rest] == [None, None]
    assert "question a failed: ModelError" in caplog.text


def test_an_error_that_nobody_foresaw_is_recorded_too(run, scripted, caplog):
    [failed, *_] = run(scripted(RuntimeError("a bug"), SEAT, MONEY), batch_size=1)
    assert failed.error == "RuntimeError: a bug"
    assert "Traceback" in caplog.text


def test_a_batch_that_cannot_be_generated_for_fails_together(run, scripted):
    rows = run(scripted(ModelError("out of memory")), batch_size=3)
    assert [row.error for row in rows] == ["ModelError: out of memory"] * 3


def test_a_question_that_cannot_be_written_for_fails_alone(run, scripted):
    bug = TypeError("not a text")
    rows = run(scripted(MONEY, bug, MONEY, bug, NONSENSE), batch_size=3)
    assert [row.error for row in rows] == [None, "TypeError: not a text", None]
    assert [answer.name for answer in rows[0].answers] == ["Jamaican dollar"]


def test_a_run_ends_where_the_money_does(run, scripted):
    reported: list[Row] = []
    spent = SpendingLimitReached("1 USD is spent")
    with pytest.raises(SpendingLimitReached, match="1 USD is spent"):
        run(scripted(MONEY, spent), batch_size=1, report=reported.append)
    assert [row.id for row in run.written()] == ["a"]
    rows = run(scripted(SEAT, NONSENSE), batch_size=1, report=reported.append)
    assert [row.id for row in reported] == ["a", "a", "b", "c"]
    assert [row.error for row in rows] == [None] * 3


def test_money_that_runs_out_for_one_question_ends_the_run(run, scripted, monkeypatch):
    def spend(*_: object) -> None:
        raise SpendingLimitReached("1 USD is spent")

    monkeypatch.setattr(Engine, "answer", spend)
    with pytest.raises(SpendingLimitReached):
        run(scripted(MONEY, SEAT, NONSENSE), concurrency=2)
    assert run.written() == []


def test_a_failed_question_scores_0_even_where_there_is_nothing_to_find(tmp_path, graph, scripted):
    parse = {
        "AnnotatorComment": {"QuestionQuality": "Good", "ParseQuality": "Complete"},
        "Answers": [],
    }
    row = {"id": "a", "question": "nothing?", "parses": [parse]}
    run = Run(tmp_path, graph, [row, {**row, "id": "b"}])
    failed, unanswered = run(scripted(ModelError("broken"), NONSENSE), batch_size=1)
    assert failed.scores.f1 == 0.0
    assert unanswered.scores.f1 == 1.0


@pytest.mark.parametrize("end", ["", '{"id": "c", "sco'], ids=["between rows", "within a row"])
def test_a_run_that_was_stopped_goes_on_to_the_same_file(run, scripted, end):
    whole = run(scripted(MONEY, SEAT, NONSENSE))
    kept = run.output.read_text("utf-8").splitlines(keepends=True)[:2]
    run.output.write_text("".join(kept) + end, encoding="utf-8")
    assert _untimed(run(scripted(MONEY, SEAT, NONSENSE))) == _untimed(whole)
    assert _untimed(run.written()) == _untimed(whole)


def test_what_is_asked_of_the_model_together_is_the_same_when_a_run_goes_on(run, scripted):
    run(scripted(MONEY, SEAT, NONSENSE), batch_size=2)
    lines = run.output.read_text("utf-8").splitlines(keepends=True)
    run.output.write_text(lines[0], encoding="utf-8")
    model = scripted(MONEY, SEAT, NONSENSE)
    run(model, batch_size=2)
    assert model.questions == ["money?", "seat?", "no gold?"]
    run.output.write_text("".join(lines[:2]), encoding="utf-8")
    model = scripted(NONSENSE)
    run(model, batch_size=2)
    assert model.questions == ["no gold?"]


def test_what_failed_is_asked_again_when_a_run_goes_on(run, scripted):
    run(scripted(ModelError("out of memory"), SEAT, NONSENSE), batch_size=1)
    model = scripted(MONEY)
    rows = run(model, batch_size=1)
    assert model.questions == ["money?"]
    assert [row.error for row in rows] == [None] * 3
    assert sorted(row.id for row in run.written()) == ["a", "b", "c"]


def test_a_finished_run_asks_nothing(run, scripted):
    rows = run(scripted(MONEY, SEAT, NONSENSE))
    assert run(scripted()) == rows


@pytest.mark.parametrize(
    ("change", "named"),
    [({"n": 6}, "n"), ({"model": "another", "new": 1}, "model, new")],
)
def test_a_run_with_other_settings_is_refused(run, scripted, change, named):
    run(scripted(MONEY, SEAT, NONSENSE))
    before = run.output.read_bytes()
    with pytest.raises(InputError, match=rf"other settings \({named}\)"):
        run(scripted(), _with(run.config, **change))
    assert run.output.read_bytes() == before


@pytest.mark.parametrize("changed", ["gold_entities", "timings"])
def test_a_run_made_otherwise_is_refused(run, scripted, changed):
    run(scripted(MONEY, SEAT, NONSENSE))
    config = replace(run.config, **{changed: not getattr(run.config, changed)})
    with pytest.raises(InputError, match=rf"other settings \({changed}\)"):
        run(scripted(), config)


def test_a_run_is_not_gone_on_with_while_it_goes_on(run, scripted):
    def go_on(row: Row) -> None:
        with pytest.raises(InputError, match="another process is writing to"):
            run(scripted())

    assert len(run(scripted(MONEY, SEAT, NONSENSE), report=go_on)) == 3


def test_what_decides_nothing_may_change(run, scripted):
    rows = run(scripted(MONEY, SEAT, NONSENSE))
    assert (
        run(
            scripted(),
            replace(run.config, recorded=run.config.recorded | Recorded({}, {"where": "b"})),
        )
        == rows
    )


@pytest.mark.parametrize("manifest", [None, "nonsense", "[]", "{}", '{"schema_version": 0}'])
def test_a_file_that_is_no_run_is_left_alone(run, scripted, manifest, tmp_path):
    run.output.write_text("precious\n", encoding="utf-8")
    if manifest is not None:
        (tmp_path / "run.manifest.json").write_text(manifest, encoding="utf-8")
    with pytest.raises(InputError, match="is not a resumable run"):
        run(scripted())
    assert run.output.read_text("utf-8") == "precious\n"


def test_the_manifest_says_what_made_the_run(run, scripted, tmp_path):
    run(scripted(MONEY, SEAT, NONSENSE))
    manifest = json.loads((tmp_path / "run.manifest.json").read_text("utf-8"))
    assert manifest["schema_version"] == 1
    assert (manifest["model"], manifest["where"], manifest["n"]) == ("scripted", "a", 5)
    assert (manifest["gold_entities"], manifest["timings"]) == (False, True)
    assert manifest["question_count"] == 3
    assert manifest["kbqa"][0].isdigit()
    assert manifest["packages"]["pyoxigraph"][0].isdigit()


def test_gold_entities_are_used_only_on_request(tmp_path, graph, scripted):
    topics = [{"mid": "m.03_r3", "name": "Jamaica"}]
    run = Run(tmp_path, graph, [{**ROWS[0], "question": "?", "topic_entities": topics}])
    [linked] = run(scripted(ATLANTIS))
    assert linked.answers == ()
    run.output.unlink()
    [gold] = run(scripted(ATLANTIS), replace(run.config, gold_entities=True))
    assert [answer.name for answer in gold.answers] == ["Kingston"]


def test_candidates_written_before_are_not_written_again(run, scripted):
    beams = {"a": [Candidate(MONEY[0][0], -1.0, 9)], "c": []}
    model = scripted(SEAT)
    rows = run(model, beams=beams)
    assert model.questions == ["seat?"]
    assert [len(row.trace["beams"]) for row in rows] == [1, 1, 0]


@pytest.mark.parametrize(("deadline_s", "errors"), [(5.0, 0), (0.1, 3)])
def test_a_question_counts_its_share_of_a_batch_towards_its_deadline(
    run, scripted, deadline_s: float, errors: int
) -> None:
    model = scripted(MONEY, SEAT, NONSENSE)
    generate = model.generate

    def slowly(*arguments: object, **options: object) -> object:
        time.sleep(0.6)
        return generate(*arguments, **options)

    model.generate = slowly
    rows = run(model, replace(run.config, deadline_s=deadline_s), batch_size=3)
    failed = [row for row in rows if row.error is not None]
    assert len(failed) == errors
    assert all("no answer within" in (row.error or "") for row in failed)
    shares = [(row.seconds or {})["write"] for row in rows if row not in failed]
    assert shares == pytest.approx([0.2] * len(shares), abs=0.1)


def test_scores_are_averaged_by_tier(run, scripted):
    means = score_tiers(run(scripted(MONEY, SEAT, NONSENSE)))
    assert list(means) == ["all", "independent", "annotated", "independent + annotated"]
    assert {tier: (metrics["f1"].mean, metrics["f1"].n) for tier, metrics in means.items()} == {
        "all": (0.5, 2),
        "annotated": (0.0, 1),
        "independent": (1.0, 1),
        "independent + annotated": (0.5, 2),
    }


def test_a_set_without_tiers_has_one_line(tmp_path, graph, scripted):
    run = Run(tmp_path, graph, [{"id": "a", "question": "money?", "answers": MONEY_IS}])
    assert list(score_tiers(run(scripted(MONEY)))) == ["all"]


def test_a_set_without_gold_answers_has_no_scores(tmp_path, graph, scripted):
    run = Run(tmp_path, graph, ROWS[2:])
    assert score_tiers(run(scripted(MONEY))) == {}


def test_beams_are_read(tmp_path):
    path = tmp_path / "beams.jsonl"
    crp = {"routerkgqa": "Main Path:", "logprob": -1.5, "tokens": 3}
    path.write_text(json.dumps({"id": 7, "crps": [crp]}) + "\n", encoding="utf-8")
    assert read_beams(path) == {"7": [Candidate("Main Path:", -1.5, 3)]}


def test_beams_in_our_own_form_are_read(tmp_path):
    path = tmp_path / "beams.jsonl"
    crp = {"crp": "Kenya -> a.b", "routerkgqa": None, "logprob": -1.5, "tokens": 3}
    path.write_text(json.dumps({"id": 7, "crps": [crp]}) + "\n", encoding="utf-8")
    assert read_beams(path) == {"7": [Candidate("Kenya -> a.b", -1.5, 3)]}


@pytest.mark.parametrize(
    "row",
    [
        {"id": 1},
        {"crps": []},
        {"id": 1, "crps": ["Main Path:"]},
        {"id": 1, "crps": [{"routerkgqa": "Main Path:", "logprob": "low", "tokens": 3}]},
        {"id": 1, "crps": [{"routerkgqa": None, "logprob": -1, "tokens": 3}]},
    ],
)
def test_what_are_no_beams_is_told_with_its_line(tmp_path, row):
    path = tmp_path / "beams.jsonl"
    path.write_text("\n" + json.dumps(row) + "\n", encoding="utf-8")
    with pytest.raises(InputError, match="line 2: not a row of beams"):
        read_beams(path)


def test_an_output_that_cannot_be_written_is_told(run, scripted, tmp_path):
    run.output = tmp_path / "none" / "run.jsonl"
    with pytest.raises(InputError, match="cannot be written"):
        run(scripted())


def test_the_order_of_rows_is_that_of_the_questions(run, scripted):
    run(scripted(ModelError("x"), SEAT, NONSENSE), batch_size=1)
    assert [row.id for row in run(scripted(MONEY))] == ["a", "b", "c"]


def test_a_method_without_paths_has_rows_with_its_steps_and_no_time_for_writing(
    tmp_path, graph, scripted_chat
):
    run = Run(tmp_path, graph, ROWS[:1])
    with Engine(graph, chat=scripted_chat("Jamaican dollar"), method="io") as engine:
        [row] = evaluate(engine, read_questions(run.file), run.output, run.config)
    assert [row] == run.written()
    assert (row.stage, row.origin, row.gold_names) == ("direct", "named", (("Jamaican dollar",),))
    assert list(row.seconds or {}) == ["link", "answer", "ground"]
    assert (row.trace["decisions"], row.trace["queries"]) == (1, 0)
    assert row.scores is not None
    assert row.scores.f1 == 1.0


def test_a_question_file_is_known_by_its_content(tmp_path: Path) -> None:
    first, moved = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    for path in (first, moved):
        path.write_text("{}")
    a, b = (record_questions(path, None, 42) for path in (first, moved))
    assert a.settings == b.settings
    assert (a.notes, b.notes) == ({"questions": str(first)}, {"questions": str(moved)})
    moved.write_text("{} ")
    assert record_questions(moved, None, 42).settings != a.settings


def test_a_seed_decides_only_where_a_sample_is_drawn(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.touch()
    assert record_questions(path, None, 1) == record_questions(path, None, 2)
    assert record_questions(path, 5, 1) != record_questions(path, 5, 2)


def test_a_store_is_known_by_what_it_was_loaded_from(graph: Graph, small_store: Path) -> None:
    recorded = record_graph(graph, 5.0)
    assert recorded.settings["endpoint"] is None
    store = recorded.settings["store"]
    assert isinstance(store, dict)
    assert set(store) == {"versions", "rules_sha256", "languages", "dumps_sha256"}
    assert [len(digest) for digest in store["dumps_sha256"]] == [64]
    assert recorded.notes["graph"] == f"store {small_store}"
    json.dumps(recorded.notes)


def test_an_endpoint_is_known_by_its_url() -> None:
    recorded = record_graph(SparqlEndpoint("http://a/sparql"), 5.0)
    assert recorded.settings == {
        "store": None,
        "endpoint": "endpoint http://a/sparql",
        "timeout_s": 5.0,
    }


def test_candidates_are_told_with_what_made_them(tmp_path: Path) -> None:
    path = tmp_path / "beams.jsonl"
    path.write_text("{}\n")
    assert record_beams(path).notes == {"beams": str(path), "beams_manifest": None}
    (tmp_path / "beams.manifest.json").write_text('{"model": "a"}')
    assert record_beams(path).notes["beams_manifest"] == {"model": "a"}
    assert record_beams(None).settings == {"beams_sha256": None}
    (tmp_path / "beams.manifest.json").write_text("{")
    with pytest.raises(InputError, match="cannot be read"):
        record_beams(path)


def test_a_call_budget_is_recorded_where_there_is_one(graph: Graph, scripted) -> None:
    with Engine(graph, scripted()) as engine:
        limited = record_method(engine.method, None, 5).settings
        free = record_method(engine.method, None).settings
        other = record_method(engine.method, None, unsure_below=0.5).settings
    assert limited == {**free, "call_budget": 5}
    assert other == {**free, "unsure_below": 0.5}


def test_the_general_model_is_recorded_where_it_decides(
    graph: Graph, scripted_chat: Callable[[], ChatModel]
) -> None:
    for chooser, named in (("llm", "scripted chat"), ("random", None)):
        with Engine(graph, chat=scripted_chat(), method="bpc", chooser=chooser) as engine:
            recorded = record_method(engine.method, None, None, "scripted chat").settings["method"]
        assert isinstance(recorded, dict)
        assert recorded.get("general_model") == named


def test_a_model_that_is_not_loaded_decides_nothing(tmp_path: Path) -> None:
    choice = ModelChoice(None, tmp_path, 5, "schema")
    recorded = record_model(choice, "model + adapter 0a1b") | record_beams(None)
    assert recorded.settings == {
        "model": "model + adapter 0a1b",
        "n": 5,
        "decoding": "schema",
        "beams_sha256": None,
    }
    assert recorded.notes["adapter"] == str(tmp_path)
    assert record_model(choice, None).settings == {"model": None, "n": None, "decoding": None}


PREDICTED = [
    make_row("a", ["m.1", "m.2", "m.1"]),
    make_row("b", ["m.1", "m.2"], count=36),
    make_row("c", boolean=False),
    make_row("d"),
    make_failed_row("e"),
]
VALUES = {"a": ["m.1", "m.2"], "b": ["36"], "c": ["false"], "d": []}
EXPECTED = {
    "webqsp": [{"QuestionId": id_, "Answers": values} for id_, values in VALUES.items()],
    "cwq": [
        {"ID": "a", "answer": "name of m.1"},
        {"ID": "b", "answer": "36"},
        {"ID": "c", "answer": "false"},
        {"ID": "d", "answer": ""},
        {"ID": "e", "answer": ""},
    ],
    "grailqa": {
        id_: {"logical_form": "", "answer": values} for id_, values in {**VALUES, "e": []}.items()
    },
}


@pytest.mark.parametrize("form", EXPECTED)
def test_answers_are_written_as_the_official_scripts_read_them(form: str, tmp_path: Path) -> None:
    run = write_run(tmp_path, PREDICTED)
    done = CliRunner().invoke(main, ["report", str(run), "--predictions", form])
    assert (done.exit_code, done.stderr) == (0, "")
    assert json.loads(done.stdout) == EXPECTED[form]


def test_names_are_in_lower_case_for_cwq(tmp_path: Path) -> None:
    row = make_row("a", ["m.1"])
    row["answers"][0]["name"] = " Genève "
    run = write_run(tmp_path, [row])
    done = CliRunner().invoke(main, ["report", str(run), "--predictions", "cwq"])
    assert json.loads(done.stdout) == [{"ID": "a", "answer": "genève"}]


def _row(f1: float | None, general_calls: int | None) -> Row:
    if general_calls is None:
        return Row.model_validate(make_failed_row("a"))
    scores = None if f1 is None else {**dict.fromkeys(METRICS, 0.0), "f1": f1, "hit": float(f1 > 0)}
    usage = {"general": {"calls": general_calls}}
    return Row.model_validate(make_row("a", scores=scores, usage=usage))


def test_nothing_is_known_before_the_first_row() -> None:
    progress = EvaluationProgress(3)
    assert progress.left == 3
    assert progress.figures()["F1"] == "0.000"


def test_rows_are_added_up() -> None:
    progress = EvaluationProgress(6)
    for row in (_row(0.5, 2), _row(1.0, 0), _row(None, 0), _row(0.0, None)):
        progress.add(row)
    assert progress.left == 3
    assert progress.figures() == {
        "n": "3",
        "F1": "0.500",
        "hit": "0.667",
        "errors": "1",
        "general calls": "0.50",
    }
