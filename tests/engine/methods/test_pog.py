import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from kbqa.engine.answer import Answer
from kbqa.engine.deciding.session import Step, WalkTrace
from kbqa.engine.embedding.embedder import Embedder
from kbqa.engine.methods.pog import PogSettings, read_add, read_memory, read_plan
from kbqa.kb.graph import Graph
from kbqa.sparql.crp import Entity
from kbqa.sparql.errors import InputError
from kbqa.sparql.terms import sparql_term

JAMAICA, MALE = Entity("Jamaica", "m.03_r3"), Entity("Male", "m.05zppz")
OPTION = re.compile(r"^\d+\. (.*)$", re.MULTILINE)
KINDS = {
    "JSON list of short phrases": "plan",
    "\nRelations:": "relations",
    "\nEntity:": "entities",
    "Keep a memory": "remember",
    '"Sufficient"': "check",
    '{"Add"': "reflect",
    "\nEarlier entities:": "earlier",
    "\nTriples:": "answer",
}


def trace_of(answer: Answer) -> WalkTrace:
    assert isinstance(answer.trace, WalkTrace)
    return answer.trace


def steps_of(answer: Answer, kind: str) -> list[Step]:
    return [step for step in trace_of(answer).steps if step.kind == kind and step.is_decision]


def kind_of(prompt: str) -> str:
    return next((kind for part, kind in KINDS.items() if part in prompt), "fallback")


def judged(answers: list[str] | None) -> str:
    verdict = {"Sufficient": "Yes" if answers else "No", "Answer": answers}
    return json.dumps({"A": verdict, "R": "because"})


def following(*relations: str, answer: str, **others: str) -> Callable[[str], str]:
    """Follow relations that end so to all entities, and answer once a name is shown."""

    def reply(prompt: str) -> str:
        kind = kind_of(prompt)
        if kind in others:
            return others[kind]
        options = OPTION.findall(prompt)
        if kind == "relations":
            return json.dumps([option for option in options if option.endswith(relations)])
        if kind in ("entities", "earlier"):
            return json.dumps(list(range(1, len(options) + 1)))
        if kind == "check":
            return judged([answer] if answer in prompt.partition("Triples:")[2] else None)
        return {
            "plan": '["find the siblings", "keep the brother"]',
            "remember": '{"1": "siblings are known", "2": "not yet"}',
            "reflect": '{"Add": "No", "Reason": "on the way"}',
        }.get(kind, answer)

    return reply


EVERYTHING = following("", answer="nobody at all")


def test_an_answer_behind_a_mediator_is_found_and_proven(ask_by: Any) -> None:
    answer, chat = ask_by("pog", following("sibling_s", "sibling", answer="Jaxon Bieber"))
    assert [(each.name, each.origin) for each in answer.answers] == [("Jaxon Bieber", "graph")]
    assert (answer.stage, trace_of(answer).stop) == ("explored", "enough")
    assert [each.relation for each in answer.evidence] == [
        "people.person.sibling_s",
        "people.sibling_relationship.sibling",
    ]
    kinds = ["plan", "relations", "remember", "check", "reflect", "relations", "relations",
             "remember", "check"]  # fmt: skip
    assert [kind_of(prompt) for prompt in chat.prompts] == kinds
    assert {sampling[0] for sampling in chat.sampling} == {0.3}
    record = trace_of(answer).to_dict()
    assert record["objectives"] == ["find the siblings", "keep the brother"]
    assert record["memory"] == ["siblings are known", "not yet"]
    assert "- find the siblings" in chat.prompts[1]
    assert "- siblings are known" in chat.prompts[3]


def test_relations_are_followed_backwards(ask_by: Any) -> None:
    reply = following("people.person.gender", answer="Justin Bieber")
    answer, chat = ask_by("pog", reply, topics=[MALE], question="who is male?")
    assert "<- people.person.gender" in chat.prompts[1]
    assert [(each.name, each.origin) for each in answer.answers] == [("Justin Bieber", "graph")]


def test_every_step_is_a_triple_of_the_graph(ask_by: Any, small_graph: Graph) -> None:
    walks = trace_of(ask_by("pog", EVERYTHING, topics=[MALE])[0]).walks
    assert any(step.inverse for walk in walks for step in walk.steps)
    for walk in walks:
        for left, step in zip(walk.nodes, walk.steps, strict=False):
            assert step.left == left
            ends = sparql_term(step.subject), sparql_term(step.object)
            assert small_graph.ask(f"ASK {{ {ends[0]} ns:{step.relation} {ends[1]} }}")


