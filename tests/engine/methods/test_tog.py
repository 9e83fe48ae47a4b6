import re
from collections.abc import Callable
from typing import Any

import pytest

from kbqa.engine.answer import Answer
from kbqa.engine.deciding.reading import Picked
from kbqa.engine.deciding.session import Step, WalkTrace
from kbqa.engine.embedding.embedder import Embedder
from kbqa.engine.methods.tog import TogSettings, read_entity_scores
from kbqa.kb.graph import Graph
from kbqa.sparql.crp import Entity
from kbqa.sparql.errors import InputError
from kbqa.sparql.terms import sparql_term

JAMAICA, MALE = Entity("Jamaica", "m.03_r3"), Entity("Male", "m.05zppz")
OPTION = re.compile(r"^\d+\. (.*)$", re.MULTILINE)


def trace_of(answer: Answer) -> WalkTrace:
    assert isinstance(answer.trace, WalkTrace)
    return answer.trace


def steps_of(answer: Answer, kind: str) -> list[Step]:
    return [step for step in trace_of(answer).steps if step.kind == kind and step.is_decision]


def kind_of(prompt: str) -> str:
    if "Relations:" in prompt:
        return "relations"
    if "Entities:" in prompt:
        return "entities"
    if "Triples:" not in prompt:
        return "fallback"
    return "check" if "Yes or No" in prompt else "answer"


def following(*relations: str, answer: str, known: str | None = None) -> Callable[[str], str]:
    """Score relations that end so, all entities alike, and answer once a name is shown."""

    def reply(prompt: str) -> str:
        kind = kind_of(prompt)
        options = OPTION.findall(prompt)
        if kind == "relations":
            return "\n".join(f"{o}: 0.5" for o in options if o.endswith(relations)) or "none"
        if kind == "entities":
            return "\n".join(f"{at}: 0.5" for at, _ in enumerate(options, 1))
        if kind == "check":
            triples = prompt.partition("Triples:")[2]
            return f"Yes\n{answer}" if (known or answer) in triples else "No"
        return answer

    return reply


def never(prompt: str) -> str:
    """Score all alike, and never judge that it is enough."""
    options = OPTION.findall(prompt)
    kind = kind_of(prompt)
    if kind == "relations":
        return "\n".join(f"{at}: 0.3" for at, _ in enumerate(options, 1))
    if kind == "entities":
        return "\n".join(f"{at}: 0.5" for at, _ in enumerate(options, 1))
    return "No" if kind == "check" else "Answer:\nNobody at all"


def test_an_answer_behind_a_mediator_is_found_and_proven(ask_by: Any) -> None:
    answer, chat = ask_by("tog", following("sibling_s", "sibling", answer="Jaxon Bieber"))
    assert [(each.name, each.origin) for each in answer.answers] == [("Jaxon Bieber", "graph")]
    assert answer.stage == "explored"
    assert trace_of(answer).stop == "enough"
    assert [each.relation for each in answer.evidence] == [
        "people.person.sibling_s",
        "people.sibling_relationship.sibling",
    ]
    # Two mediators without names need no scores: one relation call, one check; two, one.
    assert answer.usage.calls == len(chat.prompts) == 2 + 3


def test_relations_are_followed_backwards(ask_by: Any) -> None:
    reply = following("people.person.gender", answer="Justin Bieber")
    answer, chat = ask_by("tog", reply, topics=[MALE], question="who is male?")
    assert "<- people.person.gender" in chat.prompts[0]
    assert [(each.name, each.origin) for each in answer.answers] == [("Justin Bieber", "graph")]
    assert [each.subject for each in answer.evidence] == ["m.06w2sn5"]


def test_every_step_is_a_triple_of_the_graph(ask_by: Any, small_graph: Graph) -> None:
    walks = trace_of(ask_by("tog", never, topics=[MALE])[0]).walks
    assert any(step.inverse for walk in walks for step in walk.steps)
    for walk in walks:
        for left, step in zip(walk.nodes, walk.steps, strict=False):
            assert step.left == left
            ends = sparql_term(step.subject), sparql_term(step.object)
            assert small_graph.ask(f"ASK {{ {ends[0]} ns:{step.relation} {ends[1]} }}")


