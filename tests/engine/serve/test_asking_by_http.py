"""Questions over HTTP: records, events, problems."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from kbqa.engine.engine import Engine
from kbqa.kb.open import open_graph
from kbqa.sparql.errors import ModelError

MONEY = "what is jamaican money called?"
NOTHING = "what is the area of jamaica?"
EVENTS = {"Accept": "text/event-stream"}


def read_events(text: str) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if line[:1] != ":")
        if fields:
            found.append((fields["event"], json.loads(fields["data"])))
    return found


def test_an_answer_is_the_engines_record_and_more(server) -> None:
    record = server.client.post("/api/v1/ask", json={"question": MONEY}).json()
    assert record["status"] == "answered"
    [money] = record["answers"]
    assert (money["mid"], money["name"]) == ("m.04xc2m", "Jamaican dollar")
    assert money["confidence"] == record["confidence"]
    assert record["trace"]["crp"] == "Jamaica (m.03_r3) -> location.country.currency_used"
    assert {"batch_size", "cached"} <= record["trace"].keys()
    assert {"queue", "link", "write", "execute"} <= record["seconds"].keys()


def test_curl_asks_with_get(server) -> None:
    parameters = {"q": MONEY, "topic": "m.03_r3", "max_answers": 1}
    record = server.client.get("/api/v1/ask", params=parameters).json()
    assert record["answers"][0]["name"] == "Jamaican dollar"


FOLLOW_UP = "how large is it?"
CAPITAL = "capital of jamaica?"
BOTH = "what is the capital of jamaica and how large is it?"


def test_a_follow_up_is_completed_from_the_questions_before(server) -> None:
    body = {"question": FOLLOW_UP, "history": [MONEY, CAPITAL]}
    posted = server.client.post("/api/v1/ask", json=body).json()
    parameters = {"q": FOLLOW_UP, "after": [MONEY, CAPITAL]}
    got = server.client.get("/api/v1/ask", params=parameters).json()
    for record in (posted, got):
        assert (record["question"], record["understood"]) == (FOLLOW_UP, "how large is Kingston?")
        assert [each["value"] for each in record["answers"]] == ["480"]
    assert server.client.get("/api/v1/ask", params={"q": FOLLOW_UP, "after": ""}).is_client_error


def test_a_long_history_is_answered_once(server) -> None:
    history = [f"{CAPITAL} {n}" for n in range(19)]
    before = sum(map(len, server.model.batches))
    for question in (FOLLOW_UP, FOLLOW_UP):
        body = {"question": question, "history": history}
        assert server.client.post("/api/v1/ask", json=body).status_code == 200
    assert sum(map(len, server.model.batches)) - before == 20


def test_each_of_two_questions_in_one_has_its_record(server) -> None:
    body = {"question": BOTH, "max_answers": 1}
    record = server.client.post("/api/v1/ask", json=body).json()
    seat, size = record["parts"]
    assert (record["status"], record["partial"], record["answers"]) == ("answered", True, [])
    assert (seat["question"], seat["answers"][0]["name"]) == (
        "what is the capital of jamaica?",
        "Kingston",
    )
    assert (size["understood"], size["status"]) == ("how large is Jamaica?", "none")
    assert record["problem"] == size["problem"]


def test_no_answer_is_a_result(server) -> None:
    response = server.client.post("/api/v1/ask", json={"question": NOTHING})
    record = response.json()
    assert (response.status_code, record["status"]) == (200, "none")
    assert record["reason"] == "unreachable"


def test_events_end_with_one_answer(server) -> None:
    body = {"question": "which money has jamaica?"}
    response = server.client.post("/api/v1/ask", json=body, headers=EVENTS)
    assert response.headers["content-type"].startswith("text/event-stream")
    heard = read_events(response.text)
    names = [name for name, _ in heard]
    assert heard[0] == ("queued", {"position": 0, "eta_s": heard[0][1]["eta_s"]})
    assert {"linked", "written", "stage"} <= set(names)
    assert names.count("answer") == 1
    assert names[-1] == "answer"
    assert heard[-1][1]["answers"][0]["name"] == "Jamaican dollar"


def test_a_stream_that_cannot_begin_is_a_status(server) -> None:
    body = {"question": MONEY, "topics": ["no mid"]}
    response = server.client.post("/api/v1/ask", json=body, headers=EVENTS)
    assert (response.status_code, response.json()["code"]) == (422, "input")


def test_an_error_in_a_stream_is_its_one_last_event(server) -> None:
    server.model.failure = ModelError("the model is broken")
    try:
        body = {"question": "which money fails in jamaica?"}
        response = server.client.post("/api/v1/ask", json=body, headers=EVENTS)
    finally:
        server.model.failure = None
    assert response.status_code == 200
    *told, (name, problem) = read_events(response.text)
    assert told[0][0] == "queued"
    assert (name, problem["code"]) == ("error", "internal")


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 422, "invalid"),
        ({"question": ""}, 422, "invalid"),
        ({"question": "  "}, 422, "input"),
        ({"question": "x" * 1001}, 422, "invalid"),
        ('{"question": "\\ud800"}', 422, "invalid"),
        ('{"question": ', 422, "invalid"),
        ("[" * 60_000, 400, "invalid"),
        ({"question": MONEY, "topics": ["Jamaica"]}, 422, "input"),
        ({"question": MONEY, "timeout_s": 0}, 422, "invalid"),
        ({"question": MONEY, "history": [""]}, 422, "invalid"),
        ({"question": MONEY, "history": [" "]}, 422, "input"),
        ({"question": MONEY, "history": [MONEY] * 21}, 422, "invalid"),
        ({"question": MONEY, "history": MONEY}, 422, "invalid"),
        ({"question": MONEY, "more": 1}, 422, "invalid"),
        ({"question": "x" * 100_000}, 413, "too-large"),
    ],
)
def test_bad_questions_are_problems(server, body, status, code) -> None:
    content = body if isinstance(body, str) else json.dumps(body)
    headers = {"Content-Type": "application/json"}
    response = server.client.post("/api/v1/ask", content=content, headers=headers)
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert (response.status_code, problem["status"], problem["code"]) == (status, status, code)
    assert problem["request_id"] == response.headers["x-request-id"]


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", "/nothing", 404), ("DELETE", "/api/v1/ask", 405)]
)
def test_what_is_not_there_is_a_problem(server, method, path, status) -> None:
    response = server.client.request(method, path)
    assert (response.status_code, response.json()["status"]) == (status, status)


def test_errors_of_the_server_tell_nothing_of_it(server, small_store, caplog) -> None:
    from kbqa.sparql.errors import ModelError

    server.model.failure = ModelError("the weights in /secret/folder are broken")
    response = server.client.post("/api/v1/ask", json={"question": "what broke?"})
    server.model.failure = None
    assert response.status_code == 500
    assert "secret" not in response.text
    assert "the weights in /secret/folder are broken" in caplog.text


def test_a_path_is_run_without_the_model(server) -> None:
    batches = len(server.model.batches)
    body = {"path": "Jamaica -> location.country.capital", "question": "capital of jamaica?"}
    record = server.client.post("/api/v1/paths/run", json=body).json()
    assert (record["status"], record["answers"][0]["name"]) == ("answered", "Kingston")
    assert len(server.model.batches) == batches


def test_a_path_is_checked_line_by_line(server) -> None:
    checked = server.client.post(
        "/api/v1/paths/check", json={"path": "Jamaica (m.03_r3) -> location.country.capital"}
    ).json()
    assert checked["sparql"].startswith("SELECT")
    assert checked["routerkgqa"].startswith("Main Path:")
    assert checked["crp_words"]
    named = server.client.post("/api/v1/paths/check", json={"path": "Jamaica -> a.b"}).json()
    assert named["sparql"] is None
    wrong = server.client.post("/api/v1/paths/check", json={"path": "Jamaica -> a.b\n}{"})
    assert wrong.json()["problems"][0].startswith("line 2")
    broken = server.client.post("/api/v1/paths/check", json={"path": "-> -> ->"})
    assert (broken.status_code, broken.json()["code"], broken.json()["line"]) == (
        400,
        "path-syntax",
        1,
    )


def test_a_query_becomes_a_path_or_says_why_not(server) -> None:
    query = "SELECT ?x WHERE { ns:m.03_r3 ns:location.country.capital ?x }"
    found = server.client.post("/api/v1/paths/from-sparql", json={"query": query}).json()
    assert found["crp"].startswith("m.03_r3 -> location.country.capital\n")
    query = "SELECT ?x WHERE { ?x ?y ?z }"
    response = server.client.post("/api/v1/paths/from-sparql", json={"query": query})
    assert (response.status_code, response.json()["code"]) == (422, "no-path")
    assert response.json()["reason"]


@pytest.mark.parametrize("letter", ["\U00020000", "é"])
def test_a_question_of_rare_characters_is_as_long_as_its_bytes(server, letter) -> None:
    fits = 1000 // len(letter.encode())
    assert server.client.get("/api/v1/ask", params={"q": letter * fits}).status_code == 200
    refused = server.client.get("/api/v1/ask", params={"q": letter * 999})
    assert (refused.status_code, refused.json()["code"]) == (422, "input")
    assert "1,000 are allowed" in refused.json()["detail"]


def test_an_answer_does_not_say_where_the_graph_is(running, small_store) -> None:
    from scripted_server import PacedGenerator

    @contextmanager
    def opened() -> Iterator[Engine]:
        with (
            open_graph(small_store) as graph,
            Engine(graph, PacedGenerator(), settings={"judge": "confidence"}) as engine,
        ):
            engine.resources.timeout_s = 0.001  # no query can be answered
            yield engine

    with running(small_store, open_engine=opened, openai=True) as started:
        for _ in range(600):
            if started.client.get("/readyz").status_code == 200:
                break
        response = started.client.post("/api/v1/ask", json={"question": MONEY, "lines": True})
        record = response.json()
        [tried] = record["trace"]["beams"]
        assert record["reason"] == "graph"
        assert tried["problem"].startswith("no result from the graph within 0.001 s")
        assert tried["problem"].endswith(". Make the query more selective.")
        chat = {"messages": [{"role": "user", "content": MONEY}]}
        for text in (
            response.text,
            started.client.get("/", params={"q": MONEY}).text,
            started.client.post("/v1/chat/completions", json=chat).text,
            started.client.post("/page/ask", json={"question": MONEY}).text,
        ):
            assert str(small_store) not in text
            assert "--timeout" not in text


@pytest.mark.parametrize(
    ("graph", "text", "told"),
    [
        ("store /data/fb", "store /data/fb is closed", "the graph is closed"),
        ("store /data/fb", "the store at /data/fb is closed", "the graph is closed"),
        ("store /data/fb", "IO error: /data/fb/graph/7.sst", "IO error: the graph/graph/7.sst"),
        ("store slice", "no slice: store slice is closed", "no slice: the graph is closed"),
        ("endpoint http://a/q", "http://a/q is down", "the graph is down"),
        ("endpoints http://a/q, http://b/", "endpoint http://b/ is down", "the graph is down"),
        (
            "endpoint http://a/q",
            "endpoint http://a/q refuses the query with HTTP status 500: no space in /var/lib\nb",
            "the graph refuses the query with HTTP status 500",
        ),
        ("store /d", "No answer within 3 s. Raise --deadline.", "No answer within 3 s."),
        ("store /d", "Add a LIMIT, or raise KBQA_QUERY_MEMORY_GB.", "Add a LIMIT."),
        ("store /d", "Late. Raise --timeout, or ask for less.", "Late. Ask for less."),
    ],
)
def test_clients_read_the_graph_wherever_an_error_names_it(graph, text, told) -> None:
    problems = pytest.importorskip("kbqa.engine.serve.problems")
    assert problems.for_clients(text, graph) == told
    record = DeepTrace(({"problem": text},), [text])
    assert problems.for_clients(record, graph) == DeepTrace(({"problem": told},), [told])


@dataclass(frozen=True, slots=True)
class DeepTrace:
    """A trace that holds an error in its depths."""

    tried: tuple[dict[str, str], ...]
    notes: list[str]
