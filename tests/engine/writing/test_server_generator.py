"""Paths from a server that behaves, and misbehaves, as told."""

import importlib.util
import logging
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from misbehaving_server import Answer
from misbehaving_server import MisbehavingServer as Server

from kbqa.engine.writing.ebnf import (
    Sampled,
    Steered,
    read_steered,
    write_ebnf,
    write_steered,
)
from kbqa.engine.writing.generate import CHATML, Request
from kbqa.engine.writing.server import ServerGenerator
from kbqa.engine.writing.steering import Decoding
from kbqa.kb.deadline import Deadline, keep_to
from kbqa.kb.open import open_graph
from kbqa.sparql.crp import Entity
from kbqa.sparql.errors import DeadlineExceeded, InputError, ModelError

pytest.importorskip("openai", reason="needs the llm extra")

MODELS = {"data": [{"id": "smol", "owned_by": "me"}]}
VLLM_MODELS = {"data": [{"id": "smol", "owned_by": "vllm"}, {"id": "crp", "owned_by": "vllm"}]}


def choice(text: str, *logprobs: float | None, reason: str = "stop") -> dict[str, object]:
    return {"text": text, "finish_reason": reason, "logprobs": {"token_logprobs": list(logprobs)}}


def texts(*choices: dict[str, object]) -> Answer:
    return Answer({"choices": choices})


TOKENS = texts({**choice("a", 0.0, 0.0), "prompt_token_ids": [1], "token_ids": [7, 0]})


@pytest.fixture(scope="module")
def schema(small_store: Path) -> Iterator[Decoding]:
    with closing(open_graph(small_store)) as graph:
        yield Decoding("schema", graph)


@pytest.fixture
def server(server: Server) -> Server:
    server.models = Answer(MODELS)
    return server


def test_the_prompt_suggests_the_relations_of_the_request(server: Server) -> None:
    server.queue = [texts(choice("a", -0.5))]
    prompt = replace(CHATML, relations=1)
    generator = ServerGenerator(server.url, prompt)
    assert generator.suggested_relations == 1
    generator.generate([Request("who?", relations=("a.b.c", "d.e.f"))], 1)
    assert server.asked[-1]["prompt"] == prompt.render("who?", ["a.b.c"])


def test_one_path_is_the_greedy_one(server: Server) -> None:
    written = choice("Main Path:\n a", -0.5, -0.25, -0.25)
    server.queue = [Answer({"choices": [written], "usage": {"prompt_tokens": 21}})]
    generator = ServerGenerator(server.url, CHATML)
    [[candidate]] = generator.generate([Request("who  is\nit?")], 1)
    assert (candidate.text, candidate.logprob, candidate.tokens) == ("Main Path:\n a", -1.0, 3)
    assert candidate.input_tokens == 21
    [asked] = server.asked
    assert asked["prompt"] == "<|im_start|>user\nwho is it?<|im_end|>\n<|im_start|>assistant\n"
    assert (asked["model"], asked["temperature"], asked["n"]) == ("smol", 0.0, 1)
    assert server.paths == {"/v1/models", "/v1/completions"}
    assert "add_special_tokens" not in asked, "only vLLM knows it"
    assert generator.name == f"smol at {server.url}, decoding none"


def test_samples_are_ranked_and_do_not_repeat(server: Server) -> None:
    def answer(asked: Mapping[str, Any]) -> Answer:
        if asked["temperature"] == 0:
            return texts(choice("greedy", -1.0, -1.0))
        seed = asked["seed"]
        return texts(choice(f"sample {seed % 3}", -0.1 - seed % 3, reason="stop"))

    server.answer = answer
    generator = ServerGenerator(server.url, CHATML, "smol", seed=6)
    found = generator.generate([Request("who?"), Request("where?")], 5)
    assert [[one.text for one in some] for some in found] == [
        ["sample 0", "greedy", "sample 1", "sample 2"]
    ] * 2
    assert sorted(asked["seed"] for asked in server.asked if asked["temperature"]) == sorted(
        [6, 7, 8, 9, 10] * 2
    )


