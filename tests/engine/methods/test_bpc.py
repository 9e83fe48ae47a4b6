import re
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import pytest

from kbqa.engine.answer import Answer
from kbqa.engine.deciding.session import WalkTrace
from kbqa.engine.methods.bpc import BpcSettings
from kbqa.kb.graph import Graph
from kbqa.sparql.crp import Entity
from kbqa.sparql.errors import InputError
from kbqa.sparql.terms import sparql_term

JAMAICA = Entity("Jamaica", "m.03_r3")
OPTION = re.compile(r"^\d+\. (.*)$", re.MULTILINE)

Replying = Callable[[str], str]


@pytest.fixture
def ask(ask_by: Any) -> Callable[..., tuple[Answer, Any]]:
    """Ask by Bounded Path Context, with chance where no reply is given."""

    def asking(reply: Replying | None, **asked: Any) -> tuple[Answer, Any]:
        return ask_by("bpc", reply, chooser="random" if reply is None else None, **asked)

    return asking


def trace_of(answer: Answer) -> WalkTrace:
    assert isinstance(answer.trace, WalkTrace)
    return answer.trace


def is_answer(prompt: str) -> bool:
    return "Answer the question from these paths" in prompt


def options_of(prompt: str) -> list[str]:
    return OPTION.findall(prompt)


def siblings(prompt: str) -> str:
    """Follow the siblings, stop there, and name all that the paths end at."""
    if is_answer(prompt):
        return "\n".join(path.rpartition(" ")[2] for path in options_of(prompt)) + "\nJaxon Bieber"
    wanted = [option for option in options_of(prompt) if "sibling" in option]
    return "\n".join(wanted) or "STOP"


def everything(prompt: str) -> str:
    return "Jaxon Bieber" if is_answer(prompt) else "\n".join(options_of(prompt))


def blind(prompt: str) -> str:
    """Choose by the current entity and what is offered, whatever the history is."""
    if is_answer(prompt):
        return "\n".join(options_of(prompt))
    entity = re.findall("^Current entity: (.*)$", prompt, re.MULTILINE)[-1]
    options = options_of(prompt)
    order = sorted(options, key=lambda each: sha256(f"{entity}|{each}".encode()).hexdigest())
    return "\n".join(order[:2])


def hashing(prompt: str) -> str:
    """Choose by the whole prompt."""
    order = sorted(options_of(prompt), key=lambda o: sha256((prompt + o).encode()).hexdigest())
    return "\n".join(order[:1])


def test_an_answer_behind_a_mediator_is_found_and_proven(ask: Any) -> None:
    answer, _ = ask(siblings)
    assert ("Jaxon Bieber", "graph") in {(each.name, each.origin) for each in answer.answers}
    assert answer.stage == "explored"
    assert {"people.person.sibling_s", "people.sibling_relationship.sibling"} == {
        each.relation for each in answer.evidence
    }


def test_forwards_only_unless_both_directions_are_followed(ask: Any) -> None:
    def to_area(prompt: str) -> str:
        if is_answer(prompt):
            return "480"
        wanted = ("location.location.containedby", "location.location.area")
        return "\n".join(o for o in options_of(prompt) if o.endswith(wanted)) or "STOP"

    answer, _ = ask(to_area, topics=[JAMAICA])
    assert [each.origin for each in answer.answers] == ["text"]
    answer, chat = ask(to_area, topics=[JAMAICA], directions="both")
    assert [(each.name, each.origin) for each in answer.answers] == [("480", "graph")]
    assert "<- location.location.containedby" in chat.prompts[0]


def test_every_step_is_a_triple_of_the_graph(ask: Any, small_graph: Graph) -> None:
    answer, _ = ask(everything, directions="both", depth=3)
    walks = trace_of(answer).walks
    assert walks
    for walk in walks:
        for left, step in zip(walk.nodes, walk.steps, strict=False):
            assert step.left == left
            ends = sparql_term(step.subject), sparql_term(step.object)
            assert small_graph.ask(f"ASK {{ {ends[0]} ns:{step.relation} {ends[1]} }}")


def test_calls_are_the_open_walks_with_relations_and_the_answer(ask: Any) -> None:
    answer, chat = ask(everything, depth=4)
    steps = trace_of(answer).steps
    relations = [step for step in steps if step.kind == "relations"]
    assert answer.usage.calls == len(relations) + 1 == len(chat.prompts)
    assert all(step.offered for step in relations)
    assert steps[-1].kind == "answer"


