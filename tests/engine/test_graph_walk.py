from collections.abc import Iterator
from pathlib import Path

import pytest

from kbqa.engine.graph_walk import (
    MAX_ASKED,
    MAX_NODES,
    MAX_TAILS,
    Frontiers,
    Neighbourhood,
    RelationPath,
)
from kbqa.kb.graph import Graph
from kbqa.kb.loading.load import load_freebase
from kbqa.kb.open import open_graph
from kbqa.kb.schema import GraphSchema
from kbqa.sparql.crp import Entity, Hop
from kbqa.sparql.terms import LiteralTerm, full_iri

JAMAICA = RelationPath(Entity("Jamaica", "m.03_r3"))
CURRENCY = Hop("location.country.currency_used")


@pytest.fixture
def frontiers(graph: Graph) -> Frontiers:
    return Frontiers(graph, GraphSchema(graph))


def test_a_path_reaches_a_set_of_nodes(frontiers: Frontiers) -> None:
    back = JAMAICA.then(Hop("location.location.containedby", inverse=True))
    assert frontiers.nodes(JAMAICA) == ["m.03_r3"]
    assert frontiers.nodes(back) == ["m.03yl7"]
    assert frontiers.nodes(back.then(Hop("location.location.area"))) == []  # a number


def test_literals_are_answers_and_the_topic_is_none(frontiers: Frontiers) -> None:
    kingston = RelationPath(Entity("Kingston", "m.03yl7"))
    assert frontiers.has_answer(kingston.then(Hop("location.location.area")))
    there = kingston.then(Hop("location.location.containedby"))
    again = there.then(Hop("location.location.containedby", inverse=True))
    assert frontiers.exists(again)
    assert not frontiers.has_answer(again)


def test_hops_on_leave_out_bookkeeping_and_the_way_back(frontiers: Frontiers) -> None:
    relations = [(hop.relation, hop.inverse) for hop in frontiers.hops(JAMAICA)]
    assert relations == [
        ("location.country.capital", False),
        ("location.country.currency_used", False),
        ("location.statistical_region.population", False),
        ("finance.currency.countries_used", True),
        ("location.location.containedby", True),
    ]
    # Back to the country go the relation itself and its reverse, which the schema states.
    assert [hop.relation for hop in frontiers.hops(JAMAICA.then(CURRENCY))] == [
        "finance.currency.currency_code"
    ]


def test_from_a_mediator_the_way_back_is_a_way_on(demo: Graph, kenya: Entity) -> None:
    frontiers = Frontiers(demo, GraphSchema(demo))
    borders = RelationPath(kenya).then(Hop("location.location.adjoin_s"))
    assert frontiers.ends_at_mediator(borders)
    assert Hop("location.adjoining_relationship.adjoins") in frontiers.hops(borders)
    assert not frontiers.ends_at_mediator(RelationPath(kenya).then(Hop("location.country.capital")))


def test_what_is_looked_up_is_kept(frontiers: Frontiers) -> None:
    path = JAMAICA.then(CURRENCY)
    frontiers.hops(path)
    asked = frontiers.queries
    frontiers.hops(path)
    frontiers.has_answer(path)
    assert frontiers.queries == asked == 3  # the nodes, and their relations in both directions


def test_many_nodes_take_no_more_searches_than_one(demo: Graph, kenya: Entity) -> None:
    frontiers = Frontiers(demo, GraphSchema(demo))
    zone = RelationPath(kenya).then(Hop("location.location.time_zones"))
    places = zone.then(Hop("time.time_zone.locations_in_this_time_zone"))
    assert MAX_ASKED < len(frontiers.nodes(places)) <= MAX_NODES
    assert Hop("location.location.containedby") in frontiers.hops(places)
    assert frontiers.queries == 4


def test_an_answer_that_no_query_can_name_is_not_walked_on_from(tmp_path: Path) -> None:
    dump, trailers = tmp_path / "film.nt", Hop("film.film.trailers")
    edge = f"<{full_iri('m.01')}>\t<{full_iri(trailers.relation)}>\t<http://x.org/w?a[]=1>\t.\n"
    dump.write_text(edge, encoding="utf-8")
    load_freebase([dump], tmp_path / "store")
    with open_graph(tmp_path / "store") as graph:
        frontiers = Frontiers(graph, GraphSchema(graph))
        path = RelationPath(Entity("Jaws", "m.01")).then(trailers)
        assert frontiers.has_answer(path)
        assert frontiers.nodes(path) == []
        assert frontiers.hops(path) == []


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
