"""A general model behind a real HTTP server on loopback that behaves, and misbehaves, as told."""

import gzip
import importlib.util
import logging
import os
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from kbqa.engine.chat.model import Message, Price, SpendingLimit
from kbqa.engine.chat.openai import OpenAIChat
from kbqa.engine.chat.server import OPENAI_URL, Retrying
from kbqa.kb.deadline import Deadline, keep_to
from kbqa.sparql.errors import (
    DeadlineExceeded,
    InputError,
    ModelError,
    PromptTooLong,
    SpendingLimitReached,
)

pytest.importorskip("openai", reason="needs the llm extra")

# Read before the tests' own environment hides the user's.
REAL_URL, REAL_MODEL = os.environ.get("KBQA_TEST_LLM"), os.environ.get("KBQA_TEST_LLM_MODEL")

WHO = [Message("system", "Be brief."), Message("user", "who is it?")]
QUICK = Retrying(retries=2, first_pause_s=0.01)
ONCE = Retrying(retries=0)


def chat_with(server, model="smol", retrying=QUICK, **settings):
    return OpenAIChat(server.url, model, retrying=retrying, **settings)


def test_a_reply_is_a_text_and_what_it_took(server):
    server.says("It is Ann.\n", usage=(20, 4), after_s=0.05)
    chat = chat_with(server, price=Price(1.0, 10.0))
    reply = chat.complete(WHO, max_tokens=64)
    assert reply.text == "It is Ann.\n"
    assert not reply.is_truncated
    assert (reply.usage.calls, reply.usage.cached_calls) == (1, 0)
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (20, 4)
    assert reply.usage.cost_usd == pytest.approx(60e-6)
    assert 0.05 <= reply.usage.seconds < 5
    assert server.paths == {"/v1/chat/completions"}
    assert server.asked == [
        {
            "model": "smol",
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "who is it?"},
            ],
            "max_tokens": 64,
            "temperature": 0,
        }
    ]


def test_a_server_of_this_machine_is_asked_without_the_proxy(server, monkeypatch):
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    server.says("Ann")
    assert chat_with(server).complete(WHO, max_tokens=9).text == "Ann"
    far = OpenAIChat("http://far.invalid/v1", "smol", retrying=ONCE)
    with pytest.raises(ModelError, match=r"at http://far\.invalid/v1 through the proxy http://127"):
        far.complete(WHO, max_tokens=9)


def test_openai_itself_is_told_the_limit_by_its_newer_name(server, monkeypatch):
    monkeypatch.setattr("kbqa.engine.chat.openai.OPENAI_URL", server.url)
    server.says("Ann")
    chat_with(server).complete(WHO, max_tokens=64)
    [asked] = server.asked
    assert asked["max_completion_tokens"] == 64
    assert "max_tokens" not in asked


def test_temperature_and_seed_are_sent(server):
    server.says("Ann")
    chat_with(server).complete(WHO, temperature=0.4, seed=7)
    assert (server.asked[0]["temperature"], server.asked[0]["seed"]) == (0.4, 7)


def test_extra_parameters_are_sent_and_take_the_place_of_kbqas_own(server):
    server.says("Ann")
    extra = {"chat_template_kwargs": {"enable_thinking": False}, "temperature": None}
    chat = chat_with(server, extra={**extra, "max_completion_tokens": 4096})
    chat.complete(WHO, temperature=0.4, seed=7)
    sent = {name: value for name, value in server.asked[0].items() if name != "messages"}
    assert sent == {
        "model": "smol",
        "chat_template_kwargs": {"enable_thinking": False},
        "max_completion_tokens": 4096,
        "seed": 7,
    }
    assert chat.name.endswith(
        ' with {"chat_template_kwargs": {"enable_thinking": false}, "max_completion_tokens": 4096, '
        '"temperature": null}'
    )
    assert chat.identity != chat_with(server).identity


def test_a_model_is_named_with_its_server(server):
    chat = OpenAIChat(f"{server.url}/", "smol")
    assert chat.name == f"smol at {server.url}"
    assert chat.identity == {"model": "smol", "url": server.url}


def test_half_a_surrogate_pair_in_a_question_is_no_failure(server):
    server.says("Ann")
    chat_with(server).complete([Message("user", "who is \ud800?")])
    assert server.prompts == ["who is ??"]


