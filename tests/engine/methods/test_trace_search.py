"""TRACE asks what the paper says, of whom it says, and as often as its formula says."""

import hashlib
import json
import re
from collections.abc import Sequence

import pytest
from trace_script import QUESTION, AskTrace, Guide, Prompt, bare

from kbqa.engine.chat.model import Message
from kbqa.engine.methods.trace_search import NO_CONTEXT, START
from kbqa.kb.graph import Graph
from kbqa.sparql.crp import Entity

CAPITAL = "location.country.capital"
CURRENCY = "location.country.currency_used"
BORDERS = "location.location.adjoin_s"
ACROSS = "location.adjoining_relationship.adjoins"
COUNTRIES = "finance.currency.countries_used"


CHAIN = [BORDERS, ACROSS, CAPITAL]


def along(hops: int) -> Guide:
    """Go to the capitals of the neighbours, or only some of the hops, or one more."""

    def propose(prompt: Prompt) -> Sequence[str]:
        at = len(prompt.walked)
        if at == hops:
            return []
        return [CHAIN[at]] if at < len(CHAIN) else prompt.options[:1]

    return Guide(propose)


def calls_of_a_rollout(hops: int, depth: int, *, is_eager: bool) -> int:
    """Methods-retrieve C1: propose and rank; three a later hop; narrate and propose to end."""
    followed = 2 + 3 * (hops - 1) if hops else 0
    ended = 0 if hops == depth else (2 if hops else 1)
    return followed + ended + (2 if is_eager and hops else 0)


@pytest.mark.parametrize("is_eager", [False, True], ids=["lazy", "eager"])
@pytest.mark.parametrize("hops", range(5))
def test_a_rollout_takes_the_calls_of_the_formula(
    ask_trace: AskTrace, demo: Graph, kenya: Entity, hops: int, is_eager: bool
) -> None:
    outcome = ask_trace(demo, along(hops), kenya, eager_priors=is_eager)
    assert [len(each) for each in outcome.walked] == ([hops] if hops else [])
    assert len(outcome.prompts) == calls_of_a_rollout(hops, 4, is_eager=is_eager)
    steps = [step["kind"] for step in outcome.trace["steps"]]
    assert steps == outcome.kinds
    assert outcome.trace["decisions"] == len(outcome.prompts)


def test_the_published_counts_of_the_formula() -> None:
    counts = [(m, calls_of_a_rollout(m, 4, is_eager=False)) for m in range(1, 5)]
    assert counts == [(1, 4), (2, 7), (3, 10), (4, 11)]
    eager = [(m, calls_of_a_rollout(m, 4, is_eager=True)) for m in range(1, 5)]
    assert eager == [(1, 6), (2, 9), (3, 12), (4, 13)]


TREE = {
    (): [CAPITAL, CURRENCY, BORDERS],
    (BORDERS,): [ACROSS],
    (CURRENCY,): [COUNTRIES],
}
SCORES = {BORDERS: 0.95, CURRENCY: 0.7, CAPITAL: 0.6, ACROSS: 0.8}


def test_the_best_is_followed_first_and_siblings_wait(
    ask_trace: AskTrace, demo: Graph, kenya: Entity
) -> None:
    outcome = ask_trace(demo, Guide(TREE, SCORES), kenya)
    # The way back of the currency to its countries is no relation that is offered.
    assert outcome.walked == [[BORDERS, ACROSS], [CURRENCY], [CAPITAL]]
    assert [each["relevance"] for each in outcome.trace["trajectories"]] == [0.875, 0.7, 0.6]
    ended = [each["ended"] for each in outcome.trace["trajectories"]]
    assert ended == ["none proposed", "unreadable", "none proposed"]
    [step] = [step for step in outcome.trace["steps"] if step.get("unread")]
    assert (step["kind"], step["unread"], step.get("chosen")) == ("relations", [COUNTRIES], None)
    assert outcome.trace["stop"] == "stopped"
    assert (outcome.trace["rollouts"], outcome.trace["pending"]) == (3, 0)


def test_each_prompt_holds_what_its_step_may_know(
    ask_trace: AskTrace, demo: Graph, kenya: Entity
) -> None:
    tree = {**TREE, (CURRENCY,): ["common.topic.notable_types"]}
    outcome = ask_trace(demo, Guide(tree, SCORES), kenya, eager_priors=True)
    question = " ".join(QUESTION.split())
    for prompt in outcome.prompts:
        assert prompt.line("Question") == question
    advice = outcome.trace["priors"]
    assert set(advice) == {"The generalise is this."}
    for text in outcome.of("narrate"):
        said = text[text.rindex("Question: ") :].splitlines()
        assert len(said) == 3
        assert said[1].startswith("Relations so far: -> ")
        assert "Kenya" not in text.replace(question, "")
    for text in outcome.of("relations"):
        assert advice[0] not in text
        assert "Path so far" not in text
    for text in outcome.of("rank"):
        assert "Narrative" not in text
    contexts = [Prompt(text).line("Context") for text in outcome.of("relations")]
    assert contexts[0] == START
    assert all(context.startswith("Narrative [") for context in contexts[1:])
    assert all(Prompt(text).line("Path so far") for text in outcome.of("rank"))


