"""The asker that comes with kbqa, and when the judge asks it."""

import shutil
from pathlib import Path

import pytest

from kbqa.engine.engine import Engine
from kbqa.engine.methods.router.trace import RouterTrace
from kbqa.engine.running.asker import ASKER_FILES, ASKER_FOLDER, Asker
from kbqa.engine.running.reading import SHIPPED_JUDGE
from kbqa.kb.graph import Graph
from kbqa.sparql.errors import ModelError

pytest.importorskip("openvino", reason="needs the cpu extra")


@pytest.fixture(scope="module")
def asker() -> Asker:
    asker = Asker.of(SHIPPED_JUDGE)
    assert asker is not None
    return asker


def test_a_question_is_likelier_given_its_path(asker: Asker) -> None:
    right, other_relation, other_topic = asker.logprobs(
        "what is the capital of kenya?",
        ["Kenya: country capital", "Kenya: country currency used", "Uganda: country capital"],
    )
    assert 0 > right > max(other_relation, other_topic)


def test_a_missing_condition_costs(asker: Asker) -> None:
    whole, part = asker.logprobs(
        "which films with adam sandler were directed by frank coraci?",
        [
            "Adam Sandler: actor film > performance film; film directed by Frank Coraci",
            "Adam Sandler: actor film > performance film",
        ],
    )
    assert whole > part


def test_paths_do_not_change_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KBQA_PRECISION", "float32")
    asker = Asker.of(SHIPPED_JUDGE)
    assert asker is not None
    question, paths = "who is it?", ["Kenya: country capital", "a: b", "Jamaica: person place"]
    apart = [asker.logprobs(question, [path])[0] for path in paths]
    assert asker.logprobs(question, paths) == pytest.approx(apart, rel=1e-3)
    assert asker.logprobs(question, []) == []


def test_a_very_long_question_is_cut(asker: Asker) -> None:
    long = "what is the capital of kenya " * 60
    [cut] = asker.logprobs(long, ["Kenya: country capital"])
    assert [cut] == asker.logprobs(long + "and so on", ["Kenya: country capital"])


def test_a_judge_may_have_none_but_not_half_of_one(tmp_path: Path) -> None:
    assert Asker.of(tmp_path) is None
    folder = shutil.copytree(SHIPPED_JUDGE / ASKER_FOLDER, tmp_path / ASKER_FOLDER)
    (folder / ASKER_FILES[-1]).unlink()
    with pytest.raises(ModelError, match=r"adapter_config.json is missing. Run `kbqa train-judge`"):
        Asker.of(tmp_path)


def _asked(graph: Graph, scripted, question: str, *written: str, **settings: object) -> list:
    texts = [(text, -0.5 - rank) for rank, text in enumerate(written)]
    with Engine(graph, scripted(texts), settings=settings) as engine:
        answer = engine.ask(question)
    assert isinstance(answer.trace, RouterTrace)
    return [each.question_logprob for each in answer.trace.tried]


def test_it_is_asked_about_the_best_paths_if_the_judge_is_in_doubt(demo: Graph, scripted) -> None:
    written = [
        f"Kenya -> location.country.{relation}"
        for relation in ("capital", "currency_used", "official_language")
    ]
    doubtful = _asked(demo, scripted, "what of Kenya?", *written)
    assert 2 <= len({each for each in doubtful if each is not None}) <= 3
    off = _asked(demo, scripted, "what of Kenya?", *written, asker=False)
    assert set(off) == {None}
    clear = _asked(demo, scripted, "what is the capital of Kenya?", *written)
    assert set(clear) == {None}
