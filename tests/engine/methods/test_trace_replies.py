"""Whatever a language model replies, TRACE takes nothing that was not offered, and never fails."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_script import AskTrace, Guide

from kbqa.engine.methods.trace_search import read_ranking
from kbqa.kb.graph import Graph
from kbqa.sparql.crp import Entity

CAPITAL = "location.country.capital"
CURRENCY = "location.country.currency_used"
REPLIES = [
    " ",
    "x" * 10_000,
    "[" * 5_000,
    "I'm sorry, but I cannot help with that.",
    "```python\n['a.b', 'c.d']\n```",
    '["location.country.capital", ',
    '{"location.country.capital": 0.',
    "STOP",
    "stop.",
    "None",
    "[]",
    "{}",
    "{[]}, ((",
    "Question: what else?\n1. nothing\n",
    "999\n-1\n0",
    '{"location.country.capital": "high", "x.y": NaN}',
    "__import__('os').system('exit 1')",
]


@pytest.mark.parametrize("kind", ["relations", "rank", "narrate", "summarise", "generalise"])
def test_any_reply_leaves_an_answer_or_a_reason(
    ask_trace: AskTrace, demo: Graph, kenya: Entity, kind: str
) -> None:
    for reply in REPLIES:
        guide = Guide({(): [CAPITAL, CURRENCY]}, **{kind: reply})
        outcome = ask_trace(demo, guide, kenya, iterations=3, eager_priors=True)
        assert outcome.answer.answers or outcome.answer.problem
        for step in outcome.trace["steps"]:
            assert set(step.get("chosen", ())) <= set(step.get("offered", ()))
        for prompt in outcome.prompts:
            assert prompt.line("Question").startswith("what {is} it that")


@pytest.mark.parametrize(
    "reply",
    [
        f'["{CAPITAL}"]',
        f"['{CAPITAL.upper()}', 'people.person.parents']",
        f'```json\n["-> {CAPITAL}"]\n```',
        f"- **{CAPITAL}**",
        f"-> {CAPITAL}",
        f"1. `{CAPITAL}`\nSTOP",
        f'Sure! ["{CAPITAL}", "{CAPITAL}"]',
    ],
)
def test_proposals_in_many_forms(
    ask_trace: AskTrace, demo: Graph, kenya: Entity, reply: str
) -> None:
    outcome = ask_trace(demo, Guide({}, relations=reply), kenya, depth=1)
    assert outcome.walked == [[CAPITAL]]
    assert outcome.names == ["Nairobi"]


def test_more_than_asked_for_is_cut(ask_trace: AskTrace, demo: Graph, kenya: Entity) -> None:
    outcome = ask_trace(demo, Guide(lambda prompt: prompt.options), kenya, depth=1, candidates=2)
    assert len(outcome.walked) == 2
    [step] = [step for step in outcome.trace["steps"] if step["kind"] == "relations"]
    assert len(step["chosen"]) == 2


@pytest.mark.parametrize("reply", ["Hard to say.", '{"x.y": 1.0}', '{"a": '])
def test_an_unreadable_ranking_keeps_the_first_proposal_at_the_threshold(
    ask_trace: AskTrace, demo: Graph, kenya: Entity, reply: str
) -> None:
    guide = Guide({(): [CURRENCY, CAPITAL]}, rank=reply)
    outcome = ask_trace(demo, guide, kenya, depth=1, keep=0.4)
    assert outcome.walked == [[CURRENCY]]
    assert outcome.trace["trajectories"][0]["scores"] == [0.4]
    [step] = [step for step in outcome.trace["steps"] if step["kind"] == "rank"]
    assert step["unread"]
    assert outcome.trace["unread"] == 1


@pytest.mark.parametrize("reply", ["NONE", "{}", "None of the relations fits."])
def test_a_ranking_that_says_that_none_fits_ends_the_path(
    ask_trace: AskTrace, demo: Graph, kenya: Entity, reply: str
) -> None:
    outcome = ask_trace(demo, Guide({(): [CURRENCY, CAPITAL]}, rank=reply), kenya)
    assert (outcome.walked, outcome.answer.answers) == ([], ())
    assert outcome.trace["unread"] == 0


def test_what_a_ranking_leaves_out_is_not_followed(
    ask_trace: AskTrace, demo: Graph, kenya: Entity
) -> None:
    guide = Guide({(): [CURRENCY, CAPITAL]}, rank=f'{{"{CAPITAL}": 7}}')
    outcome = ask_trace(demo, guide, kenya, depth=1)
    assert outcome.walked == [[CAPITAL]]
    assert outcome.trace["trajectories"][0]["scores"] == [1.0]


@settings(max_examples=25)
@given(st.one_of(st.text(), st.dictionaries(st.sampled_from("ab"), st.floats()).map(str)))
def test_rankings_score_every_option_or_the_first_alone(reply: str) -> None:
    read = read_ranking(reply, ["a", "b"], 0.5)
    assert set(read.chosen) == {0, 1} or (read.chosen == (0,) and read.unread)
    assert all(0 <= score <= 1 for score in read.scores)
    assert list(read.scores) == sorted(read.scores, reverse=True)
