"""KnowPath on the small graph: what it finds, what it costs, and what odd replies do to it."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kbqa.engine.answer import Answer
from kbqa.engine.chat.model import Message
from kbqa.engine.embedding.embedder import Embedder
from kbqa.engine.engine import Engine
from kbqa.engine.methods import Resources, make_method
from kbqa.engine.methods import knowpath as knowpath_module
from kbqa.kb.graph import Graph
from kbqa.kb.open import open_graph
from kbqa.sparql.crp import Entity
from kbqa.sparql.errors import InputError

JAMAICA, BIEBER = Entity("Jamaica", "m.03_r3"), Entity("Justin Bieber", "m.06w2sn5")
MONEY = "what  jamaican money {called}?"
SIBLING = "people.sibling_relationship.sibling"
MEMORY = '{"path": ["Jamaica -> currency -> dollar"], "answers": ["Kingston"]}'


@pytest.fixture(scope="module")
def small(small_store: Path) -> Iterator[Graph]:
    graph = open_graph(small_store)
    yield graph
    graph.close()


@pytest.fixture
def loaded_once(embedder: Embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use one embedder for all methods: loading takes seconds."""
    monkeypatch.setattr(Embedder, "load", lambda: embedder)


def numbered(prompt: str) -> list[str]:
    """The options of a prompt."""
    return re.findall(r"^\d+\. (.*)$", prompt, re.MULTILINE)


def kind_of(messages: Sequence[Message]) -> str:
    """Which of KnowPath's prompts this is."""
    prompt = messages[-1].content
    for kind, words in {
        "paths": "from memory. First",
        "relations": '"Relations":',
        "entities": '"Entities":',
        "check": '"Answerable":',
    }.items():
        if words in prompt:
            return kind
    return "fallback"


def walker(*wanted: str, answers: Sequence[str] = (), memory: str = MEMORY) -> Callable[..., str]:
    """Reply to prompts as a model that knows which relations and entities lead to the answers.

    Without `wanted` it takes everything. It can answer once all answers stand in the paths.
    """

    def reply(messages: Sequence[Message]) -> str:
        prompt, kind = messages[-1].content, kind_of(messages)
        assert len(re.findall("^Question: ", prompt, re.MULTILINE)) == 1
        if kind == "paths":
            return memory
        if kind == "check":
            paths = prompt.split("Paths:\n")[1]
            found = bool(answers) and all(each in paths for each in answers)
            return json.dumps({"Answerable": found, "Response": "-", "Answers": list(answers)})
        if kind == "fallback":
            return "Answer:\nJustin Bieber"
        offered = numbered(prompt)
        chosen = [o for o in offered if not wanted or any(each in o for each in wanted)]
        return json.dumps({kind.capitalize(): chosen})

    return reply


def ask(
    graph: Graph,
    chat: Any,
    question: str = MONEY,
    topics: Sequence[Entity] = (JAMAICA,),
    chooser: Any = "llm",
    budget: int | None = None,
    **settings: object,
) -> Answer:
    resources = Resources(graph, open_chat=lambda: chat, chooser=chooser, call_budget=budget)
    with closing(resources):
        method = make_method(resources, "knowpath", settings)
        return Engine.over(resources, method).ask(question, topics)


def found(answer: Answer) -> list[tuple[str, str]]:
    return [(each.name, each.origin) for each in answer.answers]


def kinds(answer: Answer) -> list[str]:
    return [step["kind"] for step in answer.trace.to_dict()["steps"]]


def check_walks(graph: Graph, answer: Answer) -> int:
    """Check that each step of each walk is a triple of the graph; return how many there are."""
    trace = answer.trace
    steps = [s for walk in [*trace.walks, *trace.dead_ends] for s in walk.steps]  # type: ignore[attr-defined]
    for step in steps:
        assert step.object in graph.neighbours(step.subject, step.relation, "out"), step
    return len(steps)


