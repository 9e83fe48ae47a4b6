"""The calls of a run are spent in the order of its questions, with any concurrency."""

import random
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbqa.engine.chat.run_budget import MOST_CALLS, RunBudget

WANTED = st.lists(st.integers(0, MOST_CALLS), max_size=12)
"""The calls that each question would take; one that would take none does not ask."""


def _spend(calls: int, wanted: Sequence[int], threads: int) -> list[int]:
    """Spend the calls of a run, and return how many each question took."""
    budget = RunBudget(calls)
    pause = random.Random(threads)

    def answer(place: int) -> int:
        threading.Event().wait(pause.random() / 2000)
        taken = min(wanted[place], budget.grant(place)) if wanted[place] else 0
        budget.settle(place, taken)
        return taken

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(answer, range(len(wanted))))


@given(st.integers(0, 60), WANTED, st.integers(2, 5))
def test_threads_make_no_difference(calls: int, wanted: Sequence[int], threads: int) -> None:
    taken = _spend(calls, wanted, threads=1)
    left = calls
    for each, want in zip(taken, wanted, strict=True):
        assert each == min(want, left)
        left -= each
    assert _spend(calls, wanted, threads) == taken


@given(st.integers(0, 60), WANTED, st.sets(st.integers(0, 11)))
def test_a_question_that_is_asked_again_gets_what_is_left(
    calls: int, wanted: Sequence[int], failed: set[int]
) -> None:
    taken = _spend(calls, wanted, threads=1)
    resumed = RunBudget(calls)
    again = [place for place in range(len(wanted)) if place in failed]
    for place, each in enumerate(taken):
        if place not in again:
            resumed.settle(place, each)
    for place in again:
        taken[place] = min(wanted[place], resumed.grant(place))
        resumed.settle(place, taken[place])
    assert sum(taken) <= calls


def test_a_question_does_not_wait_if_there_is_enough_for_all_before_it() -> None:
    assert RunBudget(3 * MOST_CALLS).grant(2) == MOST_CALLS


@pytest.mark.parametrize(("taken", "left"), [(MOST_CALLS, 2), (0, MOST_CALLS)])
def test_a_question_waits_for_those_that_decide_what_is_left(taken: int, left: int) -> None:
    budget = RunBudget(MOST_CALLS + 2)
    with ThreadPoolExecutor(1) as pool:
        granted = pool.submit(budget.grant, 1)
        assert not granted.done()
        budget.settle(0, taken)
        assert granted.result(20) == left
