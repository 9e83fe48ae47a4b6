"""What TRACE answers: ends of the most relevant path that has some, joined or picked."""

import pytest
from trace_script import AskTrace, Guide, Outcome, Prompt

from kbqa.engine.asked import ChooserName
from kbqa.engine.engine import Engine
from kbqa.engine.methods import Resources
from kbqa.engine.methods.trace import TRACE
from kbqa.kb.graph import Graph
from kbqa.sparql.crp import Entity
from kbqa.sparql.errors import InputError

BORDERS = "location.location.adjoin_s"
ACROSS = "location.adjoining_relationship.adjoins"
NEIGHBOURS = {(): [BORDERS], (BORDERS,): [ACROSS]}
OF_KENYA = ["Ethiopia", "Somalia", "South Sudan", "Tanzania", "Uganda"]

JAXON = Entity("Jaxon Bieber", "m.0gxnnwq")
KINGSTON = Entity("Kingston", "m.03yl7")
SIBLING, SIBLINGS = "people.sibling_relationship.sibling", "people.person.sibling_s"


def check_walks(graph: Graph, outcome: Outcome) -> None:
    """Check that every trajectory exists, and that every answer is an end of the path that won."""
    for each in outcome.trace["trajectories"]:
        patterns, node = [], f"ns:{each['topic']}"
        for at, (relation, is_inverse) in enumerate(each["hops"]):
            ends = (node, f"?x{at}")
            subject, object_ = reversed(ends) if is_inverse else ends
            patterns.append(f"{subject} ns:{relation} {object_} .")
            node = f"?x{at}"
        assert graph.ask(f"ASK {{ {' '.join(patterns)} }}")
    if outcome.answer.answers:
        assert outcome.answer.sparql is not None
        found = {row[0] for row in graph.select(outcome.answer.sparql).rows}
        assert {each.term for each in outcome.answer.answers} <= found


def test_an_answer_behind_a_nameless_node_comes_with_its_proof(
    ask_trace: AskTrace, demo: Graph, kenya: Entity
) -> None:
    outcome = ask_trace(demo, Guide(NEIGHBOURS), kenya)
    assert outcome.names == OF_KENYA
    answer, trace = outcome.answer, outcome.trace
    assert (answer.stage, answer.problem, trace["level"]) == ("explored", None, "full")
    assert trace["crp"].endswith(f"-> {BORDERS} -> {ACROSS}")
    assert {each.origin for each in answer.answers} == {"graph"}
    assert {triple.relation for triple in answer.evidence} >= {BORDERS, ACROSS}
    assert "answers" in answer.trace.describe()[1]
    check_walks(demo, outcome)


@pytest.mark.parametrize(
    ("topic", "tree", "answers"),
    [
        (KINGSTON, {(): ["location.location.containedby"]}, ["Jamaica"]),
        (JAXON, {(): [SIBLING], (SIBLING,): [SIBLINGS]}, ["Justin Bieber"]),
    ],
    ids=["forwards", "backwards"],
)
def test_an_answer_in_one_direction_alone(
    ask_trace: AskTrace, graph: Graph, topic: Entity, tree: dict, answers: list[str]
) -> None:
    outcome = ask_trace(graph, Guide(tree), topic)
    assert outcome.names == answers
    check_walks(graph, outcome)
    out = ask_trace(graph, Guide(tree), topic, directions="out")
    assert out.names == (answers if topic is KINGSTON else [])


def test_paths_from_two_topics_that_meet_are_joined(
    ask_trace: AskTrace, demo: Graph, kenya: Entity, uganda: Entity
) -> None:
    joined = ask_trace(demo, Guide(NEIGHBOURS), kenya, uganda)
    assert joined.names == ["South Sudan", "Tanzania"]
    assert f"= [Uganda] ({uganda.mid})" in joined.trace["crp"].replace("= Uganda (", "= [Uganda] (")
    ends = ask_trace(demo, Guide(NEIGHBOURS), kenya, uganda, answer="ends")
    assert ends.names == OF_KENYA
    check_walks(demo, joined)


def test_paths_that_do_not_meet_are_not_joined(
    ask_trace: AskTrace, demo: Graph, kenya: Entity, uganda: Entity
) -> None:
    tree = {(): ["location.country.capital"]}
    outcome = ask_trace(demo, Guide(tree), kenya, uganda)
    assert outcome.names == ["Nairobi"]
    assert outcome.trace["level"] == "full"


def test_a_path_that_is_not_relevant_enough_is_no_constraint(
    ask_trace: AskTrace, demo: Graph, kenya: Entity, uganda: Entity
) -> None:
    scores = {BORDERS: 0.6, ACROSS: 0.6}
    outcome = ask_trace(
        demo, Guide(NEIGHBOURS, scores), kenya, uganda, path_score="product", keep=0.5
    )
    assert outcome.names == OF_KENYA


def test_an_empty_path_falls_to_the_next(ask_trace: AskTrace, demo: Graph, kenya: Entity) -> None:
    # The way to the population and back leads to nothing but Kenya.
    population, capital = "location.statistical_region.population", "location.country.capital"
    tree = {(): [population, capital], (population,): [population]}
    outcome = ask_trace(demo, Guide(tree, {capital: 0.6}), kenya)
    assert outcome.walked == [[population, population], [capital]]
    assert outcome.names == ["Nairobi"]
    assert outcome.trace["beam"] == 1
    assert [each["fate"] for each in outcome.trace["beams"]] == ["reachable", "reachable"]


