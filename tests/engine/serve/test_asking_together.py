"""Many clients at once: batches, single flight, the queue, clients that leave, the end."""

import json
import socket
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from test_asking_by_http import EVENTS, MONEY, read_events

from kbqa.sparql.errors import StoreError

httpx = pytest.importorskip("httpx", reason="needs the serve extra")


@pytest.fixture
def held(running, small_store):
    """A server whose model writes only when it is let, for a queue of two."""
    from kbqa.engine.serve.served import Settings

    with running(small_store, Settings(queue=2, batch_size=2, deadline_s=20)) as started:
        started.model.may_write.clear()
        yield started


@pytest.fixture
def clients():
    with ThreadPoolExecutor(24) as pool:
        yield pool


def ask(server, question: str, **headers: str) -> httpx.Response:
    body = {"question": question}
    return httpx.post(f"{server.url}/api/v1/ask", json=body, headers=headers, timeout=30)


def wait_until(condition) -> None:
    for _ in range(1000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it does not happen")


def under_way(server) -> int:
    return len(server.service._flights)


def test_equal_questions_share_one_run(held, clients) -> None:
    asked = [clients.submit(ask, held, MONEY) for _ in range(10)]
    streams = [clients.submit(ask, held, f"  {MONEY} ", **EVENTS) for _ in range(10)]
    wait_until(lambda: 'kbqa_cache_total{result="shared"} 19' in held.metrics.text().decode())
    held.model.may_write.set()
    records = [each.result().json() for each in asked]
    last = [read_events(each.result().text)[-1] for each in streams]
    assert {record["answers"][0]["name"] for record in records} == {"Jamaican dollar"}
    assert {name for name, _ in last} == {"answer"}
    assert len({record["id"] for record in (*records, *(data for _, data in last))}) == 1
    assert held.model.batches == [[MONEY]]
    again = ask(held, MONEY).json()
    assert again["trace"]["cached"] is True
    assert held.model.batches == [[MONEY]]


def test_what_waits_is_written_for_together(held, clients) -> None:
    asked = [clients.submit(ask, held, "money 0?")]
    assert held.model.begun.acquire(timeout=10)
    asked += [clients.submit(ask, held, f"money {n}?") for n in (1, 2, 3)]
    wait_until(lambda: held.service.waiting == 3)
    held.model.may_write.set()
    records = [each.result().json() for each in asked]
    assert [len(batch) for batch in held.model.batches] == [1, 2, 1]
    assert sorted(record["trace"]["batch_size"] for record in records) == [1, 1, 2, 2]


def test_a_question_that_cannot_be_written_for_fails_alone(held, clients) -> None:
    held.model.failing = "money 2?"
    asked = [clients.submit(ask, held, "money 0?")]
    assert held.model.begun.acquire(timeout=10)
    asked += [clients.submit(ask, held, f"money {n}?") for n in (1, 2)]
    wait_until(lambda: held.service.waiting == 2)
    held.model.may_write.set()
    assert [each.result().status_code for each in asked] == [200, 200, 500]


def test_a_full_queue_refuses_and_says_when_to_try_again(held, clients) -> None:
    asked = [clients.submit(ask, held, f"money {n}?") for n in range(4)]
    wait_until(lambda: under_way(held) == 4)
    refused = ask(held, "money 4?")
    assert (refused.status_code, refused.json()["code"]) == (503, "queue-full")
    assert int(refused.headers["retry-after"]) >= 1
    assert ask(held, "money 4?", **EVENTS).status_code == 503
    assert held.client.get("/readyz").status_code == 200
    held.model.may_write.set()
    assert {each.result().status_code for each in asked} == {200}


def test_who_leaves_gives_up_the_place(held, clients) -> None:
    first = clients.submit(ask, held, "money 0?")
    assert held.model.begun.acquire(timeout=10)
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{held.url}/api/v1/ask", json={"question": "money 1?"}, timeout=0.5)
    url, body = f"{held.url}/api/v1/ask", {"question": "money 2?"}
    with httpx.stream("POST", url, json=body, headers=EVENTS, timeout=10) as stream:
        lines = stream.iter_lines()  # kept: closing it closes the connection
        assert next(lines).startswith("id: 1")
        wait_until(lambda: held.service.waiting >= 1)
    wait_until(lambda: under_way(held) == 1)
    left = 'kbqa_requests_total{route="/api/v1/ask",status="499"} 1.0'
    wait_until(lambda: left in held.metrics.text().decode())
    held.model.may_write.set()
    assert first.result().status_code == 200
    assert held.model.batches == [["money 0?"]]


def test_one_who_leaves_takes_nothing_from_the_others(held, clients) -> None:
    stays = clients.submit(ask, held, MONEY)
    wait_until(lambda: under_way(held) == 1)
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{held.url}/api/v1/ask", json={"question": MONEY}, timeout=0.3)
    held.model.may_write.set()
    assert stays.result().json()["status"] == "answered"


def test_one_who_never_reads_holds_up_nobody(held) -> None:
    host, port = held.url.removeprefix("http://").split(":")
    content = json.dumps({"question": MONEY})
    head = (
        f"POST /api/v1/ask HTTP/1.1\r\nHost: {host}\r\nAccept: text/event-stream\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    with socket.create_connection((host, int(port))) as silent:
        silent.sendall((head + content).encode())
        wait_until(lambda: under_way(held) == 1)
        held.model.may_write.set()
        assert ask(held, MONEY).json()["status"] == "answered"
        assert ask(held, "capital of jamaica?").json()["status"] == "answered"
    assert held.client.get("/readyz").status_code == 200


def test_a_body_that_never_ends_is_given_up(held, monkeypatch) -> None:
    from kbqa.engine.serve import guard

    monkeypatch.setattr(guard, "BODY_TIMEOUT_S", 0.2)
    host, port = held.url.removeprefix("http://").split(":")
    head = (
        f"POST /api/v1/ask HTTP/1.1\r\nHost: {host}\r\n"
        "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
    )
    with socket.create_connection((host, int(port)), timeout=10) as slow:
        slow.sendall(head.encode())
        assert slow.recv(1000).startswith(b"HTTP/1.1 408 ")


def test_a_deadline_counts_the_waiting(held, clients) -> None:
    first = clients.submit(ask, held, "money 0?")
    assert held.model.begun.acquire(timeout=10)
    body = {"question": "money 1?", "timeout_s": 0.3}
    late = held.client.post("/api/v1/ask", json=body)
    assert (late.status_code, late.json()["code"]) == (504, "deadline")
    held.model.may_write.set()
    assert first.result().status_code == 200
    assert held.model.batches == [["money 0?"]]


def test_looking_up_goes_on_while_the_model_is_busy(held, clients) -> None:
    asked = [clients.submit(ask, held, f"money {n}?") for n in range(4)]
    wait_until(lambda: under_way(held) == 4)
    query = "SELECT ?x WHERE { ns:m.03_r3 ns:location.country.capital ?x }"
    assert held.client.get("/sparql", params={"query": query}).status_code == 200
    assert held.client.get("/api/v1/entities", params={"q": "Jamaica"}).json()
    assert held.client.post("/api/v1/link", json={"text": MONEY}).json()[0]["name"] == "Jamaica"
    held.model.may_write.set()
    assert {each.result().status_code for each in asked} == {200}


def test_while_it_starts_all_but_questions_is_answered(running, small_store) -> None:
    from scripted_server import PacedGenerator, scripted_engine

    may_open = threading.Event()

    @contextmanager
    def slow():
        assert may_open.wait(20)
        with scripted_engine(small_store, PacedGenerator()) as engine:
            yield engine

    with running(small_store, open_engine=slow) as started:
        client = started.client
        assert client.get("/healthz").status_code == 200
        ready = client.get("/readyz")
        assert (ready.status_code, ready.json()["model"]) == (503, "starting")
        refused = client.post("/api/v1/ask", json={"question": MONEY})
        assert (refused.status_code, refused.json()["code"]) == (503, "starting")
        assert client.get("/api/v1/entities", params={"q": "Jamaica"}).status_code == 200
        assert client.get("/api/v1/info").json()["state"] == "starting"
        may_open.set()
        wait_until(lambda: client.get("/readyz").status_code == 200)
        assert client.post("/api/v1/ask", json={"question": MONEY}).status_code == 200


def test_a_model_that_cannot_be_loaded_fails_the_service(running, small_store) -> None:
    @contextmanager
    def broken():
        raise StoreError("the store is gone")
        yield

    with running(small_store, open_engine=broken) as started:
        wait_until(lambda: started.service.state == "failed")
        assert str(started.service.failure) == "the store is gone"
        assert started.client.get("/readyz").json()["model"] == "failed"


def test_whoever_waits_at_the_end_is_told(running, small_store, clients) -> None:
    asked: list[Future[httpx.Response]] = []
    with running(small_store) as started:
        started.model.may_write.clear()
        asked.append(clients.submit(ask, started, "money 0?"))
        asked.append(clients.submit(ask, started, "money 1?", **EVENTS))
        wait_until(lambda: under_way(started) == 2)
        started.service.stop()
        late = ask(started, "money 2?")
        assert (late.status_code, late.json()["code"]) == (503, "stopping")
        assert started.client.get("/readyz").json()["model"] == "stopping"
        loop = started.service._loading.get_loop()
        loop.call_soon_threadsafe(started.service.give_up)
        assert asked[0].result().json()["code"] == "stopping"
        assert read_events(asked[1].result().text)[-1][1]["code"] == "stopping"