@pytest.mark.parametrize("history", [0, 1, 2, "full"])
def test_a_chooser_that_is_blind_to_history_walks_the_same_for_every_k(
    ask: Any, history: int | str
) -> None:
    settings = {"depth": 4, "directions": "both"}
    expected, full = ask(blind, history="full", **settings)
    answer, chat = ask(blind, history=history, **settings)
    assert trace_of(answer).walks == trace_of(expected).walks
    assert answer.answers == expected.answers
    assert len(chat.prompts) == len(full.prompts)
    shorter = zip(chat.prompts, full.prompts, strict=True)
    assert all(len(mine.split()) <= len(whole.split()) + 4 for mine, whole in shorter)
    assert chat.prompts[-1] == full.prompts[-1], "the answer's prompt depends on the paths alone"


def test_prompts_differ_by_their_history_alone(ask: Any) -> None:
    prompts = {
        k: ask(blind, history=k, depth=4, directions="both")[1].prompts
        for k in (0, 1, 2, 3, "full")
    }
    hops = [step.hop for step in trace_of(ask(blind, depth=4, directions="both")[0]).steps]
    assert max(hops) == 4
    for at, hop in enumerate(hops[:-1]):
        for k in (0, 1, 2, 3):
            is_same = prompts[k][at] == prompts["full"][at]
            assert is_same == (hop <= k + 1)
    assert prompts[3] == prompts["full"], "K = D - 1 shows everything"


def test_history_decides_for_a_chooser_that_reads_it(ask: Any) -> None:
    settings = {"depth": 4, "directions": "both"}
    none, full = (ask(hashing, history=k, **settings)[0] for k in (0, "full"))
    assert trace_of(none).walks != trace_of(full).walks


def test_the_released_marker_is_a_setting(ask: Any) -> None:
    _, chat = ask(everything, history=0, marker="start", depth=2)
    relations = [prompt for prompt in chat.prompts if not is_answer(prompt)]
    assert len(relations) > 1
    assert all("reasoning starts here" in prompt for prompt in relations)


def test_hops_are_numbered_from_the_start_if_asked_for(ask: Any) -> None:
    _, chat = ask(everything, history=1, hop_numbers=True, depth=3, directions="both")
    assert "Hop 2: " in "".join(chat.prompts)


def test_walks_beyond_the_beams_are_clipped_and_counted(ask: Any) -> None:
    answer, chat = ask(everything, directions="both", depth=3, beams=2, answer_paths=1)
    trace = trace_of(answer)
    assert sum(step.clipped for step in trace.steps) > 0
    assert len(trace.walks) == 1
    assert len(options_of(chat.prompts[-1])) == 1
    assert trace.details["walks_not_shown"] == 1
    assert len([step for step in trace.steps if step.hop == 3]) <= 2


def test_hidden_relations_are_counted(ask: Any) -> None:
    answer, _ = ask(everything, relation_cap=1, depth=1)
    assert trace_of(answer).steps[0].hidden == 2


def test_full_history_is_the_paper_s_think_on_graph_without_its_two_additions(ask: Any) -> None:
    _, control = ask(everything, control="tog", check=False, tails="first")
    _, full = ask(everything, history="full")
    assert control.prompts == full.prompts


def test_the_paper_s_think_on_graph_chooses_nodes_and_checks(ask: Any) -> None:
    def enough_at_two(prompt: str) -> str:
        if "Reply with YES or NO" in prompt:
            return "YES." if "Jaxon" in prompt else "NO"
        return siblings(prompt)

    answer, _ = ask(enough_at_two, control="tog")
    trace = trace_of(answer)
    assert trace.stop == "enough"
    assert [step.kind for step in trace.steps].count("entities") == 1
    assert [each.name for each in answer.answers][-1] == "Jaxon Bieber"


def test_the_random_control_asks_once(ask: Any) -> None:
    answer, chat = ask(lambda prompt: "Jaxon Bieber", control="random")
    assert len(chat.prompts) == answer.usage.calls == 1
    again, _ = ask(lambda prompt: "Jaxon Bieber", control="random")
    other, _ = ask(lambda prompt: "Jaxon Bieber", control="random", seed=7)
    assert trace_of(answer).walks == trace_of(again).walks != trace_of(other).walks


