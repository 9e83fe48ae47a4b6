"""Replies on disk: found again, paid for once, and done without where the disk fails.

What one question takes of a model that several share.
"""

import hashlib
import json
import logging
import resource
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import pytest

from kbqa.engine.chat.cache import CachedChat, CountedChat
from kbqa.engine.chat.model import Message, Price, Reply, SpendingLimit, Usage
from kbqa.engine.chat.openai import OpenAIChat
from kbqa.sparql.errors import ModelError, SpendingLimitReached

IDENTITY = {"model": "smol", "url": "http://127.0.0.1:9/v1"}
WHO = [Message("system", "Be brief."), Message("user", "who is it?")]


@pytest.fixture
def cached(tmp_path):
    """Wrap a model, by default with the same cache."""

    def wrap(model, identity=IDENTITY, price=None, directory=tmp_path):
        return CachedChat(model, identity, price, directory)

    return wrap


def test_the_same_is_asked_once(cached, scripted_chat):
    model = scripted_chat(Reply("Ann \u2013 名\n", Usage(1, 0, 20, 4, 1.5, 0.25)))
    chat = cached(model)
    first, second = chat.complete(WHO), chat.complete(WHO)
    assert first == Reply("Ann \u2013 名\n", Usage(1, 0, 20, 4, 1.5, 0.25))
    assert second == Reply("Ann \u2013 名\n", Usage(1, 1, 20, 4, 0.0, None))
    assert model.conversations == [WHO]
    assert chat.name == model.name


def test_replies_are_closed_to_other_users(cached, scripted_chat, tmp_path):
    open_to_all = tmp_path / "chat"
    open_to_all.mkdir(mode=0o755)
    cached(scripted_chat("Ann"), directory=open_to_all).complete(WHO)
    [reply] = open_to_all.rglob("*.json")
    assert reply.stat().st_mode & 0o777 == 0o600
    for folder in (open_to_all, reply.parent):
        assert folder.stat().st_mode & 0o777 == 0o700


def test_what_is_kept_costs_what_it_would_today(cached, scripted_chat):
    cached(scripted_chat(Reply("Ann", Usage(1, 0, 1000, 10, 1.5, 0.25)))).complete(WHO)
    kept = cached(scripted_chat(), price=Price(1.0, 100.0)).complete(WHO)
    assert kept.usage.cost_usd == pytest.approx(0.002)


def test_tokens_that_were_not_told_stay_unknown(cached, scripted_chat):
    cached(scripted_chat(Reply("Ann", Usage(1, cost_usd=None)))).complete(WHO)
    assert cached(scripted_chat(), price=Price(1.0, 1.0)).complete(WHO).usage.cost_usd is None


@pytest.mark.parametrize(
    ("identity", "messages", "settings"),
    [
        ({**IDENTITY, "model": "other"}, WHO, {}),
        ({**IDENTITY, "url": "http://127.0.0.1:10/v1"}, WHO, {}),
        (IDENTITY, WHO, {"seed": 0}),
        (IDENTITY, WHO, {"temperature": 0.4}),
        (IDENTITY, WHO[1:], {}),
        (IDENTITY, [WHO[0], replace(WHO[1], content="who is it? ")], {}),
        (IDENTITY, [WHO[0], replace(WHO[1], role="assistant")], {}),
        (IDENTITY, [*WHO, WHO[1]], {}),
        (IDENTITY, WHO, {"max_tokens": 65}),
    ],
    ids=["model", "server", "seed", "warm", "fewer", "text", "role", "more", "max_tokens"],
)
def test_what_differs_is_asked(cached, scripted_chat, identity, messages, settings):
    cached(scripted_chat("Ann")).complete(WHO, max_tokens=64)
    chat = cached(scripted_chat("Bob"), identity)
    assert chat.complete(messages, **{"max_tokens": 64, **settings}).text == "Bob"


