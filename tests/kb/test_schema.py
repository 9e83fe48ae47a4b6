from collections.abc import Iterator
from pathlib import Path

import pytest

from kbqa.kb.graph import Graph, Property, Schema
from kbqa.kb.open import open_graph
from kbqa.kb.schema import (
    GraphSchema,
    SchemaBuilder,
    present_entities,
    present_relations,
    present_texts,
)
from kbqa.sparql.crp import Hop
from kbqa.sparql.errors import StoreError

STATEMENTS = [
    ("people.person.place_of_birth", "type.property.schema", "people.person"),
    ("people.person.place_of_birth", "type.property.expected_type", "location.location"),
    ("people.person.place_of_birth", "type.property.unique", "true"),
    ("people.person.place_of_birth", "type.object.name", "Place of birth"),
    ("people.person.place_of_birth", "type.object.name", "a second name"),
    (
        "people.person.place_of_birth",
        "type.property.reverse_property",
        "location.location.people_born_here",
    ),
    ("location.location.people_born_here", "type.property.expected_type", "people.person"),
    ("people.marriage", "freebase.type_hints.mediator", "true"),
    ("people.person", "freebase.type_hints.mediator", "false"),
    ("people.person", "type.object.name", "Person"),
]


@pytest.fixture
def schema() -> Schema:
    builder = SchemaBuilder()
    for statement in STATEMENTS:
        builder.add(*statement)
    return builder.build()


def test_a_property_gathers_what_is_stated(schema: Schema) -> None:
    assert schema.property("people.person.place_of_birth") == Property(
        id="people.person.place_of_birth",
        domain="people.person",
        expected_type="location.location",
        reverse="location.location.people_born_here",
        is_unique=True,
        name="Place of birth",
    )


def test_what_is_not_stated_is_derived_or_none(schema: Schema) -> None:
    born_here = schema.property("location.location.people_born_here")
    assert born_here is not None
    assert born_here.domain == "location.location"
    assert born_here.reverse == "people.person.place_of_birth"
    assert not born_here.is_unique
    assert born_here.name is None
    assert schema.property("people.person") is None


def test_mediators(schema: Schema) -> None:
    assert schema.is_mediator("people.marriage")
    assert not schema.is_mediator("people.person")
    assert schema.mediators == {"people.marriage"}


def test_a_saved_schema_opens_the_same(schema: Schema, tmp_path: Path) -> None:
    path = tmp_path / "schema.json"
    schema.save(path)
    opened = Schema.open(path)
    assert opened.properties == schema.properties
    assert opened.mediators == schema.mediators


@pytest.mark.parametrize("content", [None, "", "{}", '{"properties": [{}], "mediators": []}'])
def test_what_is_no_schema_is_refused(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "schema.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(StoreError, match=r"schema\.json holds no schema"):
        Schema.open(path)


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