@pytest.mark.parametrize("add", ["Yes", "No"])
def test_calls_are_bounded_and_each_is_a_step(ask_by: Any, add: str) -> None:
    reply = following("", answer="nobody", reflect=json.dumps({"Add": add}))
    for topic in (Entity("Justin Bieber", "m.06w2sn5"), JAMAICA, MALE):
        answer, chat = ask_by("pog", reply, topics=[topic])
        decisions = [step for step in trace_of(answer).steps if step.is_decision]
        assert answer.usage.calls == len(decisions) == len(chat.prompts)
        bound = 2
        for hop in range(1, 5):
            kinds = [step.kind for step in decisions if step.hop == hop]
            walked = kinds.count("relations") + kinds.count("entities")
            assert len(kinds) <= walked + 4
            bound += walked + 4
        assert len(decisions) <= bound
        assert all(len(step.offered) > 1 for step in steps_of(answer, "entities"))


def test_a_wrong_turn_is_taken_back(ask_by: Any) -> None:
    """The first choice leads to the gender; the siblings are found from the topic again."""

    def erring(prompt: str) -> str:
        if kind_of(prompt) == "relations":
            wanted = ["sibling"] if "Bieber, people.person.gender" in seen[-1] else ["gender"]
            if "\nEntity: Male" in prompt:
                return "[]"
            options = OPTION.findall(prompt)
            return json.dumps([o for o in options if any(part in o for part in wanted)])
        if kind_of(prompt) == "remember":
            seen.append(prompt)
        if kind_of(prompt) == "earlier":
            return json.dumps(["Justin Bieber"])
        return following("", answer="Jaxon Bieber", reflect='{"Add": "Yes"}')(prompt)

    seen = [""]
    answer, _ = ask_by("pog", erring)
    assert [each.name for each in answer.answers] == ["Jaxon Bieber"]
    assert trace_of(answer).to_dict()["reversals"] >= 1
    [picked, *_] = [step for step in steps_of(answer, "reflect") if step.chosen]
    assert picked.chosen == ("Justin Bieber",)


@pytest.mark.parametrize(
    ("ablated", "missing"),
    [
        ("plan", {"plan"}),
        ("memory", {"remember"}),
        ("reflection", {"reflect", "earlier"}),
        ("plan,memory,reflection", {"plan", "remember", "reflect", "earlier"}),
    ],
)
def test_ablated_parts_cost_nothing(ask_by: Any, ablated: str, missing: set[str]) -> None:
    reply = following("", answer="nobody", reflect='{"Add": "yes"}')
    every = {"plan", "remember", "reflect", "earlier"}
    _, chat = ask_by("pog", reply, topics=[MALE], ablate=ablated)
    assert {kind_of(prompt) for prompt in chat.prompts} & every == every - missing


def test_at_most_so_many_reversals(ask_by: Any) -> None:
    reply = following("", answer="nobody", reflect='{"Add": "yes"}')
    answer, chat = ask_by("pog", reply, topics=[MALE], reversals=1)
    assert [kind_of(prompt) for prompt in chat.prompts].count("earlier") == 1
    assert trace_of(answer).to_dict()["reversals"] == 1


@pytest.mark.parametrize("answers", [[], ["m.0gxnnwq"]])
def test_yes_with_no_answer_or_an_id_does_not_suffice(ask_by: Any, answers: list[str]) -> None:
    verdict = json.dumps({"A": {"Sufficient": "Yes", "Answer": answers}, "R": ""})
    answer, _ = ask_by("pog", following("", answer="Rome", check=verdict), depth=2)
    assert trace_of(answer).stop == "depth"
    assert answer.stage == "fallback"


def test_when_the_graph_leads_no_further_the_triples_answer(ask_by: Any) -> None:
    reply = following("capital", answer="Kingston", check=judged(None))
    answer, chat = ask_by("pog", reply, topics=[JAMAICA])
    assert trace_of(answer).stop == "nothing"
    assert kind_of(chat.prompts[-1]) == "answer"
    assert [(each.name, each.origin) for each in answer.answers] == [("Kingston", "graph")]


def test_after_the_deepest_hop_the_answer_comes_without_triples(ask_by: Any) -> None:
    reply = following("", answer="x", fallback="Answer:\nMale", check=judged(None))
    answer, chat = ask_by("pog", reply, depth=1)
    assert trace_of(answer).stop == "depth"
    assert "people.person" not in chat.prompts[-1]
    assert [(each.name, each.origin) for each in answer.answers] == [("Male", "named")]


def test_without_topics_the_model_answers_alone(ask_by: Any) -> None:
    answer, chat = ask_by("pog", EVERYTHING, topics=[], question="zzqx?")
    assert [kind_of(prompt) for prompt in chat.prompts] == ["fallback"]
    assert answer.stage == "fallback"


def test_of_many_entities_the_most_similar_are_shown(ask_by: Any, embedder: Embedder) -> None:
    reply = following("people.person.gender", answer="nobody", check=judged(None))
    asked = {"topics": [MALE], "question": "what is said of Jaxon Bieber?"}
    answer, _ = ask_by("pog", reply, shown=1, depth=1, **asked)
    [step] = [step for step in trace_of(answer).steps if step.kind == "entities"]
    assert (step.offered, step.hidden) == (("Jaxon Bieber",), 1)