def test_replies_paid_for_before_temperature_was_an_argument_are_found(
    cached, scripted_chat, tmp_path
):
    request = {
        "schema_version": 1,
        "model": {**IDENTITY, "temperature": 0, "seed": None},
        "messages": [[message.role, message.content] for message in WHO],
        "max_tokens": 64,
    }
    key = hashlib.sha256(
        json.dumps(request, sort_keys=True, separators=(",", ":")).encode()
    ).hexdigest()
    kept = tmp_path / key[:2] / f"{key[2:]}.json"
    kept.parent.mkdir()
    kept.write_text('{"schema_version": 1, "text": "Ann", "input_tokens": 9, "output_tokens": 1}')
    reply = cached(scripted_chat()).complete(WHO, max_tokens=64)
    assert (reply.text, reply.is_truncated) == ("Ann", False)


def test_that_a_reply_was_cut_off_is_kept(cached, scripted_chat):
    cut = Reply("It is A", Usage(1), is_truncated=True)
    chat = cached(scripted_chat(cut))
    assert [chat.complete(WHO, temperature=1, seed=2).is_truncated for _ in range(2)] == [True] * 2


def test_a_reply_without_its_temperature_is_not_kept_as_one_of_it(cached, scripted_chat):
    cached(scripted_chat(Reply("Ann", Usage(1), at_temperature=False))).complete(WHO)
    # A server that takes none replies the same at any; others are asked for each.
    assert cached(scripted_chat()).complete(WHO).text == "Ann"
    assert cached(scripted_chat()).complete(WHO, temperature=0.4).text == "Ann"
    cached(scripted_chat("Bob")).complete(WHO, seed=1)
    assert cached(scripted_chat("Eve")).complete(WHO, temperature=0.4, seed=1).text == "Eve"


def test_temperature_and_seed_reach_the_model(cached, scripted_chat):
    model = scripted_chat("Ann")
    cached(model).complete(WHO, temperature=0.4, seed=7)
    assert model.sampling == [(0.4, 7)]


def test_the_order_of_what_identifies_a_model_does_not_matter(cached, scripted_chat):
    cached(scripted_chat("Ann")).complete(WHO)
    turned = dict(reversed(IDENTITY.items()))
    assert cached(scripted_chat(), turned).complete(WHO).text == "Ann"


def test_a_failure_is_not_kept(cached, scripted_chat):
    chat = cached(scripted_chat(ModelError("out of memory"), "Ann"))
    with pytest.raises(ModelError, match="out of memory"):
        chat.complete(WHO)
    assert chat.complete(WHO).text == "Ann"


def test_the_users_cache_folder_is_the_default(scripted_chat, tmp_path, monkeypatch):
    monkeypatch.setenv("KBQA_CACHE", str(tmp_path))
    CachedChat(scripted_chat("Ann"), IDENTITY).complete(WHO)
    [file] = (tmp_path / "chat").rglob("*.json")
    assert json.loads(file.read_text()) == {
        "schema_version": 1,
        "text": "Ann",
        "input_tokens": 5,
        "output_tokens": 1,
        "is_truncated": False,
    }


def test_threads_that_ask_the_same_pay_once(cached, server):
    server.says("Ann", after_s=0.1)
    chat = cached(OpenAIChat(server.url, "smol"))
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda _: chat.complete(WHO), range(8)))
    assert len(server.asked) == 1
    assert sorted(reply.usage.cached_calls for reply in replies) == [0] + [1] * 7


def test_threads_that_ask_different_things_do_not_wait_for_each_other(cached, server):
    server.says("Ann", after_s=0.2)
    chat = cached(OpenAIChat(server.url, "smol"))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda i: chat.complete([Message("user", str(i))]), range(4)))
    assert server.most_at_once > 1


