"""The page in a browser: asking, reading, changing a path or a query, and going back."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from watched_page import AMBIGUOUS, LARGEST, NEIGHBOURS, UNREACHABLE, Writer

sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
expect = sync_api.expect

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page
    from scripted_server import Running


@pytest.fixture(scope="module")
def writer() -> Writer:
    return Writer()


@pytest.fixture(scope="module")
def server(ask_demo, writer: Writer) -> "Iterator[Running]":
    with ask_demo(writer) as started:
        yield started


def ask(page: "Page", question: str) -> "Locator":
    page.fill("#question", question)
    page.press("#question", "Enter")
    article = page.locator("article.result").last
    expect(article).to_have_attribute("data-question", question)
    return article


def test_a_question_is_asked_by_keyboard_alone(server, visit, shoot) -> None:
    opened = visit(server)
    page = opened.page
    shoot(page, "empty")
    opened.press("/")
    page.keyboard.type(LARGEST)
    page.keyboard.press("Enter")
    article = page.locator("article.result")
    expect(article.locator(".answers")).to_contain_text("Nairobi")
    expect(article.locator(".sentences li")).to_have_count(3)
    expect(article.locator("[data-node]")).to_have_count(5)
    expect(article.locator(".edge")).to_have_count(4)
    expect(article.locator(".candidates li")).to_have_count(5)
    expect(article.locator(".query > pre")).to_contain_text("ORDER BY")
    stages = article.locator("ul.stages li")
    assert {"link", "write", "execute", "prove"} <= {
        text.split()[0] for text in stages.all_text_contents()
    }
    expect(page.locator(".status")).to_have_text(
        re.compile(r"^Answer: Nairobi\. Confidence 0\.\d\d\.$")
    )
    assert page.url.endswith("/?q=what+is+the+largest+city+in+Kenya%3F")
    shoot(page, "answered")


def test_sentence_arrow_row_and_query_light_up_together(server, visit) -> None:
    page = visit(server, "/?q=what+is+the+largest+city+in+Kenya%3F").page
    page.locator(".sentences li").nth(1).hover()
    lit = page.locator(".edge.lit")
    expect(lit).to_have_count(1)
    expect(lit.locator("title")).to_contain_text("common.topic.notable_types")
    assert "common.topic.notable_types" in page.locator(".line.lit").first.text_content()
    page.keyboard.press("t")
    row = page.locator("tr[data-part='2']").first
    row.hover()
    expect(page.locator(".sentences li.lit")).to_contain_text("Take the 1 largest")


def test_the_drawing_is_walked_by_arrow_keys(server, visit) -> None:
    page = visit(server, "/?q=what+is+the+largest+city+in+Kenya%3F").page
    page.locator("a.node.topic").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".node.answer")).to_be_focused()
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.classList.contains('node')")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".node.topic")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("article.entity h1")).to_have_text("Kenya")


def test_another_entity_is_another_answer(server, visit) -> None:
    page = visit(server).page
    ask(page, AMBIGUOUS)
    first = page.locator("[data-answer]").all_text_contents()
    page.locator("a[data-ask]").first.click()
    expect(page.locator(".topics .topic bdi")).to_have_text("Georgia")
    expect(page).to_have_url(re.compile(r"topic=m\."))
    assert page.locator("[data-answer]").all_text_contents() != first
    page.fill("#question", NEIGHBOURS)
    expect(page.locator(".topics .topic")).to_have_count(0)


def test_an_entity_is_added_by_its_name(server, visit) -> None:
    page = visit(server).page
    page.locator(".add summary").click()
    page.fill(".entity-name", "Peru")
    page.locator(".found button").first.click()
    expect(page.locator(".topic bdi")).to_have_text("Peru")
    article = ask(page, NEIGHBOURS)
    expect(article.locator(".answers").first).to_contain_text("Bolivia")


def test_an_edited_path_stands_beside_the_first_answer_and_back_returns(
    server, visit, shoot
) -> None:
    opened = visit(server)
    page = opened.page
    ask(page, LARGEST)
    opened.press("e")
    editor = page.locator(".edit-path textarea")
    expect(editor).to_be_focused()
    editor.fill("Kenya -> location.country.currency_used")
    expect(page.locator(".edit-path .lint")).to_have_text(re.compile("^From Kenya, follow"))
    editor.press("Control+Enter")
    edited = page.locator("article[data-edited]")
    expect(edited.locator(".answers")).to_contain_text("Kenyan Shilling")
    expect(edited.locator(".difference")).to_have_text(
        "Against the first answer: New: Kenyan Shilling. Gone: Nairobi."
    )
    expect(page.locator("article:not([data-edited]) .answers")).to_contain_text("Nairobi")
    shoot(page, "edited")
    page.go_back()
    expect(page.locator("article[data-edited]")).to_have_count(0)
    expect(page.locator("article .answers")).to_contain_text("Nairobi")
    page.go_back()
    expect(page.locator("article")).to_have_count(0)
    page.go_forward()
    expect(page.locator("article .answers")).to_contain_text("Nairobi")


def test_a_bad_path_is_told_with_its_line(server, visit) -> None:
    page = visit(server, "/?q=what+is+the+largest+city+in+Kenya%3F").page
    page.locator(".edit-path summary").click()
    page.fill(".edit-path textarea", "Kenya -> location.country.capital\nthis is wrong")
    lint = page.locator(".edit-path .lint")
    expect(lint).to_have_class("lint wrong")
    expect(lint).to_contain_text("line 2")


def test_relations_of_the_graph_are_offered_while_typing(server, visit) -> None:
    page = visit(server, "/?q=what+is+the+largest+city+in+Kenya%3F").page
    page.locator(".edit-path summary").click()
    editor = page.locator(".edit-path textarea")
    editor.fill("")
    editor.press_sequentially("Kenya -> location.country.cap")
    page.locator(".choices button").first.click()
    expect(editor).to_have_value("Kenya -> location.country.capital")
    expect(page.locator(".edit-path .lint")).to_have_text(re.compile("^From Kenya, follow"))


def test_a_candidate_is_run_by_its_number(server, visit) -> None:
    opened = visit(server, "/?q=what+is+the+largest+city+in+Kenya%3F")
    page = opened.page
    opened.press("2")
    edited = page.locator("article[data-edited]")
    expect(edited.locator(".sentences")).to_contain_text("location.country.capital")
    expect(edited.locator(".difference")).to_contain_text("The same answers.")


def test_a_query_is_run_and_made_a_path(server, visit, shoot) -> None:
    opened = visit(server, "/?q=what+is+the+largest+city+in+Kenya%3F")
    page = opened.page
    opened.press("s")
    editor = page.locator(".edit-query textarea")
    expect(editor).to_be_focused()
    editor.press("Control+Enter")
    expect(page.locator(".rows td a")).to_have_count(1)
    shoot(page, "query")
    editor.fill("SELECT ?x WHERE {\n  ?x ?y\n}")
    page.locator(".edit-query button").first.click()
    expect(page.locator(".edit-query .lint")).to_have_text(re.compile("^Line [23]: "))
    editor.fill(
        'SELECT ?x { ?k ns:type.object.name "Kenya"@en . ?k ns:location.country.capital ?x }'
    )
    page.locator("[data-to-path]").click()
    expect(page.locator(".edit-path textarea")).to_have_value(re.compile("Kenya"))


def test_the_theme_and_the_history_are_remembered(server, visit) -> None:
    page = visit(server).page
    ask(page, LARGEST)
    page.locator("[data-theme-toggle]").click()
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.locator("[data-opens=history]").click()
    expect(page.locator("ol.history a")).to_have_text([LARGEST])
    page.locator("[data-clear-history]").click()
    expect(page.locator("ol.history")).to_have_text("Nothing yet.")


def test_single_keys_can_be_switched_off(server, visit) -> None:
    opened = visit(server)
    page = opened.page
    opened.press("?")
    page.locator("[data-single-keys]").uncheck()
    page.keyboard.press("Escape")
    opened.press("/")
    expect(page.locator("#question")).not_to_be_focused()


def test_without_javascript_a_question_is_answered(server, visit, shoot) -> None:
    page = visit(server, java_script_enabled=False).page
    page.fill("#question", LARGEST)
    page.locator("form.ask button.main").click()
    expect(page.locator(".answers")).to_contain_text("Nairobi")
    expect(page.locator("svg.evidence")).to_be_visible()
    expect(page.locator(".table")).to_be_visible()
    page.locator("a.node.topic").click()
    expect(page.locator("article.entity h1")).to_have_text("Kenya")
    page.locator("a.relation", has_text="location.country.capital").first.click()
    expect(page.locator(".ends a")).to_have_text(["Nairobi"])


def test_no_answer_offers_what_to_try(server, visit, shoot) -> None:
    page = visit(server).page
    article = ask(page, UNREACHABLE)
    expect(article.locator(".nothing")).to_contain_text("No answer: ")
    expect(article.locator(".candidates")).to_have_attribute("open", "")
    shoot(page, "none")


def test_what_was_dropped_is_struck_through(server, visit, shoot) -> None:
    page = visit(server).page
    article = ask(page, "which city of a billion is the capital of Kenya?")
    expect(article.locator(".sentences s")).to_contain_text("above 999999999")
    expect(article.locator(".relaxed")).to_be_visible()
    shoot(page, "relaxed")


@pytest.mark.parametrize("width", [320, 700, 1400])
def test_the_json_of_an_answer_is_no_wider_than_the_page(server, visit, width) -> None:
    page = visit(server, viewport={"width": width, "height": 800}).page
    article = ask(page, LARGEST)
    article.locator("[data-json]").click()
    expect(article.locator("pre.json")).to_contain_text('"answers"')
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    wide = "(each) => each.getBoundingClientRect().right <= document.documentElement.clientWidth"
    assert article.locator("pre.json").evaluate(wide)


@pytest.mark.parametrize("is_allowed", [True, False])
def test_copying_works_without_a_clipboard_or_says_that_it_does_not(
    server, visit, is_allowed
) -> None:
    page = visit(server).page
    # As over plain http on a network.
    page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    copied = """(isAllowed) => {
        const copy = document.execCommand.bind(document);
        document.addEventListener("copy", () => { window.copied = getSelection().toString(); });
        document.execCommand = (name) => isAllowed && copy(name);
    }"""
    page.evaluate(copied, is_allowed)
    article = ask(page, LARGEST)
    button = article.locator("[data-copy]")
    button.click()
    expect(button).to_have_text("Copied" if is_allowed else "Not copied: the browser refuses")
    assert page.evaluate("window.copied") == ("Nairobi" if is_allowed else None)
