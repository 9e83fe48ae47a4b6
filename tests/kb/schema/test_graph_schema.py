from pathlib import Path

from kbqa.kb.graph import Graph
from kbqa.kb.open import open_graph
from kbqa.kb.schema.graph_schema import GraphSchema
from kbqa.sparql.crp import Hop

CURRENCY = "location.country.currency_used"
COUNTRIES = "finance.currency.countries_used"


def test_a_store_and_an_endpoint_state_the_same(graph: Graph) -> None:
    stated = GraphSchema(graph).of([CURRENCY, "no.such.relation"]).property(CURRENCY)
    assert stated is not None
    assert (stated.expected_type, stated.reverse) == ("finance.currency", COUNTRIES)


def test_mediator_types_are_known(graph: Graph) -> None:
    assert GraphSchema(graph).of([]).is_mediator("people.sibling_relationship")


def test_of_two_names_of_an_edge_one_is_chosen(graph: Graph) -> None:
    hops = [Hop(CURRENCY), Hop(COUNTRIES, True), Hop(COUNTRIES), Hop("no.such.relation", True)]
    one, other, back, unknown = GraphSchema(graph).canonical(hops)
    assert one == other != back
    assert unknown == hops[-1]


def test_mediators_are_told_by_what_a_hop_ends_at(demo_store: Path) -> None:
    graph = open_graph(demo_store)
    schema = GraphSchema(graph)
    graph.close()
    borders, borders_back = "location.location.adjoin_s", "location.adjoining_relationship.adjoins"
    assert schema.leads_to_mediator(Hop(borders))
    assert not schema.leads_to_mediator(Hop(borders, inverse=True))
    assert not schema.leads_to_mediator(Hop(borders_back))
    assert schema.leads_to_mediator(Hop(borders_back, inverse=True))
    assert not schema.leads_to_mediator(Hop("no.such.relation"))