def test_what_is_kept_is_not_spent(cached, server):
    server.says("Ann")
    chat = cached(OpenAIChat(server.url, "smol", limit=SpendingLimit(calls=1)))
    assert [chat.complete(WHO).text for _ in range(3)] == ["Ann"] * 3
    with pytest.raises(SpendingLimitReached):
        chat.complete(WHO[1:])
    assert chat.complete(WHO).text == "Ann"


# What a disk can do.


@pytest.mark.parametrize(
    "content",
    [b"", b'{"schema_version": 1, "te', b"\xff\x00", b"[]", b'{"schema_version": 2}'],
    ids=["empty", "half", "rubbish", "a list", "another version"],
)
def test_a_broken_file_is_told_and_asked_for_again(
    cached, scripted_chat, tmp_path, caplog, content
):
    cached(scripted_chat("Ann")).complete(WHO)
    [file] = tmp_path.rglob("*.json")
    file.write_bytes(content)
    chat = cached(scripted_chat("Bob"))
    assert [chat.complete(WHO).text for _ in range(2)] == ["Bob", "Bob"]
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert str(file) in record.getMessage()


@contextmanager
def _no_file_may_grow():
    """Let every write to a file fail, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_disk_that_is_full_costs_a_warning(cached, scripted_chat, tmp_path, caplog):
    chat = cached(scripted_chat("Ann", "Ann", "Bob", "Bob"))
    chat.complete(WHO)
    [file] = tmp_path.rglob("*.json")
    file.unlink()
    with _no_file_may_grow():
        assert [chat.complete(WHO).text for _ in range(2)] == ["Ann", "Bob"]
    assert ["File too large" in record.getMessage() for record in caplog.records] == [True]
    assert [chat.complete(WHO).text for _ in range(2)] == ["Bob", "Bob"], "the disk has space again"
    assert chat.complete(WHO).usage.cached_calls == 1


def test_a_folder_that_cannot_be_made_costs_a_warning(cached, scripted_chat, tmp_path, caplog):
    (tmp_path / "file").touch()
    chat = cached(scripted_chat("Ann", "Bob"), directory=tmp_path / "file")
    assert [chat.complete(WHO).text for _ in range(2)] == ["Ann", "Bob"]
    kinds = {record.getMessage().split(" (")[0] for record in caplog.records}
    assert len(kinds) == len(caplog.records), "each is told once"


ASK_THREE = """
import sys
from kbqa.engine.chat.cache import CachedChat
from kbqa.engine.chat.model import Message
from kbqa.engine.chat.openai import OpenAIChat

model = OpenAIChat(sys.argv[1], "smol")
chat = CachedChat(model, model.identity)
for text in ("one", "two", "three"):
    print(chat.complete([Message("user", text)]).text, flush=True)