def test_the_control_without_a_graph_never_claims_to_have_found_anything(ask: Any) -> None:
    answer, chat = ask(lambda prompt: "Kingston", control="cot")
    assert len(chat.prompts) == 1
    assert [(each.term, each.origin) for each in answer.answers] == [("m.03yl7", "named")]
    assert answer.stage == "direct"
    assert trace_of(answer).queries <= 1
    assert trace_of(answer).stop == "direct"


def test_the_control_without_a_graph_needs_a_language_model(ask: Any) -> None:
    with pytest.raises(InputError, match="control=cot needs a general model to decide"):
        ask(None, control="cot")


@pytest.mark.parametrize("budget", [1, 2, 3, 5])
def test_a_budget_is_kept_and_its_last_call_answers(ask: Any, budget: int) -> None:
    answer, chat = ask(everything, directions="both", budget=budget)
    assert len(chat.prompts) == budget
    assert trace_of(answer).stop == "budget"
    assert is_answer(chat.prompts[-1])


@pytest.mark.parametrize(
    "reply",
    [
        ".",
        "x" * 10_000,
        "```\n- **people.person.gender**\n```",
        "PEOPLE.PERSON.GENDER",
        "made.up.relation\nanother.one",
        "1, 2",
        '{"relations": ["people.person.gender"',
        "people.person.gender\nstop\npeople.person.sibling_s",
        "I am sorry, but I cannot help with that request.",
        "people.person.gender\npeople.person.gender",
        "[]",
    ],
)
def test_no_reply_breaks_it_or_chooses_what_was_not_offered(ask: Any, reply: str) -> None:
    answer, _ = ask(lambda prompt: reply)
    for step in trace_of(answer).steps:
        assert set(step.chosen) <= set(step.offered)
        assert len(set(step.chosen)) == len(step.chosen)
        if step.kind == "relations" and not step.chosen:
            assert step.unread or "stop" in reply.lower() or reply[0] in "[I"


def test_stop_in_any_case_finishes_a_walk(ask: Any) -> None:
    answer, chat = ask(lambda prompt: "none" if is_answer(prompt) else " Stop. ")
    assert len(chat.prompts) == 2
    assert trace_of(answer).stop == "nothing"
    assert not answer.answers
    assert answer.problem is not None


def test_without_topics_it_says_so(ask: Any) -> None:
    answer, _ = ask(None, topics=(), question="why is it so?")
    assert not answer.answers
    assert "no entity of any name in the question" in str(answer.problem)
    assert answer.reason == "unlinked"


def test_chance_answers_with_ends_of_walks(ask: Any) -> None:
    answer, _ = ask(None, depth=2)
    ends = {walk.end for walk in trace_of(answer).walks}
    assert {each.term for each in answer.answers} <= ends
    assert answer.usage.calls == 0


@pytest.mark.parametrize(
    "setting",
    [
        {"history": 0},
        {"history": "full"},
        {"marker": "start"},
        {"hop_numbers": True},
        {"answer_paths": 3},
        {"check": True},
    ],
)
def test_what_only_a_language_model_heeds_is_refused_without_one(
    ask: Any, setting: dict[str, Any]
) -> None:
    [(name, value)] = setting.items()
    written = "yes" if value is True else value
    with pytest.raises(InputError, match=f"^{name}={written} needs a general model to decide: add"):
        ask(None, **setting)


@pytest.mark.parametrize(
    ("control", "setting"),
    [
        ("cot", {"depth": 3}),
        ("cot", {"history": 0, "answer_paths": 3}),
        ("random", {"history": "full"}),
        ("random", {"tails": "choose"}),
        ("tog", {"history": 2}),
    ],
)
def test_what_a_control_does_not_heed_is_refused(control: str, setting: dict[str, Any]) -> None:
    named = ", ".join(f"{name}={value}" for name, value in setting.items())
    with pytest.raises(InputError, match=f"^control={control} does not use {named}: leave it out"):
        BpcSettings(control=control, **setting)


@pytest.mark.parametrize("setting", [{"width": 0}, {"history": -1}, {"beams": -5}])
def test_settings_out_of_range_are_refused(setting: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(setting))):
        BpcSettings(**setting)