def test_a_question_answered_in_the_first_round_takes_four_calls(
    small: Graph, scripted_chat
) -> None:
    chat = scripted_chat(reply_to=walker("currency_used", "dollar", answers=["Jamaican dollar"]))
    answer = ask(small, chat)
    assert found(answer) == [("Jamaican dollar", "graph")]
    assert (answer.stage, answer.usage.calls) == ("explored", 4)
    assert kinds(answer) == ["paths", "relations", "entities", "check"]
    assert [triple.relation for triple in answer.evidence] == ["location.country.currency_used"]
    record = answer.trace.to_dict()
    assert (record["stop"], record["decisions"]) == ("enough", 4)
    assert record["hint"] == ["Jamaica -> currency -> dollar"]
    assert record["names"] == {"m.03_r3": "Jamaica", "m.04xc2m": "Jamaican dollar"}
    assert json.loads(json.dumps(record)) == record
    assert check_walks(small, answer) == 1


def test_prompts_show_hint_options_and_paths(small: Graph, scripted_chat) -> None:
    chat = scripted_chat(reply_to=walker("currency_used", "dollar", answers=["Jamaican dollar"]))
    ask(small, chat)
    _, relations, entities, check = chat.prompts
    assert "Question: what jamaican money {called}?\n" in relations
    assert "Path from memory, perhaps wrong: Jamaica -> currency -> dollar\n" in relations
    assert "-> location.country.currency_used" in numbered(relations)
    assert "<- location.location.containedby" in numbered(relations)
    assert numbered(entities) == ["Jamaican dollar"]
    assert check.endswith("Paths:\nJamaica -> location.country.currency_used -> Jamaican dollar\n")
    choosing, thinking = (0.4, 42), (0.0, None)
    assert chat.sampling == [thinking, choosing, choosing, thinking]


def test_an_answer_is_found_through_an_edge_that_only_points_at_the_topic(
    small: Graph, scripted_chat
) -> None:
    chat = scripted_chat(reply_to=walker("containedby", "Kingston", answers=["Kingston"]))
    answer = ask(small, chat, "which city is there?")
    assert found(answer) == [("Kingston", "graph")]
    assert "\nKingston -> location.location.containedby -> Jamaica\n" in chat.prompts[-1]


@pytest.mark.parametrize("calls", ["entity", "subgraph"])
def test_an_answer_is_found_behind_a_nameless_node(small: Graph, scripted_chat, calls: str) -> None:
    chat = scripted_chat(
        reply_to=walker(
            "sibling", "m.0gx", "Jaxon", "Jazmyn", answers=["Jaxon Bieber", "Jazmyn Bieber"]
        )
    )
    answer = ask(small, chat, "who are the siblings?", [BIEBER], calls=calls)
    assert found(answer) == [("Jaxon Bieber", "graph"), ("Jazmyn Bieber", "graph")]
    assert kinds(answer).count("relations") == (3 if calls == "entity" else 2)
    assert check_walks(small, answer) == 4


def test_an_answer_behind_a_nameless_node_is_lost_where_they_are_dropped(
    small: Graph, scripted_chat
) -> None:
    reply = walker("sibling", "date_of_birth", "m.0gx", "1994", "Jaxon", answers=["Jaxon Bieber"])
    chat = scripted_chat(reply_to=reply)
    answer = ask(small, chat, "who?", [BIEBER], mediators="drop")
    assert (answer.stage, found(answer)) == ("fallback", [("Kingston", "named")])
    entities = [step for step in answer.trace.to_dict()["steps"] if step["kind"] == "entities"]
    assert entities == []  # Both siblings and the date of birth are dropped: nothing to choose.


def test_after_the_last_round_the_answer_from_memory_stands(small: Graph, scripted_chat) -> None:
    answer = ask(small, scripted_chat(reply_to=walker()))
    assert (answer.stage, found(answer)) == ("fallback", [("Kingston", "named")])
    assert answer.evidence == ()
    record = answer.trace.to_dict()
    assert (record["stop"], record["remembered"]) == ("depth", ["Kingston"])
    assert check_walks(small, answer) > 10


@pytest.mark.parametrize(
    ("memory", "stop"), [("{}", "stopped"), ('{"answers": ["unknown"]}', "stopped")]
)
def test_a_round_without_a_longer_walk_ends_exploration_without_a_check(
    small: Graph, scripted_chat, memory: str, stop: str
) -> None:
    answer = ask(small, scripted_chat(reply_to=walker("no such relation", memory=memory)))
    assert kinds(answer) == ["paths", "relations"]
    assert (answer.stage, answer.answers) == (None, ())
    assert answer.trace.to_dict()["stop"] == stop
    assert "named no answer" in (answer.problem or "")
    assert answer.reason == "unnamed"


