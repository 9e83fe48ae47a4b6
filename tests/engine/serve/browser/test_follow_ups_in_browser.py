"""Follow-ups and several questions in one, in a browser."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from watched_page import BOTH, CAPITAL, HALF, Writer

sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
expect = sync_api.expect

if TYPE_CHECKING:
    from scripted_server import Running

ANSWERED = "/?q=what+is+the+capital+of+Kenya%3F"
SIZES = {"wide": {"width": 1280, "height": 900}, "narrow": {"width": 390, "height": 844}}


@pytest.fixture(scope="module")
def server(ask_demo) -> "Iterator[Running]":
    with ask_demo(Writer()) as started:
        yield started


@pytest.mark.parametrize("size", SIZES)
def test_a_follow_up_knows_the_question_before_and_back_returns(server, visit, shoot, size) -> None:
    page = visit(server, ANSWERED, viewport=SIZES[size]).page
    expect(page.locator(".topics .after")).to_have_count(0)
    shoot(page, f"before-{size}")
    page.fill("#follow-up", "and its population?")
    page.press("#follow-up", "Enter")
    article = page.locator("article.result")
    expect(article).to_have_attribute("data-question", "Nairobi's population?")
    expect(article.locator(".asked")).to_have_text("“and its population?” is understood as:")
    expect(page.locator(".topics .after")).to_contain_text(f"After: {CAPITAL}")
    expect(page.locator("#question")).to_have_value("and its population?")
    assert page.url.endswith("/?q=and+its+population%3F&after=what+is+the+capital+of+Kenya%3F")
    assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size]["width"]
    shoot(page, f"followed-{size}")
    page.reload()
    expect(article).to_have_attribute("data-question", "Nairobi's population?")
    expect(page.locator(".topics .after")).to_have_count(1)
    page.go_back()
    expect(article.locator(".answers")).to_contain_text("Nairobi")
    expect(page.locator(".topics .after")).to_have_count(0)


def test_what_is_before_is_removed_with_its_chip(server, visit) -> None:
    page = visit(server, f"/?q=and+its+population%3F&{ANSWERED[2:].replace('q=', 'after=')}").page
    page.locator("[data-drop-after]").click()
    expect(page.locator(".topics .after")).to_have_count(0)
    page.fill("#question", CAPITAL)
    page.press("#question", "Enter")
    expect(page.locator("article.result .answers")).to_contain_text("Nairobi")
    assert page.url.endswith(ANSWERED)


def test_without_javascript_a_follow_up_is_answered(server, visit) -> None:
    page = visit(server, ANSWERED, java_script_enabled=False).page
    page.fill("#follow-up", "and its population?")
    page.locator(".follow button").click()
    expect(page.locator(".asked")).to_have_text("“and its population?” is understood as:")
    page.locator(".after a").click()
    expect(page.locator(".asked")).to_have_count(0)


@pytest.mark.parametrize("size", SIZES)
def test_each_of_two_questions_in_one_has_its_answer_and_proof(server, visit, shoot, size) -> None:
    page = visit(server, viewport=SIZES[size]).page
    page.fill("#question", BOTH)
    page.press("#question", "Enter")
    articles = page.locator("article.result")
    expect(articles).to_have_count(2)
    for article, answer in zip(articles.all(), ("Lima", "Peruvian Sol"), strict=True):
        expect(article.locator(".answers")).to_contain_text(answer)
        expect(article.locator("svg.evidence")).to_be_visible()
    shoot(page, f"both-{size}")
    first, second = articles.all()
    second.locator("[data-part='0']").first.hover()
    expect(first.locator(".lit")).to_have_count(0)
    second.locator(".edit-path summary").click()
    second.locator(".edit-path textarea").fill("Peru -> location.country.capital")
    second.locator(".edit-path button", has_text="Run the path").click()
    edited = page.locator("article[data-edited]")
    expect(edited.locator(".difference")).to_contain_text("New: Lima. Gone: Peruvian Sol.")
    expect(articles).to_have_count(3)
    expect(page.locator(".follow")).to_have_count(1)


@pytest.mark.parametrize("size", SIZES)
def test_half_an_answer_says_which_half_is_missing(server, visit, shoot, size) -> None:
    page = visit(server, viewport=SIZES[size]).page
    page.fill("#question", HALF)
    page.press("#question", "Enter")
    expect(page.locator("article.result")).to_have_count(2)
    found, missing = page.locator("article.result").all()
    expect(found.locator(".answers").first).to_contain_text("Bolivia")
    expect(missing.locator(".nothing")).to_contain_text("No answer: ")
    expect(page.locator(".status")).to_have_text(re.compile(r"^Answer: .* No answer: "))
    shoot(page, f"half-{size}")
