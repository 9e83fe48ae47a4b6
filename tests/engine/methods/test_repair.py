from dataclasses import replace

import pytest

from kbqa.engine.asked import Budget
from kbqa.engine.embedding.embedder import Embedder
from kbqa.engine.graph_walk import RelationPath
from kbqa.engine.methods.repair import (
    ChatChooser,
    EmbedderChooser,
    Failure,
    RandomChooser,
    RepairSettings,
)
from kbqa.engine.running.repair import (
    MAX_DEPTH,
    MAX_STEPS,
    Repairer,
    Stop,
    blueprint_prompt,
    choice_prompt,
    judge_prompt,
    read_blueprint,
    read_choice,
    read_judgement,
    written_path,
)
from kbqa.engine.running.search import SearchWidths
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


KENYA = RelationPath(Entity("Kenya", "m.019rg5"))
CAPITAL = KENYA.then(Hop("location.country.capital"))
AIRPORTS = CAPITAL.then(Hop("aviation.airport.serves", inverse=True))


@pytest.mark.parametrize(
    ("reply", "steps"),
    [
        pytest.param("1. capital\n2. airports there", ("capital", "airports there"), id="dots"),
        pytest.param("1) capital\n\n2) airports", ("capital", "airports"), id="brackets"),
        pytest.param("Step 1: capital\nStep 2: airports", ("capital", "airports"), id="words"),
        pytest.param("# 1. capital\n# 2. airports", ("capital", "airports"), id="hashes"),
        pytest.param("- capital\n- airports", ("capital", "airports"), id="bullets"),
        pytest.param("Sure! Here they are:\n1. capital", ("capital",), id="a polite model"),
        pytest.param("capital of the country", ("capital of the country",), id="a bare phrase"),
        pytest.param("", (), id="nothing"),
        pytest.param("1.\n2.\n---", (), id="numbers alone"),
        pytest.param("\n".join(f"{n}. step" for n in range(9)), ("step",) * MAX_STEPS, id="many"),
    ],
)
def test_blueprints_are_read_leniently(reply: str, steps: tuple[str, ...]) -> None:
    assert read_blueprint(reply) == steps


def test_a_step_without_end_is_cut() -> None:
    [step] = read_blueprint("1. " + "word " * 1000)
    assert len(step) == 200


@pytest.mark.parametrize(
    ("reply", "chosen"),
    [
        pytest.param("4, 1", [3, 0], id="as asked"),
        pytest.param("Path 2", [1], id="with a word"),
        pytest.param("2, 2, 3", [1, 2], id="twice the same"),
        pytest.param("11, 0, 5", [4], id="out of range"),
        pytest.param("1. no, it leads away\n2. perhaps\n\nAnswer: 3", [2], id="explained"),
        pytest.param("Path 3 is the best.\nHope this helps!", [2], id="with a greeting"),
        pytest.param("4\n1.\n\n7\n", [3, 0, 6], id="one a line"),
        pytest.param("1, 2, 3, 4, 5", [0, 1, 2], id="too many"),
        pytest.param("9" * 5000, [], id="longer than Python reads"),
        pytest.param("none of them", [], id="none"),
        pytest.param("", [], id="nothing"),
    ],
)
def test_choices_are_read_leniently(reply: str, chosen: list[int]) -> None:
    assert read_choice(reply, count=10, wanted=3) == chosen


@pytest.mark.parametrize(
    ("reply", "yes"), [("Yes.", True), ("**yes**", True), ("No", False), ("Yesterday", False)]
)
def test_judgements(reply: str, yes: bool) -> None:
    assert read_judgement(reply) == yes


def test_paths_are_written_with_their_directions() -> None:
    assert written_path(AIRPORTS) == (
        "Kenya -> location.country.capital -> ? <- aviation.airport.serves <- ?"
    )


def test_prompts_hold_the_question_in_one_line_and_every_path() -> None:
    question = "which airports\nare near the capital of Kenya?"
    for prompt in (
        blueprint_prompt(question),
        choice_prompt(question, ["capital"], [CAPITAL, AIRPORTS], 1),
        judge_prompt(question, [CAPITAL, AIRPORTS]),
    ):
        [message] = prompt
        assert "which airports are near the capital of Kenya?" in message.content
    [choice] = choice_prompt(question, ["capital", "airports"], [CAPITAL, AIRPORTS], 3)
    assert "Step 2: airports" in choice.content
    assert f"1. {written_path(CAPITAL)}\n2. {written_path(AIRPORTS)}\n" in choice.content
    assert "up to 3 of them" in choice.content


def test_what_a_question_says_is_no_part_of_the_format() -> None:
    [message] = choice_prompt("who {paths} and {0}?", [], [CAPITAL], 1)
    assert "Question: who {paths} and {0}?" in message.content
