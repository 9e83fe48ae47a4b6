"""RouterKGQA as the paper has it: write, take the first that answers, repair, relax."""

import logging
from collections.abc import Callable

import pytest

from kbqa.engine.answer import Answer
from kbqa.engine.chat.model import ChatModel
from kbqa.engine.engine import Engine
from kbqa.engine.running.evidence import PathTrace
from kbqa.kb.graph import Graph

QUESTION = "which currency is used in Kenya?"
BROKEN = "Kenya -> finance.country.money"
RIGHT = "Kenya -> location.country.currency_used"
WRONG = "Kenya -> location.country.capital"
RELAXED = f"{RIGHT}\n?x -> film.film.genre = Comedy"

Ask = Callable[..., Answer]


@pytest.fixture
def ask(demo: Graph, scripted) -> Ask:
    """Ask with these paths written."""

    def asked(*written: str, chat: ChatModel | None = None, **settings: object) -> Answer:
        generator = scripted([(text, -1.0 - at) for at, text in enumerate(written)])
        with Engine(demo, generator, chat=chat, method="routerkgqa", settings=settings) as engine:
            return engine.ask(QUESTION)

    return asked


def _names(answer: Answer) -> list[str]:
    return [each.name for each in answer.answers]


def test_the_first_path_that_answers_in_full_is_taken(ask: Ask) -> None:
    answer = ask(BROKEN, RELAXED, WRONG, RIGHT)
    assert (_names(answer), answer.stage, answer.confidence) == (["Nairobi"], "specialised", None)
    assert isinstance(answer.trace, PathTrace)
    assert answer.trace.best == 2


def test_a_path_is_relaxed_only_if_none_answers_in_full(ask: Ask) -> None:
    answer = ask(BROKEN, RELAXED)
    assert _names(answer) == ["Kenyan Shilling"]
    assert answer.trace.to_dict()["dropped"]
    assert _names(ask(RELAXED, WRONG, order="beam-first")) == ["Kenyan Shilling"]


def test_nothing_is_searched_or_judged(ask: Ask) -> None:
    answer = ask(WRONG)
    assert set(answer.seconds).isdisjoint({"search", "read"})
    assert [each["source"] for each in answer.trace.to_dict()["beams"]] == ["writer"]


def test_a_general_model_repairs_where_no_path_exists(ask: Ask, scripted_chat) -> None:
    chat = scripted_chat("1. currency of the country", "1")
    answer = ask(BROKEN, chat=chat)
    assert (_names(answer), answer.stage) == (["Kenyan Shilling"], "general")
    assert answer.usage.calls == 2


def test_the_best_written_path_alone_is_tested_and_the_repaired_one_goes_first(
    ask: Ask, scripted_chat
) -> None:
    answer = ask(BROKEN, WRONG, chat=scripted_chat("1. currency of the country", "1"))
    assert (_names(answer), answer.stage) == (["Kenyan Shilling"], "general")
    record = answer.trace.to_dict()
    assert [each["source"] for each in record["beams"]] == ["repair", "writer"]
    assert [each["fate"] for each in record["beams"]] == ["reachable", "unreachable"]
    answer = ask(WRONG, BROKEN, chat=scripted_chat())
    assert (_names(answer), answer.usage.calls) == (["Nairobi"], 0)


def test_all_written_paths_may_be_tested(ask: Ask, scripted_chat) -> None:
    answer = ask(BROKEN, WRONG, chat=scripted_chat(), route="all")
    assert (_names(answer), answer.usage.calls) == (["Nairobi"], 0)


def test_a_repair_that_finds_nothing_leaves_the_other_paths(ask: Ask, scripted_chat) -> None:
    nowhere = "m.0nowhere -> a.b"
    answer = ask(nowhere, WRONG, chat=scripted_chat("1. currency"))
    assert (_names(answer), answer.stage) == (["Nairobi"], "specialised")
    assert "From path 2 of the model, relaxation: full." in answer.trace.describe()


def test_constraints_are_relaxed_class_by_class(ask: Ask) -> None:
    code = "finance.currency.currency_code"
    path = f'{RIGHT}\n?x -> {code} = "KES"\n?x -> {code} = "ZZ"'
    dropped = {
        relax: len(ask(path, relax=relax).trace.to_dict()["dropped"])
        for relax in ("class", "constraint")
    }
    assert dropped == {"class": 2, "constraint": 1}


def test_without_written_paths_the_graph_is_searched(demo: Graph, scripted_chat) -> None:
    chat = scripted_chat("1. currency of the country", "1")
    settings = {"write": False}
    with Engine(demo, chat=chat, method="routerkgqa", settings=settings) as engine:
        answer = engine.ask(QUESTION)
        assert engine.method.settings()["write"] is False
    assert (_names(answer), answer.stage) == (["Kenyan Shilling"], "general")


def test_router_is_the_default_by_its_former_name(
    demo: Graph, scripted, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(logging.WARNING),
        Engine(
            demo, scripted([(RIGHT, -1.0)]), method="router", settings={"judge": "confidence"}
        ) as engine,
    ):
        assert engine.method.name == "kbqa"
    assert "the method router is now called kbqa" in caplog.text
