"""What a run would take is estimated without asking the general model."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kbqa.engine.chat.cache import StandIn
from kbqa.engine.chat.model import Message, Price
from kbqa.engine.cli import main
from kbqa.engine.engine import Engine
from kbqa.engine.evaluation.evaluate import Estimate, Taken, estimate_run
from kbqa.engine.questions.question_sets import Question
from kbqa.kb.graph import Graph
from kbqa.sparql.errors import ModelError

ASKED = [
    Question(str(at), f"which city is the capital of Jamaica {'really ' * at}?", (), ())
    for at in range(8)
]
TAKEN = Taken(3, 2, 400, 1024, 0.25, 0.5)


def show(questions: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["eval", "--questions", str(questions), "--show", *arguments])


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    path = tmp_path / "questions.jsonl"
    rows = [{"id": each.id, "question": each.text, "answers": []} for each in ASKED]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_token_is_four_letters_and_a_reply_as_long_as_it_may_be() -> None:
    model = StandIn("smol", Price(1.0, 10.0))
    usage = model.complete([Message("user", "x" * 9)], max_tokens=100).usage
    assert (usage.calls, usage.input_tokens, usage.output_tokens) == (1, 3, 100)
    assert usage.cost_usd == pytest.approx(1.003e-3)
    assert StandIn("smol").complete([Message("user", "x")]).usage.cost_usd is None


@pytest.mark.parametrize("method", ["cot", "bpc"])
def test_nothing_is_sent(server, small_store: Path, questions: Path, method: str) -> None:
    arguments = ("--method", method, "--llm", server.url, "--llm-price", "1/10", "--json")
    result = show(questions, "--store", str(small_store), *arguments)
    assert result.exit_code == 0, result.output
    assert server.asked == []
    shown = json.loads(result.stdout)
    assert (shown["questions"], shown["sampled"], shown["failed"]) == (8, 5, [])
    taken = shown["a_question"]
    assert taken["calls"]["mean"] >= 1
    assert taken["input_tokens"]["least"] < taken["input_tokens"]["most"]
    assert taken["cost_usd"]["mean"] > 0


def test_a_run_without_a_general_model_takes_decisions_alone(graph: Graph, scripted) -> None:
    with Engine(graph, scripted(*[[]] * 2), call_budget=3) as engine:
        estimate = estimate_run(engine, ASKED[:2], 100)
    assert [(each.decisions, each.calls) for each in estimate.taken] == [(1, 0)] * 2
    first, *_ = estimate.describe()
    assert first == "Estimated from 2 of 100 questions. There is no general model to ask."


def test_a_question_that_fails_is_left_out_and_told(graph: Graph, scripted) -> None:
    with Engine(graph, scripted(ModelError("out of memory"), [])) as engine:
        estimate = estimate_run(engine, ASKED[:2], 2)
    assert (len(estimate.taken), estimate.failed) == (1, ("out of memory",))
    assert "1 more failed; the first: out of memory" in estimate.describe()


def test_the_run_is_the_sample_many_times() -> None:
    most = replace(TAKEN, calls=4)
    lines = Estimate(100, (TAKEN, most), (), "smol").describe()
    assert lines[0] == "Estimated from 2 of 100 questions. Nothing was sent to smol."
    [calls] = [line.split("  ") for line in lines if line.startswith("calls")]
    assert [each.strip() for each in calls if each] == ["calls", "3 (2 to 4)", "300 (200 to 400)"]


def test_an_unknown_price_is_told() -> None:
    lines = Estimate(100, (replace(TAKEN, cost_usd=None),), (), "smol").describe()
    assert any("the price is not known: give --llm-price" in line for line in lines)


def test_a_run_needs_an_output_and_an_estimate_none(questions: Path) -> None:
    result = CliRunner().invoke(main, ["eval", "--questions", str(questions)])
    assert result.exit_code == 2
    assert "Missing option '--output'." in result.output
