"""The options that choose the general model."""

import json
from dataclasses import replace

import click
import pytest
from click.testing import CliRunner, Result

from kbqa.engine.asked import ChooserName
from kbqa.engine.chat.model import Message, Price
from kbqa.engine.commands.options import (
    ChatChoice,
    ChatLimits,
    MethodChoice,
    chat_limits,
    chat_options,
    method_options,
    methods,
)
from kbqa.engine.engine import Engine
from kbqa.engine.methods import METHODS, describe_settings, read_settings
from kbqa.engine.methods.kbqa import KbqaSettings
from kbqa.kb.graph import Graph
from kbqa.sparql.errors import InputError, SpendingLimitReached


def choose_by(*arguments: str, then=lambda method, chat: None) -> Result:
    """Give a command options, and do something with the method that they choose."""

    @click.command()
    @method_options
    @chat_options
    def command(method: MethodChoice, chat: ChatChoice) -> None:
        then(method, chat)

    return CliRunner().invoke(command, arguments)


def test_a_method_is_chosen_with_its_settings() -> None:
    chosen: list[MethodChoice] = []
    result = choose_by(
        "--set", "repair=embedder", "--set", "width=5", then=lambda m, _: chosen.append(m)
    )
    assert result.exit_code == 0, result.output
    assert chosen == [MethodChoice("kbqa", ("repair=embedder", "width=5"))]
    assert chosen[0].settings == {"repair": "embedder", "width": "5"}


@pytest.mark.parametrize("text", ["width", "=5", "width="])
def test_a_setting_of_another_form_is_refused(text: str) -> None:
    result = choose_by("--set", text)
    assert isinstance(result.exception, InputError)
    assert "write it as name=value" in str(result.exception)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"depth": "5"}, "the method kbqa has no setting 'depth'. It has: write, repair,"),
        ({"width": "wide"}, "--set width=wide: width is a whole number. See `kbqa methods kbqa`"),
        ({"repair": "magic"}, "repair is off or embedder or llm"),
        ({"width": "0"}, "width is 0: use 1 or more"),
        ({"general_calls": "nan"}, "general_calls is nan: use 0 or more"),
        ({"without": "entity,colour"}, "without is any of"),
    ],
)
def test_a_setting_that_does_not_fit_is_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as raised:
        read_settings(KbqaSettings, given, "kbqa")
    assert message in str(raised.value)


def test_settings_are_read_by_their_types() -> None:
    texts = {"without": "entity, string", "general_calls": "0.5", "write": "no", "embedder": "none"}
    settings = read_settings(KbqaSettings, texts, "kbqa")
    assert settings == KbqaSettings(without=("entity", "string"), general_calls=0.5, write=False)
    assert read_settings(KbqaSettings, {}, "kbqa") == KbqaSettings()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"repair": "llm"}, "needs a general model: add --llm URL"),
        ({"stop": "judge"}, "stop=judge needs a general model"),
        ({"width": 5}, "width is about repair, and nothing is repaired"),
        ({"order": "full-first"}, "order is a setting of routerkgqa, "),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    graph: Graph, settings: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError) as raised:
        Engine(graph, settings=settings)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("chooser", "settings", "message"),
    [
        ("llm", {}, "--chooser llm needs a general model: add --llm URL"),
        ("llm", {"repair": "embedder"}, "--chooser llm needs a general model"),
        ("random", {"repair": "embedder"}, "repair=embedder and --chooser random contradict"),
        ("embedder", {"repair": "off"}, "repair=off and --chooser embedder contradict"),
        ("embedder", {"stop": "judge"}, "stop=judge needs a general model"),
        ("embedder", {"seed": "1"}, "seed is about chance"),
    ],
)
def test_a_chooser_that_contradicts_the_rest_is_refused(
    graph: Graph, chooser: ChooserName, settings: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError) as raised:
        Engine(graph, settings=settings, chooser=chooser)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("chooser", "recorded"),
    [
        ("llm", {"general_model": "scripted chat"}),
        ("embedder", {"general_model": None}),
        ("random", {"general_model": None, "chance_seed": 7}),
    ],
)
def test_a_chooser_repairs_and_is_recorded(
    graph: Graph, scripted_chat, chooser: ChooserName, recorded: dict[str, object]
) -> None:
    settings = {"seed": 7} if chooser == "random" else {}
    with Engine(graph, chat=scripted_chat(), settings=settings, chooser=chooser) as engine:
        repair = engine.method.settings()["repair"]
    assert isinstance(repair, dict)
    assert {key: repair[key] for key in repair if key in ("general_model", "chance_seed")} == (
        recorded
    )


