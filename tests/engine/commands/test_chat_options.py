"""The options that choose the general model."""

import click
import pytest
from click.testing import CliRunner

from kbqa.engine.chat.model import Message
from kbqa.engine.chat.prices import Price
from kbqa.engine.commands.chat_options import ChatChoice, chat_limits, chat_options
from kbqa.sparql.errors import InputError, SpendingLimitReached

WHO = [Message("user", "who is it?")]


def choose(*arguments: str) -> ChatChoice:
    chosen = []

    @click.command()
    @chat_options
    @chat_limits
    def command(chat: ChatChoice) -> None:
        chosen.append(chat)

    result = CliRunner().invoke(command, arguments)
    if result.exit_code:
        raise click.UsageError(result.output)
    return chosen[0]


def test_by_default_there_is_no_general_model():
    assert choose() == ChatChoice()
    assert choose("--llm-limit", "1").open() is None


def test_every_option_is_taken():
    chosen = choose(
        *("--llm", "http://127.0.0.1:9/v1", "--llm-model", "smol", "--llm-price", "0.5/2"),
        *("--llm-limit", "1.5", "--llm-calls", "7", "--llm-concurrency", "3"),
        *("--llm-timeout", "9", "--no-llm-cache"),
    )
    price = Price(0.5, 2.0)
    assert chosen == ChatChoice("http://127.0.0.1:9/v1", "smol", price, 1.5, 7, 3, 9.0, False)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--llm-price", "0.5"),
        ("--llm-limit", "-1"),
        ("--llm-calls", "-1"),
        ("--llm-concurrency", "0"),
        ("--llm-timeout", "0"),
    ],
)
def test_what_cannot_be_is_refused(option, value):
    with pytest.raises(click.UsageError, match=f"Invalid value for '{option}'"):
        choose(option, value)


def test_a_model_alone_is_openais():
    pytest.importorskip("openai", reason="needs the llm extra")
    model = choose("--llm-model", "gpt-4o-mini").open()
    assert model is not None
    assert model.name == "gpt-4o-mini at https://api.openai.com/v1"


def test_a_limit_in_usd_needs_a_price():
    pytest.importorskip("openai", reason="needs the llm extra")
    with pytest.raises(InputError, match="--llm-price"):
        choose("--llm", "http://127.0.0.1:9/v1", "--llm-model", "smol", "--llm-limit", "1").open()


def test_replies_are_kept_unless_not_wanted(server, tmp_path, monkeypatch):
    monkeypatch.setenv("KBQA_CACHE", str(tmp_path))
    server.offers("gpt-4o-mini")
    server.says("Ann", usage=(1_000_000, 0))
    reply = choose("--llm", server.url, "--no-llm-cache").open().complete(WHO)
    assert (reply.usage.cached_calls, reply.usage.cost_usd) == (0, 0.15)
    assert not list(tmp_path.iterdir())
    for cached_calls in (0, 1):
        reply = choose("--llm", server.url).open().complete(WHO)
        assert (reply.usage.cached_calls, reply.usage.cost_usd) == (cached_calls, 0.15)
    only_kept = choose("--llm", server.url, "--llm-calls", "0").open()
    assert only_kept.complete(WHO).text == "Ann"
    with pytest.raises(SpendingLimitReached):
        only_kept.complete([*WHO, *WHO])
    assert len(server.asked) == 2
