"""What tokens cost."""

import pytest

from kbqa.engine.chat.prices import PRICES, Price, find_price, parse_price
from kbqa.sparql.errors import InputError


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