@pytest.mark.parametrize("is_eager", [False, True], ids=["lazy", "eager"])
def test_priors_come_after_the_first_trajectory_that_ended(
    ask_trace: AskTrace, demo: Graph, kenya: Entity, is_eager: bool
) -> None:
    tree = {**TREE, (CURRENCY,): ["common.topic.notable_types"]}
    outcome = ask_trace(demo, Guide(tree, SCORES), kenya, eager_priors=is_eager)
    experiences = [Prompt(text).line("Experience") for text in outcome.of("rank")]
    assert experiences == ["None", "None", "The generalise is this."]
    [first, *_] = outcome.of("summarise")
    assert f"-> {BORDERS}, -> {ACROSS}" in first
    assert "no relation was proposed after it: the path has reached the answer, or" in first
    for text in (first, outcome.of("narrate")[0]):
        assert "`->` follows a relation forwards, `<-` backwards." in text
    counts = {kind: outcome.kinds.count(kind) for kind in ("summarise", "generalise")}
    assert counts == ({"summarise": 3, "generalise": 3} if is_eager else dict.fromkeys(counts, 1))
    if not is_eager:
        at = outcome.kinds.index("summarise")
        assert outcome.kinds[at : at + 3] == ["summarise", "generalise", "rank"]


def test_ablations_leave_out_their_calls_and_no_others(
    ask_trace: AskTrace, demo: Graph, kenya: Entity
) -> None:
    def kinds(**settings: object) -> set[str]:
        return set(ask_trace(demo, along(3), kenya, candidates=1, **settings).kinds)

    every = {"narrate", "relations", "rank", "summarise", "generalise"}
    assert kinds(eager_priors=True) == every
    assert kinds(priors=False) == every - {"summarise", "generalise"}
    alone = ask_trace(demo, Guide({(): [CAPITAL]}), kenya, context="none", priors=False)
    assert alone.kinds == ["relations", "rank", "relations"]
    assert [Prompt(text).line("Context") for text in alone.of("relations")] == [
        START,
        NO_CONTEXT,
    ]
    written = ask_trace(demo, Guide({(): [CAPITAL]}), kenya, context="relations", priors=False)
    assert Prompt(written.of("relations")[1]).line("Context") == f"-> {CAPITAL}"


def test_a_score_of_exactly_the_threshold_is_kept(
    ask_trace: AskTrace, demo: Graph, kenya: Entity
) -> None:
    scores = {CAPITAL: 0.5, CURRENCY: 0.4999}
    outcome = ask_trace(demo, Guide({(): [CAPITAL, CURRENCY]}, scores), kenya)
    assert outcome.walked == [[CAPITAL]]
    none = ask_trace(demo, Guide({(): [CURRENCY]}, scores), kenya)
    assert (none.walked, none.kinds, none.answer.answers) == ([], ["relations", "rank"], ())
    assert none.answer.problem is not None


def test_depth_and_iterations_bound_the_search(
    ask_trace: AskTrace, demo: Graph, kenya: Entity
) -> None:
    def every(prompt: Prompt) -> Sequence[str]:
        return prompt.options

    outcome = ask_trace(demo, Guide(every), kenya, depth=2, iterations=3, priors=False)
    assert max(len(each) for each in outcome.walked) == 2
    assert outcome.trace["stop"] == "iterations"
    assert outcome.trace["rollouts"] == 3
    assert outcome.trace["pending"] > 0
    hops = [step["hop"] for step in outcome.trace["steps"] if step["kind"] == "relations"]
    assert max(hops) == 2
    assert len(hops) <= 3 * 2
    assert all(
        len(step["chosen"]) <= 3 for step in outcome.trace["steps"] if step["kind"] == "relations"
    )


def most_calls(candidates: int, depth: int = 4, iterations: int = 30) -> int:
    """If every proposal is good enough: a rollout for each way on that is not the best of its hop.

    The first ranks nothing that others taught, and what the last teaches is never asked for.
    """
    begun = [0] + [
        hop for hop in range(1, depth) for _ in range((candidates - 1) * candidates ** (hop - 1))
    ]
    ranking = [3 * (depth - hop) - (hop == 0) for hop in begun[:iterations]]
    return sum(ranking) + iterations - 1 + len(ranking) - 1


