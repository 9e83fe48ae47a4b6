"""A run takes no more calls of the general model than its method may, whatever the concurrency."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from kbqa.engine.chat.model import Message
from kbqa.engine.engine import Engine
from kbqa.engine.evaluation.evaluate import EvaluationConfig, evaluate
from kbqa.engine.evaluation.rows import Row
from kbqa.engine.questions.question_sets import read_questions
from kbqa.kb.graph import Graph

COUNTRIES = ("Kenya", "Peru", "Japan", "France", "Chile", "Ghana")
CALLS_A_QUESTION = 1.5


@pytest.fixture
def run(demo: Graph, scripted_chat, tmp_path: Path):
    """Repair every question by the general model, which always takes the first path."""
    file = tmp_path / "questions.jsonl"
    rows = [{"id": each, "question": f"currency of {each}?", "answers": []} for each in COUNTRIES]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")

    def reply(messages: Sequence[Message]) -> str:
        return "1"

    def run(name: str, concurrency: int = 1) -> list[Row]:
        settings = {"write": False, "general_calls": CALLS_A_QUESTION}
        chat = scripted_chat(reply_to=reply)
        with Engine(demo, chat=chat, settings=settings) as engine:
            config = EvaluationConfig(timings=False)
            output = tmp_path / name
            return evaluate(engine, read_questions(file), output, config, concurrency=concurrency)

    return run


def _calls(rows: Sequence[Row]) -> list[int]:
    return [0 if row.usage is None else row.usage.general.calls for row in rows]


def test_the_calls_of_a_run_are_spent_in_the_order_of_its_questions(run, tmp_path: Path) -> None:
    rows = run("one.jsonl")
    calls = _calls(rows)
    assert sum(calls) == CALLS_A_QUESTION * len(COUNTRIES)
    assert calls[0] > 1
    assert calls == sorted(calls, reverse=True)
    assert run("three.jsonl", concurrency=3) == rows


def test_a_resumed_run_spends_what_is_left(run, tmp_path: Path) -> None:
    rows = run("whole.jsonl")
    run("cut.jsonl")
    cut = tmp_path / "cut.jsonl"
    lines = cut.read_text("utf-8").splitlines(keepends=True)
    cut.write_text("".join(lines[:2]), encoding="utf-8")
    assert run("cut.jsonl") == rows
