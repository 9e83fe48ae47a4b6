"""Paths that a search adds to the written ones, and what a judge makes of both."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from kbqa.engine.answer import Answer
from kbqa.engine.embedding.embedder import Embedder
from kbqa.engine.engine import Engine
from kbqa.engine.linking.model import LinkingModel
from kbqa.engine.methods.router import method
from kbqa.engine.methods.router.method import RouterKgqa
from kbqa.engine.methods.router.search.pool import PathPool
from kbqa.engine.methods.router.trace import RouterTrace
from kbqa.engine.resources import Resources
from kbqa.engine.running.confidence import ConfidenceModel
from kbqa.engine.running.execute import Policy
from kbqa.engine.running.tried import Tried
from kbqa.engine.writing.generate import Candidate, NoPaths
from kbqa.kb.graph import Graph
from kbqa.sparql.errors import EndpointDown, GraphError
from kbqa.sparql.forms import read_crp

QUESTION = "which currency is used in Kenya?"
CAPITAL = "Kenya -> location.country.capital"
CURRENCY = "location.country.currency_used"
SEARCHED = ConfidenceModel(0.0, {"searched": 2.0, "rank": -1.0})


@pytest.fixture(scope="module")
def pool(demo: Graph, embedder: Embedder) -> PathPool:
    return PathPool(demo, embedder, LinkingModel.load(), paths=5)


def _asking(graph: Graph, pool: PathPool | None, model: ConfidenceModel = SEARCHED) -> Engine:
    resources = Resources(graph)
    method = RouterKgqa(resources, NoPaths(), Policy(model), pool=pool)
    return Engine.over(resources, method)


def _find(graph: Graph, pool: PathPool, *written: str) -> list[Candidate]:
    engine = _asking(graph, None)
    asked = engine.prepare(QUESTION)
    assert isinstance(engine.method, RouterKgqa)
    return pool.find(asked, engine.method.try_all(asked, _candidates(written)))


def _candidates(texts: Sequence[str]) -> list[Candidate]:
    return [Candidate(text, -1.0, 10) for text in texts]


def _ask(engine: Engine, *written: str) -> Answer:
    return engine.answer(replace(engine.prepare(QUESTION), candidates=_candidates(written)))


def test_what_is_written_does_not_wait_long_for_what_is_searched(
    demo: Graph, pool: PathPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    there_and_back = " -> location.location.containedby <- location.location.containedby" * 30
    endless = Candidate(f"Kenya{there_and_back}\n?x = Euro", 0.0, 1, (), 0)
    monkeypatch.setattr(pool, "find", lambda asked, tried: [endless])
    monkeypatch.setattr(method, "_SEARCHED_LIMIT_S", 0.5)
    engine = _asking(demo, pool)
    assert isinstance(engine.method, RouterKgqa)
    written, searched = engine.method.try_all(engine.prepare(QUESTION), _candidates([CAPITAL]))
    assert written.table is not None
    assert "within 0.5 s" in (searched.problem or "")


def test_what_the_question_asks_is_found_first(demo: Graph, pool: PathPool) -> None:
    first, *others = _find(demo, pool, CAPITAL)
    assert CURRENCY in first.text
    assert (first.is_searched, first.rank, first.logprob) == (True, 0, 0.0)
    assert [each.rank for each in others] == sorted(each.rank or 0 for each in others)
    assert all("location.country.capital" not in each.text.split("->")[-1] for each in others[:1])


def test_what_is_written_is_not_added_by_any_of_its_names(demo: Graph, pool: PathPool) -> None:
    written = f"Kenya -> {CURRENCY}"
    reverse = "Kenya <- finance.currency.countries_used"
    for text in (written, reverse):
        found = [read_crp(each.text).crp for each in _find(demo, pool, text)]
        assert all(len(crp.path) > 1 or CURRENCY not in str(crp.path) for crp in found)


def test_constraints_are_carried_over(demo: Graph, pool: PathPool) -> None:
    text = f"{CAPITAL}\n?x -> type.object.type = ns:location.location"
    found = [read_crp(each.text).crp for each in _find(demo, pool, text)]
    assert any(crp.constraints for crp in found)
    assert any(not crp.constraints for crp in found)


def test_a_searched_path_answers_if_it_is_surer(demo: Graph, pool: PathPool) -> None:
    with _asking(demo, pool) as engine:
        answer = _ask(engine, CAPITAL)
    assert [each.name for each in answer.answers] == ["Kenyan Shilling"]
    assert isinstance(answer.trace, RouterTrace)
    assert answer.trace.answering is not None
    assert answer.trace.answering.candidate.is_searched
    told = "Found by searching the graph, beside what the model wrote, relaxation: full."
    assert told in answer.trace.describe()
    sources = [beam["source"] for beam in answer.trace.to_dict()["beams"]]
    assert sources[:2] == ["writer", "search"]
    assert "search" in answer.seconds


def test_without_a_search_only_written_paths_answer(demo: Graph) -> None:
    with _asking(demo, None) as engine:
        assert [each.name for each in _ask(engine, CAPITAL).answers] == ["Nairobi"]


class _Failing(PathPool):
    """A search that fails."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def find(self, asked: object, tried: Sequence[Tried]) -> list[Candidate]:
        raise self._error

    def settings(self) -> dict[str, object]:
        return {}


def test_a_search_that_fails_leaves_the_written_paths(
    demo: Graph, caplog: pytest.LogCaptureFixture
) -> None:
    with _asking(demo, _Failing(GraphError("no result after 30 s"))) as engine:
        assert [each.name for each in _ask(engine, CAPITAL).answers] == ["Nairobi"]
    assert "only written paths are candidates: no result after 30 s" in caplog.text


def test_a_graph_that_is_gone_ends_the_question(demo: Graph) -> None:
    with (
        _asking(demo, _Failing(EndpointDown("it is gone"))) as engine,
        pytest.raises(EndpointDown),
    ):
        _ask(engine, CAPITAL)
