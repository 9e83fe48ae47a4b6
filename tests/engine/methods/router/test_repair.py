from dataclasses import replace

import pytest

from kbqa.engine.embedding.embedder import Embedder
from kbqa.engine.exploring.frontiers import RelationPath
from kbqa.engine.method import Budget
from kbqa.engine.methods.router.chooser import ChatChooser, EmbedderChooser, RandomChooser
from kbqa.engine.methods.router.repair import MAX_DEPTH, Failure, Repairer, RepairSettings, Stop
from kbqa.engine.methods.router.search.path_search import SearchWidths
from kbqa.kb.graph import Graph
from kbqa.sparql.crp import Crp, Entity, Hop
from kbqa.sparql.errors import ModelError
from kbqa.sparql.forms import parse_crp

QUESTION = "which currency is used in Kenya?"
CURRENCY = (Hop("location.country.currency_used"),)


@pytest.fixture(scope="module")
def repairer(demo: Graph, embedder: Embedder) -> Repairer:
    return Repairer(demo, embedder)


@pytest.fixture
def failure(kenya: Entity) -> Failure:
    broken = parse_crp(f"{kenya.mid} -> finance.country.money\n?x -> a.b = Euro").crp
    return Failure("it does not exist", QUESTION, "which currency is used in?", (kenya,), broken)


def two_hops(failure: Failure) -> Failure:
    assert failure.crp is not None
    return replace(failure, crp=replace(failure.crp, path=(*failure.crp.path, Hop("c.d"))))


def test_the_embedder_alone_finds_the_path(repairer: Repairer, failure: Failure) -> None:
    repair = repairer.repair(failure, EmbedderChooser())
    assert repair.crp is not None
    assert repair.crp.path == CURRENCY
    assert (repair.blueprint, repair.depth, repair.chosen) == ((), 1, 0)
    assert repair.lost == ("Keep those where the answer has a.b Euro.",)
    assert 0 < repair.queries < 50


def test_a_general_model_plans_and_chooses(repairer, failure, scripted_chat) -> None:
    chat = scripted_chat("1. capital of the country", "2")
    repair = repairer.repair(failure, ChatChooser(chat))
    assert repair.blueprint == ("capital of the country",)
    assert repair.chosen == 1
    assert repair.crp == Crp(repair.candidates[1].path.topic, repair.candidates[1].path.hops)
    assert "Step 1: capital of the country" in chat.prompts[1]


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_no_more_calls_than_the_depth_and_one(repairer, failure, scripted_chat, depth: int) -> None:
    crp = replace(failure.crp, path=(Hop("a.b"),) * depth)
    chat = scripted_chat(*["1"] * 9)
    repair = repairer.repair(replace(failure, crp=crp), ChatChooser(chat))
    assert repair.crp is not None
    assert len(chat.prompts) <= depth + 1


def test_the_broken_path_is_never_offered(repairer, failure, scripted_chat) -> None:
    chat = scripted_chat("1. money", "1")
    repair = repairer.repair(failure, ChatChooser(chat))
    assert all("finance.country.money" not in prompt for prompt in chat.prompts)
    assert all("finance.country.money" not in str(each.path) for each in repair.candidates)


@pytest.mark.parametrize("rubbish", ["", "I am a teapot.", "99", "{}"])
def test_rubbish_leaves_the_order_of_similarity(repairer, failure, scripted_chat, rubbish) -> None:
    repair = repairer.repair(failure, ChatChooser(scripted_chat(rubbish, rubbish)))
    assert repair.crp is not None
    assert repair.chosen == 0


def test_a_model_that_fails_is_told(repairer, failure, scripted_chat) -> None:
    with pytest.raises(ModelError, match="is down"):
        repairer.repair(failure, ChatChooser(scripted_chat(ModelError("it is down"))))


