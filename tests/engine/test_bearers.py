import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbqa.engine.bearers import LIKE_ENOUGH, MAX_WORDS, Bearers, likeness
from kbqa.engine.linker import LinkedEntity
from kbqa.kb.entity_search import Names, open_names
from kbqa.kb.graph import Graph
from kbqa.kb.select_graph import open_graph
from kbqa.sparql.crp import Entity, Fork, Hop, Step, Way

WITHIN = Hop("location.location.containedby")
CAPITAL = Hop("location.country.capital")


@pytest.fixture(scope="module")
def graph(demo_store: Path) -> Iterator[Graph]:
    graph = open_graph(demo_store)
    yield graph
    graph.close()


@pytest.fixture(scope="module")
def names(graph: Graph) -> Iterator[Names]:
    names = open_names(graph)
    yield names
    names.close()


def rank(graph: Graph, names: Names, name: str, step: Step | None = WITHIN) -> list[str]:
    """Rank a name of which the question mentions nothing."""
    return [str(bearer.entity) for bearer in Bearers(graph, names, ()).rank(name, step)]


@pytest.mark.parametrize(
    ("name", "first"),
    [("San Jose", "San Jose"), ("San José", "San José"), ("san josé", "San José")],
)
def test_an_own_name_goes_by_its_accents(graph: Graph, names: Names, name: str, first: str) -> None:
    count = sum(match.name == first for match in names.lookup(name))
    assert rank(graph, names, name)[:count] == [first] * count


def test_who_has_the_relation_goes_first(graph: Graph, names: Names) -> None:
    fork = Fork((Way((Hop("a.b.c"),)), Way((CAPITAL,))))
    for step in (CAPITAL, fork):
        first, *others = Bearers(graph, names, ()).rank("Georgia", step)
        assert first.has_step
        assert [bearer.has_step for bearer in others] == [False]
    assert first.entity.mid == names.lookup("Georgia")[1].mid


def test_whom_the_question_mentions_goes_before_who_is_better_known(
    graph: Graph, names: Names
) -> None:
    *_, last = names.lookup("Springfield")
    linked = [LinkedEntity(last.mid, last.name, "springfield", 0.1)]
    first, *others = Bearers(graph, names, linked).rank("Springfield", WITHIN)
    assert first.entity.mid == last.mid
    assert [b.entity.mid for b in others] == [m.mid for m in names.lookup("Springfield")[:-1]]


def test_a_mention_of_that_name_counts_that_no_lookup_reaches(graph: Graph, names: Names) -> None:
    linked = [LinkedEntity("m.0far", "Springfield", "springfield", 0.1)]
    bearers = Bearers(graph, names, linked).rank("Springfield", None)
    assert bearers[0].entity == Entity("Springfield", "m.0far")


@pytest.mark.parametrize("name", ["Kenyaa", "the republic Kenya", "Kneya"])
def test_near_misses_come_where_nobody_bears_the_name(
    graph: Graph, names: Names, name: str
) -> None:
    [best, *_] = Bearers(graph, names, ()).rank(name, CAPITAL)
    assert str(best.entity) == "Kenya"
    assert best.likeness < 1


def test_a_name_like_nothing_means_nobody(graph: Graph, names: Names) -> None:
    bearers = Bearers(graph, names, ()).rank("Zorblax Qwxyz of Portland", WITHIN)
    assert {str(bearer.entity) for bearer in bearers} == {"Portland"}
    assert all(bearer.likeness < LIKE_ENOUGH for bearer in bearers)


@pytest.mark.parametrize("words", [400, 20_000])
def test_a_name_of_many_words_is_grounded_in_no_time(
    graph: Graph, names: Names, words: int
) -> None:
    linked = [LinkedEntity(m.mid, m.name, "kenya", 0.5) for m in names.lookup("Kenya", 1)]
    name = " ".join(["the Republic of Kenya Springfield"] * (words // 5))
    bearers = Bearers(graph, names, linked)
    start = time.monotonic()
    assert bearers.rank(name, WITHIN) == []
    assert [str(bearer.entity) for bearer in bearers.mentioned(name, WITHIN)] == ["Kenya"]
    assert time.monotonic() - start < 2


def test_every_near_name_is_compared_once(
    graph: Graph, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[str] = []

    def counted(one: str, other: str) -> float:
        compared.append(other)
        return likeness(one, other)

    monkeypatch.setattr("kbqa.engine.bearers.likeness", counted)
    name = " ".join(["Springfield", "Kenya"] * (MAX_WORDS // 2))
    found = {str(bearer.entity) for bearer in Bearers(graph, names, ()).rank(name, WITHIN)}
    assert found == {"Springfield", "Kenya"}
    assert len(compared) == len(set(compared)) >= len(found)


@pytest.mark.parametrize(
    ("name", "is_borne"), [("Kenya", True), ("kenya's", True), ("Kenyaa", False), ("Zork", False)]
)
def test_who_is_only_like_a_name_does_not_bear_it(
    graph: Graph, names: Names, name: str, is_borne: bool
) -> None:
    linked = [LinkedEntity("m.0x", "Zorq", "zork", 0.5)]
    assert Bearers(graph, names, linked).is_borne(name, None) == is_borne


def test_mentions_are_sorted_by_likeness_to_the_name(graph: Graph, names: Names) -> None:
    linked = [
        LinkedEntity(match.mid, match.name, text, 0.5)
        for text in ("euro", "kenya")
        for match in names.lookup(text, 1)
    ]
    bearers = Bearers(graph, names, linked).mentioned("Kenia", CAPITAL)
    assert [str(bearer.entity) for bearer in bearers] == ["Kenya", "Euro"]
    assert [bearer.has_step for bearer in bearers] == [True, False]


@pytest.mark.parametrize(
    ("one", "other", "low", "high"),
    [
        ("Kenya", "KENYA", 1, 1),
        ("Alice Stokes Paul", "Alice Paul", 0.8, 0.9),
        ("Kenya", "Zorblax", 0, 0.2),
        ("", "Kenya", 0, 0),
    ],
    ids=["but for case", "a word more", "nothing alike", "empty"],
)
def test_likeness_lies_between_0_and_1(one: str, other: str, low: float, high: float) -> None:
    assert low <= likeness(one, other) <= high
    assert likeness(one, other) == likeness(other, one)
