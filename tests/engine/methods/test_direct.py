"""The floors without a graph, `io` and `cot`, and what other methods fall back on."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbqa.engine.answer import Answer
from kbqa.engine.asked import Asked, Budget, ChooserName
from kbqa.engine.deciding.session import Session, Walkers
from kbqa.engine.engine import Engine
from kbqa.engine.graph_walk import Walk
from kbqa.engine.methods import Resources, make_method
from kbqa.engine.methods.direct import answer_directly
from kbqa.kb.graph import Graph
from kbqa.kb.open import open_graph
from kbqa.sparql.crp import Entity, Hop
from kbqa.sparql.errors import InputError

QUESTION = "what is the capital  of Jamaica?"


@pytest.fixture(scope="module")
def small(small_store: Path) -> Iterator[Graph]:
    graph = open_graph(small_store)
    yield graph
    graph.close()


def ask(graph: Graph, chat, method: str, question: str = QUESTION) -> Answer:
    with Engine(graph, chat=chat, method=method) as engine:
        return engine.ask(question)


@pytest.mark.parametrize(
    ("method", "reply", "found"),
    [
        ("io", "Kingston", [("Kingston", "named")]),
        ("io", "1. kingston\n2. Port Royal", [("Kingston", "named"), ("Port Royal", "text")]),
        ("io", "Jamaica", [("Jamaica", "named")]),  # a topic of the question, but not found there
        ("io", 'J. "Biebs" Bieber', [("Justin Bieber", "named")]),
        ("io", "Answer: Kingston, Oddville", [("Kingston", "named"), ("Oddville", "named")]),
        ("cot", "It is near the sea.\nAnswer:\n- **Kingston**", [("Kingston", "named")]),
        (
            "cot",
            "It is near the sea.\n**Answer:**\nKingston\nPort Royal\n\nAsk more!",
            [("Kingston", "named"), ("Port Royal", "text")],
        ),
        ("cot", "Answer: Paris? No.\n\nFinal answer: Kingston", [("Kingston", "named")]),
        ("cot", "Hm. So the answer is Kingston.", [("Kingston", "named")]),
        ("cot", "Kingston", [("Kingston", "named")]),
    ],
)
def test_what_the_model_names_is_looked_up_and_never_found_in_the_graph(
    small: Graph, scripted_chat, method: str, reply: str, found: list[tuple[str, str]]
) -> None:
    chat = scripted_chat(reply)
    answer = ask(small, chat, method)
    assert [(each.name, each.origin) for each in answer.answers] == found
    assert answer.stage == "direct"
    assert answer.evidence == ()
    assert answer.usage.calls == 1
    assert chat.prompts == ["Question: what is the capital of Jamaica?"]
    trace = answer.trace.to_dict()
    assert [trace["stop"], trace["decisions"], trace["queries"]] == ["direct", 1, 0]
    assert [step["kind"] for step in trace["steps"]] == ["answer"]
    [line] = answer.trace.describe()
    assert line == "1 decision; the language model was asked without the graph."


@pytest.mark.parametrize("method", ["io", "cot"])
@pytest.mark.parametrize(
    "reply",
    [
        "I do not know.",
        "Answer:",
        "I am sorry, but I cannot help with that, since I do not know which of them you mean: ",
        "x " * 5000,
        '{"answer": ["Kingst',
        "``` \n ```",
        "* * *",
    ],
)
def test_a_reply_that_names_nothing_is_no_failure(
    small: Graph, scripted_chat, method: str, reply: str
) -> None:
    answer = ask(small, scripted_chat(reply), method)
    assert all(each.origin == "text" for each in answer.answers)
    if not answer.answers:
        assert answer.problem is not None
        assert "named no answer" in answer.problem
        assert answer.trace.to_dict()["unread"] == 1
    json.dumps(answer.to_dict())


def test_a_comma_inside_a_name_of_the_graph_does_not_break_it(demo: Graph, scripted_chat) -> None:
    rows = demo.select('SELECT ?n { ?x ns:type.object.name ?n FILTER CONTAINS(?n, ", ") } LIMIT 1')
    if not rows.rows:
        pytest.skip("no name in the demo graph has a comma")
    [[name]] = rows.rows
    assert [each.name for each in ask(demo, scripted_chat(name.text), "io").answers] == [name.text]


@pytest.mark.parametrize("method", ["io", "cot"])
def test_without_a_general_model_there_is_no_answer_to_ask_for(
    small: Graph, scripted_chat, method: str
) -> None:
    with pytest.raises(InputError, match=f"{method} needs a general model to decide: add --llm"):
        Engine(small, method=method)
    choosers: list[ChooserName] = ["embedder", "random"]
    for chooser in choosers:
        resources = Resources(small, open_chat=scripted_chat, chooser=chooser)
        with pytest.raises(InputError, match=f"to decide: leave out --chooser {chooser}"):
            make_method(resources, method, {})
        resources.close()
    with pytest.raises(InputError, match="max_tokens is 0"):
        Engine(small, chat=scripted_chat(), method=method, settings={"max_tokens": "0"})


def test_manifests_say_how_a_question_is_asked(small: Graph, scripted_chat) -> None:
    with Engine(small, chat=scripted_chat(), method="cot") as engine:
        settings = engine.method.settings()
    assert settings == {"max_tokens": 512, "chooser": "llm", "embedder": None, "seed": 42}


def test_other_methods_fall_back_with_the_call_that_is_kept(small: Graph, scripted_chat) -> None:
    chat = scripted_chat("Answer: Kingston")
    with Engine(small, chat=chat, method="io") as engine:
        asked = engine.prepare(QUESTION, [Entity("Jamaica", "m.03_r3")])
        resources = engine.resources
        walkers = Walkers(resources.graph, resources.names, "llm", resources.timeout_s)
        budget = Budget(1)
        session = Session(
            walkers, Asked(asked.question, asked.given, chat=asked.chat, budget=budget)
        )
        said = answer_directly(session, reason=True)
        walk = Walk(Entity("Jamaica", "m.03_r3")).then(Hop("location.country.capital"), "m.03yl7")
        answer = session.finish([walk], "depth", said, stage="fallback")
        assert answer_directly(session, reason=True) is None  # the call is spent
    assert said == ("Kingston",)
    # A walk leads there, but the model was not shown it.
    assert [(each.term, each.origin) for each in answer.answers] == [("m.03yl7", "named")]
    assert [answer.stage, answer.evidence] == ["fallback", ()]
    assert [step.kind for step in session.steps] == ["fallback"]


def test_only_a_language_model_is_asked_to_answer(small: Graph) -> None:
    resources = Resources(small)
    walkers = Walkers(small, resources.names, "random", resources.timeout_s)
    session = Session(walkers, Asked(QUESTION))
    assert answer_directly(session, reason=False) is None
    assert session.asked.budget.spent == 0
    resources.close()
