"""The decisions of a question are counted, and the last is kept for the answer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbqa.engine.asked import Budget
from kbqa.engine.engine import Engine
from kbqa.engine.methods import Resources
from kbqa.kb.graph import Graph
from kbqa.sparql.errors import InputError


def test_the_last_decision_is_kept_for_the_answer() -> None:
    budget = Budget(5)
    assert [budget.take(3), budget.take(3), budget.take()] == [3, 1, 0]
    assert budget.is_exhausted
    assert [budget.take_last(), budget.take_last()] == [True, False]
    assert budget.spent == 5


def test_without_a_limit_every_decision_is_counted() -> None:
    budget = Budget()
    assert (budget.take(7), budget.take_last(), budget.spent) == (7, True, 8)
    assert not budget.is_exhausted


@given(st.integers(1, 20), st.lists(st.integers(0, 6), max_size=20))
def test_no_more_is_spent_than_allowed(limit: int, wanted: list[int]) -> None:
    budget = Budget(limit)
    for many in wanted:
        assert 0 <= budget.take(many) <= many
    assert budget.take_last()
    assert budget.spent == min(sum(wanted), limit - 1) + 1


def test_each_question_has_the_whole_budget(graph: Graph, scripted) -> None:
    with Engine(graph, scripted(), call_budget=3) as engine:
        first, second = engine.prepare("who?"), engine.prepare("who?")
    assert first.budget.limit == second.budget.limit == 3
    first.budget.take(2)
    assert second.budget.spent == 0


def test_a_budget_without_calls_is_refused(graph: Graph) -> None:
    with pytest.raises(InputError, match="the call budget is 0: use 1 or more"):
        Resources(graph, call_budget=0)