# What may pass.

OVERLOADED = {"error": {"message": "overloaded", "code": None}}
AN_HOUR_AGO = format_datetime(datetime.now(UTC) - timedelta(hours=1), usegmt=True)

PASSING = {
    "500": (OVERLOADED, {"status": 500}),
    "502 in HTML": (b"<html>Bad Gateway</html>", {"status": 502}),
    "408": (OVERLOADED, {"status": 408}),
    "429": (OVERLOADED, {"status": 429}),
    "429 until a second has passed": (
        OVERLOADED,
        {"status": 429, "headers": {"Retry-After": "0.01"}},
    ),
    "429 until a time that has passed": (
        OVERLOADED,
        {"status": 429, "headers": {"Retry-After": AN_HOUR_AGO}},
    ),
    "dies before its answer": (b"", {"sent_bytes": 0}),
    "dies in its answer": (b'{"choices": [{"message": {}}]}', {"sent_bytes": 12}),
    "no bytes": (b"", {}),
    "rubbish": (b"\xff\x00\xfe", {}),
    "HTML": (b"<html>Welcome</html>", {}),
    "half of JSON": (b'{"choices": [{"message": {"content": "It i', {}),
    "a list": ([], {}),
    "an error as an answer": ({"error": {"message": "upstream"}}, {}),
    "no choices": ({"choices": []}, {}),
    "a choice without a message": ({"choices": [{"text": "Ann"}]}, {}),
    "null": ({"choices": [{"message": {"content": None}}]}, {}),
    "an empty text": ({"choices": [{"message": {"content": ""}}]}, {}),
    "a blank text": ({"choices": [{"message": {"content": " \n"}}]}, {}),
}


@pytest.mark.parametrize(("body", "how"), PASSING.values(), ids=PASSING.keys())
def test_what_may_pass_is_asked_again(server, body, how):
    server.answers(body, **how)
    server.says("Ann")
    assert chat_with(server).complete(WHO).text == "Ann"
    assert len(server.asked) == 2


SLOW = pytest.mark.parametrize(
    "how",
    [{"after_s": 0.8}, {"drip_s": 0.01}, {"drip_header_s": 0.01}],
    ids=["silent", "empty lines", "endless header"],
)


@SLOW
def test_a_server_that_is_slow_once_is_asked_again(server, how):
    server.answers(b"{}", **how)
    server.says("Ann")
    assert chat_with(server, timeout_s=0.5).complete(WHO).text == "Ann"


@SLOW
def test_a_server_that_is_always_slow_is_reported_in_time(server, how):
    server.answers(b"{}", **how)
    message = rf"{server.url} did not answer within 0\.1 s, asked 3 times\. Raise --llm-timeout"
    started = time.monotonic()
    with pytest.raises(ModelError, match=message):
        chat_with(server, timeout_s=0.1).complete(WHO)
    assert time.monotonic() - started < 3  # not for ever, on a busy machine too


@SLOW
def test_a_call_ends_at_the_deadline_of_its_question(server, how):
    server.answers(b"{}", **how)
    started = time.monotonic()
    with pytest.raises(DeadlineExceeded), keep_to(Deadline.after(0.2)):
        chat_with(server, timeout_s=60).complete(WHO)
    assert time.monotonic() - started < 3


def test_a_call_that_waits_to_ask_again_ends_at_the_deadline(server):
    server.answers(OVERLOADED, status=429, headers={"Retry-After": "60"})
    started = time.monotonic()
    with pytest.raises(DeadlineExceeded), keep_to(Deadline.after(0.2)):
        chat_with(server).complete(WHO)
    assert time.monotonic() - started < 3


@pytest.mark.parametrize("status", [200, 500])
@pytest.mark.parametrize("is_compressed", [True, False], ids=["gzip", "plain"])
def test_an_answer_of_any_size_takes_little_memory(server, status, is_compressed):
    body = b" " * (64 << 20)
    headers = {"Content-Encoding": "gzip"} if is_compressed else {}
    server.answers(
        gzip.compress(body, 1) if is_compressed else body, status=status, headers=headers
    )
    chat = chat_with(server)
    tracemalloc.start()
    try:
        with pytest.raises(
            ModelError, match=r"the answer of .* cannot be read: it (is compr|has no)"
        ):
            chat.complete(WHO)
        assert tracemalloc.get_traced_memory()[1] < 48 << 20
    finally:
        tracemalloc.stop()
    assert len(server.asked) == 1


