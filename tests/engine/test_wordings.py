"""A question worded in three ways has one answer, or none."""

import json
from itertools import combinations
from pathlib import Path

import pytest

from kbqa.engine.answer import Answer
from kbqa.engine.engine import Engine
from kbqa.engine.writing.openvino import OpenVinoGenerator
from kbqa.engine.writing.steering import Decoding
from kbqa.kb.graph import Graph

WORDINGS = Path(__file__).with_name("everyday.wordings.jsonl")


def said(answer: Answer) -> object:
    """Return what an answer says; None if it is unsure, or there is none."""
    if answer.status != "answered":
        return None
    terms = frozenset(each.term for each in answer.answers)
    return answer.boolean, answer.count, terms if answer.count is None else None


@pytest.mark.slow
def test_another_wording_is_no_other_question(demo: Graph, shared: Path) -> None:
    texts = (shared / "data" / "qa" / "everyday.dev.jsonl").read_text("utf-8")
    rows = map(json.loads, texts.splitlines())
    asked = {row["id"]: row["question"] for row in rows}
    generator = OpenVinoGenerator.load(decoding=Decoding("graph", demo))
    pairs, same = 0, 0
    with Engine(demo, generator) as engine:
        for line in WORDINGS.read_text("utf-8").splitlines():
            row = json.loads(line)
            wordings = [asked[row["id"]], *row["wordings"]]
            answers = [(each, said(engine.ask(each))) for each in wordings]
            for (one, first), (other, second) in combinations(answers, 2):
                pairs += 1
                same += first is None or second is None or first == second
                if first is not None and second is not None and first != second:
                    print(f"differ: {one!r} and {other!r}")
    print(f"the same answer or none in {same / pairs:.3f} of {pairs} pairs")
    assert same / pairs >= 0.9
