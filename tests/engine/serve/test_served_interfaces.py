"""What other programs read: OpenAPI, metrics, health, OpenAI's protocol."""

import json

import pytest

from kbqa.engine.answer import Answer, AnswerEntity
from kbqa.kb.graph import GraphIdentity

MONEY = "what is jamaican money called?"


def test_the_description_names_every_route(server) -> None:
    api = server.client.get("/openapi.json").json()
    assert {
        "/api/v1/ask",
        "/api/v1/paths/check",
        "/api/v1/paths/run",
        "/api/v1/paths/from-sparql",
        "/api/v1/link",
        "/api/v1/entities",
        "/api/v1/entities/{mid}",
        "/api/v1/entities/{mid}/relations",
        "/api/v1/entities/{mid}/neighbours",
        "/sparql",
        "/text2sparql",
        "/v1/models",
        "/v1/chat/completions",
        "/healthz",
        "/readyz",
        "/metrics",
        "/api/v1/info",
    } <= api["paths"].keys()
    routes = [route for methods in api["paths"].values() for route in methods.values()]
    assert all(route["description"] for route in routes)


def test_the_page_about_it_loads_nothing_from_elsewhere(server) -> None:
    page = server.client.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "<code>POST /api/v1/ask</code>" in page.text
    for loading in ("<script", "style=", "src=", "http://", "https://"):
        assert loading not in page.text


def test_metrics_can_be_read(server) -> None:
    parser = pytest.importorskip("prometheus_client.parser", reason="needs the serve extra")
    server.client.post("/api/v1/ask", json={"question": MONEY})
    server.client.get("/api/v1/entities/m.03_r3")
    server.client.get("/no/such/page")
    families = parser.text_string_to_metric_families(server.client.get("/metrics").text)
    samples = {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in families
        for sample in family.samples
    }
    assert samples["kbqa_requests_total", ("/api/v1/entities/{mid}", "200")] == 1
    assert samples["kbqa_requests_total", ("none", "404")] == 1
    assert samples["kbqa_answers_total", ("full", "answered")] >= 1
    assert samples["kbqa_batch_size_count", ()] >= 1
    assert samples["kbqa_stage_seconds_count", ("queue",)] >= 1
    assert samples["kbqa_queue_depth", ()] == 0


def test_a_request_that_is_turned_away_is_counted(server) -> None:
    refused = server.client.get("/healthz", headers={"Host": "evil.example"})
    assert refused.status_code == 421
    assert 'kbqa_rejected_total{reason="wrong-host"} 1.0' in server.client.get("/metrics").text


def test_the_server_says_what_it_is(server) -> None:
    info = server.client.get("/api/v1/info").json()
    assert (info["state"], info["method"]) == ("ready", "kbqa")
    assert info["limits"]["batch_size"] == 8
    assert str(server.service.graph.directory) not in json.dumps(info)
    ready = server.client.get("/readyz")
    assert (ready.status_code, ready.json()) == (200, {"model": "ready", "graph": "up"})


def test_the_server_does_not_say_where_its_endpoint_is(server, monkeypatch) -> None:
    description = server.service.graph.description
    identity = GraphIdentity({"store": None, "endpoint": description}, {})
    monkeypatch.setattr(server.service.graph, "identity", lambda: identity)
    info = server.client.get("/api/v1/info").json()
    assert info["graph"] == {"store": None, "endpoint": "the graph"}


def chat(server, **body):
    messages = [
        {"role": "system", "content": "You answer."},
        {"role": "user", "content": [{"type": "text", "text": MONEY}]},
    ]
    return server.client.post("/v1/chat/completions", json={"messages": messages, **body})


def test_a_chat_is_answered(server) -> None:
    reply = chat(server, model="kbqa", temperature=0.7).json()
    content = reply["choices"][0]["message"]["content"]
    assert content.startswith("Jamaican dollar\n\n")
    assert reply["kbqa"]["answers"][0]["mid"] == "m.04xc2m"


