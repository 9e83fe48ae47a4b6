"""Paths that a search adds to the written ones, and what a judge makes of both."""

import re
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


def _find(graph: Graph, pool: PathPool, *written: str, question: str = QUESTION) -> list[Candidate]:
    engine = _asking(graph, None)
    asked = engine.prepare(question)
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


LANGUAGES, OFFICIAL = "location.country.languages_spoken", "location.country.official_language"
ADJOIN, ADJOINS = "location.location.adjoin_s", "location.adjoining_relationship.adjoins"
SPOKEN_IN, MAIN = (
    "language.human_language.countries_spoken_in",
    "language.human_language.main_country",
)
TYPE = "?x -> type.object.type = ns:language.human_language"


@pytest.mark.parametrize(
    ("question", "written", "added", "searched"),
    [
        pytest.param(
            "what currency code is used in Kenya?",
            [],
            [],
            [
                f"Kenya -> {CURRENCY} -> finance.currency.currency_code",
                f"Kenya -> {CURRENCY}",
            ],
            id="two hops are searched",
        ),
        pytest.param(
            "at which latitude and longitude is the capital of Kenya?",
            [],
            [],
            [
                f"{CAPITAL} -> location.location.geolocation -> location.geocode.{which}"
                for which in ("latitude", "longitude")
            ],
            id="and a third over a mediator",
        ),
        pytest.param(
            "which official language of Kenya is spoken in Tanzania?",
            [CAPITAL, f"Kenya -> {OFFICIAL}"],
            [f"Kenya -> {OFFICIAL}\n?x -> {MAIN} = Tanzania"],
            [f"Tanzania -> {OFFICIAL}"],
            id="a list of two is narrowed, a single answer is not",
        ),
        pytest.param(
            "which languages of Kenya are spoken in Tanzania?",
            [f"Kenya -> {LANGUAGES}\n{TYPE}", f"Kenya -> {OFFICIAL}\n{TYPE}"],
            [
                f"Kenya -> {LANGUAGES}\n{TYPE}\n?x -> {SPOKEN_IN} = Tanzania",
                f"Kenya -> {LANGUAGES}\n{TYPE}\n?x -> {MAIN} = Tanzania",
                f"Kenya -> {OFFICIAL}\n{TYPE}\n?x -> {MAIN} = Tanzania",
                f"Kenya -> {LANGUAGES}\n?x -> {SPOKEN_IN} = Tanzania",
                f"Kenya -> {LANGUAGES}\n?x -> {MAIN} = Tanzania",
            ],
            [f"Kenya -> {LANGUAGES}", f"Tanzania -> {LANGUAGES}\n{TYPE}"],
            id="only the first is narrowed without its own constraints as well",
        ),
        pytest.param(
            "which languages are spoken in the countries that border Kenya and Sudan?",
            [f"Kenya -> {ADJOIN} -> {ADJOINS} -> {LANGUAGES}\n{TYPE}"],
            [
                f"Kenya -> {ADJOIN} -> {ADJOINS} -> {LANGUAGES}\n{own}{condition} = Sudan"
                for own in (f"{TYPE}\n", "")
                for condition in (f"?x -> {SPOKEN_IN}", f"?2 <- {ADJOINS} -> {ADJOINS}")
            ],
            [f"Sudan <- {SPOKEN_IN}"],
            id="every node of a long path may be narrowed",
        ),
        pytest.param(
            "which languages of Kenya are spoken in Tanzania?",
            [f"Kenya (-> {LANGUAGES} | -> {OFFICIAL})"],
            [],
            [f"Kenya -> {LANGUAGES}", f"Tanzania -> {LANGUAGES}"],
            id="a fork is not narrowed, and hides none of its ways",
        ),
    ],
)
def test_what_is_added_to_what_was_written(
    demo: Graph,
    pool: PathPool,
    question: str,
    written: Sequence[str],
    added: Sequence[str],
    searched: Sequence[str],
) -> None:
    """`added` is all that is added to written main paths; `searched` is among what is found."""
    found = _find(demo, pool, *written, question=question)
    mains = {text.splitlines()[0] for text in written}
    narrower = [each for each in found if each.narrows]
    assert [_named(each) for each in narrower if _named(each).splitlines()[0] in mains] == added
    assert {*searched} <= {_named(each) for each in found if not each.narrows}


def _named(candidate: Candidate) -> str:
    """Return a path without the ids behind its names."""
    return re.sub(r" \(m\.\w+\)", "", candidate.text)


def test_no_third_hop_is_searched_but_over_a_mediator(demo: Graph, pool: PathPool) -> None:
    found = [read_crp(each.text).crp for each in _find(demo, pool, question="what adjoins Kenya?")]
    assert any(str(crp.path).count(ADJOIN) == 2 for crp in found)  # a border is a mediator
    assert max(len(crp.path) for crp in found) == 2


def test_a_question_for_yes_or_no_is_not_narrowed(demo: Graph, pool: PathPool) -> None:
    question = "do the languages of Kenya and of Tanzania differ?"
    found = _find(demo, pool, f"Kenya -> {LANGUAGES}\nask", question=question)
    assert [each.narrows for each in found if each.text.endswith("\nask")].count(False) > 0
    assert not any(each.narrows for each in found if each.text.endswith("\nask"))


@pytest.mark.parametrize(
    ("question", "paths", "most"),
    [
        (
            "which languages of Kenya are spoken in Tanzania?",
            [LANGUAGES, OFFICIAL, f"{LANGUAGES} -> {MAIN}", f"{OFFICIAL} -> {SPOKEN_IN}"],
            3,
        ),
        (
            "which neighbour of Kenya has the most people?",
            [
                f"{ADJOIN} -> {ADJOINS}",
                "location.location.contains",
                *(f"{ADJOIN} -> {ADJOINS}{f' -> {ADJOIN} -> {ADJOINS}' * at}" for at in (1, 2, 3)),
                "base.locations.countries.continent -> base.locations.continents.countries_within",
            ],
            5,
        ),
    ],
    ids=["conditions", "measures"],
)
def test_only_the_first_written_paths_get_more(
    demo: Graph, pool: PathPool, question: str, paths: Sequence[str], most: int
) -> None:
    written = [f"Kenya -> {path}" for path in paths]
    found = _find(demo, pool, *written, question=question)
    longer = {_named(each).splitlines()[0] for each in found if each.narrows}
    assert [path in longer for path in written] == [at < most for at in range(len(written))]


def test_written_paths_are_measured_with_what_says_what_their_nodes_are(
    demo: Graph, pool: PathPool
) -> None:
    """Conditions stay; comparisons and orders, which may be what is wrong, do not."""
    path = f"Kenya -> {ADJOIN} -> {ADJOINS}"
    country = "?x -> type.object.type = ns:location.country"
    measures = "?x -> location.location.area > 5\nsmallest ?x -> location.country.calling_code"
    written = f"{path}\n{country}\n{measures}"
    found = _find(demo, pool, written, question="which neighbour of Kenya has the most people?")
    measured = [_named(each) for each in found if each.narrows and _named(each).startswith(path)]
    people = "location.statistical_region.population -> measurement_unit.dated_integer.number"
    assert f"{path}\n{country}\nlargest ?x -> {people}" in measured
    assert all(text.startswith(f"{path}\n{country}\nlargest ") for text in measured)


def test_manifests_say_how_many_paths_are_searched(demo: Graph, embedder: Embedder) -> None:
    settings = PathPool(demo, embedder, LinkingModel.load()).settings()
    assert settings == {"paths": 5, "embedder": embedder.name}