def test_a_question_keeps_its_own_paths_however_slow(server: Server) -> None:
    def answer(asked: Mapping[str, Any]) -> Answer:
        name = asked["prompt"].splitlines()[1][0]
        return Answer({"choices": [choice(name, -1.0)]}, after_s=0.1 if name == "a" else 0.0)

    server.answer = answer
    generator = ServerGenerator(server.url, CHATML)
    found = generator.generate([Request(name) for name in "abcd"], 1)
    assert [one.text for [one] in found] == list("abcd")


def test_an_unfinished_or_empty_text_is_left_out(server: Server) -> None:
    server.queue = [texts(choice("Main", -1.0, reason="length"), choice(""))]
    assert ServerGenerator(server.url, CHATML).generate([Request("who?")], 1) == [[]]


@pytest.mark.parametrize("odd", [-math.inf, math.nan])
def test_a_log_probability_that_is_no_number_is_very_low(server: Server, odd: float) -> None:
    server.queue = [texts(choice("Main Path:\n a", -0.1, odd))]
    [[candidate]] = ServerGenerator(server.url, CHATML).generate([Request("who?")], 1)
    assert (candidate.logprob, candidate.tokens) == (-9999, 2)
    assert candidate.input_tokens is None, "the server did not count them"


def test_nothing_is_asked_for_no_questions(server: Server) -> None:
    assert ServerGenerator(server.url, CHATML).generate([]) == []
    assert server.asked == []


def test_vllm_is_told_to_leave_the_prompt_and_the_samples_as_they_are(
    server: Server,
) -> None:
    server.models = Answer(VLLM_MODELS)
    server.queue = [texts(choice("a", -1.0))]
    ServerGenerator(server.url, CHATML, "crp").generate([Request("who?")], 1)
    [asked] = server.asked
    assert asked["model"] == "crp"
    assert asked["add_special_tokens"] is False
    assert (asked["top_p"], asked["top_k"], asked["repetition_penalty"]) == (1, 0, 1.0)


def test_vllm_is_given_the_grammar_and_reads_again_what_it_wrote(
    server: Server, schema: Decoding
) -> None:
    def answer(asked: Mapping[str, Any]) -> Answer:
        if asked.get("echo"):
            return texts(choice("", None, -9.0, -9.0, -2.0, -0.5, reason="length"))
        written = choice("Main Path:", 0.0, 0.0)
        return texts({**written, "prompt_token_ids": [1, 2, 3], "token_ids": [7, 0]})

    server.models = Answer(VLLM_MODELS)
    server.answer = answer
    generator = ServerGenerator(server.url, CHATML, "crp", schema)
    [[candidate]] = generator.generate([Request("who?")], 1)
    assert (candidate.text, candidate.logprob, candidate.tokens) == ("Main Path:", -2.5, 2)
    asked, again = server.asked
    assert asked["structured_outputs"] == {"grammar": write_ebnf(schema.relations)}
    assert (again["prompt"], again["max_tokens"]) == ([1, 2, 3, 7, 0], 0)


@pytest.fixture(scope="module")
def follows(small_store: Path) -> Iterator[Decoding]:
    with closing(open_graph(small_store)) as graph:
        yield Decoding("graph", graph)


JAMAICA = Entity("Jamaica", "m.03_r3")
WALKED = "Main Path:\n Jamaica -[R[location , location , containedby]]-> ?x"


def test_vllm_is_given_the_topics_to_follow_the_graph_from(
    server: Server, follows: Decoding
) -> None:
    refused = Answer({"message": "kbqa_topics must be a list of texts"}, 400)
    server.models = Answer(VLLM_MODELS)
    server.queue = [refused, texts(choice(WALKED, -1.0))]
    generator = ServerGenerator(server.url, CHATML, "crp", follows)
    [[candidate]] = generator.generate([Request("who?", (JAMAICA,))], 1)
    assert (candidate.logprob, candidate.topics) == (-1.0, ("m.03_r3",))
    _, asked = server.asked
    assert read_steered(asked["vllm_xargs"]) == Steered((JAMAICA,), "routerkgqa")
    assert "structured_outputs" not in asked
    assert generator.name.endswith("decoding graph")


