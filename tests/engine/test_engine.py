"""A question in three steps, under a deadline, heard by a watcher."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from kbqa.engine.answer import Answer
from kbqa.engine.asked import Asked, Clock
from kbqa.engine.engine import Engine
from kbqa.engine.methods import Resources
from kbqa.engine.writing.generate import Candidate, Progress
from kbqa.kb.graph import Graph
from kbqa.sparql.errors import DeadlineExceeded, InputError

QUESTION = "what is jamaican money called?"
MONEY = [("Main Path:\n Jamaica -[location , country , currency used]-> ?x", -0.5)]
CAPITAL = [("Main Path:\n Jamaica -[location , country , capital]-> ?x", -0.5)]


def test_many_questions_are_prepared_written_for_and_answered(graph: Graph, scripted) -> None:
    with Engine(graph, scripted(MONEY, CAPITAL)) as engine:
        asked = [engine.prepare(QUESTION), engine.prepare("capital of jamaica?")]
        written = engine.write(asked)
        answers = [engine.answer(each) for each in written]
    assert [answer.answers[0].name for answer in answers] == ["Jamaican dollar", "Kingston"]
    assert all({"link", "write", "execute"} <= answer.seconds.keys() for answer in answers)


def test_questions_are_passed_on_as_they_are_written_for(graph: Graph, scripted) -> None:
    passed_on: dict[int, Asked] = {}
    with Engine(graph, scripted(MONEY, CAPITAL, MONEY, MONEY)) as engine:
        asked = [engine.prepare(QUESTION), engine.prepare("capital of jamaica?")]
        asked.append(engine.prepare("who has left?"))
        asked.append(replace(engine.prepare("who is late?"), clock=Clock(deadline_s=0.0)))
        engine.write_each(asked, passed_on.__setitem__, lambda at: at != 2)
        answers = [engine.answer(passed_on[at]) for at in (0, 1)]
    assert set(passed_on) == {0, 1}
    assert [answer.answers[0].name for answer in answers] == ["Jamaican dollar", "Kingston"]
    assert all("write" in answer.seconds for answer in answers)


def test_stages_are_heard_as_they_begin(graph: Graph, scripted) -> None:
    heard: list[str] = []
    with Engine(graph, scripted(MONEY)) as engine:
        engine.ask(QUESTION, watch=heard.append)
    stages = ["link", "write", "ground", "reach", "execute", "search", "read", "prove"]
    assert list(dict.fromkeys(heard)) == stages


def test_half_a_surrogate_pair_in_a_question_is_replaced(graph: Graph, scripted) -> None:
    generator = scripted([])
    with Engine(graph, generator) as engine:
        answer = engine.ask("\ud83d capital of Jamaica?")
    assert generator.questions == ["? capital of Jamaica?"]
    assert answer.question.encode() == b"? capital of Jamaica?"


def test_a_question_is_linked_once(graph: Graph, scripted, monkeypatch) -> None:
    with Engine(graph, scripted(MONEY)) as engine:
        links: list[str] = []
        link = engine.resources.linker.link
        monkeypatch.setattr(engine.resources.linker, "link", lambda q: links.append(q) or link(q))
        [asked] = engine.write([engine.prepare(QUESTION)])
        engine.answer(asked)
    assert links == [QUESTION]


@pytest.mark.parametrize("question", ["", "  \n", None, 3])
def test_no_question_is_refused(graph: Graph, scripted, question) -> None:
    with (
        Engine(graph, scripted()) as engine,
        pytest.raises(InputError, match=r"is empty|is not text"),
    ):
        engine.ask(question)


def test_a_closed_engine_says_so(graph: Graph, scripted) -> None:
    engine = Engine(graph, scripted())
    engine.close()
    with pytest.raises(InputError, match="the engine is closed"):
        engine.ask(QUESTION)


def test_a_deadline_that_has_passed_ends_the_question(graph: Graph, scripted) -> None:
    with Engine(graph, scripted(MONEY)) as engine:
        asked = engine.prepare(QUESTION, deadline_s=0.2)
        time.sleep(0.25)
        with pytest.raises(DeadlineExceeded, match=r"no answer within 0\.2 s"):
            engine.answer(asked)


ENDLESS = "\n".join(
    [
        "Main Path:",
        " Justin Bieber -[people , person , gender]-> ?n0",
        *(
            f" ?n{n} -[{'people , person , gender' if n % 2 else 'R [people , person , gender]'}]->"
            f" ?n{n + 1}"
            for n in range(59)
        ),
        " ?n59 -[R [people , person , gender]]-> ?x",
        "Entity Restrictions:",
        " ?x -[people , person , sibling s]-> Jamaica",
    ]
)


def test_a_query_ends_at_the_deadline_of_its_question(graph: Graph, scripted) -> None:
    begun = time.monotonic()
    model = scripted([(ENDLESS, -1.0)] * 3)
    with Engine(graph, model, timeout_s=60) as engine, pytest.raises(DeadlineExceeded):
        engine.ask("who?", deadline_s=1.0)
    assert time.monotonic() - begun < 15


def test_waiting_between_the_steps_does_not_count(graph: Graph, scripted) -> None:
    clock = Clock(deadline_s=5.0)
    clock.add("link", 1.0)
    resumed = clock.resumed()
    assert resumed.seconds == {"link": 1.0}
    assert resumed.deadline is not None
    assert resumed.deadline.seconds == 5.0
    assert 3.9 < resumed.deadline.left_s <= 4.0
    assert Clock().resumed().deadline is None


@dataclass
class Fixed:
    """A second method: it knows one answer, and no path."""

    name = "fixed"
    general_calls = None

    def settings(self) -> dict[str, object]:
        return {}

    def write(
        self, asked: Sequence[Asked], progress: Progress | None = None
    ) -> list[list[Candidate]]:
        return [[] for _ in asked]

    def answer(self, asked: Asked) -> Answer:
        return Answer(asked.question, (), _Silent(), problem=f"{asked.question} is too hard")


class _Silent:
    def to_dict(self) -> dict[str, object]:
        return {"walk": []}

    def describe(self) -> list[str]:
        return ["It walked nowhere."]


def test_another_method_goes_through_the_same_seam(graph: Graph) -> None:
    resources = Resources(graph)
    with Engine.over(resources, Fixed()) as engine:
        [asked] = engine.write([engine.prepare(QUESTION)])
        record = engine.answer(asked).to_dict()
    assert (record["problem"], record["trace"]) == (f"{QUESTION} is too hard", {"walk": []})
