"""A question that the small model gets wrong is repaired, and its answer tells so."""

from collections.abc import Callable
from contextlib import closing

import pytest

from kbqa.engine.answer import Answer
from kbqa.engine.chat.model import ChatModel
from kbqa.engine.confidence import ConfidenceModel
from kbqa.engine.embedder import Embedder
from kbqa.engine.engine import Engine
from kbqa.engine.execute import Rules
from kbqa.engine.generate import SavedBeams
from kbqa.engine.linking_model import LinkingModel
from kbqa.engine.render import render_answer
from kbqa.engine.repair.repair import Repairer
from kbqa.engine.router import Policy, Router
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
        policy: Policy = "reachability",
        confidence: ConfidenceModel | None = None,
    ) -> Answer:
        generator = scripted([(text, -1.0) for text in written])
        router = Router(repairer, chat, policy, threshold=0.5)
        with closing(Engine(demo, generator, rules=Rules(confidence), router=router)) as engine:
            return engine.ask(QUESTION)

    return asked


def names(answer: Answer) -> list[str]:
    return [each.name for each in answer.answers]


def test_a_path_that_exists_is_not_repaired(ask: Ask, scripted_chat) -> None:
    answer = ask(BROKEN, WRONG, chat=scripted_chat())
    assert (names(answer), answer.stage, answer.repair) == (["Nairobi"], "specialised", None)
    assert answer.usage.calls == 0


def test_where_no_path_exists_another_is_found(ask: Ask) -> None:
    answer = ask(BROKEN)
    assert (names(answer), answer.stage) == (["Kenyan Shilling"], "general")
    assert answer.repair is not None
    assert answer.repair.reason == "no path that was written exists"
    assert answer.result is not None
    assert answer.beams[answer.result.beam].fate == "reachable"
    assert [beam.fate for beam in answer.beams] == ["unreachable", "reachable"]
    assert answer.evidence
    told = (
        "Found by searching the graph, because no path that was written exists. Relaxation: full."
    )
    assert told in render_answer(answer).splitlines()


def test_what_the_new_path_could_not_carry_is_told(ask: Ask) -> None:
    answer = ask(f"{BROKEN}\n?x -> film.film.genre = Comedy")
    assert names(answer) == ["Kenyan Shilling"]
    *_, lost, constraint, _, _ = render_answer(answer).splitlines()
    assert lost.startswith("Lost, because no node")
    assert "film.film.genre Comedy" in constraint


def test_constraints_of_the_broken_path_still_hold(ask: Ask) -> None:
    answer = ask(f"{BROKEN}\n?x -> type.object.name != [Kenyan shilling]")
    assert answer.stage == "general"
    assert answer.result is not None
    assert answer.result.crp.constraints


def test_what_a_general_model_takes_is_counted(ask: Ask, scripted_chat) -> None:
    chat = scripted_chat("1. currency of the country", "1")
    answer = ask(BROKEN, chat=chat)
    assert names(answer) == ["Kenyan Shilling"]
    assert answer.usage.calls == 2
    record = answer.to_dict()
    assert record["usage"]["general"]["calls"] == 2
    assert record["repair"]["blueprint"] == ["currency of the country"]
    assert record["repair"]["candidates"][record["repair"]["chosen"]]["path"] == (
        "Kenya -> location.country.currency_used -> ?"
    )


def test_unsure_answers_are_repaired_by_confidence(ask: Ask, scripted_chat) -> None:
    chat = scripted_chat("1. currency of the country", "1")
    answer = ask(WRONG, chat=chat, policy="confidence", confidence=UNSURE)
    assert (names(answer), answer.stage) == (["Kenyan Shilling"], "general")
    assert answer.repair is not None
    assert answer.repair.reason == "a confidence of 0.01 is below 0.50"
    assert "location.country.capital" in chat.prompts[1]  # It may be right after all.


def test_the_path_that_answers_gives_its_own_constraints_and_depth(ask: Ask) -> None:
    broken = f"{BROKEN} -> a.b\n?x -> film.film.genre = Comedy"
    answer = ask(broken, WRONG, policy="confidence", confidence=UNSURE)
    assert answer.repair is not None
    assert (answer.repair.depth, answer.repair.lost) == (1, ())


def test_sure_answers_are_not(ask: Ask, scripted_chat) -> None:
    answer = ask(WRONG, chat=scripted_chat(), policy="confidence", confidence=SURE)
    assert (names(answer), answer.stage) == (["Nairobi"], "specialised")


def test_without_written_paths_every_question_is_repaired(ask: Ask) -> None:
    answer = ask()
    assert (names(answer), answer.stage) == (["Kenyan Shilling"], "general")
    assert answer.repair is not None
    assert answer.repair.reason == "no path was written"


def test_a_question_about_nothing_known_cannot_be_repaired(
    demo: Graph, repairer: Repairer, scripted
) -> None:
    generator = scripted([("Zzyzx -> a.b", -1.0)])
    with closing(Engine(demo, generator, router=Router(repairer))) as engine:
        answer = engine.ask("zzyzx qwrtp?")
    assert (answer.answers, answer.stage, answer.repair) == ((), None, None)
    assert answer.problem is not None


def test_a_general_model_that_fails_fails_the_question(ask: Ask, scripted_chat) -> None:
    with pytest.raises(ModelError, match="is down"):
        ask(BROKEN, chat=scripted_chat(ModelError("the server is down")))


def test_what_a_question_took_is_known_though_it_fails(
    demo: Graph, repairer: Repairer, scripted_chat
) -> None:
    chat = scripted_chat("1. currency of the country", ModelError("the server is down"))
    router = Router(repairer, chat)
    with closing(Engine(demo, SavedBeams("beams.jsonl"), router=router)) as engine:
        counted = engine.new_chat()
        with pytest.raises(ModelError, match="is down"):
            engine.answer(QUESTION, [], chat=counted)
    assert counted is not None
    assert counted.usage.calls == 1


def test_saved_beams_and_repair_go_together(demo: Graph, repairer: Repairer) -> None:
    with closing(Engine(demo, SavedBeams("beams.jsonl"), router=Router(repairer))) as engine:
        assert engine.answer(QUESTION, []).stage == "general"
