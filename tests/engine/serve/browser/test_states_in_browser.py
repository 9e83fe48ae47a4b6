"""The states of the page, made by faults: waiting, failing, hostile and endless graphs."""

import hashlib
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pytest
from watched_page import (
    BOTH,
    CAPITAL,
    CAPITAL_PATH,
    HOSTILE,
    HUB_EDGES,
    LARGEST,
    UNREACHABLE,
    Writer,
)

from kbqa.kb.graph import printable
from kbqa.sparql.errors import ModelError

sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
expect = sync_api.expect

if TYPE_CHECKING:
    from playwright.sync_api import Page
    from scripted_server import Running

SCRIPTED = Path(__file__).parents[1] / "scripted_server.py"
ANSWERED = f"/?{urlencode({'q': LARGEST})}"
FOLLOWED = f"/?{urlencode({'q': 'and its population?', 'after': CAPITAL})}"
PARTS = f"/?{urlencode({'q': BOTH})}"
NONE = f"/?{urlencode({'q': UNREACHABLE})}"
HOSTILE_PATH = f"/?{urlencode({'path': 'm.0hub -> holds.name.of'})}"


@pytest.fixture(scope="module")
def writer() -> Writer:
    return Writer()


@pytest.fixture(scope="module")
def server(ask_demo, writer: Writer) -> "Iterator[Running]":
    with ask_demo(writer) as started:
        yield started


@pytest.fixture(scope="module")
def hard(ask_hard) -> "Iterator[Running]":
    with ask_hard(Writer()) as started:
        yield started


@contextmanager
def held(writer: Writer) -> Iterator[None]:
    """Let the model wait."""
    writer.may_write.clear()
    try:
        yield
    finally:
        writer.may_write.set()


def submit(page: "Page", question: str) -> None:
    page.fill("#question", question)
    page.press("#question", "Enter")


def test_progress_is_shown_and_escape_cancels(server, visit, writer, shoot) -> None:
    opened = visit(server)
    page = opened.page
    with held(writer):
        submit(page, "is this question held up in Kenya?")
        expect(page.locator(".steps li[aria-current]")).to_have_text("Writing paths")
        expect(page.locator(".known")).to_contain_text("Kenya")
        expect(page.locator(".status")).to_have_text("Writing paths.")
        shoot(page, "streaming")
        second = visit(server).page
        submit(second, "and does this one wait for Kenya?")
        expect(second.locator(".cancel")).to_be_visible()
        for _ in range(100):
            if server.service.waiting == 1:
                break
            time.sleep(0.1)
        second.keyboard.press("Escape")
        expect(second.locator(".status")).to_have_text("Cancelled.")
        for _ in range(100):
            if server.service.waiting == 0:
                break
            time.sleep(0.1)
        assert server.service.waiting == 0
        page.locator(".cancel").click()
        expect(page.locator(".progress")).to_be_hidden()


def test_a_failing_model_is_a_problem_that_can_be_tried_again(server, visit, writer, shoot) -> None:
    page = visit(server).page
    writer.failure = ModelError("secret: /home/me/model")
    try:
        submit(page, "does the model fail in Kenya?")
        problem = page.locator(".problem")
        expect(problem.locator("h2")).to_have_text("The server failed")
        assert "secret" not in page.content()
        shoot(page, "problem")
    finally:
        writer.failure = None
    problem.locator("button").click()
    expect(page.locator("article.result")).to_have_attribute("data-status", "none")
    expect(page.locator(".problem")).to_have_count(0)


def test_a_full_queue_counts_down_until_asking_again(ask_demo, visit) -> None:
    from kbqa.engine.serve.served import Settings

    writer = Writer()
    with ask_demo(writer, settings=Settings(queue=0, batch_size=1)) as full, held(writer):
        first, page = visit(full).page, visit(full).page
        submit(first, "who has the only place in Kenya?")
        expect(first.locator(".steps li[aria-current]")).to_have_text("Writing paths")
        submit(page, LARGEST)
        button = page.locator(".problem button")
        expect(button).to_have_text(re.compile(r"^Try again in \d+ s$"))
        expect(button).to_be_disabled()
        first.keyboard.press("Escape")
        expect(button).to_have_text("Try again")
        writer.may_write.set()
        button.click()
        expect(page.locator(".answers")).to_contain_text("Nairobi")


