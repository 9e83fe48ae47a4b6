import json

import click
import pytest
from click.testing import CliRunner, Result

from kbqa.engine.commands.chat_options import ChatChoice, chat_options
from kbqa.engine.commands.methods import MethodChoice, method_options, methods
from kbqa.engine.engine import Engine
from kbqa.engine.method import ChooserName
from kbqa.engine.methods import METHODS
from kbqa.engine.methods.router.settings import RouterSettings
from kbqa.engine.methods.settings import describe_settings, read_settings
from kbqa.kb.graph import Graph
from kbqa.sparql.errors import InputError


def choose(*arguments: str, then=lambda method, chat: None) -> Result:
    """Give a command options, and do something with the method that they choose."""

    @click.command()
    @method_options
    @chat_options
    def command(method: MethodChoice, chat: ChatChoice) -> None:
        then(method, chat)

    return CliRunner().invoke(command, arguments)


def test_a_method_is_chosen_with_its_settings() -> None:
    chosen: list[MethodChoice] = []
    result = choose(
        "--set", "repair=embedder", "--set", "width=5", then=lambda m, _: chosen.append(m)
    )
    assert result.exit_code == 0, result.output
    assert chosen == [MethodChoice("router", {"repair": "embedder", "width": "5"})]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--repair", "embedder"), "--repair was removed. Use --set repair=VALUE."),
        (("--general-calls", "0.5"), "Use --set general_calls=VALUE."),
        (("--threshold", "0.5"), "Use --unsure-below P."),
        (("--without", "entity", "--without", "string"), "Use --set without=VALUE."),
        (("--method", "specialised"), "is now --method router --set repair=off"),
        (("--method", "general"), "is now --method router --set write=no"),
    ],
)
def test_a_removed_option_names_its_replacement(arguments: tuple[str, ...], message: str) -> None:
    result = choose(*arguments)
    assert result.exit_code == 2
    assert message in result.output


@pytest.mark.parametrize("text", ["width", "=5", "width="])
def test_a_setting_of_another_form_is_refused(text: str) -> None:
    result = choose("--set", text)
    assert isinstance(result.exception, InputError)
    assert "write it as name=value" in str(result.exception)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"depth": "5"}, "the method router has no setting 'depth'. It has: write, repair,"),
        ({"width": "wide"}, "--set width=wide: width is a whole number. See `kbqa methods router`"),
        ({"repair": "magic"}, "repair is off or embedder or llm"),
        ({"width": "0"}, "width is 0: use 1 or more"),
        ({"general_calls": "nan"}, "general_calls is nan: use 0 or more"),
        ({"without": "entity,colour"}, "without is any of"),
    ],
)
def test_a_setting_that_does_not_fit_is_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as raised:
        read_settings(RouterSettings, given, "router")
    assert message in str(raised.value)


def test_settings_are_read_by_their_types() -> None:
    texts = {"without": "entity, string", "general_calls": "0.5", "write": "no", "embedder": "none"}
    settings = read_settings(RouterSettings, texts, "router")
    assert settings == RouterSettings(without=("entity", "string"), general_calls=0.5, write=False)
    assert read_settings(RouterSettings, {}, "router") == RouterSettings()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"repair": "llm"}, "needs a general model: add --llm URL"),
        ({"stop": "judge"}, "stop=judge needs a general model"),
        ({"width": 5}, "width is about repair, and nothing is repaired"),
        (
            {"repair": "embedder", "route": "confidence", "order": "full-first"},
            "route=confidence needs order=confidence",
        ),
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
    with pytest.raises(InputError, match=r"^history is a setting of bpc, not of router\. See"):
        Engine(graph, settings={"history": 1})
    with pytest.raises(InputError, match=r"^width is a setting of router, bpc and tog, not of io"):
        Engine(graph, settings={"width": 1}, method="io")


def test_who_decides_and_how_often_is_chosen() -> None:
    chosen: list[MethodChoice] = []
    arguments = ("--chooser", "random", "--call-budget", "5")
    result = choose(*arguments, then=lambda m, _: chosen.append(m))
    assert result.exit_code == 0, result.output
    assert chosen == [MethodChoice("router", {}, "random", 5)]
    assert "0 is not in the range" in choose("--call-budget", "0").output
    assert "'fate' is not one of 'llm', 'embedder', 'random'" in choose("--chooser", "fate").output


def test_methods_are_listed() -> None:
    result = CliRunner().invoke(methods, ["--json"])
    assert [row["name"] for row in json.loads(result.output)] == list(METHODS)
    assert CliRunner().invoke(methods, []).output.startswith("router  RouterKGQA: ")


def test_the_settings_of_a_method_are_listed() -> None:
    rows = json.loads(CliRunner().invoke(methods, ["router", "--json"]).output)
    assert rows == [each._asdict() for each in describe_settings(RouterSettings)]
    text = CliRunner().invoke(methods, ["router"]).output
    assert "width = 3  (a whole number)\n    Paths that each step" in text
    unknown = CliRunner().invoke(methods, ["magic"])
    assert "there is no method 'magic'. The methods are: router" in str(unknown.exception)
