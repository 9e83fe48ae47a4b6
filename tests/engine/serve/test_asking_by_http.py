"""Questions over HTTP: records, events, problems."""

import json
from typing import Any

import httpx
import pytest

MONEY = "what is jamaican money called?"
NOTHING = "what is the area of jamaica?"


def events(response: httpx.Response) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for text in response.text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in text.splitlines() if line[:1] != ":")
        if fields:
            found.append((fields["event"], json.loads(fields["data"])))
    return found


def test_an_answer_is_the_engines_record_and_more(server) -> None:
    record = server.client.post("/api/v1/ask", json={"question": MONEY}).json()
    assert record["status"] == "answered"
    assert record["answers"] == [{"mid": "m.04xc2m", "name": "Jamaican dollar", "origin": "graph"}]
    assert record["trace"]["crp"] == "Jamaica (m.03_r3) -> location.country.currency_used"
    assert {"batch_size", "cached"} <= record["trace"].keys()
    assert {"queue", "link", "write", "execute"} <= record["seconds"].keys()


def test_curl_asks_with_get(server) -> None:
    record = server.client.get("/api/v1/ask", params={"q": MONEY}).json()
    assert record["answers"][0]["name"] == "Jamaican dollar"


def test_no_answer_is_a_result(server) -> None:
    response = server.client.post("/api/v1/ask", json={"question": NOTHING})
    record = response.json()
    assert (response.status_code, record["status"]) == (200, "none")
    assert record["reason"] == "unreachable"


def test_events_end_with_one_answer(server) -> None:
    question = {"question": "which money has jamaica?"}
    with server.client.stream(
        "POST", "/api/v1/ask", json=question, headers={"Accept": "text/event-stream"}
    ) as response:
        response.read()
    assert response.headers["content-type"].startswith("text/event-stream")
    heard = events(response)
    names = [name for name, _ in heard]
    assert names[0] == "queued"
    assert {"linked", "written", "stage"} <= set(names)
    assert names.count("answer") == 1
    assert names[-1] == "answer"
    assert heard[-1][1]["answers"][0]["name"] == "Jamaican dollar"


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 422, "invalid"),
        ({"question": ""}, 422, "invalid"),
        ({"question": "  "}, 422, "input"),
        ({"question": "x" * 1001}, 422, "invalid"),
        ({"question": MONEY, "topics": ["Jamaica"]}, 422, "input"),
        ({"question": MONEY, "timeout_s": 0}, 422, "invalid"),
        ({"question": MONEY, "more": 1}, 422, "invalid"),
        ({"question": "x" * 100_000}, 413, "too-large"),
    ],
)
def test_bad_questions_are_problems(server, body, status, code) -> None:
    response = server.client.post("/api/v1/ask", json=body)
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert (response.status_code, problem["status"], problem["code"]) == (status, status, code)
    assert problem["request_id"] == response.headers["x-request-id"]
