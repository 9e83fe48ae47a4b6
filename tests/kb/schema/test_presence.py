from collections.abc import Iterator
from pathlib import Path

import pytest

from kbqa.kb.graph import Graph
from kbqa.kb.open import open_graph
from kbqa.kb.schema.presence import present_entities, present_relations, present_texts


@pytest.fixture(scope="module", params=["store", "oxigraph", "virtuoso"])
def graph(request: pytest.FixtureRequest, small_store: Path) -> Iterator[Graph]:
    if request.param == "store":
        opened = open_graph(small_store)
    else:
        fixture = "small_endpoint" if request.param == "oxigraph" else "virtuoso_endpoint"
        opened = open_graph(endpoint=request.getfixturevalue(fixture))
    yield opened
    opened.close()


def test_entities_at_either_end_of_a_triple(graph: Graph) -> None:
    wanted = {"m.03_r3", "m.02zsn", "m.0pop1", "m.0none", "no id", "people.person"}
    assert present_entities(graph, wanted) == {"m.03_r3", "m.02zsn", "m.0pop1", "people.person"}


def test_relations(graph: Graph) -> None:
    wanted = {"type.object.name", "location.country.capital", "people.person.height_meters"}
    assert present_relations(graph, wanted) == wanted - {"people.person.height_meters"}


def test_texts_by_what_they_say(graph: Graph) -> None:
    held = {"2009", "2009-01-01", "480", "480.0", "1994-03-01", "Kingston", "JMD"}
    assert present_texts(graph, held | {"2010", "481", "Jamaika", "\ud800"}) == held


def test_many_are_asked_for_in_batches(graph: Graph) -> None:
    assert present_entities(graph, {f"m.0x{at}" for at in range(600)} | {"m.03_r3"}) == {"m.03_r3"}


def test_nothing_is_asked_for(graph: Graph) -> None:
    assert present_entities(graph, ()) == present_texts(graph, ()) == set()
