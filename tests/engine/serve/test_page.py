"""The page as the server renders it: every state is an address, and works without JavaScript."""

import hashlib
import html
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kbqa.engine.engine import Engine
from kbqa.kb.graph import Graph

if TYPE_CHECKING:
    from scripted_server import Running

MONEY = "what is jamaican money called?"
NOTHING = "what is the area of jamaica?"
PATH = "Jamaica (m.03_r3) -> location.country.capital"
VOID = {"meta", "link", "input", "br", "hr", "img", "path", "rect", "circle"}


class Page(HTMLParser):
    """A page's tags with their attributes, and its words; it is well formed, and its ids differ."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words = ""
        self.feed(text)
        assert self.open == []
        ids = [attributes["id"] for _, attributes in self.tags if "id" in attributes]
        assert len(ids) == len(set(ids))
        names = {name for _, attributes in self.tags for name in attributes}
        assert not {name for name in names if name == "style" or name.startswith("on")}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"script", "title"} & set(self.open):
            self.words += data

    def all(self, tag: str, **wanted: str) -> list[dict[str, str | None]]:
        return [
            attributes
            for name, attributes in self.tags
            if name == tag and all(attributes.get(key) == value for key, value in wanted.items())
        ]


def fetch(server: "Running", address: str, status: int = 200, **headers: str) -> Page:
    response = server.client.get(address, headers=headers)
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    return Page(response.text)


def ask(server: "Running", question: str, **headers: str) -> Page:
    return fetch(
        server, str(server.client.build_request("GET", "/", params={"q": question}).url), **headers
    )


def test_the_empty_page_has_a_field_and_says_what_the_graph_is(server: "Running") -> None:
    page = fetch(server, "/")
    assert page.all("input", name="q", value="")
    assert "a store, 47 triples" in page.words


def test_a_question_is_answered_without_a_script(server: "Running") -> None:
    page = ask(server, MONEY)
    [article] = page.all("article")
    assert article["data-status"] == "answered"
    for words in (
        "Jamaican dollar",
        "From Jamaica, follow location.country.currency_used to the answers.",
        "SELECT",
        "This one answers.",
    ):
        assert words in page.words
    assert len([each for _, each in page.tags if "data-node" in each]) == 2
    assert page.all("a", href="/entity/m.04xc2m")
    assert len(page.all("li", **{"data-part": "0"})) == 1
    assert page.all("g", **{"data-part": "0"}), "the arrow proves the sentence"
    assert page.all("tr", **{"data-part": "0"})
    assert page.all("span", **{"data-part": "0"}), "and a line of the query says it"


def test_the_words_of_the_question_are_marked_with_what_they_were_taken_for(
    server: "Running",
) -> None:
    response = server.client.get("/", params={"q": "capital of jamaica?"})
    assert "<mark>jamaica<sup>1</sup></mark>" in response.text
    page = Page(response.text)
    assert page.all("a", href="/entity/m.03_r3")


def test_no_answer_says_why_and_what_to_try(server: "Running") -> None:
    page = ask(server, NOTHING)
    assert page.all("article")[0]["data-status"] == "none"
    assert "No answer: " in page.words
    assert "Browse the entity to see what the graph has." in page.words
    assert "It breaks: the graph has no such way." in page.words
    [candidates] = page.all("details", **{"class": "candidates"})
    assert "open" in candidates
    assert "No single query answered." in page.words and not page.all(
        "pre", **{"aria-label": "Query"}
    )


def test_a_follow_up_is_asked_without_a_script(server: "Running") -> None:
    page = ask(server, "capital of jamaica?")
    [before] = page.all("input", name="after")
    assert before["value"] == "capital of jamaica?"
    assert not page.all("span", **{"class": "after"})
    page = fetch(server, "/?q=how+large+is+it%3F&after=capital+of+jamaica%3F")
    assert "480" in page.words
    assert "“how large is it?” is understood as:" in page.words
    assert page.all("span", **{"class": "after"})
    assert page.all("a", href="/?q=how+large+is+it%3F"), "what is before can be left out"
    afters = [each["value"] for each in page.all("input", name="after")]
    assert afters == ["capital of jamaica?", "capital of jamaica?", "how large is it?"]
    [path_of] = page.all("input", name="q", type="hidden")
    assert path_of["value"] == "how large is Kingston?", "an edited path is asked in full"


def test_each_of_two_questions_in_one_is_shown_with_its_proof(server: "Running") -> None:
    page = ask(server, "what is the capital of jamaica and how large is it?")
    articles = page.all("article")
    assert [each["data-status"] for each in articles] == ["answered", "none"]
    assert [each["data-question"] for each in articles] == [
        "what is the capital of jamaica?",
        "how large is Jamaica?",
    ]
    assert "1 of 2" in page.words
    assert len(page.all("section", **{"aria-label": "Path 2 of 2"})) == 1
    assert len(page.all("form", **{"class": "follow"})) == 1


def test_written_and_searched_candidates_are_told_apart(demo: Graph, scripted) -> None:
    pytest.importorskip("jinja2", reason="needs the serve extra")
    from kbqa.engine.serve.pages import AnswerView, Asking
    from kbqa.engine.serve.served import Served

    with Engine(demo, scripted([("Kenya -> location.country.capital", -0.5)])) as engine:
        answer = engine.ask("which currency is used in Kenya?")
    view = AnswerView(Served("1", answer, {}), Asking(answer.question))
    sources = [each.source for each in view.candidates]
    assert sources[0] == "Written by the model."
    assert set(sources[1:]) == {"Found by searching the graph."}


def test_a_path_is_run_by_its_address(server: "Running") -> None:
    page = fetch(server, str(server.client.build_request("GET", "/", params={"path": PATH}).url))
    assert "Kingston" in page.words
    assert page.all("article")[0]["data-edited"] is None


@pytest.mark.parametrize(
    ("params", "status", "words"),
    [
        ({"q": "x" * 1001}, 422, "the question is too long: it has 1,001 bytes"),
        ({"q": MONEY, "topic": "Jamaica"}, 422, "the topic 'Jamaica' is not a mid"),
        ({"path": "nothing that is a path"}, 400, "Not a path"),
    ],
)
def test_errors_are_pages(
    server: "Running", params: dict[str, str], status: int, words: str
) -> None:
    url = str(server.client.build_request("GET", "/", params=params).url)
    page = fetch(server, url, status)
    assert page.all("section", **{"class": "problem"})
    assert words in page.words


def test_a_link_of_another_site_asks_nothing(server: "Running") -> None:
    before = len(server.model.batches)
    page = ask(server, "does another site ask this?", **{"Sec-Fetch-Site": "cross-site"})
    assert page.all("input", name="q", value="does another site ask this?")
    assert not page.all("article")
    assert "A link of another site brought this question." in page.words
    assert len(server.model.batches) == before


HOSTILE = "<script>alert(1)</script>\" onload='x' jamaica"


def test_a_hostile_question_stays_text(server: "Running") -> None:
    response = server.client.get("/", params={"q": HOSTILE})
    assert "<script>alert" not in response.text
    page = Page(response.text)
    assert page.all("input", name="q", value=HOSTILE)
    record = re.search(
        r'<script type="application/json" class="record">(.*)</script>', response.text
    )
    assert record is not None
    assert json.loads(record[1])["question"] == HOSTILE


def test_what_a_terminal_would_obey_does_not_reach_the_page(server: "Running") -> None:
    text = "what is\x1b[2J jamaican\x9b31m\u202e money\u2066 called?"
    page = server.client.get("/", params={"q": text}).text
    # U+2068 and U+2069 keep the direction of a name in a tooltip to itself.
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066\u2067]", page)
    assert Page(page).all("input", name="q", value="what is�[2J jamaican�31m� money� called?")


def test_an_entity_lists_its_relations_and_opens_one(server: "Running") -> None:
    page = fetch(server, "/entity/m.03_r3")
    assert "Jamaica" in page.words
    links = page.all("a", **{"class": "relation"})
    assert "/entity/m.03_r3?relation=location.country.capital&direction=out#open" in {
        each["href"] for each in links
    }
    opened = fetch(server, "/entity/m.03_r3?relation=location.country.capital&direction=out")
    assert opened.all("a", href="/entity/m.03yl7")
    assert opened.all("a", **{"aria-expanded": "true"})


def test_an_unknown_entity_is_a_page(server: "Running") -> None:
    page = fetch(server, "/entity/m.0nothing", 404)
    assert "the graph has no entity m.0nothing" in page.words


def test_the_script_gets_progress_and_the_same_html(server: "Running") -> None:
    with server.client.stream(
        "POST", "/page/ask", json={"question": "capital of jamaica?"}
    ) as response:
        events = dict(re.findall(r"event: (\w+)\ndata: (.*)\n", response.read().decode()))
    assert {"queued", "linked", "written", "stage", "answer"} >= set(events)
    answer = json.loads(events["answer"])
    assert answer["spoken"].startswith("Answer: Kingston. Confidence 0.")
    assert answer["url"] == "/?q=capital+of+jamaica%3F"
    assert Page(answer["html"]).all("article")
    served = server.client.get(answer["url"]).text
    shown = html.unescape(answer["html"])
    assert re.search(r"<ul class=\"answers one\">.*?</ul>", shown, re.S)[0] in html.unescape(served)


def test_scripts_and_style_are_served_and_load_nothing_from_elsewhere(server: "Running") -> None:
    page = fetch(server, "/")
    addresses = [
        *(each["src"] for each in page.all("script") if "src" in each),
        *(each["href"] for each in page.all("link")),
        *(f"/static/{name}.js" for name in ("dom", "server", "ask", "answer", "entity", "keys")),
    ]
    for address in addresses:
        response = server.client.get(str(address))
        assert response.status_code == 200, address
        assert response.headers["cache-control"] == "no-cache"
        text = response.text.replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://(?!rdf\.freebase\.com/ns/)", text)


@pytest.mark.parametrize(
    ("address", "status", "said"),
    [
        ("/no/such/page", 404, "There is nothing at this address"),
        ("/api/v1/entities/m.0nothing", 404, "the graph has no entity m.0nothing"),
        ("/api/v1/ask", 422, "query.q: Field required"),
    ],
)
def test_a_browser_is_shown_a_page_where_a_program_reads_json(
    server: "Running", address, status, said
) -> None:
    browsers = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
    page = fetch(server, address, status, Accept=browsers)
    assert said in page.words
    assert page.all("form")
    for accept in ("*/*", "application/json", "text/html;q=0, */*"):
        read = server.client.get(address, headers={"Accept": accept})
        assert read.headers["content-type"] == "application/problem+json"
        assert (read.status_code, said in read.json()["detail"]) == (status, True)


def test_a_challenge_may_ask_at_the_root(server: "Running") -> None:
    from kbqa.engine.serve.app import DEFAULT_DATASET

    asked = {"dataset": DEFAULT_DATASET, "question": MONEY}
    response = server.client.get("/", params=asked)
    assert "currency_used" in response.json()["query"]


def test_without_a_key_nothing_is_shown(small_store: Path, running) -> None:
    from kbqa.engine.serve.guard import Access, ApiKey, ApiKeys

    keys = ApiKeys({"alice": ApiKey(sha256=hashlib.sha256(b"secret").hexdigest())})
    with running(small_store, access=Access(keys=keys)) as started:
        page = ask(started, MONEY)
        assert not page.all("article")
        assert "triples" not in page.words
        assert "This server answers only who has an API key." in page.words
        assert "Jamaica" not in fetch(started, "/entity/m.03_r3").words
        known = ask(started, MONEY, Authorization="Bearer secret")
        assert "Jamaican dollar" in known.words


def test_while_the_model_loads_the_page_says_so(small_store: Path, running) -> None:
    import threading
    from contextlib import contextmanager

    from scripted_server import PacedGenerator, scripted_engine

    may_load = threading.Event()

    @contextmanager
    def slow_engine():
        may_load.wait(20)
        with scripted_engine(small_store, PacedGenerator()) as engine:
            yield engine

    with running(small_store, open_engine=slow_engine) as started:
        try:
            assert "The model is being loaded" in fetch(started, "/").words
            response = started.client.get("/", params={"q": MONEY})
            assert response.status_code == 503
            assert int(response.headers["retry-after"]) > 0
            assert "The model is being loaded" in Page(response.text).words
            assert "Jamaica" in fetch(started, "/entity/m.03_r3").words
        finally:
            may_load.set()


@pytest.mark.parametrize(
    ("path", "relations"),
    [
        (
            "Jamaica -> location.country.c",
            ["location.country.capital", "location.country.currency_used"],
        ),
        ("Jamaica (m.03_r3) -> currency", ["location.country.currency_used"]),
        (
            "m.03_r3 -> location.country.currency_used -> co",
            ["finance.currency.countries_used", "finance.currency.currency_code"],
        ),
        ("Jamaica -> location.country.capital\n?x -> area", ["location.location.area"]),
        ("Jamaica -> location.country.capital\n?0 -> capital", ["location.country.capital"]),
        ("Jamaica -> location.country.capital\nlargest ?x -> area", ["location.location.area"]),
        ("Jamaica <- contained", ["location.location.containedby"]),
        ("Nowhere -> ", []),
        ("Jamaica", []),
        ("?", []),
    ],
)
def test_relations_that_may_follow_are_offered(
    server: "Running", path: str, relations: list[str]
) -> None:
    response = server.client.post("/page/relations", json={"path": path})
    assert response.json() == relations