def test_a_vllm_without_the_logits_processor_is_told(server: Server, follows: Decoding) -> None:
    server.models = Answer(VLLM_MODELS)
    server.queue = [texts(choice("a", -1.0))]
    with pytest.raises(ModelError, match=r"cannot follow the graph\. Start it with --log"):
        ServerGenerator(server.url, CHATML, "crp", follows)


@pytest.mark.parametrize(
    "arguments",
    [
        {"kbqa_topics": "m.03_r3 Jamaica"},
        {"kbqa_topics": ["m.03_r3"]},
        {"kbqa_topics": [3]},
        {"kbqa_topics": [], "kbqa_form": "sparql"},
        {"kbqa_topics": [], "kbqa_keep": "some"},
    ],
    ids=["no list", "no name", "no text", "another form", "other tokens"],
)
def test_topics_that_cannot_be_read_are_told(arguments: dict[str, object]) -> None:
    with pytest.raises(InputError, match=r"must be a list|is 'sparql'|is 'some'"):
        read_steered(arguments)


@pytest.mark.parametrize("keep", ["likely", "all"])
def test_what_steers_a_text_is_read_as_it_was_written(keep: Sampled) -> None:
    steered = Steered((JAMAICA,), "extended", keep)
    assert read_steered(write_steered(steered)) == steered


def test_a_request_without_topics_is_not_steered() -> None:
    assert read_steered({"session_id": "1"}) is None


@pytest.mark.parametrize(
    ("replies", "message"),
    [
        ([texts(choice("a", 0.0))], "does not send the tokens"),
        ([TOKENS, texts(choice("", None, -1.0))], "does not score the text"),
        ([Answer({"message": "invalid grammar"}, 400)], "refused: .*invalid grammar"),
    ],
    ids=["no tokens", "no score", "refused"],
)
def test_a_server_that_cannot_constrain_is_told(
    server: Server, schema: Decoding, replies: list[Answer], message: str
) -> None:
    server.models = Answer(VLLM_MODELS)
    server.queue = replies
    generator = ServerGenerator(server.url, CHATML, "crp", schema, retries=0)
    with pytest.raises(ModelError, match=message):
        generator.generate([Request("who?")], 1)


def test_constraints_that_are_not_offered_are_told(server: Server, schema: Decoding) -> None:
    with pytest.raises(ModelError, match="only those can be constr"):
        ServerGenerator(server.url, CHATML, decoding=schema)


@pytest.mark.parametrize(
    "failure",
    [
        Answer({"error": {"message": "out of memory"}}, 500),
        Answer({}, 429, headers={"Retry-After": "0.1"}),
        Answer({}, 503),
    ],
    ids=["500", "429 with Retry-After", "503"],
)
def test_what_passes_is_tried_again(server: Server, failure: Answer) -> None:
    server.queue = [failure, texts(choice("a", -1.0))]
    [[candidate]] = ServerGenerator(server.url, CHATML).generate([Request("who?")], 1)
    assert candidate.text == "a"
    assert len(server.asked) == 2


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (
            Answer({"error": {"message": "out of memory"}}, 500),
            r"refused: .*500.*asked 2 times",
        ),
        (
            Answer({"error": {"message": "slow down"}}, 429, headers={"Retry-After": "0.01"}),
            "refused: .*429",
        ),
        (Answer({"error": {"message": "key?"}}, 401), r"401.*Set KBQA_SERVER_API_KEY"),
        (Answer({"message": "no grammar"}, 400), "refused: .*no grammar"),
        (Answer(b"<html>"), "did not send a completion of a text, but: <html>"),
        (Answer({"text": "Main Path:"}), "did not send a completion of a text, but: .*Main Path"),
        (Answer([]), "did not send a completion of a text"),
        (
            Answer({"choices": [{"text": "a", "logprobs": {"token_logprobs": ["x"]}}]}),
            "did not send a completion",
        ),
        (Answer({"choices": []}), "did not send a completion"),
        (Answer({"choices": [{"text": "a"}]}), "no log-probabilities.*--logits_all"),
        (Answer({"choices": [{"text": "a", "logprobs": {}}]}), "no log-probabilities"),
        (texts(choice("a")), "no log-probabilities"),
        (Answer({}, after_s=1.0), r"did not answer within 0\.2 s, asked 2 times"),
    ],
    ids=[
        "500",
        "429",
        "401",
        "400",
        "not JSON",
        "no choices",
        "a list",
        "odd log-probabilities",
        "empty choices",
        "no log-probabilities",
        "null log-probabilities",
        "empty log-probabilities",
        "time-out",
    ],
)
def test_what_a_server_cannot_do_is_told(server: Server, reply: Answer, message: str) -> None:
    generator = ServerGenerator(server.url, CHATML, timeout_s=0.2, retries=1)
    server.answer = lambda _: reply
    with pytest.raises(ModelError, match=message):
        generator.generate([Request("who?"), Request("where?")], 2)