def test_a_server_that_dies_is_not_asked_again(small_store: Path, browser, visit) -> None:
    command = [sys.executable, str(SCRIPTED), str(small_store), "60"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        address = re.search(r"http://[\d.:]+", process.stderr.readline())
        assert address is not None
        page = browser.new_page()
        page.goto(f"{address[0]}/")
        for _ in range(300):
            if page.request.get(f"{address[0]}/readyz").ok:
                break
            time.sleep(0.2)
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        submit(page, "what is jamaican money called?")
        expect(page.locator(".steps li[aria-current]")).to_have_text("Writing paths")
        process.kill()
        expect(page.locator(".problem h2")).to_have_text("The connection was lost")
        time.sleep(0.5)
        # A browser fetches the icon when it likes.
        assert [url for url in asked if "/static/" not in url] == [f"{address[0]}/page/ask"]
        page.close()
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


@contextmanager
def slowly_started(running, store: Path) -> "Iterator[tuple[Running, threading.Event]]":
    """Run a server whose model is loaded once the event is set."""
    from scripted_server import scripted_engine

    may_load = threading.Event()

    @contextmanager
    def slow_engine():
        may_load.wait(60)
        with scripted_engine(store, Writer()) as engine:
            yield engine

    with running(store, open_engine=slow_engine) as starting:
        try:
            yield starting, may_load
        finally:
            may_load.set()


def test_the_page_waits_for_the_model_and_then_asks(demo_store, running, visit, shoot) -> None:
    with slowly_started(running, demo_store) as (starting, may_load):
        page = visit(starting, ANSWERED).page
        expect(page.locator(".problem")).to_contain_text("The model is being loaded")
        shoot(page, "starting")
        may_load.set()
        expect(page.locator(".answers")).to_contain_text("Nairobi")


def test_a_key_is_asked_for_and_used(ask_demo, visit) -> None:
    from kbqa.engine.serve.guard import Access, ApiKey, ApiKeys

    keys = ApiKeys({"alice": ApiKey(sha256=hashlib.sha256(b"secret").hexdigest())})
    with ask_demo(Writer(), access=Access(keys=keys)) as locked:
        page = visit(locked, ANSWERED).page
        page.locator("#results [data-opens=key]").click()
        page.fill("input[name=key]", "secret")
        page.keyboard.press("Enter")
        expect(page.locator(".answers")).to_contain_text("Nairobi")
        submit(page, UNREACHABLE)
        expect(page.locator("article.result")).to_have_attribute("data-status", "none")


def test_hostile_names_are_shown_as_text(hard, visit, shoot) -> None:
    page = visit(hard, HOSTILE_PATH).page
    names = page.locator(".answers bdi").all_text_contents()
    shown = [printable(name).strip() for name in HOSTILE.values()]
    assert sorted(name.strip() for name in names) == sorted(shown)
    for name in ("m.0img", "m.0script"):
        assert HOSTILE[name] in page.locator(".evidence").text_content()
    shoot(page, "hostile")
    opened = visit(hard, "/entity/m.0img").page
    expect(opened.locator("h1")).to_have_text(HOSTILE["m.0img"])


def test_a_hub_shows_some_and_can_be_closed(hard, visit, shoot) -> None:
    page = visit(hard, "/entity/m.0hub").page
    link = page.locator("a.relation", has_text="location.location.contains")
    expect(page.locator("li", has=link).locator(".count")).to_have_text(f"{HUB_EDGES:,}")
    link.click()
    expect(page.locator(".ends li")).to_have_count(20)
    expect(page.locator(".ends .more")).to_have_text("20 of 5,000 · more")
    shoot(page, "entity")
    page.locator("[data-more]").click()
    expect(page.locator(".ends li")).to_have_count(40)
    link.click()
    expect(page.locator(".ends")).to_have_count(0)
    page.go_back()
    expect(page.locator(".ends li")).to_have_count(20)
    page.fill("input.filter", "name")
    expect(page.locator(".relations > li:visible")).to_have_count(2)


THEMES = ("light", "dark")
STATES = {
    "empty": "/",
    "answered": ANSWERED,
    "followed": FOLLOWED,
    "parts": PARTS,
    "none": NONE,
    "problem": f"/?{urlencode({'path': 'no path at all'})}",
    "entity": "/entity/m.d38q4d_7",
}


def open_everything(page: "Page", state: str) -> None:
    if state in ("answered", "none", "followed", "parts"):
        expect(page.locator("article[data-ready]").last).to_be_visible()
    for details in page.locator("article > details, .edit").all():
        details.evaluate("each => { each.open = true }")


def check_access(page: "Page", axe: str) -> None:
    page.evaluate(axe)
    found = page.evaluate("axe.run()")
    problems = [
        (each["id"], [node["html"][:200] for node in each["nodes"][:3]])
        for each in found["violations"]
    ]
    assert problems == []


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("state", STATES)
def test_nothing_is_inaccessible(server, visit, axe, shoot, state: str, theme: str) -> None:
    page = visit(server, STATES[state], color_scheme=theme, reduced_motion="reduce").page
    open_everything(page, state)
    check_access(page, axe)
    shoot(page, f"{state}-{theme}")


@pytest.mark.parametrize("theme", THEMES)
def test_nothing_is_inaccessible_while_asking(server, visit, axe, writer, shoot, theme) -> None:
    page = visit(server, color_scheme=theme, reduced_motion="reduce").page
    with held(writer):
        submit(page, f"is a question in {theme} held up in Kenya?")
        expect(page.locator(".steps li[aria-current]")).to_have_text("Writing paths")
        check_access(page, axe)
        shoot(page, f"streaming-{theme}")


@pytest.mark.parametrize("theme", THEMES)
def test_nothing_is_inaccessible_while_starting(
    demo_store, running, visit, axe, shoot, theme
) -> None:
    with slowly_started(running, demo_store) as (starting, _):
        page = visit(starting, ANSWERED, color_scheme=theme, reduced_motion="reduce").page
        expect(page.locator(".problem")).to_contain_text("The model is being loaded")
        check_access(page, axe)
        shoot(page, f"starting-{theme}")


@pytest.mark.parametrize("theme", THEMES)
def test_nothing_is_inaccessible_when_unsure(ask_demo, visit, axe, shoot, theme) -> None:
    with ask_demo(Writer(), unsure_below=1.0) as unsure:
        page = visit(unsure, ANSWERED, color_scheme=theme, reduced_motion="reduce").page
        expect(page.locator(".unsure")).to_have_text(re.compile(r"^Not sure \(0\.\d\d\)"))
        open_everything(page, "answered")
        check_access(page, axe)
        shoot(page, f"unsure-{theme}")


@pytest.mark.parametrize("theme", THEMES)
def test_nothing_is_inaccessible_when_edited(server, visit, axe, shoot, theme) -> None:
    opened = visit(server, ANSWERED, color_scheme=theme, reduced_motion="reduce")
    page = opened.page
    expect(page.locator("article[data-ready]")).to_be_visible()
    opened.press("e")
    page.locator(".edit-path textarea").fill(CAPITAL_PATH)
    page.locator(".edit-path textarea").press("Control+Enter")
    expect(page.locator("article[data-edited][data-ready]")).to_be_visible()
    open_everything(page, "answered")
    check_access(page, axe)
    shoot(page, f"edited-{theme}")


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("dialog", ["keys", "history"])
def test_dialogs_are_accessible(server, visit, axe, shoot, dialog: str, theme: str) -> None:
    page = visit(server, ANSWERED, color_scheme=theme, reduced_motion="reduce").page
    expect(page.locator("article[data-ready]")).to_be_visible()
    page.locator(f"[data-opens={dialog}]").click()
    expect(page.locator(f"dialog#{dialog}")).to_be_visible()
    check_access(page, axe)
    shoot(page, f"{dialog}-{theme}")


@pytest.mark.parametrize("width", [320, 640], ids=["narrow", "zoomed to 200 %"])
@pytest.mark.parametrize("state", STATES)
def test_nothing_scrolls_sideways(server, visit, shoot, state: str, width: int) -> None:
    page = visit(server, STATES[state], viewport={"width": width, "height": 800}).page
    open_everything(page, state)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    shoot(page, f"{state}-{width}")
