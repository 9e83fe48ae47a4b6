"""A question that the small model gets wrong is repaired, and its answer tells so."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from kbqa.engine.answer import Answer
from kbqa.engine.chat.model import ChatModel
from kbqa.engine.commands.render import render_answer
from kbqa.engine.embedding.embedder import Embedder
from kbqa.engine.engine import Engine
from kbqa.engine.linking.model import LinkingModel
from kbqa.engine.methods.router.method import RouterKgqa
from kbqa.engine.methods.router.repair import Repair, Repairer
from kbqa.engine.methods.router.routing import Routing
from kbqa.engine.methods.router.settings import Route
from kbqa.engine.methods.router.trace import RouterTrace
from kbqa.engine.resources import Resources
from kbqa.engine.running.confidence import ConfidenceModel
from kbqa.engine.running.execute import Policy
from kbqa.engine.writing.generate import Generator, SavedBeams
from kbqa.kb.graph import Graph
from kbqa.sparql.errors import ModelError

QUESTION = "which currency is used in Kenya?"
BROKEN = "Kenya -> finance.country.money"
RIGHT = "Kenya -> location.country.currency_used"
WRONG = "Kenya -> location.country.capital"
UNSURE, SURE = ConfidenceModel(-5.0, {}), ConfidenceModel(5.0, {})

Ask = Callable[..., Answer]


@pytest.fixture(scope="module")
def repairer(demo: Graph, embedder: Embedder) -> Repairer:
    return Repairer(demo, embedder, asking=LinkingModel.load())


@pytest.fixture
def ask(demo: Graph, repairer: Repairer, scripted) -> Ask:
    """Ask the question with these paths written for it."""

    def asked(
        *written: str,
        chat: ChatModel | None = None,
        route: Route = "reachability",
        confidence: ConfidenceModel | None = None,
        call_budget: int | None = None,
    ) -> Answer:
        generator = scripted([(text, -1.0) for text in written])
        routing = Routing(repairer, chat, route, threshold=0.5)
        with make_engine(demo, generator, routing, chat, confidence, call_budget) as engine:
            return engine.ask(QUESTION)

    return asked


def make_engine(
    graph: Graph,
    generator: Generator,
    routing: Routing,
    chat: ChatModel | None = None,
    confidence: ConfidenceModel | None = None,
    call_budget: int | None = None,
) -> Engine:
    resources = Resources(graph, open_chat=lambda: chat, call_budget=call_budget)
    return Engine.over(resources, RouterKgqa(resources, generator, Policy(confidence), routing))


def trace(answer: Answer) -> RouterTrace:
    assert isinstance(answer.trace, RouterTrace)
    return answer.trace


def repair(answer: Answer) -> Repair:
    found = trace(answer).repair
    assert found is not None
    return found


def names(answer: Answer) -> list[str]:
    return [each.name for each in answer.answers]


def test_a_path_that_exists_is_not_repaired(ask: Ask, scripted_chat) -> None:
    answer = ask(BROKEN, WRONG, chat=scripted_chat())
    assert (names(answer), answer.stage, trace(answer).repair) == (["Nairobi"], "specialised", None)
    assert answer.usage.calls == 0


def test_where_no_path_exists_another_is_found(ask: Ask) -> None:
    answer = ask(BROKEN)
    assert (names(answer), answer.stage) == (["Kenyan Shilling"], "general")
    assert repair(answer).reason == "no path that was written exists"
    assert trace(answer).best == 1
    assert [tried.fate for tried in trace(answer).tried] == ["unreachable", "reachable"]
    assert answer.evidence
    told = (
        "Found by searching the graph, because no path that was written exists. Relaxation: full."
    )
    assert told in render_answer(answer, "demo").splitlines()


@pytest.mark.parametrize(
    ("call_budget", "replies", "found"),
    [(1, [], []), (2, ["1"], ["Kenyan Shilling"]), (3, ["1. currency", "1"], ["Kenyan Shilling"])],
)
def test_the_writing_and_the_repair_share_the_calls(
    ask: Ask, scripted_chat, call_budget: int, replies: list[str], found: list[str]
) -> None:
    chat = scripted_chat(*replies)
    answer = ask(BROKEN, chat=chat, call_budget=call_budget)
    assert names(answer) == found
    assert chat.replies == []
    assert answer.trace.to_dict()["calls"] == call_budget
    told = "The call budget was spent before the search was over."
    assert (told in answer.trace.describe()) == repair(answer).is_cut_short == (call_budget < 3)


def test_a_path_that_exists_is_found_by_the_only_call(ask: Ask, scripted_chat) -> None:
    answer = ask(WRONG, chat=scripted_chat(), call_budget=1)
    assert (names(answer), answer.trace.to_dict()["calls"]) == (["Nairobi"], 1)
    assert "calls" not in ask(WRONG, chat=scripted_chat()).trace.to_dict()


def test_what_the_new_path_could_not_carry_is_told(ask: Ask) -> None:
    answer = ask(f"{BROKEN}\n?x -> film.film.genre = Comedy")
    assert names(answer) == ["Kenyan Shilling"]
    *_, lost, constraint = answer.trace.describe()
    assert lost.startswith("Lost, because no node")
    assert "film.film.genre Comedy" in constraint


def test_constraints_of_the_broken_path_still_hold(ask: Ask) -> None:
    answer = ask(f"{BROKEN}\n?x -> type.object.name != [Kenyan shilling]")
    assert answer.stage == "general"
    answering = trace(answer).answering
    assert answering is not None
    assert answering.crp is not None
    assert answering.crp.constraints


def test_what_a_general_model_takes_is_counted(ask: Ask, scripted_chat) -> None:
    chat = scripted_chat("1. currency of the country", "1")
    answer = ask(BROKEN, chat=chat)
    assert names(answer) == ["Kenyan Shilling"]
    assert answer.usage.calls == 2
    record = answer.to_dict()
    assert record["usage"]["general"]["calls"] == 2
    repaired = record["trace"]["repair"]
    assert repaired["blueprint"] == ["currency of the country"]
    assert repaired["candidates"][repaired["chosen"]]["path"] == (
        "Kenya -> location.country.currency_used -> ?"
    )


def test_unsure_answers_are_repaired_by_confidence(ask: Ask, scripted_chat) -> None:
    chat = scripted_chat("1. currency of the country", "1")
    answer = ask(WRONG, chat=chat, route="confidence", confidence=UNSURE)
    assert (names(answer), answer.stage) == (["Kenyan Shilling"], "general")
    assert repair(answer).reason == "a confidence of 0.01 is below 0.50"
    assert "location.country.capital" in chat.prompts[1]  # It may be right after all.


def test_the_path_that_answers_gives_its_own_constraints_and_depth(ask: Ask) -> None:
    broken = f"{BROKEN} -> a.b\n?x -> film.film.genre = Comedy"
    answer = ask(broken, WRONG, route="confidence", confidence=UNSURE)
    assert (repair(answer).depth, repair(answer).lost) == (1, ())


def test_sure_answers_are_not(ask: Ask, scripted_chat) -> None:
    answer = ask(WRONG, chat=scripted_chat(), route="confidence", confidence=SURE)
    assert (names(answer), answer.stage) == (["Nairobi"], "specialised")


def test_without_written_paths_every_question_is_repaired(ask: Ask) -> None:
    answer = ask()
    assert (names(answer), answer.stage) == (["Kenyan Shilling"], "general")
    assert repair(answer).reason == "no path was written"


def test_a_question_about_nothing_known_cannot_be_repaired(
    demo: Graph, repairer: Repairer, scripted
) -> None:
    generator = scripted([("Zzyzx -> a.b", -1.0)])
    with make_engine(demo, generator, Routing(repairer)) as engine:
        answer = engine.ask("zzyzx qwrtp?")
    assert (answer.answers, answer.stage, trace(answer).repair) == ((), None, None)
    assert answer.problem is not None


def test_a_general_model_that_fails_fails_the_question(ask: Ask, scripted_chat) -> None:
    with pytest.raises(ModelError, match="is down"):
        ask(BROKEN, chat=scripted_chat(ModelError("the server is down")))


def test_what_a_question_took_is_known_though_it_fails(
    demo: Graph, repairer: Repairer, scripted_chat
) -> None:
    chat = scripted_chat("1. currency of the country", ModelError("the server is down"))
    with make_engine(demo, SavedBeams("beams"), Routing(repairer, chat), chat) as engine:
        asked = replace(engine.prepare(QUESTION), candidates=())
        with pytest.raises(ModelError, match="is down"):
            engine.answer(asked)
    assert asked.usage.calls == 1


def test_saved_beams_and_repair_go_together(demo: Graph, repairer: Repairer) -> None:
    with make_engine(demo, SavedBeams("beams.jsonl"), Routing(repairer)) as engine:
        asked = replace(engine.prepare(QUESTION), candidates=())
        assert engine.answer(asked).stage == "general"