@pytest.mark.parametrize(
    ("models", "model", "message"),
    [
        (
            Answer(MODELS),
            "other",
            r"no model 'other'\. It offers smol\. Choose .* --served-model",
        ),
        (Answer(VLLM_MODELS), None, r"serves several models\. It offers crp and smol\."),
        (Answer({"data": []}), None, r"serves no model\."),
        (Answer({}, 404), None, r"404.*ends in /v1"),
        (Answer(b"<html>"), None, "did not send a list of models"),
    ],
    ids=["another", "several", "none", "no such path", "not JSON"],
)
def test_a_model_that_is_not_served_is_told(
    server: Server, models: Answer, model: str | None, message: str
) -> None:
    server.models = models
    with pytest.raises(ModelError, match=message):
        ServerGenerator(server.url, CHATML, model, retries=0)


def test_an_absent_server_is_reported() -> None:
    url = "http://127.0.0.1:9/v1"
    with pytest.raises(ModelError, match=f"no server answers at {url}"):
        ServerGenerator(url, CHATML, retries=0)


def test_what_is_no_url_is_refused() -> None:
    with pytest.raises(InputError, match="'nonsense' is not the URL of a server"):
        ServerGenerator("nonsense", CHATML)


@pytest.mark.parametrize("status", [200, 401, 500])
def test_a_key_that_the_server_echoes_is_not_shown(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    monkeypatch.setenv("KBQA_SERVER_API_KEY", "sk-secret")
    caplog.set_level(logging.DEBUG, "kbqa")
    server.queue = [Answer({"error": {"message": "no such key: sk-secret"}}, status)]
    generator = ServerGenerator(server.url, CHATML, retries=0)
    with pytest.raises(ModelError, match="no such key: …") as raised:
        generator.generate([Request("who?")], 1)
    assert "sk-secret" not in str(raised.value) + caplog.text


def test_paths_that_come_too_late_end_at_the_deadline(server: Server) -> None:
    server.queue = [Answer({}, after_s=1.0)]
    generator = ServerGenerator(server.url, CHATML)
    started = time.monotonic()
    with pytest.raises(DeadlineExceeded), keep_to(Deadline.after(0.2)):
        generator.generate([Request("who?"), Request("where?")], 5)
    assert time.monotonic() - started < 0.9


def test_the_key_is_the_servers_own(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    ServerGenerator(server.url, CHATML)
    monkeypatch.setenv("KBQA_SERVER_API_KEY", "ours")
    ServerGenerator(server.url, CHATML)
    assert server.keys == {"Bearer none", "Bearer ours"}


def test_a_missing_client_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ModelError, match=r"kbqa\[llm\]"):
        ServerGenerator("http://127.0.0.1:9/v1", CHATML)