@pytest.mark.parametrize("topics", [[JAMAICA], [JAMAICA, BIEBER]])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_calls_stay_within_the_papers_bounds(
    small: Graph, scripted_chat, topics: list[Entity], depth: int
) -> None:
    for calls, most in {
        "subgraph": 1 + depth * (2 * len(topics) + 1),
        "entity": 1 + len(topics) * (2 + (depth - 1) * 8) + depth,
    }.items():
        chat = scripted_chat(reply_to=walker())
        answer = ask(small, chat, topics=topics, calls=calls, depth=depth)
        assert answer.usage.calls == len(chat.prompts) == len(kinds(answer)) <= most
        assert answer.trace.to_dict()["decisions"] == len(chat.prompts)
        if calls == "subgraph" and depth < 3:  # In the third round a subgraph may have no options.
            assert answer.usage.calls == most
        assert kinds(answer).count("check") <= depth


def test_ablations_leave_out_what_they_name(small: Graph, scripted_chat) -> None:
    asked = {}
    for ablate in ("none", "hint", "paths", "subgraph", "paths,subgraph"):
        chat = scripted_chat(reply_to=walker("currency_used", "dollar"))
        answer = ask(small, chat, ablate=ablate)
        asked[ablate] = (kinds(answer), [p for p in chat.prompts if "perhaps wrong" in p])
        expected = "Justin Bieber" if "paths" in ablate else "Kingston"
        assert found(answer) == [(expected, "named")]
        assert answer.stage == ("direct" if "subgraph" in ablate else "fallback")
        if ablate == "hint":
            bare = "Topic entity: Jamaica\nExplored from: Jamaica\nRelations:\n1. "
            assert any(bare in prompt for prompt in chat.prompts)
        if "subgraph" in ablate:
            assert (answer.trace.to_dict()["queries"], len(chat.prompts)) == (0, 1)
    assert asked["none"][1]
    assert asked["hint"] == (asked["none"][0], [])
    assert asked["paths"] == ([*asked["none"][0][1:], "fallback"], [])
    assert asked["subgraph"] == (["paths"], [])
    assert asked["paths,subgraph"] == (["fallback"], [])


def test_entities_that_are_not_shown_are_counted(small: Graph, scripted_chat) -> None:
    chat = scripted_chat(reply_to=walker("statistical_region.population", "m.0"))
    answer = ask(small, chat, shown=1, depth=1)
    [step] = [s for s in answer.trace.to_dict()["steps"] if s["kind"] == "entities"]
    assert (step["offered"], step["hidden"]) == (["m.0pop1"], 1)