LASTING = {
    "500": (OVERLOADED, {"status": 500}, "refused: Error code: 500.*overloaded"),
    "502 in HTML": (b"<html>Bad Gateway</html>", {"status": 502}, "refused: Error code: 502"),
    "429": (OVERLOADED, {"status": 429}, "refused: .*429.*asked 3 times.*--llm-concurrency"),
    "dies before its answer": (
        b"",
        {"sent_bytes": 0},
        "connection to .* broke off: .*disconn",
    ),
    "dies in its answer": (b'{"choices":', {"sent_bytes": 5}, "connection to .* broke off"),
    "no bytes": (b"", {}, "did not send a chat completion, but: nothing at all"),
    "HTML": (b"<html>Welcome</html>", {}, "a chat completion, but: <html>Welcome"),
    "an error as an answer": (
        {"error": {"message": "upstream"}},
        {},
        "completion, but: .*upstream",
    ),
    "an empty text": ({"choices": [{"message": {"content": ""}}]}, {}, "an empty text"),
    "long": (b"<p>" * 5000, {}, "a chat completion, but: .{295,300}, asked"),
}


@pytest.mark.parametrize(("body", "how", "message"), LASTING.values(), ids=LASTING.keys())
def test_what_does_not_pass_is_told_after_the_last_try(server, body, how, message):
    server.answers(body, **how)
    with pytest.raises(ModelError, match=message) as raised:
        chat_with(server).complete(WHO)
    assert server.url in str(raised.value)
    assert "asked 3 times" in str(raised.value)
    assert len(server.asked) == 3


def test_an_answer_with_empty_lines_before_it_is_good(server):
    server.answers(b'\n\n\n{"choices": [{"message": {"content": "Ann"}}]}')
    assert chat_with(server).complete(WHO).text == "Ann"


def test_the_server_says_how_long_to_wait(server):
    server.answers(OVERLOADED, status=429, headers={"Retry-After": "0.3"})
    server.says("Ann")
    assert chat_with(server).complete(WHO).usage.seconds >= 0.3


TOMORROW = format_datetime(datetime.now(UTC) + timedelta(days=1), usegmt=True)


@pytest.mark.parametrize("wait", ["3600", TOMORROW], ids=["seconds", "date"])
def test_an_hour_is_not_waited_but_told(server, wait):
    server.answers(OVERLOADED, status=429, headers={"Retry-After": wait})
    started = time.monotonic()
    with pytest.raises(ModelError, match=r"asks to wait \d{4,5} s, and kbqa waits at most 120 s"):
        chat_with(server).complete(WHO)
    assert len(server.asked) == 1
    assert time.monotonic() - started < 10


# What does not pass.

REFUSED = {
    "401": (401, {"error": {"message": "who?"}}, r"401.*who\?.*Set KBQA_LLM_KEY\."),
    "403": (403, {"error": {"message": "no"}}, "403.*Set KBQA_LLM_KEY"),
    "402": (402, {"error": {"message": "pay"}}, "402.*no credit left"),
    "no quota": (429, {"error": {"code": "insufficient_quota"}}, "no credit left"),
    "400": (400, {"error": {"message": "too long"}}, "refused: .*too long"),
    "422": (422, {"error": {"message": "odd"}}, "refused: .*odd"),
    "404": (404, {"error": {"message": "Not Found"}}, r"404.*ends in /v1\."),
}