@pytest.mark.parametrize(
    ("reply", "names"),
    [
        ("Tanzania\n2", ["Tanzania"]),
        ("- **Uganda**\n- Kenya", ["Uganda"]),
        ("It is in Asia", OF_KENYA),
        ("NONE", []),
        ("I cannot say.", []),
        ("[]", []),
    ],
)
def test_a_language_model_picks_among_the_ends(
    ask_trace: AskTrace, demo: Graph, kenya: Entity, reply: str, names: list[str]
) -> None:
    outcome = ask_trace(demo, Guide(NEIGHBOURS, answer=reply), kenya, answer="llm")
    assert outcome.names == names
    assert outcome.answer.reason == (None if names else "unnamed")
    assert outcome.kinds[-1] == "answer"
    [step] = [step for step in outcome.trace["steps"] if step["kind"] == "answer"]
    assert sorted(step["offered"]) == OF_KENYA
    assert ("Kenya" in step.get("unread", ())) == ("Kenya" in reply)


def test_ends_that_are_not_shown_are_counted(
    ask_trace: AskTrace, demo: Graph, kenya: Entity
) -> None:
    tree = {(): ["location.location.contains"]}
    outcome = ask_trace(demo, Guide(tree, answer="1"), kenya, answer="llm")
    step = outcome.trace["steps"][-1]
    assert (len(step["offered"]), step["hidden"] > 50) == (50, True)
    assert len(outcome.prompts[-1].options) == 50


@pytest.mark.parametrize("budget", [1, 2, 3, 5, 6, 7])
def test_calls_stay_within_the_budget(
    ask_trace: AskTrace, demo: Graph, kenya: Entity, budget: int
) -> None:
    guide = Guide(NEIGHBOURS, answer="Uganda")
    outcome = ask_trace(demo, guide, kenya, budget=budget, answer="llm")
    assert len(outcome.prompts) <= budget
    if budget >= 7:
        assert outcome.names == ["Uganda"]
        assert outcome.trace["steps"][-1]["kind"] == "answer"
    assert outcome.trace["stop"] == "budget"
    if not outcome.answer.answers:
        assert outcome.answer.reason == "calls"
        assert outcome.answer.problem == (
            "the calls were spent before an answer was found. Raise --call-budget"
        )
    check_walks(demo, outcome)


def test_a_proposal_that_could_not_be_ranked_still_answers(
    ask_trace: AskTrace, demo: Graph, kenya: Entity
) -> None:
    guide = Guide({(): ["location.country.capital"]})
    outcome = ask_trace(demo, guide, kenya, budget=2)
    assert (outcome.names, outcome.kinds) == (["Nairobi"], ["relations"])
    [each] = outcome.trace["trajectories"]
    assert (each["scores"], each["ended"]) == ([0.5], "budget")


def test_a_question_without_topics_costs_nothing(ask_trace: AskTrace, demo: Graph) -> None:
    outcome = ask_trace(demo, Guide({}))
    assert (outcome.prompts, outcome.answer.answers) == ([], ())
    assert outcome.answer.problem is not None
    assert outcome.answer.problem.startswith("the graph has no entity")
    assert outcome.answer.reason == "unlinked"
    nobody = ask_trace(demo, Guide({}), Entity("Nobody", "m.0nobody"))
    assert (nobody.prompts, nobody.trace["stop"]) == ([], "nothing")
    unlinked = ask_trace(demo, Guide({}), Entity("Kenya"))
    assert (unlinked.prompts, unlinked.answer.answers) == ([], ())


@pytest.mark.parametrize("chooser", ["embedder", "random"])
def test_others_than_a_language_model_propose_and_no_more(
    demo: Graph, kenya: Entity, chooser: ChooserName
) -> None:
    resources = Resources(demo, chooser=chooser)
    settings = TRACE.settings(iterations=6)
    with Engine.over(resources, TRACE.make(resources, settings)) as engine:
        answers = [engine.ask("what currency is used in Kenya?", [kenya]) for _ in range(2)]
        assert engine.method.settings()["chooser"] == chooser
    first, second = (answer.trace.to_dict() for answer in answers)
    assert first == second
    assert answers[0].answers == answers[1].answers != ()
    kinds = [step["kind"] for step in first["steps"]]
    assert set(kinds) == {"relations", "answer"}
    assert kinds.count("answer") == 1
    assert kinds.count("relations") <= 6 * 4
    if chooser == "embedder":
        assert [each.name for each in answers[0].answers] == ["Kenyan Shilling"]


def test_budgets_also_bind_those_who_cost_nothing(
    ask_trace: AskTrace, demo: Graph, kenya: Entity
) -> None:
    outcome = ask_trace(demo, None, kenya, chooser="random", budget=4)
    assert outcome.trace["decisions"] == 4
    assert outcome.trace["stop"] == "budget"


def test_settings_that_cannot_be_are_refused(demo: Graph) -> None:
    resources = Resources(demo, chooser="random")
    for idle in ({"answer": "llm"}, {"context": "none"}, {"priors": False}, {"eager_priors": True}):
        with pytest.raises(InputError, match="needs a general model to decide: add --llm URL"):
            TRACE.make(resources, TRACE.settings(**idle))
    resources.close()
    for settings in ({"candidates": 0}, {"keep": 1.5}, {"eager_priors": True, "priors": False}):
        with pytest.raises(InputError):
            TRACE.settings(**settings)


def test_prompts_name_their_question_once(ask_trace: AskTrace, demo: Graph, kenya: Entity) -> None:
    outcome = ask_trace(demo, Guide(NEIGHBOURS, answer="1"), kenya, answer="llm", eager_priors=True)
    for prompt in outcome.prompts:
        assert isinstance(prompt, Prompt)
        examples = 1 if prompt.kind == "narrate" else 0
        assert prompt.text.count("Question: ") == 1 + examples
