"""A real headless Chromium before a real server, over graphs that are made to be hard to show.

Without Playwright or Chromium the tests are skipped. The accessibility checks also need axe-core,
which is not a Python package: `npm pack axe-core`, unpack it, and name its axe.min.js by AXE_CORE.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from watched_page import HOSTILE, HUB_EDGES, Visit, Writer

from kbqa.kb.loading.load import load_freebase
from kbqa.kb.loading.rules import profile

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page
    from scripted_server import Running

CHROMIUM = Path("/usr/bin/chromium")
NS = "http://rdf.freebase.com/ns/"
SCREENSHOTS = os.environ.get("KBQA_TEST_SCREENSHOTS")
"""A folder to which the tests write pictures of the page; none are made without it."""


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    """Chromium. While it runs, so does its event loop, and no other test of this process can."""
    pytest.importorskip("playwright", reason="needs playwright")
    if not CHROMIUM.exists():
        pytest.skip(f"needs {CHROMIUM}")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def visit(browser: "Browser") -> "Iterator[Callable[..., Visit]]":
    """Opens watched pages, and checks at the end what they did."""
    visits: list[Visit] = []
    contexts: list[BrowserContext] = []

    def open_page(server: "Running", address: str = "/", **options: object) -> Visit:
        context = browser.new_context(**options)  # type: ignore[arg-type]
        context.set_default_timeout(20_000)
        contexts.append(context)
        found = Visit(context.new_page(), server.url)
        found.page.on("request", lambda request: found.requests.append(request.url))
        found.page.on("console", lambda message: found.note(message.type, message.text))
        found.page.on("pageerror", lambda error: found.complaints.append(str(error)))
        found.page.on("dialog", lambda dialog: found.complaints.append(dialog.message))
        found.page.goto(f"{server.url}{address}")
        visits.append(found)
        return found

    yield open_page
    for each in visits:
        each.check()
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def ask_demo(
    demo_store: Path, running: "Callable[..., AbstractContextManager[Running]]"
) -> "Callable[..., AbstractContextManager[Running]]":
    """Runs a server on the demo graph with a writer of the test's own."""
    return partial(_run, running, demo_store)


@pytest.fixture(scope="session")
def ask_hard(
    hard_store: Path, running: "Callable[..., AbstractContextManager[Running]]"
) -> "Callable[..., AbstractContextManager[Running]]":
    """Runs a server on the hostile graph with a writer of the test's own."""
    return partial(_run, running, hard_store)


@contextmanager
def _run(
    running: "Callable[..., AbstractContextManager[Running]]",
    store: Path,
    writer: Writer,
    unsure_below: float = 0.0,
    **options: object,
) -> "Iterator[Running]":
    from scripted_server import scripted_engine

    opened = partial(scripted_engine, store, writer, unsure_below)
    with running(store, open_engine=opened, **options) as started:
        for _ in range(400):
            if started.client.get("/readyz").status_code == 200:
                break
        yield started


@pytest.fixture(scope="session")
def hard_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose names attack the page, with a hub of many edges."""
    lines = ['m.0hub type.object.name "Hub"@en', "m.0hub type.object.type location.country"]
    for mid, name in HOSTILE.items():
        written = name.replace('"', '\\"')
        lines += [f'{mid} type.object.name "{written}"@en', f"m.0hub holds.name.of {mid}"]
    for n in range(HUB_EDGES):
        lines.append(f"m.0hub location.location.contains m.0place{n}")
        lines.append(f'm.0place{n} type.object.name "Place {n}"@en')
    directory = tmp_path_factory.mktemp("hard")
    dump = directory / "hard.nt"
    with dump.open("w", encoding="utf-8") as out:
        for line in lines:
            subject, relation, value = line.split(" ", 2)
            end = value if value.startswith('"') else f"<{NS}{value}>"
            out.write(f"<{NS}{subject}>\t<{NS}{relation}>\t{end}\t.\n")
    load_freebase([dump], directory / "store", rules=profile("full"))
    return directory / "store"


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core."""
    place = os.environ.get("AXE_CORE")
    if place is None or not Path(place).is_file():
        pytest.skip("needs axe-core: `npm pack axe-core`, and AXE_CORE=…/package/axe.min.js")
    return Path(place).read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def shoot() -> "Callable[[Page, str], None]":
    """Takes a picture of the page, if pictures are wanted."""

    def take(page: "Page", name: str) -> None:
        if SCREENSHOTS is not None:
            Path(SCREENSHOTS).mkdir(exist_ok=True)
            page.screenshot(path=Path(SCREENSHOTS) / f"{name}.png", full_page=True)

    return take
