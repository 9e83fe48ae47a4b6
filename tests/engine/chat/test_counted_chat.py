"""What one question takes of a model that several share."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from kbqa.engine.chat.counted_chat import CountedChat
from kbqa.engine.chat.model import Message, Reply, Usage
from kbqa.sparql.errors import ModelError

WHO = [Message("user", "who is it?")]


def test_each_question_has_its_own_sum(scripted_chat):
    model = scripted_chat(
        Reply("a", Usage(1, 0, 10, 1, 0.5, 0.25)),
        Reply("b", Usage(1, 1, 20, 2, 0.0, 0.5)),
        Reply("c", Usage(1, 0, 30, 3, 1.0, None)),
    )
    first, second = CountedChat(model), CountedChat(model)
    assert [chat.complete(WHO, max_tokens=9).text for chat in (first, first, second)] == [*"abc"]
    assert first.usage == Usage(2, 1, 30, 3, 0.5, 0.75)
    assert second.usage == Usage(1, 0, 30, 3, 1.0, None)
    assert first.name == "scripted chat"


def test_a_failure_is_passed_on_and_not_counted(scripted_chat):
    chat = CountedChat(scripted_chat(ModelError("out of memory"), "Ann"))
    with pytest.raises(ModelError, match="out of memory"):
        chat.complete(WHO)
    assert chat.usage == Usage()
    assert chat.complete(WHO).text == "Ann"
    assert chat.usage.calls == 1


def test_threads_count_together(scripted_chat):
    chat = CountedChat(scripted_chat(*["one two"] * 400))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: chat.complete(WHO), range(400)))
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
    assert chat.complete(WHO).text == reply
    assert [each.text for each in chat.complete_all([WHO])] == [reply]
