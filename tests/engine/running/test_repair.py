"""Paths that a repair finds on the demo graph, and what a general model is asked for them."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from kbqa.engine.asked import Asked, Budget
from kbqa.engine.chat.cache import CountedChat
from kbqa.engine.chat.model import ChatModel
from kbqa.engine.embedding.embedder import Embedder
from kbqa.engine.graph_walk import RelationPath
from kbqa.engine.linking.ground import Grounding
from kbqa.engine.linking.linker import LinkedEntity
from kbqa.engine.running.repair import (
    MAX_DEPTH,
    MAX_STEPS,
    GuidedRepairer,
    Repair,
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
from kbqa.engine.running.tried import Execution, Tried
from kbqa.engine.writing.generate import Candidate
from kbqa.kb.graph import Graph
from kbqa.sparql.crp import Crp, Entity, Hop
from kbqa.sparql.errors import GraphError, ModelError
from kbqa.sparql.forms import parse_crp, render_crp

QUESTION = "which currency is used in Kenya?"
CURRENCY = (Hop("location.country.currency_used"),)


@dataclass(frozen=True)
class Failure:
    """A question about Kenya whose written path does not exist."""

    crp: Crp | None
    topic: Entity
    answers: bool = False

    def repaired(
        self, repairer: Repairer, chat: ChatModel | None = None, budget: Budget | None = None
    ) -> Repair:
        """Repair it, by a general model if there is one."""
        asked = Asked(
            QUESTION,
            linked=(LinkedEntity(self.topic.mid, str(self.topic), "kenya", 0.9),),
            chat=None if chat is None else CountedChat(chat),
            budget=budget or Budget(),
        )
        tried = []
        if self.crp is not None:
            candidate = Candidate(render_crp(self.crp), -1.0, 9)
            tried.append(Tried(candidate, grounding=Grounding(self.crp, (), {})))
        execution = Execution(tuple(tried), 0 if self.answers else None)
        repair = repairer.repair(asked, "it does not exist", execution)
        assert repair is not None
        return repair

    def with_path(self, *hops: Hop) -> "Failure":
        """Return it with another path."""
        assert self.crp is not None
        return replace(self, crp=replace(self.crp, path=hops))

    def two_hops(self) -> "Failure":
        """Return it with a path of a hop more."""
        assert self.crp is not None
        return self.with_path(*self.crp.path, Hop("c.d"))


@pytest.fixture
def failure(kenya: Entity) -> Failure:
    crp = parse_crp(f"{kenya.mid} -> finance.country.money\n?x -> a.b = Euro").crp
    return Failure(replace(crp, topic=kenya), kenya)


MakeRepairer = Callable[..., Repairer]


@pytest.fixture(scope="module", params=[Repairer, GuidedRepairer])
def make(request: pytest.FixtureRequest, demo: Graph, embedder: Embedder) -> MakeRepairer:
    return lambda by="embedder", **settings: request.param(demo, embedder, by, **settings)


@pytest.fixture(scope="module")
def repairer(make: MakeRepairer) -> Repairer:
    return make("llm")


def test_the_embedder_alone_finds_the_path(make: MakeRepairer, failure: Failure) -> None:
    repair = failure.repaired(make())
    assert repair.crp is not None
    assert repair.crp.path == CURRENCY
    assert (repair.blueprint, repair.depth, repair.chosen) == ((), 1, 0)
    assert repair.lost == ("Keep those where the answer has a.b Euro.",)
    assert 0 < repair.queries < 50


def test_a_general_model_plans_and_chooses(repairer, failure, scripted_chat) -> None:
    chat = scripted_chat("1. capital of the country", "2")
    repair = failure.repaired(repairer, chat)
    assert repair.blueprint == ("capital of the country",)
    assert repair.chosen == 1
    assert repair.crp == Crp(repair.candidates[1].path.topic, repair.candidates[1].path.hops)
    assert "location.country.currency_used -> Kenyan Shilling\n" in chat.prompts[1]


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_no_more_calls_than_the_depth_and_one(repairer, failure, scripted_chat, depth: int) -> None:
    chat = scripted_chat(*["1"] * 9)
    repair = failure.with_path(*[Hop("a.b")] * depth).repaired(repairer, chat)
    assert repair.crp is not None
    assert len(chat.prompts) <= depth + 1


def test_the_broken_path_is_never_offered(repairer, failure, scripted_chat) -> None:
    chat = scripted_chat("1. money", "1")
    repair = failure.repaired(repairer, chat)
    assert all("finance.country.money" not in prompt for prompt in chat.prompts)
    assert all("finance.country.money" not in str(each.path) for each in repair.candidates)


@pytest.mark.parametrize("rubbish", ["", "I am a teapot.", "99", "{}"])
def test_rubbish_leaves_the_order_of_similarity(repairer, failure, scripted_chat, rubbish) -> None:
    repair = failure.repaired(repairer, scripted_chat(rubbish, rubbish))
    assert repair.crp is not None
    assert repair.chosen == 0


def test_a_model_that_fails_is_told(repairer, failure, scripted_chat) -> None:
    with pytest.raises(ModelError, match="is down"):
        failure.repaired(repairer, scripted_chat(ModelError("it is down")))


@pytest.mark.parametrize(
    ("stop", "steps", "depth"),
    [("model", "1. a\n2. b\n3. c", 1), ("blueprint", "1. a\n2. b", 2), ("judge", "", MAX_DEPTH)],
)
def test_what_says_how_deep_to_search(
    make: MakeRepairer, failure, scripted_chat, stop: Stop, steps: str, depth: int
) -> None:
    repairer = make("llm", stop=stop)
    chat = scripted_chat(steps, "1", "yes", "1", "yes", "1")
    repair = failure.repaired(repairer, chat)
    assert repair.depth == depth
    assert repair.crp is not None


def test_a_judge_that_says_yes_ends_the_search(make: MakeRepairer, failure, scripted_chat) -> None:
    repairer = make("llm", stop="judge")
    chat = scripted_chat("1. currency", "3, 1", "yes", "2")
    repair = failure.repaired(repairer, chat)
    assert chat.replies == []  # Of two paths one must still be chosen.
    assert len(repair.candidates) == 2


def test_without_a_path_of_the_small_model_the_blueprint_counts(
    repairer, failure, scripted_chat
) -> None:
    chat = scripted_chat("1. capital", "1")
    repair = replace(failure, crp=None).repaired(repairer, chat)
    assert repair.depth == 1
    assert repair.crp is not None
    assert repair.lost == ()


def test_a_written_path_of_an_unknown_topic_still_says_how_deep_to_search(
    repairer, kenya: Entity, scripted_chat
) -> None:
    asked = Asked(QUESTION, given=(kenya,), chat=CountedChat(scripted_chat("1. a", "1", "1", "1")))
    tried = Tried(Candidate("Zzyzx -> a.b -> a.c", -1.0, 9), "unlinked")
    repair = repairer.repair(asked, "it does not exist", Execution((tried,)))
    assert repair.depth == 2


def test_a_graph_that_fails_costs_the_repair_alone(
    repairer, failure: Failure, scripted_chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise GraphError("it is busy")

    monkeypatch.setattr(type(repairer._graph), "frontier_relations", fail)
    asked = Asked(QUESTION, given=(failure.topic,), chat=CountedChat(scripted_chat("1. a")))
    assert repairer.repair(asked, "it does not exist", Execution(())) is None


def test_a_topic_without_any_relation_cannot_be_repaired(make, failure) -> None:
    nobody = Entity("Nobody", "m.0nobody")
    repair = replace(failure, crp=None, topic=nobody).repaired(make())
    assert (repair.crp, repair.candidates, repair.chosen) == (None, (), None)
    assert repair.to_dict()["candidates"] == []


def test_a_path_that_answered_is_offered_too(make, failure, kenya: Entity) -> None:
    known = RelationPath(kenya, (Hop("location.location.time_zones"),))
    repair = replace(failure.with_path(*known.hops), answers=True).repaired(make())
    assert known in [each.path for each in repair.candidates]
    assert repair.crp is not None
    assert repair.crp.path == CURRENCY


def test_few_queries_whatever_the_graph_holds(make: MakeRepairer, failure: Failure) -> None:
    repair = failure.two_hops().repaired(make(widths=SearchWidths(relations=8, beam=5)))
    assert repair.queries < 210


@pytest.mark.parametrize("limit", [1, 2, 3, 4])
def test_no_more_calls_than_the_budget(repairer, failure, scripted_chat, limit: int) -> None:
    chat, budget = scripted_chat(*["1"] * 9), Budget(limit)
    repair = failure.two_hops().repaired(repairer, chat, budget)
    assert len(chat.prompts) == budget.spent == min(limit, 3)
    assert repair.is_cut_short == (limit < 3)
    assert repair.to_dict().get("is_cut_short", False) == repair.is_cut_short
    assert repair.crp is not None


def test_without_a_call_nothing_is_chosen(repairer, failure, scripted_chat) -> None:
    spent = Budget(1)
    spent.take_last()
    repair = failure.repaired(repairer, scripted_chat(), spent)
    assert (repair.crp, repair.chosen, repair.is_cut_short) == (None, None, True)
    assert len(repair.candidates) > 1


def test_decisions_of_the_embedder_count_but_it_plans_nothing(make, failure) -> None:
    budget = Budget()
    failure.two_hops().repaired(make(), budget=budget)
    assert budget.spent == 2


def test_chance_depends_on_its_seed_alone(make, failure) -> None:
    def chosen(seed: int) -> RelationPath:
        repair = failure.two_hops().repaired(make("random", seed=seed))
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
        pytest.param("A: #1 capital\n\n#2 airports", ("capital", "airports"), id="the paper's"),
        pytest.param("- capital\n- airports", ("capital", "airports"), id="bullets"),
        pytest.param("Sure! Here they are:\n1. capital", ("capital",), id="a polite model"),
        pytest.param("capital of the country", ("capital of the country",), id="a bare phrase"),
        pytest.param("", (), id="nothing"),
        pytest.param("I cannot answer this question.", (), id="a refusal"),
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
        pytest.param("Path 4\nPath 1\nPath 7", [3, 0, 6], id="one a line with a word"),
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
        choice_prompt(question, ["a -> b", "c -> d"], 1),
        judge_prompt(question, ["a -> b", "c -> d"]),
    ):
        [message] = prompt
        assert "which airports are near the capital of Kenya?" in message.content
    [choice] = choice_prompt(question, ["a -> b", "c -> d"], 3)
    assert "1. a -> b\n2. c -> d\n" in choice.content
    assert "up to 3 of them" in choice.content


def test_what_a_question_says_is_no_part_of_the_format() -> None:
    [message] = choice_prompt("who {paths} and {0}?", ["a -> b"], 1)
    assert "Question: who {paths} and {0}?" in message.content