@pytest.mark.parametrize(("candidates", "most"), [(3, 174), (4, 210)])
def test_a_question_takes_no_more_calls_than_documented(
    ask_trace: AskTrace, demo: Graph, kenya: Entity, candidates: int, most: int
) -> None:
    assert most_calls(candidates) == most
    outcome = ask_trace(demo, Guide(lambda prompt: prompt.options), kenya, candidates=candidates)
    assert 30 < len(outcome.prompts) <= most


def test_one_candidate_and_no_threshold_make_one_trajectory(
    ask_trace: AskTrace, demo: Graph, kenya: Entity
) -> None:
    guide = Guide(lambda prompt: prompt.options, dict.fromkeys([CAPITAL], 0.0), rank="{}")
    outcome = ask_trace(demo, guide, kenya, keep=0.0, candidates=1)
    assert len(outcome.walked) == 1
    assert outcome.trace["rollouts"] == 1


def test_topics_come_first_in_their_order(
    ask_trace: AskTrace, demo: Graph, kenya: Entity, uganda: Entity
) -> None:
    guide = Guide({(): [CAPITAL, CURRENCY]}, {CAPITAL: 0.9, CURRENCY: 0.8})
    outcome = ask_trace(demo, guide, uganda, kenya)
    topics = [each["topic"] for each in outcome.trace["trajectories"]]
    assert topics == [uganda.mid, kenya.mid, uganda.mid, kenya.mid]
    starts = [Prompt(text).line("The path starts at") for text in outcome.of("relations")]
    assert starts[0] == "Uganda"


def by_hash(messages: Sequence[Message]) -> str:
    """Decide by the hash of the prompt: the same for the same prompt, and hard to foresee."""
    prompt = Prompt(messages[-1].content)
    digest = hashlib.sha256(prompt.text.encode()).digest()
    match prompt.kind:
        case "relations":
            found = [o for o, byte in zip(prompt.options, digest * 9, strict=False) if byte < 70]
            return json.dumps(found)
        case "rank":
            return json.dumps(
                {bare(o): byte / 255 for o, byte in zip(prompt.options, digest, strict=False)}
            )
        case kind:
            return f"{kind} {digest.hex()[:12]}"


@pytest.mark.parametrize("number", range(12))
def test_lazy_priors_change_nothing_but_the_calls(
    ask_trace: AskTrace, demo: Graph, kenya: Entity, uganda: Entity, number: int
) -> None:
    def ask(is_eager: bool):
        topics = (kenya, uganda)[: 1 + number % 2]
        settings = {"iterations": 8, "keep": 0.4, "eager_priors": is_eager}
        return ask_trace(demo, by_hash, *topics, question=f"question {number}?", **settings)

    lazy, eager = ask(False), ask(True)
    assert lazy.trace["trajectories"] == eager.trace["trajectories"]
    assert lazy.answer.answers == eager.answer.answers
    assert lazy.answer.sparql == eager.answer.sparql
    decided = [
        [step for step in each.trace["steps"] if step["kind"] in ("relations", "rank")]
        for each in (lazy, eager)
    ]
    assert decided[0] == decided[1]
    assert len(lazy.prompts) <= len(eager.prompts)


def test_relations_are_cut_by_similarity_and_shown_by_name(
    ask_trace: AskTrace, demo: Graph, kenya: Entity
) -> None:
    question = "what currency is used in Kenya?"
    outcome = ask_trace(demo, Guide({}), kenya, question=question, max_relations=5)
    [prompt] = outcome.prompts
    assert len(prompt.options) == 5
    assert f"-> {CURRENCY}" in prompt.options
    assert prompt.options == sorted(prompt.options, key=lambda o: (bare(o), o.startswith("<")))
    [step] = outcome.trace["steps"]
    assert step["hidden"] > 10


def test_one_edge_has_one_name_and_out_leaves_out_the_others(
    ask_trace: AskTrace, demo: Graph, kenya: Entity
) -> None:
    [both] = ask_trace(demo, Guide({}), kenya).prompts
    [out] = ask_trace(demo, Guide({}), kenya, directions="out").prompts
    assert "-> location.location.containedby" in both.options
    assert "<- location.location.contains" not in both.options
    assert "`<-`" in both.text
    assert not any(re.match("<-|->", option) for option in out.options)
    assert "`<-`" not in out.text
    assert set(out.options) <= {bare(option) for option in both.options}


def test_strange_words_in_a_question_reach_the_prompts_as_they_are(
    ask_trace: AskTrace, demo: Graph, kenya: Entity
) -> None:
    question = "{0} {question} %s {{x}} 'a' \"b\" \\n $name {"
    outcome = ask_trace(demo, Guide({(): [CAPITAL]}), kenya, question=question, eager_priors=True)
    assert len(set(outcome.kinds)) == 5
    assert {prompt.line("Question") for prompt in outcome.prompts} == {question}
