"""The calls of a run are spent in the order of its questions, with any concurrency.

What tokens cost.
"""

import random
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbqa.engine.chat.model import MOST_CALLS, PRICES, Price, RunBudget, find_price, parse_price
from kbqa.sparql.errors import InputError

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


@pytest.mark.parametrize(
    ("model", "priced_as"),
    [
        ("gpt-4o-mini", "gpt-4o-mini"),
        ("openai/gpt-4o-mini-2024-07-18", "gpt-4o-mini"),
        ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("meta-llama/Llama-2-7b-chat-hf", "llama-2-7b"),
        ("gpt-4o", None),
        ("gpt-4o-mini-audio-preview", None),
        ("gpt-4o-mini-search-preview-2025-03-11", None),
        ("llama-3.1-8b-instruct-q4", None),
        ("my-llama-3.1-8b", None),
        ("", None),
    ],
)
def test_a_model_is_known_by_its_name(model, priced_as):
    assert find_price(model) == (None if priced_as is None else PRICES[priced_as])


def test_the_paper_prices_are_its_own():
    # papers/routerkgqa.txt, the caption of Table 2
    assert [(PRICES[name].input_usd, PRICES[name].output_usd) for name in sorted(PRICES)] == [
        (0.15, 0.60),
        (0.05, 0.25),
        (0.10, 0.10),
    ]


def test_what_is_free_costs_nothing_though_nobody_counts():
    assert Price(0.0, 0.0).cost_usd(0, 0) == 0.0
    assert Price(1.0, 0.0).cost_usd(0, 0) is None


@pytest.mark.parametrize("text", ["", "1", "1/", "/1", "1/2/3", "-1/2", "1,5/2", "nan/1", "a/b"])
def test_what_is_no_price_is_refused(text):
    with pytest.raises(InputError, match="is not a price"):
        parse_price(text)


@pytest.mark.parametrize("text", ["0.5/2", ".5/2.", " 0.50 / 2.00 "])
def test_a_price_is_read(text):
    assert parse_price(text) == Price(0.5, 2.0)