def test_calls_are_bounded_and_each_is_a_step(ask_by: Any) -> None:
    for topic in (Entity("Justin Bieber", "m.06w2sn5"), JAMAICA, MALE):
        answer, chat = ask_by("tog", never, topics=[topic])
        kinds = ["relations", "entities", "check", "fallback"]
        counts = [len(steps_of(answer, kind)) for kind in kinds]
        assert answer.usage.calls == sum(counts) == len(chat.prompts) <= 32
        assert counts[2:] == [3, 1]
        assert all(len(step.offered) > 1 for step in steps_of(answer, "entities"))


def test_exploring_has_a_temperature_and_judging_has_none(ask_by: Any) -> None:
    _, chat = ask_by("tog", never, topics=[MALE])
    kinds = {kind_of(p): sampling for p, sampling in zip(chat.prompts, chat.sampling, strict=True)}
    assert kinds["relations"] == kinds["entities"] == (0.4, 42)
    assert kinds["check"] == kinds["fallback"] == (0.0, None)


def test_the_last_relation_is_not_offered_in_the_opposite_direction(ask_by: Any) -> None:
    reply = following("people.person.gender", answer="nobody")
    answer, _ = ask_by("tog", reply, topics=[MALE])
    first, *others = steps_of(answer, "relations")
    assert first.offered == ("<- people.person.gender",)
    assert others
    assert all("-> people.person.gender" not in step.offered for step in others)


def test_when_no_hop_suffices_the_answer_comes_without_triples(ask_by: Any) -> None:
    def knowing(prompt: str) -> str:
        return "Answer:\nJustin Bieber\nMale" if kind_of(prompt) == "fallback" else never(prompt)

    answer, chat = ask_by("tog", knowing)
    assert trace_of(answer).stop == "depth"
    assert answer.stage == "fallback"
    # Both stand in the walks, too; but what the model said was not found there.
    assert [each.origin for each in answer.answers] == ["named", "named"]
    assert "people.person" not in chat.prompts[-1]
    assert trace_of(answer).walks


def test_when_the_graph_leads_no_further_the_triples_answer(ask_by: Any) -> None:
    answer, chat = ask_by("tog", following("capital", answer="Kingston", known="x"),
                          topics=[JAMAICA])  # fmt: skip
    assert trace_of(answer).stop == "nothing"
    assert kind_of(chat.prompts[-1]) == "answer"
    assert [(each.name, each.origin) for each in answer.answers] == [("Kingston", "graph")]
    assert answer.stage == "explored"


def test_without_topics_the_model_answers_alone(ask_by: Any) -> None:
    answer, chat = ask_by("tog", never, topics=[], question="zzqx?")
    assert [kind_of(prompt) for prompt in chat.prompts] == ["fallback"]
    assert (answer.stage, answer.answers[0].origin) == ("fallback", "text")


def test_yes_without_an_answer_asks_for_one(ask_by: Any) -> None:
    def hasty(prompt: str) -> str:
        return {"check": "Yes", "answer": "Male"}.get(kind_of(prompt)) or never(prompt)

    answer, _ = ask_by("tog", hasty)
    assert [each.name for each in answer.answers] == ["Male"]
    assert steps_of(answer, "check")[0].unread


def test_many_entities_are_drawn_alike_in_any_run_and_counted(ask_by: Any) -> None:
    def drawn(seed: int) -> Step:
        reply = following("people.person.gender", answer="x")
        answer, _ = ask_by("tog", reply, topics=[MALE], sample_from=2, sample=1, seed=seed)
        # One is left, so there is nothing to decide.
        assert not steps_of(answer, "entities")
        return next(step for step in trace_of(answer).steps if step.kind == "entities")

    assert drawn(42) == drawn(42)
    assert drawn(42).hidden == 1
    assert len({drawn(seed).chosen for seed in range(8)}) == 2