"""


def test_a_kill_loses_nothing_that_was_said(server, tmp_path, monkeypatch):
    monkeypatch.setenv("KBQA_CACHE", str(tmp_path))
    command = [sys.executable, "-c", ASK_THREE, server.url]
    running = []
    server.says("1")
    server.says("2")
    server.says("3", do=lambda: running[0].kill())
    running.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    said, _ = running[0].communicate(timeout=120)
    assert (said, running[0].returncode) == ("1\n2\n", -signal.SIGKILL)
    server.says("3")
    server.asked.clear()
    again = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=120, check=True)
    assert again.stdout == "1\n2\n3\n"
    assert server.prompts == ["three"]


ASKED = [Message("user", "who is it?")]


def test_each_question_has_its_own_sum(scripted_chat):
    model = scripted_chat(
        Reply("a", Usage(1, 0, 10, 1, 0.5, 0.25)),
        Reply("b", Usage(1, 1, 20, 2, 0.0, 0.5)),
        Reply("c", Usage(1, 0, 30, 3, 1.0, None)),
    )
    first, second = CountedChat(model), CountedChat(model)
    assert [chat.complete(ASKED, max_tokens=9).text for chat in (first, first, second)] == [*"abc"]
    assert first.usage == Usage(2, 1, 30, 3, 0.5, 0.75)
    assert second.usage == Usage(1, 0, 30, 3, 1.0, None)
    assert first.name == "scripted chat"


def test_a_failure_is_passed_on_and_not_counted(scripted_chat):
    chat = CountedChat(scripted_chat(ModelError("out of memory"), "Ann"))
    with pytest.raises(ModelError, match="out of memory"):
        chat.complete(ASKED)
    assert chat.usage == Usage()
    assert chat.complete(ASKED).text == "Ann"
    assert chat.usage.calls == 1


def test_threads_count_together(scripted_chat):
    chat = CountedChat(scripted_chat(*["one two"] * 400))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: chat.complete(ASKED), range(400)))
    assert chat.usage == Usage(400, 0, 1200, 800)


def test_conversations_are_continued_together_and_counted_in_order(scripted_chat):
    costs = {"a": 0.1, "b": 0.2, "c": 0.3}

    def reply_to(messages):
        text = messages[0].content
        time.sleep(0.6 - costs[text])  # the last is the first to be answered
        return Reply(text, Usage(1, cost_usd=costs[text]))

    model = scripted_chat(reply_to=reply_to)
    chat = CountedChat(model)
    started = time.monotonic()
    replies = chat.complete_all(
        [[Message("user", text)] for text in costs], max_tokens=9, temperature=0.4, seed=3
    )
    assert time.monotonic() - started < 1.0
    assert [reply.text for reply in replies] == [*costs]
    assert chat.usage == Usage(3, cost_usd=0.1 + 0.2 + 0.3)
    assert model.sampling == [(0.4, 3)] * 3
    assert chat.complete_all([]) == []


def test_of_several_failures_the_first_is_raised_and_the_rest_counted(scripted_chat):
    def reply_to(messages):
        text = messages[0].content
        return ModelError(text) if text.startswith("no") else text

    chat = CountedChat(scripted_chat(reply_to=reply_to))
    with pytest.raises(ModelError, match="no 1"):
        chat.complete_all([[Message("user", text)] for text in ("yes", "no 1", "no 2", "yes")])
    assert chat.usage == Usage(2, 0, 2, 2)


HARMONY = (
    "<|channel|>analysis<|message|>Is it Bob?<|end|><|start|>assistant"
    "<|channel|>final<|message|>Ann<|return|>"
)


@pytest.mark.parametrize(
    ("text", "reply"),
    [
        pytest.param("<think>\nBob?\n</think>\n\nAnn", "Ann", id="DeepSeek-R1, Qwen3"),
        pytest.param("Bob?\n</think>\n\nAnn", "Ann", id="opened by the template"),
        pytest.param("<think>\nBob? or", "", id="cut off"),
        pytest.param("<THINK>Bob<think>x</think>y</think>Ann", "Ann", id="nested"),
        pytest.param("<think></think>Ann\n<think>Bob", "Ann", id="before and after"),
        pytest.param("<thinking>Bob</thinking>Ann", "Ann", id="thinking"),
        pytest.param("[THINK]Bob[/THINK]Ann", "Ann", id="Magistral"),
        pytest.param("◁think▷Bob◁/think▷Ann", "Ann", id="Kimi"),
        pytest.param(HARMONY, "Ann", id="gpt-oss"),
        pytest.param("<|channel|>analysis<|message|>Bob?", "", id="gpt-oss, cut off"),
        pytest.param(" I think: Ann <b>\n", " I think: Ann <b>\n", id="none"),
    ],
)
def test_reasoning_is_not_read_as_the_reply(scripted_chat, text, reply):
    chat = CountedChat(scripted_chat(text, text))
    assert chat.complete(ASKED).text == reply
    assert [each.text for each in chat.complete_all([ASKED])] == [reply]
    assert chat.usage.reasoned_calls == (0 if text == reply else 2)