@pytest.mark.parametrize(("status", "body", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_what_does_not_pass_is_asked_once(server, status, body, message):
    server.answers(body, status=status)
    with pytest.raises(ModelError, match=message):
        chat_with(server).complete(WHO)
    assert len(server.asked) == 1


def test_a_redirect_is_told_and_not_followed(server):
    """A question goes to no server that nobody named."""
    moved = {"Location": f"{server.url}/elsewhere"}
    server.answers(b"", status=307, headers=moved)
    with pytest.raises(ModelError, match=rf"307\. It has moved to {moved['Location']}\. Use that"):
        chat_with(server).complete(WHO)
    assert server.paths == {"/v1/chat/completions"}


VLLM = (
    "This model's maximum context length is 2048 tokens. However, you requested 2600 tokens "
    "(2088 in the messages, 512 in the completion). Please reduce the length of the messages."
)
LLAMA_CPP = "request (4390 tokens) exceeds the available context size (4096 tokens)"
TOO_LONG = {
    "vLLM": (400, {"error": {"message": VLLM, "type": "BadRequestError", "code": 400}}),
    "older vLLM": (400, {"object": "error", "message": VLLM, "code": 400}),
    "oldest vLLM": (400, {"message": "max_tokens must be at least 1, got -186.", "code": 400}),
    "OpenAI": (400, {"error": {"message": "Too long.", "code": "context_length_exceeded"}}),
    "llama.cpp": (400, {"error": {"message": LLAMA_CPP, "type": "exceed_context_size_error"}}),
    "llama.cpp, 500": (500, {"error": {"message": "Context size has been exceeded."}}),
    "llama.cpp, 200": (200, {"error": {"code": 400, "message": LLAMA_CPP}}),
    "llama-cpp-python": (500, {"error": {"message": "tokens (9) exceed context window of 8"}}),
}


@pytest.mark.parametrize(("status", "body"), TOO_LONG.values(), ids=TOO_LONG.keys())
def test_a_prompt_over_the_context_is_told_and_not_asked_again(server, status, body):
    server.answers(body, status=status)
    with pytest.raises(PromptTooLong, match=r"context of smol at http.*--max-model-len of vLLM"):
        chat_with(server).complete(WHO)
    assert len(server.asked) == 1


@pytest.mark.parametrize("status", [400, 404])
def test_an_unknown_model_is_told_with_those_there_are(server, status):
    server.offers("llama-3.1-8b", "gpt-4o-mini")
    server.answers({"error": {"message": "unknown"}}, status=status)
    with pytest.raises(ModelError, match=r"It offers gpt-4o-mini and llama-3\.1-8b\."):
        chat_with(server, "gpt4o-mini").complete(WHO)


def test_of_many_models_those_of_a_like_name_are_told(server):
    server.offers("gpt-4o-mini", *(f"other-{i}" for i in range(300)))
    server.answers({"error": {"message": "unknown"}}, status=404)
    with pytest.raises(ModelError, match="offers 301 models, such as gpt-4o-mini, ") as raised:
        chat_with(server, "gpt4o-mini").complete(WHO)
    assert len(str(raised.value)) < 500


def test_a_refusal_that_is_not_the_models_says_nothing_of_models(server):
    server.offers("smol", "other")
    server.answers({"error": {"message": "too long"}}, status=400)
    with pytest.raises(ModelError) as raised:
        chat_with(server).complete(WHO)
    assert "offers" not in str(raised.value)


def test_a_model_that_only_reasons_is_told_and_not_asked_again(server):
    server.says("", reason="length")
    with pytest.raises(ModelError, match="used all of its 64 tokens without writing any text"):
        chat_with(server).complete(WHO, max_tokens=64)
    assert len(server.asked) == 1


def test_reasoning_without_a_reply_is_told_and_not_asked_again(server):
    server.says("<think>Is it Ann?", reason="length")
    server.says("<think>It is Ann.</think>\n")
    with pytest.raises(ModelError, match="used all of its 64 tokens without writing any text"):
        chat_with(server).complete(WHO, max_tokens=64)
    with pytest.raises(ModelError, match=r"wrote its reasoning and no reply.*--llm-extra"):
        chat_with(server).complete(WHO)
    assert len(server.asked) == 2


def test_half_a_surrogate_pair_in_a_reply_is_replaced(server):
    server.answers(rb'{"choices": [{"message": {"content": "Ann \ud83d \u00e9"}}]}')
    server.answers(b'{"choices": [{"message": {"content": "Ann \xed\xa0\xbd"}}]}')
    assert chat_with(server).complete(WHO).text == "Ann ? é"
    assert chat_with(server).complete(WHO).text == "Ann \ufffd\ufffd\ufffd"


def refusal(parameter, message, code="unsupported_parameter"):
    return {"error": {"message": message, "param": parameter, "code": code}}


NO_MAX_TOKENS = (
    "Unsupported parameter: 'max_tokens' is not supported with this model. "
    "Use 'max_completion_tokens' instead."
)
NO_TEMPERATURE = (
    "Unsupported value: 'temperature' does not support 0 with this model. "
    "Only the default (1) value is supported."
)
EXTRA = {"detail": [{"type": "extra_forbidden", "loc": ["body", "temperature"], "input": 0}]}


def test_a_request_is_sent_again_without_what_the_server_refuses(server, caplog):
    server.answers(refusal("max_tokens", NO_MAX_TOKENS), status=400)
    server.answers(refusal("temperature", NO_TEMPERATURE), status=400)
    server.says("Ann")
    server.says("Bob")
    chat = chat_with(server, retrying=ONCE)
    assert chat.complete(WHO, max_tokens=64).text == "Ann"
    assert not chat.complete(WHO, max_tokens=64).at_temperature
    sent = [asked.keys() - {"model", "messages"} for asked in server.asked]
    without = {"max_completion_tokens"}
    assert sent == [{"max_tokens", "temperature"}, without | {"temperature"}, without, without]
    assert "does not take temperature; it is asked without, so its replies may" in caplog.text


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (422, EXTRA),
        (400, {"error": {"message": "Unrecognized request argument supplied: temperature"}}),
    ],
)
def test_servers_refuse_a_parameter_in_several_ways(server, status, body):
    server.answers(body, status=status)
    server.says("Ann")
    assert chat_with(server).complete(WHO).text == "Ann"
    assert "temperature" not in server.asked[1]


