"""Each question of RoG's sets is answered over the graph in its row."""

import importlib.util
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polars
import pytest
from click.testing import CliRunner, Result

from kbqa.engine.cli import main
from kbqa.engine.evaluation.evaluate import EvaluationConfig, evaluate
from kbqa.engine.evaluation.own_graphs import OwnGraphs
from kbqa.engine.evaluation.rows import Row
from kbqa.engine.methods import Resources
from kbqa.engine.questions.question_sets import read_questions
from kbqa.engine.writing.generate import Generator, ModelChoice
from kbqa.kb.graph import Graph
from kbqa.sparql.crp import Entity
from kbqa.sparql.errors import InputError

SEAT = "what is the capital of kenya?"
HELD = "government.government_position_held"
OFFICES = [
    ["Kenya", "government.governmental_jurisdiction.governing_officials", "m.0x1"],
    ["m.0x1", f"{HELD}.office_holder", "Uhuru Kenyatta"],
    ["m.0x1", f"{HELD}.basic_title", "President"],
    ["m.0x1", f"{HELD}.from", "2013-04-09"],
    ["Kenya", "government.governmental_jurisdiction.governing_officials", "m.0x2"],
    ["m.0x2", f"{HELD}.office_holder", "Raila Odinga"],
    ["m.0x2", f"{HELD}.basic_title", "Prime minister"],
    ["m.0x2", f"{HELD}.from", "2008-04-17"],
]


def row(id_: str, question: str, gold: str, graph: Sequence[Sequence[str]]) -> dict[str, Any]:
    return {
        "id": id_,
        "question": question,
        "answer": [gold],
        "q_entity": ["Kenya"],
        "a_entity": [gold],
        "graph": graph,
        "choices": [],
    }


ROWS = [
    row("real", SEAT, "Nairobi", [["Kenya", "location.country.capital", "Nairobi"]]),
    row("other", SEAT, "Mombasa", [["Kenya", "location.country.capital", "Mombasa"]]),
    row("bare", SEAT, "Nairobi", []),
]