@pytest.mark.parametrize("budget", [1, 2, 5])
@pytest.mark.parametrize("chooser", ["llm", "random"])
def test_a_budget_is_kept_and_its_last_call_answers(ask_by: Any, budget: int, chooser: str) -> None:
    reply = EVERYTHING if chooser == "llm" else None
    answer, chat = ask_by("pog", reply, topics=[JAMAICA], budget=budget, chooser=chooser)
    decisions = [step for step in trace_of(answer).steps if step.is_decision]
    assert len(decisions) <= budget
    assert trace_of(answer).stop == "budget"
    if chooser == "llm":
        assert len(chat.prompts) == len(decisions) == budget
        assert decisions[-1].kind in ("answer", "fallback")


@pytest.mark.parametrize(
    "reply",
    ["", " \n", "x" * 10_000, "{" * 10_000, "**Yes**", "STOP", "sToP\nmore", "[1, 2", "[1, 99]",
     '{"A": {"Sufficient": "Yes", "Ans', '{"A": "Yes"}', '{"A": {"Sufficient": "Yes"}}', "[[]]",
     "I am sorry, but I cannot help with that.", 'a, "b", [c]', "PEOPLE.PERSON.GENDER",
     '{"1": null, "2": {"x": []}}', "music.album.artist\nmusic.album.artist"],
)  # fmt: skip
def test_no_reply_fails_or_takes_what_was_not_offered(ask_by: Any, reply: str) -> None:
    answer, _ = ask_by("pog", lambda _: reply)
    for step in trace_of(answer).steps:
        assert set(step.chosen) <= set(step.offered)
    [first, *_] = steps_of(answer, "relations")
    assert (
        first.chosen or first.unread or reply.lower().startswith(("stop", "i am")) or "[]" in reply
    )


def test_braces_in_a_question_do_no_harm(ask_by: Any) -> None:
    _, chat = ask_by("pog", EVERYTHING, question="who is {0} {question} %s?", depth=1)
    assert all(p.count("Question: who is {0} {question} %s?") == 1 for p in chat.prompts)


@pytest.mark.parametrize("chooser", ["embedder", "random"])
def test_without_a_language_model_the_ends_answer(
    ask_by: Any, chooser: str, embedder: Embedder
) -> None:
    question = "what is the capital of Jamaica?"
    asked = {"chooser": chooser, "topics": [JAMAICA], "question": question, "depth": 1}
    answer, _ = ask_by("pog", None, **asked)
    again, _ = ask_by("pog", None, **asked)
    assert {step.kind for step in trace_of(answer).steps} <= {"relations", "entities", "answer"}
    assert answer.answers == again.answers
    assert (answer.stage, answer.usage.calls) == ("explored", 0)
    if chooser == "embedder":
        assert [each.name for each in answer.answers] == ["Kingston"]
    deep, _ = ask_by("pog", None, chooser=chooser, topics=[JAMAICA])
    assert len(steps_of(deep, "relations")) <= 1 + 3 * 9


def test_of_many_mediators_some_are_drawn_and_the_rest_counted(ask_by: Any) -> None:
    def drawn(seed: int) -> Step:
        reply = following("sibling_s", answer="x")
        answer, _ = ask_by("pog", reply, nameless=1, depth=1, seed=seed)
        return next(step for step in trace_of(answer).steps if step.kind == "entities")

    assert not drawn(42).is_decision
    assert (len(drawn(42).offered), drawn(42).hidden) == (1, 1)
    assert len({drawn(seed).offered for seed in range(8)}) == 2


def test_replies_are_read_in_the_form_that_prompts_ask_for() -> None:
    plan = ("who his parents are", "their other children")
    assert read_plan(json.dumps(plan)) == read_plan("\n".join(plan)) == plan
    assert read_plan("I cannot answer this question.") == ()
    known = read_memory('{"2": "Jaxon", "9": "?"}', ["parents", "children"], ["Jeremy", ""])
    assert known == (("Jeremy", "Jaxon"), ("9: ?",))
    assert read_add('{"Add": "Yes", "Reason": "a wrong turn"}') == (True, ())
    assert read_add("Hm") == (False, ("Hm",))


def test_settings_are_checked() -> None:
    with pytest.raises(InputError, match="depth is 0"):
        PogSettings(depth=0)
    with pytest.raises(InputError, match="reversals"):
        PogSettings(reversals=-1)
    with pytest.raises(InputError, match="temperature is 3"):
        PogSettings(temperature=3)


def test_ablations_need_a_language_model(ask_by: Any) -> None:
    with pytest.raises(InputError, match="ablate=plan,memory needs a general model to decide"):
        ask_by("pog", None, chooser="embedder", ablate="plan,memory")