def test_a_server_that_refuses_both_limits_is_told(server):
    server.answers(refusal("max_tokens", NO_MAX_TOKENS), status=400)
    server.answers(refusal("max_completion_tokens", "unsupported"), status=400)
    with pytest.raises(ModelError, match=r"refused: .*unsupported"):
        chat_with(server).complete(WHO)
    assert len(server.asked) == 2


@pytest.mark.parametrize(
    ("extra", "body", "parameter"),
    [
        (
            {"reasoning_effort": "none"},
            {"error": {"message": "Unrecognized request argument: reasoning_effort"}},
            "reasoning_effort",
        ),
        ({"temperature": 0.6}, refusal("temperature", NO_TEMPERATURE), "temperature"),
        ({}, refusal("temperature", "temperature must be over 0", "invalid_value"), "temperature"),
    ],
)
def test_a_parameter_that_is_refused_is_told_with_the_option_that_leaves_it_out(
    server, extra, body, parameter
):
    server.offers("smol")
    server.answers(body, status=400)
    told = f"""Leave out {parameter} with --llm-extra '{{"{parameter}": null}}'"""
    with pytest.raises(ModelError) as raised:
        chat_with(server, extra=extra).complete(WHO)
    assert told in str(raised.value)
    assert len([paths for paths in server.asked if paths]) == 1


def test_a_value_that_is_refused_is_told_and_not_left_out(server):
    too_large = refusal("max_tokens", "max_tokens is too large: at most 64", "invalid_value")
    server.answers(too_large, status=400)
    with pytest.raises(ModelError, match="too large"):
        chat_with(server).complete(WHO)
    assert len(server.asked) == 1


def test_a_request_that_is_sent_again_counts(server):
    server.answers(refusal("temperature", NO_TEMPERATURE), status=400)
    with pytest.raises(SpendingLimitReached):
        chat_with(server, limit=SpendingLimit(calls=1)).complete(WHO)
    assert len(server.asked) == 1


def test_a_text_that_is_cut_off_is_a_reply(server):
    server.says("It is A", reason="length")
    reply = chat_with(server).complete(WHO)
    assert reply.text == "It is A"
    assert reply.is_truncated


def test_no_server_is_told_with_its_url():
    url = "http://127.0.0.1:9/v1"
    with pytest.raises(ModelError, match=f"no server answers at {url}: .*refused, asked 3 times"):
        OpenAIChat(url, "smol", retrying=QUICK).complete(WHO)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "nonsense",
        "ftp://host/v1",
        "http://",
        "http://[::1/v1",
        "http://host/\x1b",
        "http://me:secret@host/v1",
        "http://host/v1?key=secret",
    ],
)
def test_what_is_no_url_is_refused(url):
    with pytest.raises(InputError) as raised:
        OpenAIChat(url, "smol")
    assert "secret" not in str(raised.value)