def test_of_too_many_walks_the_first_to_each_entity_stay(
    small: Graph, scripted_chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = ask(small, scripted_chat(reply_to=walker()), depth=2).trace.to_dict()
    monkeypatch.setattr(knowpath_module, "MAX_WALKS", 6)
    kept = ask(small, scripted_chat(reply_to=walker()), depth=2).trace.to_dict()
    second = [walk for walk in kept["walks"] if len(walk["steps"]) == 2]
    assert len(second) == 6
    ends = {str(step[0] if step[3] else step[2]) for *_, step in (w["steps"] for w in second)}
    assert len(ends) == 6
    clipped = len([walk for walk in whole["walks"] if len(walk["steps"]) == 2]) - 6
    assert sum(step.get("clipped", 0) for step in kept["steps"]) == clipped > 0


def test_similar_entities_are_shown_first_if_a_setting_says_so(
    small: Graph, scripted_chat, loaded_once: None
) -> None:
    chat = scripted_chat(reply_to=walker("gender", "Jaxon", "Jazmyn", "Justin"))
    answer = ask(
        small,
        chat,
        "who is jaxon bieber?",
        [Entity("Male", "m.05zppz")],
        shown=1,
        depth=1,
        order="embedder",
    )
    [step] = [s for s in answer.trace.to_dict()["steps"] if s["kind"] == "entities"]
    assert (step["offered"], step["hidden"]) == (["Jaxon Bieber"], 1)


ODD_REPLIES = [
    "",
    " \n ",
    "x" * 10_000,
    "**STOP**",
    "stop",
    "- `-> LOCATION.COUNTRY.CURRENCY_USED`",
    '["location.country.currency_used", "location.country.currency_used", "made.up.relation"]',
    '{"Relations": ["location.country.curr',
    '{"Answerable": true',
    '{"Answerable": "Yes", "Response": null, "Answers": [null, {"a": 1}, [2]]}',
    '{"Answerable": true, "Answers": "Jamaican dollar, \\"Kingston\\""}',
    "I'm sorry, but I cannot help with that request.",
    "[[[[[",
    "99999999999999999999",
    '{"path": [["a", "b"], 3], "answers": {"a": ["b"]}}',
]


@pytest.mark.parametrize("reply", ODD_REPLIES, ids=range(len(ODD_REPLIES)))
def test_odd_replies_are_no_failure(small: Graph, scripted_chat, reply: str) -> None:
    answer = ask(small, scripted_chat(reply_to=lambda _: reply), depth=2)
    for step in answer.trace.to_dict()["steps"]:
        if step["kind"] in ("relations", "entities"):
            assert set(step.get("chosen", [])) <= set(step["offered"])
    check_walks(small, answer)


@pytest.mark.parametrize("kind", ["paths", "relations", "entities", "check"])
def test_what_a_reply_says_besides_is_recorded(small: Graph, scripted_chat, kind: str) -> None:
    reply_to = walker("currency_used", "dollar", answers=["Jamaican dollar"])
    chat = scripted_chat(reply_to=lambda m: "gibberish!\n?" if kind_of(m) == kind else reply_to(m))
    answer = ask(small, chat, depth=1)
    steps = answer.trace.to_dict()["steps"]
    [step] = [step for step in steps if step["kind"] == kind]
    assert step["unread"]
    assert answer.trace.to_dict()["unread"] == 1


@pytest.mark.parametrize("budget", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize("ablate", ["none", "paths"])
def test_calls_stay_within_the_budget_and_end_with_an_answer(
    small: Graph, scripted_chat, budget: int, ablate: str
) -> None:
    chat = scripted_chat(reply_to=walker())
    answer = ask(small, chat, topics=[JAMAICA, BIEBER], budget=budget, ablate=ablate)
    assert len(chat.prompts) <= budget
    assert answer.trace.to_dict()["stop"] == "budget"
    assert answer.answers


@pytest.mark.parametrize("chooser", ["embedder", "random"])
def test_without_a_language_model_walks_go_to_the_last_round(
    small: Graph, chooser: str, loaded_once: None
) -> None:
    answer = ask(small, None, "what money is used?", chooser=chooser)
    assert answer.stage == "explored"
    assert {origin for _, origin in found(answer)} == {"graph"}
    assert set(kinds(answer)) == {"relations", "entities", "answer"}
    assert {step["hop"] for step in answer.trace.to_dict()["steps"][:-1]} == {1, 2, 3}
    assert check_walks(small, answer) > 3
    again = ask(small, None, "what money is used?", chooser=chooser)
    assert again.trace.to_dict() == answer.trace.to_dict()
    spent = ask(small, None, "what money is used?", chooser=chooser, budget=5)
    assert len(kinds(spent)) <= 5
    assert spent.answers


def test_a_question_without_topics_is_answered_from_memory(small: Graph, scripted_chat) -> None:
    answer = ask(small, scripted_chat(reply_to=walker()), "who am i?", topics=())
    assert (kinds(answer), answer.stage) == (["paths"], "fallback")
    nothing = ask(small, None, "who am i?", topics=(), chooser="random")
    assert nothing.answers == ()
    assert nothing.problem == "the graph has no entity of any name in the question"


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"depth": 0}, "depth"),
        ({"triples": -1}, "triples"),
        ({"temperature": float("nan")}, "temperature"),
        ({"ablate": "memory"}, "ablate"),
    ],
)
def test_settings_that_do_not_fit_are_refused(small: Graph, settings: Any, named: str) -> None:
    with pytest.raises(InputError, match=named):
        ask(small, None, chooser="random", **settings)


def test_ablations_need_a_language_model(small: Graph) -> None:
    with pytest.raises(InputError, match="ablate=hint,paths needs a general model to decide"):
        ask(small, None, chooser="random", ablate="hint,paths")