def test_tog_r_takes_no_call_for_entities(ask_by: Any) -> None:
    answer, chat = ask_by("tog", never, topics=[MALE], prune="random")
    assert not any(kind_of(prompt) == "entities" for prompt in chat.prompts)
    assert len(chat.prompts) <= 3 * 3 + 3 + 1
    assert trace_of(answer).walks


@pytest.mark.parametrize("budget", [1, 2, 5])
def test_a_budget_is_kept_and_its_last_call_answers(ask_by: Any, budget: int) -> None:
    for chooser in ("llm", "random"):
        reply = never if chooser == "llm" else None
        answer, chat = ask_by("tog", reply, topics=[JAMAICA], budget=budget, chooser=chooser)
        decisions = [step for step in trace_of(answer).steps if step.is_decision]
        assert len(decisions) <= budget
        assert trace_of(answer).stop == "budget"
        if chooser == "llm":
            assert len(chat.prompts) == len(decisions) == budget
            assert decisions[-1].kind in ("answer", "fallback")


@pytest.mark.parametrize(
    "reply",
    ["", " \n", "x" * 10_000, "{" * 10_000, "**Yes**", "YES", "STOP", "sToP\nmore", "[1, 2", "5. 5",
     '{"Sufficient": "Yes", "Ans', "music.album.artist: 1.0", "1: 0.3\n1: 0.9\n99: 1", "{1: nan}",
     "I am sorry, but I cannot help with that.", 'a, "b", [c]', "PEOPLE.PERSON.GENDER: 1", "-1"],
)  # fmt: skip
def test_no_reply_fails_or_takes_what_was_not_offered(ask_by: Any, reply: str) -> None:
    answer, _ = ask_by("tog", lambda _: reply)
    for step in trace_of(answer).steps:
        assert set(step.chosen) <= set(step.offered)
        assert all(0 <= score <= 1 for score in step.scores)
    first = steps_of(answer, "relations")[0]
    assert first.chosen or first.unread


def test_a_wrong_number_of_scores_makes_all_equal(ask_by: Any) -> None:
    def lazy(prompt: str) -> str:
        return "1: 0.9" if kind_of(prompt) == "entities" else never(prompt)

    answer, _ = ask_by("tog", lazy, topics=[MALE])
    [scored, *_] = steps_of(answer, "entities")
    assert set(scored.scores) == {1 / len(scored.offered)}
    assert scored.unread == ("1: 0.9",)


@pytest.mark.parametrize("chooser", ["embedder", "random"])
def test_without_a_language_model_the_ends_answer(
    ask_by: Any, chooser: str, embedder: Embedder
) -> None:
    question = "what is the capital of Jamaica?"
    asked = {"chooser": chooser, "topics": [JAMAICA], "question": question, "depth": 1}
    answer, _ = ask_by("tog", None, **asked)
    again, _ = ask_by("tog", None, **asked)
    kinds = {step.kind for step in trace_of(answer).steps}
    assert kinds <= {"relations", "entities", "answer"}
    assert answer.answers == again.answers
    assert answer.stage == "explored"
    assert answer.usage.calls == 0
    if chooser == "embedder":
        assert [each.name for each in answer.answers] == ["Kingston"]


def test_scores_of_entities_are_read_by_number_or_in_a_list() -> None:
    by_number = read_entity_scores("1: 0.2\n2: 0.8", ["Paris", "Paris"])
    assert by_number == Picked((1, 0), (0.8, 0.2))
    assert read_entity_scores("Score: 0.2, 0.8", ["Paris", "Nice"]).scores == (0.2, 0.8)
    unread = read_entity_scores("Paris", ["Paris", "Nice"])
    assert unread == Picked((0, 1), (0.5, 0.5), ("Paris",))


def test_settings_are_checked() -> None:
    with pytest.raises(InputError, match="width is 0"):
        TogSettings(width=0)
    with pytest.raises(InputError, match="temperature"):
        TogSettings(temperature=-1)
