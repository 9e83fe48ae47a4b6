import json
from pathlib import Path

import pytest
from made_runs import make_failed_row, make_row, write_run

from kbqa.engine.answer import Answer, AnswerEntity
from kbqa.engine.evaluation.runs.recorded_run import flatten_manifest, read_run
from kbqa.engine.evaluation.runs.row_making import answered_row, failed_row
from kbqa.engine.evaluation.runs.rows import READ_VERSIONS, SCHEMA_VERSION, GoldShape, read_row
from kbqa.engine.methods.router.trace import RouterTrace
from kbqa.engine.questions.question_sets import Question
from kbqa.engine.writing.generate import Candidate
from kbqa.sparql.errors import InputError, ModelError
from kbqa.sparql.terms import LiteralTerm


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
    answer = Answer("what?", answers, RouterTrace((), None), seconds={"link": 0.5})
    shape = GoldShape(hops=2, constraints=1, ordered=True)
    rows = [
        answered_row(question, answer, [Candidate("a", -1.0, 7)], shape, timings=timings),
        failed_row(Question("f", "?", (), (frozenset({"m.1"}),)), ModelError("out"), None),
    ]
    assert READ_VERSIONS[-1] == SCHEMA_VERSION
    records = [row.to_dict() for row in rows]
    assert [read_row(json.loads(json.dumps(record)), "") for record in records] == rows
    first, second = read_run(write_run(tmp_path, records)).rows
    assert first.predicted == ("m.1", "480")
    assert first.gold_shape == shape
    assert (first.tokens, first.seconds) == (7, {"link": 0.5} if timings else None)
    assert second.error == "ModelError: out"


def test_rows_of_the_version_before_there_were_methods_are_read(tmp_path: Path) -> None:
    row = make_row("a", ["m.1"], level="entity")
    old = {**row, **row.pop("trace"), "schema_version": 2}
    [read] = read_run(write_run(tmp_path, [old])).rows
    assert (read.level, read.repair_queries) == ("entity", 3)


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
            [json.dumps(make_row("a", schema_version=1))],
            "schema_version 1, and this kbqa reads 2 and 3",
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
