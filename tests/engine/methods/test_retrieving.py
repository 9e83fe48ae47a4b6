"""The methods that retrieve, over a real store, by both readers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kbqa.engine.answer import Answer
from kbqa.engine.engine import Engine
from kbqa.engine.methods import Resources, make_method
from kbqa.engine.retrieval.retriever import SHIPPED_SCORER
from kbqa.sparql.crp import Entity
from kbqa.sparql.errors import DeadlineExceeded, InputError, ModelError

pytest.importorskip("sentence_transformers", reason="needs the lm extra")

Ask = Callable[..., tuple[Answer, Any]]
METHODS = ["subgraph", "path-pooling"]
JAMAICA = Entity("Jamaica", "m.03_r3")


def names(answer: Answer) -> set[str]:
    return {each.name for each in answer.answers}


@pytest.mark.parametrize("method", METHODS)
def test_without_a_model_the_paths_of_the_best_triples_are_run(method: str, ask_by: Ask) -> None:
    asked = {"question": "what is the capital of jamaica?", "topics": [JAMAICA]}
    answer, _ = ask_by(method, None, **asked)
    assert names(answer) == {"Kingston"}
    assert answer.stage == "retrieved"
    assert answer.sparql is not None
    assert [each.relation for each in answer.evidence] == ["location.country.capital"]
    trace = answer.trace.to_dict()
    assert trace["reader"] == "kernels"
    assert trace["triples"][0]["relation"] in {
        "location.country.capital",
        "location.location.containedby",
    }
    assert "Path:" in answer.trace.describe()[0]
    assert answer.trace.describe()[-1].endswith("their paths were run.")


@pytest.mark.parametrize("method", METHODS)
def test_a_model_answers_with_nodes_of_the_triples(method: str, ask_by: Ask) -> None:
    answer, chat = ask_by(method, lambda prompt: "ans: Jaxon Bieber\nans: Elvis")
    assert names(answer) == {"Jaxon Bieber"}
    assert {each.origin for each in answer.answers} == {"graph"}
    assert answer.sparql is None
    # The way leads through the mediator.
    assert [each.relation for each in answer.evidence] == [
        "people.person.sibling_s",
        "people.sibling_relationship.sibling",
    ]
    trace = answer.trace.to_dict()
    assert trace["unmatched"] == ["Elvis"]
    assert answer.trace.describe()[-1] == "No node of them is called: Elvis"
    assert len(chat.prompts) == 1
    assert chat.prompts[0].endswith("Question: who is justin bieber's brother?")


def test_a_reply_without_answers_is_asked_for_once_more_by_subgraph_alone(ask_by: Ask) -> None:
    replies = {"subgraph": 2, "path-pooling": 1}
    for method, calls in replies.items():
        answer, chat = ask_by(method, lambda prompt: "I do not know.")
        assert len(chat.prompts) == answer.usage.calls == calls
        assert answer.answers == ()
        assert answer.problem is not None
        assert "named no node" in answer.problem
        assert answer.reason == "unnamed"
        assert answer.trace.to_dict()["unread"] == calls
    answer, _ = ask_by("subgraph", lambda prompt: "I do not know.", budget=1)
    assert answer.usage.calls == 1


def test_fewer_triples_are_shown_if_so_set(ask_by: Ask) -> None:
    answer, chat = ask_by("subgraph", lambda prompt: "ans: none", triples=2, follow_up=False)
    assert len(answer.trace.to_dict()["triples"]) == 2
    assert chat.prompts[0].count("\n(") == 2
    seen = answer.trace.to_dict()["seen"]
    assert f"Retrieved 2 of {seen} triples" in answer.trace.describe()[-1]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("reply", [None, lambda prompt: "ans: Elvis"])
def test_a_topic_with_nothing_around_it_is_named(method: str, reply: Any, ask_by: Ask) -> None:
    answer, _ = ask_by(method, reply, topics=[Entity("Nobody", "m.0zzzzz")])
    assert answer.answers == ()
    assert answer.problem == "the graph has nothing around Nobody"
    assert answer.reason == "unreachable"
    assert answer.usage.calls == 0


@pytest.mark.parametrize("method", METHODS)
def test_a_question_without_entities_says_so(method: str, ask_by: Ask) -> None:
    answer, _ = ask_by(method, None, question="why?", topics=())
    assert answer.problem is not None
    assert "no entity" in answer.problem


def test_what_contradicts_itself_is_refused(small_graph: Any) -> None:
    by_chance = Resources(small_graph, chooser="random")
    with pytest.raises(InputError, match="no decision that chance could take"):
        make_method(by_chance, "subgraph", {})
    with pytest.raises(InputError, match="reader=llm needs a general model"):
        make_method(Resources(small_graph), "path-pooling", {"reader": "llm"})
    with pytest.raises(InputError, match="kernel is a setting of path-pooling"):
        make_method(Resources(small_graph), "subgraph", {"kernel": "bfs"})
    with pytest.raises(InputError, match="triples is 0"):
        make_method(Resources(small_graph), "subgraph", {"triples": "0"})
    with pytest.raises(InputError, match="set coarse to 501 or more"):
        make_method(Resources(small_graph), "path-pooling", {"triples": "501"})


def test_what_only_a_reading_model_heeds_is_refused_without_one(ask_by: Ask) -> None:
    with pytest.raises(InputError, match=r"^prompt=paths, order=edges needs a general model"):
        ask_by("subgraph", None, prompt="paths", order="edges")
    with pytest.raises(InputError, match=r"^reader=kernels does not use follow_up=no: leave"):
        ask_by("subgraph", lambda prompt: "ans: Elvis", reader="kernels", follow_up=False)


def test_what_only_kernels_are_read_by_is_refused_with_a_language_model(ask_by: Ask) -> None:
    with pytest.raises(InputError, match=r"^reader=llm does not use candidates=2: leave it out$"):
        ask_by("subgraph", lambda prompt: "ans: none", candidates=2)


def test_kernels_can_read_although_there_is_a_model(ask_by: Ask) -> None:
    answer, chat = ask_by("subgraph", lambda prompt: "ans: Elvis", reader="kernels")
    assert chat.prompts == []
    assert answer.usage.calls == 0
    assert answer.answers


def test_settings_tell_what_decides(small_graph: Any) -> None:
    method = make_method(Resources(small_graph), "path-pooling", {"kernel": "bfs"})
    settings = method.settings()
    assert settings["kernel"] == "bfs"
    assert settings["reader"] == "kernels"
    assert settings["caps"]
    assert make_method(Resources(small_graph), "subgraph", {}).settings()["mechanism"] == "none"


def test_a_scorer_of_ones_own_can_be_used(small_graph: Any, tmp_path: Path) -> None:
    own = tmp_path / "retriever.json"
    for suffix in (".json", ".safetensors"):
        own.with_suffix(suffix).write_bytes(SHIPPED_SCORER.with_suffix(suffix).read_bytes())
    shipped = make_method(Resources(small_graph), "subgraph", {})
    method = make_method(Resources(small_graph), "subgraph", {"scorer_file": str(own)})
    assert method.settings() == shipped.settings()  # the same scorer, wherever it is
    with pytest.raises(ModelError, match="cannot read the scorer"):
        make_method(Resources(small_graph), "subgraph", {"scorer_file": str(tmp_path / "no.json")})
    with pytest.raises(InputError, match="the scorer cosine is not trained"):
        given = {"scorer": "cosine", "scorer_file": str(own)}
        make_method(Resources(small_graph), "subgraph", given)


def test_a_deadline_ends_a_question(small_graph: Any) -> None:
    with Engine(small_graph, method="path-pooling") as engine, pytest.raises(DeadlineExceeded):
        engine.ask("what is the capital of jamaica?", [JAMAICA], deadline_s=1e-6)