def said_after(server, *messages: tuple[str, str]) -> str:
    sent = [{"role": role, "content": content} for role, content in messages]
    reply = server.client.post("/v1/chat/completions", json={"messages": sent}).json()
    return str(reply["choices"][0]["message"]["content"])


def test_a_chat_goes_on_from_the_users_messages(server) -> None:
    said = said_after(
        server,
        ("user", "x" * 2000),  # which was refused
        ("user", "capital of jamaica?"),
        ("assistant", "No answer: ask me about Bieber."),
        ("user", "how large is it?"),
    )
    assert said.startswith("480\n\nFrom Kingston, follow location.location.area")
    assert said.endswith("Understood as: how large is Kingston?")


def test_a_chat_answers_each_of_two_questions_in_one(server) -> None:
    said = said_after(server, ("user", "what is the capital of jamaica and how large is it?"))
    assert said.startswith("1. what is the capital of jamaica?\n\nKingston\n\n")
    assert "\n\n2. how large is Jamaica?\n\nNo answer: " in said


def test_a_long_chat_does_not_ask_all_again_with_each_message(server) -> None:
    asked = [("user", f"capital of jamaica? {n}") for n in range(40)]
    said_after(server, *asked[:38])
    before = sum(map(len, server.model.batches))
    said_after(server, *asked[:39])
    assert sum(map(len, server.model.batches)) - before == 1


@pytest.mark.parametrize(
    ("found", "confidence", "truncated", "said"),
    [
        (3, None, False, "A0, A1, A2"),
        (21, 0.874, False, "A19 and 1 more\n\nConfidence: 0.87"),
        (10_000, 0.874, True, "A19 and 9,980 or more others\n\nConfidence: 0.87"),
    ],
)
def test_a_chat_says_what_it_leaves_out_and_how_sure_it_is(
    found, confidence, truncated, said
) -> None:
    chats = pytest.importorskip("kbqa.engine.serve.routes")
    entities = tuple(AnswerEntity(f"m.0{n}", f"A{n}") for n in range(found))
    trace = WrittenTrace()
    answer = Answer("who?", entities, trace, confidence=confidence, truncated=truncated)
    content = chats.content_of(answer)
    assert content.startswith("A0, A1, A2")
    assert content.endswith(said)


def test_a_chat_about_nothing_known_is_told_what_to_try() -> None:
    chats = pytest.importorskip("kbqa.engine.serve.routes")
    answer = Answer("who?", (), WrittenTrace(), problem="nothing is named", reason="unlinked")
    said = chats.content_of(answer)
    assert said == "No answer: nothing is named. Use the name that the graph has."


class WrittenTrace:
    """A trace without paths."""

    def to_dict(self) -> dict[str, object]:
        return {}

    def describe(self) -> list[str]:
        return []


def test_a_chat_streams(server) -> None:
    lines = [line for line in chat(server, stream=True).text.split("\n\n") if line]
    assert lines[-1] == "data: [DONE]"
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert chunks[0]["choices"][0]["delta"]["content"].startswith("Jamaican dollar")
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize(
    ("more", "status"),
    [
        ({"n": 2}, 422),
        ({"tools": [{"type": "function"}]}, 422),
        ({"model": "gpt-4"}, 404),
        ({"messages": []}, 422),
        ({"messages": [{"role": "system", "content": "x"}]}, 422),
    ],
)
def test_what_a_chat_cannot_do_is_an_error_of_openais(server, more, status) -> None:
    response = chat(server, **more)
    assert response.status_code == status
    assert response.json()["error"]["type"] == "invalid_request_error"


def test_the_openai_client_understands_it(server) -> None:
    openai = pytest.importorskip("openai", reason="needs the llm extra")
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        messages = [{"role": "user", "content": MONEY}]
        reply = client.chat.completions.create(model="kbqa", messages=messages)
        assert reply.choices[0].message.content.startswith("Jamaican dollar")
        chunks = client.chat.completions.create(model="kbqa", messages=messages, stream=True)
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        assert text.startswith("Jamaican dollar")
        assert [each.id for each in client.models.list()] == ["kbqa"]
        with pytest.raises(openai.NotFoundError):
            client.chat.completions.create(model="other", messages=messages)
