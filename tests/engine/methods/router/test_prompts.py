import pytest

from kbqa.engine.exploring.frontiers import RelationPath
from kbqa.engine.methods.router.prompts import (
    MAX_STEPS,
    blueprint_prompt,
    choice_prompt,
    judge_prompt,
    read_blueprint,
    read_choice,
    read_judgement,
    written_path,
)
from kbqa.sparql.crp import Entity, Hop

KENYA = RelationPath(Entity("Kenya", "m.019rg5"))
CAPITAL = KENYA.then(Hop("location.country.capital"))
AIRPORTS = CAPITAL.then(Hop("aviation.airport.serves", inverse=True))


@pytest.mark.parametrize(
    ("reply", "steps"),
    [
        pytest.param("1. capital\n2. airports there", ("capital", "airports there"), id="dots"),
        pytest.param("1) capital\n\n2) airports", ("capital", "airports"), id="brackets"),
        pytest.param("Step 1: capital\nStep 2: airports", ("capital", "airports"), id="words"),
        pytest.param("# 1. capital\n# 2. airports", ("capital", "airports"), id="hashes"),
        pytest.param("- capital\n- airports", ("capital", "airports"), id="bullets"),
        pytest.param("Sure! Here they are:\n1. capital", ("capital",), id="a polite model"),
        pytest.param("capital of the country", ("capital of the country",), id="a bare phrase"),
        pytest.param("", (), id="nothing"),
        pytest.param("1.\n2.\n---", (), id="numbers alone"),
        pytest.param("\n".join(f"{n}. step" for n in range(9)), ("step",) * MAX_STEPS, id="many"),
    ],
)
def test_blueprints_are_read_leniently(reply: str, steps: tuple[str, ...]) -> None:
    assert read_blueprint(reply) == steps


def test_a_step_without_end_is_cut() -> None:
    [step] = read_blueprint("1. " + "word " * 1000)
    assert len(step) == 200


@pytest.mark.parametrize(
    ("reply", "chosen"),
    [
        pytest.param("4, 1", [3, 0], id="as asked"),
        pytest.param("Path 2", [1], id="with a word"),
        pytest.param("2, 2, 3", [1, 2], id="twice the same"),
        pytest.param("11, 0, 5", [4], id="out of range"),
        pytest.param("1. no, it leads away\n2. perhaps\n\nAnswer: 3", [2], id="explained"),
        pytest.param("Path 3 is the best.\nHope this helps!", [2], id="with a greeting"),
        pytest.param("4\n1.\n\n7\n", [3, 0, 6], id="one a line"),
        pytest.param("1, 2, 3, 4, 5", [0, 1, 2], id="too many"),
        pytest.param("9" * 5000, [], id="longer than Python reads"),
        pytest.param("none of them", [], id="none"),
        pytest.param("", [], id="nothing"),
    ],
)
def test_choices_are_read_leniently(reply: str, chosen: list[int]) -> None:
    assert read_choice(reply, count=10, wanted=3) == chosen


@pytest.mark.parametrize(
    ("reply", "yes"), [("Yes.", True), ("**yes**", True), ("No", False), ("Yesterday", False)]
)
def test_judgements(reply: str, yes: bool) -> None:
    assert read_judgement(reply) == yes


def test_paths_are_written_with_their_directions() -> None:
    assert written_path(AIRPORTS) == (
        "Kenya -> location.country.capital -> ? <- aviation.airport.serves <- ?"
    )


def test_prompts_hold_the_question_in_one_line_and_every_path() -> None:
    question = "which airports\nare near the capital of Kenya?"
    for prompt in (
        blueprint_prompt(question),
        choice_prompt(question, ["capital"], [CAPITAL, AIRPORTS], 1),
        judge_prompt(question, [CAPITAL, AIRPORTS]),
    ):
        [message] = prompt
        assert "which airports are near the capital of Kenya?" in message.content
    [choice] = choice_prompt(question, ["capital", "airports"], [CAPITAL, AIRPORTS], 3)
    assert "Step 2: airports" in choice.content
    assert f"1. {written_path(CAPITAL)}\n2. {written_path(AIRPORTS)}\n" in choice.content
    assert "up to 3 of them" in choice.content


def test_what_a_question_says_is_no_part_of_the_format() -> None:
    [message] = choice_prompt("who {paths} and {0}?", [], [CAPITAL], 1)
    assert "Question: who {paths} and {0}?" in message.content
