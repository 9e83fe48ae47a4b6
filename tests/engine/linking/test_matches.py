import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbqa.engine.linking.linker import LinkedEntity
from kbqa.engine.linking.matches import MAX_WORDS, MIN_SIMILARITY, EntityMatcher, name_similarity
from kbqa.kb.graph import Graph
from kbqa.kb.names.search import Names, open_names
from kbqa.kb.open import open_graph
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
    return [str(match.entity) for match in EntityMatcher(graph, names, ()).rank(name, step)]


@pytest.mark.parametrize(
    ("name", "first"),
    [("San Jose", "San Jose"), ("San José", "San José"), ("san josé", "San José")],
)
def test_an_own_name_goes_by_its_accents(graph: Graph, names: Names, name: str, first: str) -> None:
    count = sum(match.name == first for match in names.lookup(name))
    assert rank(graph, names, name)[:count] == [first] * count


def test_entities_with_the_relation_come_first(graph: Graph, names: Names) -> None:
    fork = Fork((Way((Hop("a.b.c"),)), Way((CAPITAL,))))
    for step in (CAPITAL, fork):
        first, *others = EntityMatcher(graph, names, ()).rank("Georgia", step)
        assert first.has_step
        assert [match.has_step for match in others] == [False]
    assert first.entity.mid == names.lookup("Georgia")[1].mid


def test_mentioned_entities_come_before_better_known_ones(graph: Graph, names: Names) -> None:
    *_, last = names.lookup("Springfield")
    linked = [LinkedEntity(last.mid, last.name, "springfield", 0.1)]
    first, *others = EntityMatcher(graph, names, linked).rank("Springfield", WITHIN)
    assert first.entity.mid == last.mid
    assert [b.entity.mid for b in others] == [m.mid for m in names.lookup("Springfield")[:-1]]


def test_a_mention_of_that_name_counts_that_no_lookup_reaches(graph: Graph, names: Names) -> None:
    linked = [LinkedEntity("m.0far", "Springfield", "springfield", 0.1)]
    matches = EntityMatcher(graph, names, linked).rank("Springfield", None)
    assert matches[0].entity == Entity("Springfield", "m.0far")


@pytest.mark.parametrize("name", ["Kenyaa", "the republic Kenya", "Kneya"])
def test_similar_names_are_used_if_no_entity_has_the_name(
    graph: Graph, names: Names, name: str
) -> None:
    [best, *_] = EntityMatcher(graph, names, ()).rank(name, CAPITAL)
    assert str(best.entity) == "Kenya"
    assert best.similarity < 1


def test_a_name_similar_to_nothing_matches_no_entity(graph: Graph, names: Names) -> None:
    matches = EntityMatcher(graph, names, ()).rank("Zorblax Qwxyz of Portland", WITHIN)
    assert {str(match.entity) for match in matches} == {"Portland"}
    assert all(match.similarity < MIN_SIMILARITY for match in matches)


@pytest.mark.parametrize("words", [400, 20_000])
def test_a_name_of_many_words_is_grounded_in_no_time(
    graph: Graph, names: Names, words: int
) -> None:
    linked = [LinkedEntity(m.mid, m.name, "kenya", 0.5) for m in names.lookup("Kenya", 1)]
    name = " ".join(["the Republic of Kenya Springfield"] * (words // 5))
    matcher = EntityMatcher(graph, names, linked)
    start = time.monotonic()
    assert matcher.rank(name, WITHIN) == []
    assert [str(match.entity) for match in matcher.mentioned(name, WITHIN)] == ["Kenya"]
    assert time.monotonic() - start < 2


def test_every_near_name_is_compared_once(
    graph: Graph, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[str] = []

    def counted(one: str, other: str) -> float:
        compared.append(other)
        return name_similarity(one, other)

    monkeypatch.setattr("kbqa.engine.linking.matches.name_similarity", counted)
    name = " ".join(["Springfield", "Kenya"] * (MAX_WORDS // 2))
    found = {str(match.entity) for match in EntityMatcher(graph, names, ()).rank(name, WITHIN)}
    assert found == {"Springfield", "Kenya"}
    assert len(compared) == len(set(compared)) >= len(found)


@pytest.mark.parametrize(
    ("name", "has_exact"), [("Kenya", True), ("kenya's", True), ("Kenyaa", False), ("Zork", False)]
)
def test_a_similar_name_is_not_an_exact_match(
    graph: Graph, names: Names, name: str, has_exact: bool
) -> None:
    linked = [LinkedEntity("m.0x", "Zorq", "zork", 0.5)]
    assert EntityMatcher(graph, names, linked).has_exact(name, None) == has_exact


def test_mentions_are_sorted_by_likeness_to_the_name(graph: Graph, names: Names) -> None:
    linked = [
        LinkedEntity(match.mid, match.name, text, 0.5)
        for text in ("euro", "kenya")
        for match in names.lookup(text, 1)
    ]
    matches = EntityMatcher(graph, names, linked).mentioned("Kenia", CAPITAL)
    assert [str(match.entity) for match in matches] == ["Kenya", "Euro"]
    assert [match.has_step for match in matches] == [True, False]


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
    assert low <= name_similarity(one, other) <= high
    assert name_similarity(one, other) == name_similarity(other, one)


def test_a_relation_that_no_graph_can_have_is_an_edge_of_nothing(
    graph: Graph, names: Names
) -> None:
    # A model has written RouterKGQA's words for a relation into kbqa's own form.
    step = Hop("people , person , gender")
    assert rank(graph, names, "Jammaica", step) == rank(graph, names, "Jammaica", None)