@pytest.mark.parametrize(
    ("stop", "steps", "depth"),
    [("model", "1. a\n2. b\n3. c", 1), ("blueprint", "1. a\n2. b", 2), ("judge", "", MAX_DEPTH)],
)
def test_what_says_how_deep_to_search(
    demo: Graph, embedder: Embedder, failure, scripted_chat, stop: Stop, steps: str, depth: int
) -> None:
    repairer = Repairer(demo, embedder, RepairSettings(stop=stop))
    chat = scripted_chat(steps, "1", "yes", "1", "yes", "1")
    repair = repairer.repair(failure, ChatChooser(chat))
    assert repair.depth == depth
    assert repair.crp is not None


def test_a_judge_that_says_yes_ends_the_search(
    demo: Graph, embedder: Embedder, failure, scripted_chat
) -> None:
    repairer = Repairer(demo, embedder, RepairSettings(stop="judge"))
    chat = scripted_chat("1. currency", "3, 1", "yes", "2")
    repair = repairer.repair(failure, ChatChooser(chat))
    assert chat.replies == []  # Of two paths one must still be chosen.
    assert len(repair.candidates) == 2


def test_without_a_path_of_the_small_model_the_blueprint_counts(
    repairer, failure, scripted_chat
) -> None:
    chat = scripted_chat("1. capital", "1")
    repair = repairer.repair(replace(failure, crp=None), ChatChooser(chat))
    assert repair.depth == 1
    assert repair.crp is not None
    assert repair.lost == ()


def test_a_topic_without_any_relation_cannot_be_repaired(repairer, failure) -> None:
    nobody = Entity("Nobody", "m.0nobody")
    repair = repairer.repair(replace(failure, topics=(nobody,)), EmbedderChooser())
    assert (repair.crp, repair.candidates, repair.chosen) == (None, (), None)
    assert repair.to_dict()["candidates"] == []


def test_a_path_that_is_known_is_offered_too(repairer, failure, kenya: Entity) -> None:
    known = RelationPath(kenya, (Hop("location.location.time_zones"),))
    repair = repairer.repair(replace(failure, known=(known,)), EmbedderChooser())
    assert known in [each.path for each in repair.candidates]
    assert repair.crp is not None
    assert repair.crp.path == CURRENCY


def test_few_queries_whatever_the_graph_holds(
    demo: Graph, embedder: Embedder, failure: Failure
) -> None:
    wide = Repairer(demo, embedder, RepairSettings(SearchWidths(relations=8, beam=5)))
    repair = wide.repair(two_hops(failure), EmbedderChooser())
    assert repair.queries < 210


@pytest.mark.parametrize("limit", [1, 2, 3, 4])
def test_no_more_calls_than_the_budget(repairer, failure, scripted_chat, limit: int) -> None:
    chat, budget = scripted_chat(*["1"] * 9), Budget(limit)
    repair = repairer.repair(two_hops(failure), ChatChooser(chat), budget=budget)
    assert len(chat.prompts) == budget.spent == min(limit, 3)
    assert repair.is_cut_short == (limit < 3)
    assert repair.to_dict().get("is_cut_short", False) == repair.is_cut_short
    assert repair.crp is not None


def test_without_a_call_nothing_is_chosen(repairer, failure, scripted_chat) -> None:
    spent = Budget(1)
    spent.take_last()
    repair = repairer.repair(failure, ChatChooser(scripted_chat()), budget=spent)
    assert (repair.crp, repair.chosen, repair.is_cut_short) == (None, None, True)
    assert len(repair.candidates) > 1


def test_decisions_of_the_embedder_count_but_it_plans_nothing(repairer, failure) -> None:
    budget = Budget()
    repairer.repair(two_hops(failure), EmbedderChooser(), budget=budget)
    assert budget.spent == 2


def test_chance_depends_on_its_seed_alone(repairer, failure) -> None:
    def chosen(seed: int) -> RelationPath:
        repair = repairer.repair(two_hops(failure), RandomChooser(seed))
        assert repair.chosen is not None
        return repair.candidates[repair.chosen].path

    drawn = [chosen(seed) for seed in range(6)]
    assert [chosen(seed) for seed in range(6)] == drawn
    assert len(set(drawn)) > 1