def write(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    if path.suffix == ".parquet":
        polars.DataFrame(rows).write_parquet(path)
    else:
        path.write_text("".join(json.dumps(each) + "\n" for each in rows), encoding="utf-8")
    return path


def run(questions: Path, *arguments: str) -> Result:
    command = ["eval", "--questions", str(questions), "--own-graphs", *arguments]
    return CliRunner().invoke(main, command)


def saved(output: Path) -> dict[str, dict[str, Any]]:
    return {each["id"]: each for each in map(json.loads, output.read_text().splitlines())}


def names(found: dict[str, Any]) -> list[str]:
    return [each["name"] for each in found["answers"]]


@pytest.fixture
def answered(tmp_path: Path) -> Callable[..., list[Row]]:
    """Answers rows of RoG by a small model that writes what it is given."""

    def answered(
        rows: Sequence[dict[str, Any]], model: Generator, method: str = "routerkgqa"
    ) -> list[Row]:
        file = write(tmp_path / "rog.jsonl", rows)
        questions = read_questions(file)
        make = lambda graph: Resources(graph, lambda: model)  # noqa: E731
        own = OwnGraphs(file, questions, make, method, {})
        config = EvaluationConfig(gold_entities=True)
        return evaluate(own, questions, tmp_path / "run.jsonl", config)

    return answered


@pytest.mark.parametrize(("method", "ending"), [("bpc", "jsonl"), ("path-pooling", "parquet")])
def test_a_question_is_answered_over_the_graph_in_its_row_alone(
    tmp_path: Path, method: str, ending: str
) -> None:
    questions, output = write(tmp_path / f"rog.{ending}", ROWS), tmp_path / "run.jsonl"
    common = ("--output", str(output), "--method", method, "--no-timings")
    result = run(questions, *common, "--concurrency", "2")
    assert result.exit_code == 0, result.output
    rows = saved(output)
    assert {id_: names(each) for id_, each in rows.items()} == {
        "real": ["Nairobi"],
        "other": ["Mombasa"],
        "bare": [],
    }
    assert [rows[id_]["scores"]["f1"] for id_ in ("real", "other", "bare")] == [1, 1, 0]
    assert rows["bare"]["error"] == "GraphError: the question bare has no graph"
    manifest = json.loads(output.with_suffix(".manifest.json").read_text())
    assert (manifest["store"], manifest["endpoint"], manifest["own_graphs"]) == (None, None, True)

    output.write_text(json.dumps(rows["real"]) + "\n")
    assert run(questions, *common, "--resume", "--gold-entities").exit_code == 2  # other settings
    assert run(questions, *common, "--resume").exit_code == 0
    assert saved(output) == rows


def test_conditions_mediators_and_dates_of_such_a_graph_are_understood(scripted, answered) -> None:
    path = (
        "Main Path:\n Kenya -[government , governmental jurisdiction , governing officials]-> ?y\n"
        " ?y -[government , government position held , office holder]-> ?x\n"
        "Entity Restrictions:\n"
        " ?y -[government , government position held , basic title]-> President\n"
        "Numeric Restrictions:\n"
        " ?y -[government , government position held , from]-> ?num\n"
        '  FILTER (?num >= "2010")\n'
    )
    held = row("held", "who is the president of kenya since 2010?", "Uhuru Kenyatta", OFFICES)
    born = row("born", "since when?", "2013-04-09", OFFICES)
    of_born = path.split("office holder")[0] + "from]-> ?x\nEntity Restrictions:\n ?y -[government"
    of_born += " , government position held , basic title]-> President\n"
    rows = answered([held, born], scripted([(path, -0.5)], [(of_born, -0.5)]))
    assert [each.error for each in rows] == [None, None]
    assert [[answer.name for answer in each.answers] for each in rows] == [
        ["Uhuru Kenyatta"],
        ["2013-04-09"],
    ]
    assert [each.scores and each.scores.f1 for each in rows] == [1, 1]


def test_what_only_connects_is_no_answer_of_a_search(tmp_path: Path) -> None:
    asked = row("held", "who are the governing officials of kenya?", "Raila Odinga", OFFICES)
    questions, output = write(tmp_path / "rog.jsonl", [asked]), tmp_path / "run.jsonl"
    result = run(questions, "--output", str(output), "--method", "subgraph", "--gold-entities")
    assert result.exit_code == 0, result.output
    answers = saved(output)["held"]["answers"]
    assert answers
    assert not [each for each in answers if each.get("mid", "").startswith("m.0x")]


@pytest.mark.skipif(importlib.util.find_spec("openvino") is None, reason="needs the cpu extra")
def test_the_shipped_writer_follows_the_graph_of_each_question(tmp_path: Path) -> None:
    file = write(tmp_path / "rog.jsonl", [*ROWS[:2], row("held", "who?", "nobody", OFFICES)])
    loaded: list[Generator] = []

    def make(graph: Graph) -> Resources:
        def load() -> Generator:
            loaded.append(ModelChoice(backend="openvino").load(graph))
            return loaded[-1]

        return Resources(graph, load, n=2)

    questions = read_questions(file)
    own = OwnGraphs(file, questions, make, "kbqa", {})
    config = EvaluationConfig(gold_entities=True)
    first, second, third = evaluate(own, questions, tmp_path / "run.jsonl", config)
    assert len(loaded) == 1
    assert [first.answers[0].name, second.answers[0].name] == ["Nairobi", "Mombasa"]
    assert third.error is None
    assert "location.country.capital" not in str(third.trace)


def test_topics_and_gold_have_ids_of_their_own_graph(tmp_path: Path, scripted) -> None:
    given = row("1", SEAT, "Nairobi", ROWS[0]["graph"]) | {"q_entity": ["Kenya", "m.0x1"]}
    file = write(tmp_path / "rog.jsonl", [given])
    questions = read_questions(file)
    own = OwnGraphs(file, questions, lambda graph: Resources(graph, scripted), "routerkgqa", {})
    [(question, open_engine)] = own.each(questions)
    with open_engine() as engine:
        kenya, mediator = question.topics
        assert (kenya.name, mediator) == ("Kenya", Entity(mid="m.0x1"))
        assert kenya.mid is not None
        found = engine.resources.graph.neighbours(kenya.mid, "location.country.capital", "out")
    assert question.golds == (tuple(found),)
    assert question.gold_names == (("Nairobi",),)


def test_the_costs_of_such_a_run_are_estimated(tmp_path: Path) -> None:
    result = run(write(tmp_path / "rog.jsonl", ROWS), "--show", "--method", "bpc", "--json")
    assert result.exit_code == 0, result.output
    shown = json.loads(result.stdout)
    assert (shown["sampled"], shown["failed"]) == (2, ["the question bare has no graph"])


@pytest.mark.parametrize(
    ("graph", "problem"),
    [
        ([], 'has a "graph"'),
        ([["Kenya", "location.country.capital"]], r"not a list of \[head, relation, tail\]"),
        ("Kenya", "not a list"),
        ([["Kenya", "the capital", "Nairobi"]], "not a list"),
    ],
)
def test_a_set_without_usable_graphs_is_told(
    answered: Callable[..., list[Row]], scripted, graph: Any, problem: str
) -> None:
    with pytest.raises(InputError, match=problem):
        answered([row("1", SEAT, "Nairobi", graph)], scripted())


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--endpoint", "http://127.0.0.1:1/"), "choose one: --own-graphs"),
        (("--server", "http://127.0.0.1:1/v1", "--decoding", "schema"), "needs --decoding none"),
    ],
)
def test_what_does_not_go_with_own_graphs_is_refused(
    tmp_path: Path, arguments: tuple[str, ...], problem: str
) -> None:
    file = write(tmp_path / "rog.jsonl", ROWS)
    result = run(file, "--output", str(tmp_path / "run.jsonl"), *arguments)
    assert result.exit_code == 2
    assert problem in result.output