def test_the_only_model_need_not_be_named(server):
    server.offers("smol")
    server.says("Ann")
    chat_with(server, None).complete(WHO)
    assert server.asked[0]["model"] == "smol"


@pytest.mark.parametrize(
    ("offered", "message"),
    [
        (["b", "a"], r"which model of .*\? It offers a and b\. Choose one with --llm-model"),
        ([], "It offers no model"),
        (None, "refused: .*404"),
    ],
    ids=["two", "none", "no list"],
)
def test_a_model_that_is_not_the_only_one_must_be_named(server, offered, message):
    if offered is not None:
        server.offers(*offered)
    with pytest.raises(ModelError, match=message):
        chat_with(server, None)


def test_a_missing_client_is_told(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ModelError, match=r"kbqa\[llm\]"):
        OpenAIChat("http://127.0.0.1:9/v1", "smol")


# Counting.


@pytest.mark.parametrize(
    "usage",
    [None, {}, {"prompt_tokens": None}, {"total_tokens": 9}, {"prompt_tokens": -1}, "many"],
    ids=["none", "empty", "null", "total only", "negative", "text"],
)
def test_tokens_that_are_not_told_are_not_guessed(server, usage):
    server.says("Ann", usage=usage)
    taken = chat_with(server, price=Price(1.0, 1.0)).complete(WHO).usage
    assert (taken.calls, taken.input_tokens, taken.output_tokens) == (1, 0, 0)
    assert taken.cost_usd is None


def test_tokens_of_tries_that_brought_nothing_are_counted(server):
    server.says("", usage=(100, 1))
    server.says("Ann", usage=(100, 2))
    taken = chat_with(server, price=Price(1.0, 0.0)).complete(WHO).usage
    assert (taken.calls, taken.input_tokens, taken.output_tokens) == (1, 200, 3)
    assert taken.cost_usd == pytest.approx(200e-6)


def test_the_cost_is_by_the_table_unless_given(server):
    server.says("Ann", usage=(1_000_000, 0))
    costs = [
        chat_with(server, model, price=price).complete(WHO).usage.cost_usd
        for model, price in [
            ("gpt-4o-mini", None),
            ("gpt-4o-mini", Price(0.5, 1.0)),
            ("smol", None),
        ]
    ]
    assert costs == [0.15, 0.5, None]


def test_no_more_requests_are_under_way_than_allowed(server):
    server.says("Ann", after_s=0.05)
    chat = chat_with(server, concurrency=2)
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda _: chat.complete(WHO), range(8)))
    assert len(replies) == len(server.asked) == 8
    assert server.most_at_once == 2


# What may be spent.


def test_no_more_requests_are_sent_than_allowed(server):
    server.answers(OVERLOADED, status=500)
    server.says("Ann")
    chat = chat_with(server, limit=SpendingLimit(calls=3))
    assert [chat.complete(WHO).text for _ in range(2)] == ["Ann", "Ann"], "one retry is a request"
    with pytest.raises(SpendingLimitReached, match=r"3 requests were sent.*--llm-calls"):
        chat.complete(WHO)
    assert len(server.asked) == 3


def test_no_more_is_spent_than_allowed(server):
    server.says("Ann", usage=(1000, 0))
    chat = chat_with(server, price=Price(1.0, 1.0), limit=SpendingLimit(usd=0.0025))
    for _ in range(3):
        chat.complete(WHO)
    with pytest.raises(SpendingLimitReached, match=r"0\.003 USD were spent .* of 0\.0025 allowed"):
        chat.complete(WHO)
    assert len(server.asked) == 3


def test_what_brought_no_reply_is_spent_too(server):
    server.says("", usage=(1000, 0))
    chat = chat_with(server, price=Price(1.0, 1.0), limit=SpendingLimit(usd=0.002))
    with pytest.raises(SpendingLimitReached):
        chat.complete(WHO)
    assert len(server.asked) == 2