def test_a_setting_of_another_method_names_both(graph: Graph) -> None:
    with pytest.raises(InputError, match=r"^history is a setting of bpc, not of kbqa\. See"):
        Engine(graph, settings={"history": 1})
    with pytest.raises(InputError, match=r"^width is a setting of kbqa, routerkgqa, bpc"):
        Engine(graph, settings={"width": 1}, method="io")


def test_who_decides_and_how_often_is_chosen() -> None:
    chosen: list[MethodChoice] = []
    arguments = ("--chooser", "random", "--call-budget", "5")
    result = choose_by(*arguments, then=lambda m, _: chosen.append(m))
    assert result.exit_code == 0, result.output
    assert chosen == [MethodChoice("kbqa", (), "random", 5)]
    assert "0 is not in the range" in choose_by("--call-budget", "0").output
    assert (
        "'fate' is not one of 'llm', 'embedder', 'random'" in choose_by("--chooser", "fate").output
    )


def test_methods_are_listed() -> None:
    result = CliRunner().invoke(methods, ["--json"])
    assert [row["name"] for row in json.loads(result.output)] == list(METHODS)
    assert CliRunner().invoke(methods, []).output.startswith("kbqa  kbqa's own: ")


def test_the_settings_of_a_method_are_listed() -> None:
    rows = json.loads(CliRunner().invoke(methods, ["kbqa", "--json"]).output)
    assert rows == [each._asdict() for each in describe_settings(KbqaSettings)]
    text = CliRunner().invoke(methods, ["kbqa"]).output
    assert "width = 3  (a whole number)\n    Paths that each step" in text
    unknown = CliRunner().invoke(methods, ["magic"])
    assert "there is no method 'magic'. The methods are: kbqa, routerkgqa" in str(unknown.exception)


WHO = [Message("user", "who is it?")]


def choose(*arguments: str) -> ChatChoice:
    chosen = []

    @click.command()
    @chat_options
    @chat_limits
    def command(chat: ChatChoice, limits: ChatLimits) -> None:
        chosen.append(replace(chat, limits=limits))

    result = CliRunner().invoke(command, arguments, auto_envvar_prefix="KBQA")
    if result.exit_code:
        raise click.UsageError(result.output)
    return chosen[0]


def test_by_default_there_is_no_general_model():
    assert choose() == ChatChoice()
    assert choose().open() is None


@pytest.mark.parametrize(
    "typed",
    [("--llm-extra", '{"seed": 7}'), ("--llm-limit", "1"), ("--no-llm-cache",)],
)
def test_an_option_of_the_general_model_without_one_is_refused(typed, monkeypatch):
    """They were ignored without a word."""
    with pytest.raises(click.UsageError, match=f"{typed[0]} is about a general model: add --llm"):
        choose(*typed)
    monkeypatch.setenv("KBQA_LLM_MODEL", "gpt-4o-mini")
    assert choose(*typed).model == "gpt-4o-mini"


def test_a_variable_about_the_general_model_may_wait_for_one(monkeypatch):
    monkeypatch.setenv("KBQA_LLM_LIMIT", "1")
    assert choose().limits.usd == 1


def test_every_option_is_taken():
    chosen = choose(
        *("--llm", "http://127.0.0.1:9/v1", "--llm-model", "smol", "--llm-price", "0.5/2"),
        *("--llm-limit", "1.5", "--llm-calls", "7", "--llm-concurrency", "3"),
        *("--llm-timeout", "9", "--no-llm-cache", "--llm-extra", '{"seed": null}'),
    )
    limits = ChatLimits(Price(0.5, 2.0), usd=1.5, calls=7, concurrency=3, timeout_s=9.0)
    assert chosen == ChatChoice(
        "http://127.0.0.1:9/v1", "smol", {"seed": None}, no_cache=True, limits=limits
    )


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--llm-price", "0.5"),
        ("--llm-limit", "-1"),
        ("--llm-calls", "-1"),
        ("--llm-concurrency", "0"),
        ("--llm-timeout", "0"),
        ("--llm-timeout", "nan"),
        ("--llm-extra", "temperature=0"),
        ("--llm-extra", '["temperature"]'),
        ("--llm-extra", '{"temperature": NaN}'),
        ("--llm-extra", '{"model": "gpt-4o"}'),
        ("--llm-extra", '{"messages": []}'),
    ],
)
def test_what_cannot_be_is_refused(option, value):
    with pytest.raises(click.UsageError, match=f"Invalid value for '{option}'"):
        choose(option, value)


def test_a_limit_that_is_no_number_limits_nothing_and_is_refused():
    with pytest.raises(click.UsageError, match="'nan' is not a number"):
        choose("--llm-limit", "nan")


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
    choose("--llm", server.url, "--llm-extra", '{"seed": 7}').open().complete(WHO)
    assert len(server.asked) == 3
