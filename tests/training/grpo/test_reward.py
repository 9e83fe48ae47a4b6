"""Rewards of paths on the small graph."""

from dataclasses import replace

import pytest

from kbqa.engine.questions.question_sets import Question
from kbqa.engine.writing.generate import Candidate
from kbqa.sparql.crp import Entity
from kbqa.training.grpo.questions import NOTHING

JAMAICA = Question("jamaica", "what?", (Entity("Jamaica", "m.03_r3"),), ())
BIEBER = Question("bieber", "who?", (Entity("Justin Bieber", "m.06w2sn5"),), ())
CAPITAL = replace(JAMAICA, golds=(("m.03yl7",),))
SIBLINGS = replace(BIEBER, golds=(("m.0gxnnwq",),))
SIBLING = (
    "Main Path:\n Justin Bieber -[people , person , sibling s]-> ?y\n"
    " ?y -[people , sibling relationship , sibling]-> ?x"
)
GENDER = "\nEntity Restrictions:\n ?x -[people , person , gender]-> "
CASES = {
    "right": (CAPITAL, "Main Path:\n Jamaica -[location , country , capital]-> ?x", 1.0, 0.99),
    "wrong": (CAPITAL, "Main Path:\n Jamaica -[location , country , currency used]-> ?x", 0, 0),
    "a detour is longer": (
        CAPITAL,
        "Main Path:\n Jamaica -[location , country , currency used]-> ?c\n"
        " ?c -[finance , currency , countries used]-> ?y\n ?y -[location , country , capital]-> ?x",
        1.0,
        0.97,
    ),
    "one of two is wrong": (SIBLINGS, SIBLING, 2 / 3, 2 / 3 * 0.98),
    "a constraint chooses": (SIBLINGS, f"{SIBLING}{GENDER}Male", 1.0, 0.97),
    "a constraint that nothing satisfies is dropped": (
        SIBLINGS,
        f"{SIBLING}{GENDER}Jamaica",
        2 / 3,
        2 / 3 * 0.87,
    ),
    "no path": (CAPITAL, "the capital", 0.0, 0.0),
    "a count": (
        replace(BIEBER, count=2),
        f"{SIBLING}\nFurther Restrictions:\n  count",
        1.0,
        0.98,
    ),
    "a list is no count": (replace(BIEBER, count=2), SIBLING, 0.0, 0.0),
    "yes": (
        replace(JAMAICA, boolean=True),
        "Main Path:\n Jamaica -[location , country , capital]-> ?x\n"
        "Further Restrictions:\n  ?x = Kingston\n  ask",
        1.0,
        0.98,
    ),
    "yes is not no": (
        replace(JAMAICA, boolean=False),
        "Main Path:\n Jamaica -[location , country , capital]-> ?x\n"
        "Further Restrictions:\n  ?x = Kingston\n  ask",
        0.0,
        0.0,
    ),
}


@pytest.mark.parametrize(("question", "text", "f1", "reward"), CASES.values(), ids=CASES.keys())
def test_a_path_earns_its_f1_less_a_little(
    question: Question, text: str, f1: float, reward: float, small_graph
) -> None:
    gold = (question.golds, question.count, question.boolean)
    question = replace(question, id=f"{question.id} {gold}")  # a text of a question is run once
    [found] = small_graph.reward.reward(question, [Candidate(text, 0.0, 1)])
    assert tuple(found) == pytest.approx((reward, f1))


def test_an_unfinished_path_earns_nothing(small_graph) -> None:
    assert small_graph.reward.reward(CAPITAL, [None]) == [NOTHING]


def test_a_text_is_run_once(small_graph, monkeypatch: pytest.MonkeyPatch) -> None:
    text = CASES["right"][1]
    first = small_graph.reward.reward(CAPITAL, [Candidate(text, 0.0, 1)] * 2)
    monkeypatch.setattr(type(small_graph.graph), "select", None)
    assert small_graph.reward.reward(CAPITAL, [Candidate(text, 0.0, 1)]) == first[:1]