def test_the_limit_is_passed_by_what_is_under_way_at_most(server):
    server.says("Ann", usage=(1000, 0), after_s=0.02)
    limit = SpendingLimit(usd=0.005)
    chat = chat_with(server, price=Price(1.0, 1.0), limit=limit, concurrency=3)

    def ask(_):
        try:
            return chat.complete(WHO).text
        except SpendingLimitReached:
            return None

    with ThreadPoolExecutor(16) as pool:
        replies = list(pool.map(ask, range(32)))
    assert 5 <= len(server.asked) <= 5 + 2
    assert replies.count("Ann") == len(server.asked)


def test_a_limit_without_a_price_is_refused(server):
    with pytest.raises(InputError, match=r"price of smol.*--llm-price.*--llm-calls"):
        chat_with(server, limit=SpendingLimit(usd=1.0))


def test_a_limit_that_cannot_be_kept_ends_after_the_first_reply(server):
    server.says("Ann", usage=None)
    chat = chat_with(server, price=Price(1.0, 1.0), limit=SpendingLimit(usd=1.0))
    assert chat.complete(WHO).text == "Ann"
    with pytest.raises(SpendingLimitReached, match="does not report how many tokens"):
        chat.complete(WHO)


# Secrets.


@pytest.mark.parametrize(
    ("ours", "openais", "sent"),
    [
        ("", "", "Bearer none"),
        ("k-ours\n", "", "Bearer k-ours"),
        ("", "k-openai", "Bearer none"),
        ("k-ours", "k-openai", "Bearer k-ours"),
    ],
    ids=["none", "ours", "OpenAI's", "both"],
)
def test_a_server_gets_its_own_key_and_not_openais(server, monkeypatch, ours, openais, sent):
    monkeypatch.setenv("KBQA_LLM_KEY", ours)
    monkeypatch.setenv("OPENAI_API_KEY", openais)
    server.says("Ann")
    chat_with(server).complete(WHO)
    assert server.keys == {sent}


@pytest.mark.parametrize("key", ["k\nX-Other: 1", "schlüssel"])
def test_a_key_that_cannot_be_one_is_refused_unseen(server, monkeypatch, key):
    monkeypatch.setenv("KBQA_LLM_KEY", key)
    with pytest.raises(InputError, match="KBQA_LLM_KEY holds characters") as raised:
        chat_with(server)
    assert key not in str(raised.value)


def test_openais_key_is_for_openai(monkeypatch):
    # Read where the client is made; nothing is asked.
    monkeypatch.setenv("OPENAI_API_KEY", "schlüssel")
    with pytest.raises(InputError, match="OPENAI_API_KEY holds characters"):
        OpenAIChat(OPENAI_URL, "gpt-4o-mini")
    OpenAIChat("https://openai.com.example.org/v1", "gpt-4o-mini")


def test_keys_are_never_shown_and_prompts_only_to_those_who_debug(server, monkeypatch, caplog):
    monkeypatch.setenv("KBQA_LLM_KEY", "k-ours")
    caplog.set_level(logging.DEBUG, "kbqa")
    echo = {"error": {"message": "key k-ours, asked: who is it?"}}
    server.answers(echo, status=500)
    server.answers(echo)
    server.says("Ann")
    server.answers(echo, status=401)
    chat = chat_with(server)
    chat.complete(WHO)
    with pytest.raises(ModelError, match="Check KBQA_LLM_KEY") as raised:
        chat.complete(WHO)
    assert "k-ours" not in caplog.text + str(raised.value)
    told = [record.getMessage() for record in caplog.records if record.levelno > logging.DEBUG]
    assert len(told) == 2, "the two that were asked again"
    assert not [words for words in told if "who is it?" in words]
    assert "who is it?" in caplog.text


@pytest.mark.skipif(REAL_URL is None, reason="KBQA_TEST_LLM names no OpenAI-compatible server")
def test_a_real_server_replies():
    reply = OpenAIChat(REAL_URL, REAL_MODEL, retrying=ONCE).complete(
        [Message("user", "Say one word.")], max_tokens=16
    )
    assert reply.text.strip()
    assert reply.usage.input_tokens > 0
    assert 0 < reply.usage.output_tokens <= 16
