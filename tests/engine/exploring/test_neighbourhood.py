from collections.abc import Iterator
from pathlib import Path

import pytest

from kbqa.engine.exploring.neighbourhood import MAX_TAILS, Neighbourhood
from kbqa.kb.graph import Graph
from kbqa.kb.loading.load import load_freebase
from kbqa.kb.open import open_graph
from kbqa.kb.schema.graph_schema import GraphSchema
from kbqa.sparql.crp import Hop
from kbqa.sparql.terms import LiteralTerm

NS = "http://rdf.freebase.com/ns/"
HUB_SIZE = MAX_TAILS + 50


@pytest.fixture(scope="module")
def graph(small_store: Path) -> Iterator[Graph]:
    with open_graph(small_store) as opened:
        yield opened


@pytest.fixture
def around(graph: Graph) -> Neighbourhood:
    return Neighbourhood(graph, GraphSchema(graph))


def test_relations_are_sorted_and_say_something(around: Neighbourhood) -> None:
    assert around.hops("m.06w2sn5") == (
        Hop("people.person.date_of_birth"),
        Hop("people.person.gender"),
        Hop("people.person.sibling_s"),
    )


def test_an_edge_with_two_names_is_listed_once_and_forwards(around: Neighbourhood) -> None:
    hops = around.hops("m.04xc2m")
    assert Hop("finance.currency.countries_used") in hops
    assert Hop("location.country.currency_used", True) not in hops
    assert Hop("location.location.containedby", True) in around.hops("m.03_r3")
    assert not any(hop.inverse for hop in around.hops("m.03_r3", "out"))


def test_lookups_are_counted_once(around: Neighbourhood) -> None:
    for _ in range(3):
        around.hops("m.03_r3")
        around.tails("m.03_r3", Hop("location.country.capital"))
        around.names(["m.03yl7", "m.0pop1", LiteralTerm("480")])
    assert around.queries == 4


def test_names_of_nodes(around: Neighbourhood) -> None:
    assert around.names(["m.03yl7", "m.0pop1", LiteralTerm("480")]) == {
        "m.03yl7": "Kingston",
        "m.0pop1": "m.0pop1",
        LiteralTerm("480"): "480",
    }
    assert around.is_nameless("m.0pop1")
    assert not around.is_nameless(LiteralTerm("480"))


def test_a_literal_leads_nowhere(around: Neighbourhood) -> None:
    assert around.hops(LiteralTerm("480")) == ()
    assert around.tails(LiteralTerm("480"), Hop("a.b")).terms == ()
    assert around.queries == 0


@pytest.mark.parametrize("direction", [False, True], ids=["out", "in"])
def test_a_hub_shows_its_first_nodes_and_counts_the_others(tmp_path: Path, direction: bool) -> None:
    names = [f"m.0{number:05d}" for number in range(HUB_SIZE)]
    lines = []
    for name in reversed(names):
        ends = (name, "m.0hub") if direction else ("m.0hub", name)
        lines.append(f"<{NS}{ends[0]}>\t<{NS}a.b.c>\t<{NS}{ends[1]}>\t.\n")
    dump = tmp_path / "hub.nt"
    dump.write_text("".join(lines), encoding="utf-8")
    load_freebase([dump], tmp_path / "store")
    with open_graph(tmp_path / "store") as graph:
        around = Neighbourhood(graph, GraphSchema(graph))
        tails = around.tails("m.0hub", Hop("a.b.c", direction))
    assert list(tails.terms) == names[:MAX_TAILS]
    assert tails.hidden == HUB_SIZE - MAX_TAILS
