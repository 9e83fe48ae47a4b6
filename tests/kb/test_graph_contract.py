"""Whatever answers behind the protocol, it answers alike."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kbqa.kb.graph import Graph, Neighbours
from kbqa.kb.open import open_graph
from kbqa.kb.schema import GraphSchema
from kbqa.sparql.errors import GraphError, QueryRefused, QuerySyntaxError, QueryTimeout
from kbqa.sparql.terms import LiteralTerm

# Four free triples side by side: some four million rows, none of which passes.
SLOW = """ASK { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i . ?j ?k ?l
FILTER (CONCAT(STR(?a), STR(?d), STR(?g), STR(?j)) = "none") }"""


@pytest.fixture(scope="module", params=["store", "oxigraph", "virtuoso"])
def graph(request: pytest.FixtureRequest, small_store: Path) -> Iterator[Graph]:
    if request.param == "store":
        opened = open_graph(small_store)
    else:
        fixture = "small_endpoint" if request.param == "oxigraph" else "virtuoso_endpoint"
        opened = open_graph(endpoint=request.getfixturevalue(fixture))
    yield opened
    opened.close()


def test_select(graph: Graph) -> None:
    table = graph.select(
        "SELECT ?x ?none { ns:m.06w2sn5 ns:people.person.sibling_s ?y ."
        " ?y ns:people.sibling_relationship.sibling ?x ."
        " OPTIONAL { ?x ns:people.person.parents ?none } } ORDER BY ?x"
    )
    assert table.variables == ("x", "none")
    assert table.rows == (("m.0gxnnwd", None), ("m.0gxnnwq", None))
    assert not table.truncated


def test_select_finds_nothing(graph: Graph) -> None:
    table = graph.select("SELECT ?x { ns:m.0nobody ?p ?x }")
    assert (table.variables, table.rows) == (("x",), ())


@pytest.mark.parametrize(
    ("relation", "literal"),
    [
        ("measurement_unit.dated_integer.number", LiteralTerm("2695867")),
        ("measurement_unit.dated_integer.year", LiteralTerm("2009", datatype="gYear")),
    ],
)
def test_literals_keep_their_form(graph: Graph, relation: str, literal: LiteralTerm) -> None:
    assert graph.select(f"SELECT ?x {{ ns:m.0pop1 ns:{relation} ?x }}").rows == ((literal,),)
    assert graph.neighbours("m.0pop1", relation, "out") == [literal]


def test_quotes_and_languages_survive(graph: Graph) -> None:
    alias = LiteralTerm('J. "Biebs" Bieber', language="en")
    assert graph.neighbours("m.06w2sn5", "common.topic.alias", "out") == [alias]


@pytest.mark.parametrize(
    ("limit", "rows", "truncated"), [(1, 1, True), (2, 2, False), (3, 2, False), (None, 2, False)]
)
def test_select_is_cut_at_its_limit(
    graph: Graph, limit: int | None, rows: int, truncated: bool
) -> None:
    query = "SELECT ?x { ns:m.03_r3 ns:location.statistical_region.population ?x }"
    table = graph.select(query, limit=limit)
    assert (len(table.rows), table.truncated) == (rows, truncated)
    ordered = graph.select(f"{query} ORDER BY ?x LIMIT 9", limit=limit)
    assert (len(ordered.rows), ordered.truncated) == (rows, truncated)


def test_ask(graph: Graph) -> None:
    assert graph.ask("ASK { ns:m.03_r3 ns:location.country.capital ns:m.03yl7 }")
    assert not graph.ask("ASK { ns:m.03yl7 ns:location.country.capital ns:m.03_r3 }")


def test_relations(graph: Graph) -> None:
    assert graph.relations("m.04xc2m", "in") == ["location.country.currency_used"]
    assert graph.relations("m.04xc2m", "out") == [
        "finance.currency.countries_used",
        "finance.currency.currency_code",
        "type.object.name",
        "type.object.type",
    ]
    assert len(graph.relations("m.04xc2m", "out", limit=2)) == 2
    assert graph.relations("m.0nobody", "out") == []


def test_neighbours(graph: Graph) -> None:
    gender = "people.person.gender"
    assert set(graph.neighbours("m.05zppz", gender, "in")) == {"m.06w2sn5", "m.0gxnnwq"}
    assert len(graph.neighbours("m.05zppz", gender, "in", limit=1)) == 1
    assert graph.neighbours("m.05zppz", gender, "out") == []


def test_first_neighbours(graph: Graph) -> None:
    gender = "people.person.gender"
    both = graph.first_neighbours("m.05zppz", gender, "in")
    assert both == Neighbours(("m.06w2sn5", "m.0gxnnwq"))
    assert graph.first_neighbours("m.05zppz", gender, "in", 1) == Neighbours(("m.06w2sn5",), 1)
    assert graph.first_neighbours("m.05zppz", gender, "out") == Neighbours(())


def test_relations_of_a_frontier(graph: Graph) -> None:
    siblings = ["m.0gxnnwp", "m.0gxnnwc", "m.0nobody"]
    relations = ["people.sibling_relationship.sibling", "type.object.type"]
    assert graph.frontier_relations(siblings, "out") == relations
    assert graph.frontier_relations(siblings, "in") == ["people.person.sibling_s"]
    assert len(graph.frontier_relations(siblings, "out", limit=1)) == 1
    assert graph.frontier_relations([], "out") == []


def test_neighbours_of_a_frontier(graph: Graph) -> None:
    people = ["m.06w2sn5", "m.0gxnnwq", "m.0gxnnwd"]
    genders = graph.frontier_neighbours(people, "people.person.gender", "out")
    assert sorted(map(str, genders)) == ["m.02zsn", "m.05zppz"]
    assert len(graph.frontier_neighbours(people, "people.person.gender", "out", limit=1)) == 1
    assert graph.frontier_neighbours(["m.05zppz"], "people.person.gender", "out") == []
    assert graph.frontier_neighbours([], "people.person.gender", "in") == []


def test_relations_of_each(graph: Graph) -> None:
    found = graph.relations_of_each(["m.04xc2m", "m.0gxnnwq", "m.0nobody", "m.04xc2m"], "out")
    assert found == {
        "m.04xc2m": [
            "finance.currency.countries_used",
            "finance.currency.currency_code",
            "type.object.name",
            "type.object.type",
        ],
        "m.0gxnnwq": ["people.person.gender", "type.object.name"],
        "m.0nobody": [],
    }
    incoming = graph.relations_of_each(["m.05zppz", "m.04xc2m"], "in")
    assert incoming["m.05zppz"] == ["people.person.gender"]
    assert len(graph.relations_of_each(["m.04xc2m"], "out", limit=2)["m.04xc2m"]) == 2
    assert graph.relations_of_each([], "in") == {}


def test_neighbours_of_each(graph: Graph) -> None:
    gender, sibling = "people.person.gender", "people.person.sibling_s"
    starts = [("m.06w2sn5", gender), ("m.06w2sn5", sibling), ("m.0gxnnwd", gender)]
    found = graph.neighbours_of_each([*starts, ("m.0nobody", gender)], "out")
    assert {key: set(terms) for key, terms in found.items()} == {
        ("m.06w2sn5", gender): {"m.05zppz"},
        ("m.06w2sn5", sibling): {"m.0gxnnwp", "m.0gxnnwc"},
        ("m.0gxnnwd", gender): {"m.02zsn"},
        ("m.0nobody", gender): set(),
    }
    both = graph.neighbours_of_each([("m.05zppz", gender), ("m.02zsn", gender)], "in", limit=1)
    assert {key: len(terms) for key, terms in both.items()} == {
        ("m.05zppz", gender): 1,
        ("m.02zsn", gender): 1,
    }
    assert graph.neighbours_of_each([], "out") == {}


def test_edges_leave_out_bookkeeping(graph: Graph) -> None:
    jamaica, kingston = "m.03_r3", "m.03yl7"
    assert graph.edges([jamaica, kingston, "m.0nobody", kingston], "out") == {
        jamaica: {
            "location.country.capital": [kingston],
            "location.country.currency_used": ["m.04xc2m"],
            "location.statistical_region.population": ["m.0pop1", "m.0pop2"],
        },
        kingston: {
            "location.location.area": [LiteralTerm("480")],
            "location.location.containedby": [jamaica],
        },
        "m.0nobody": {},
    }
    leaving = graph.edges([jamaica], "out")[jamaica]
    assert list(leaving) == sorted(leaving)
    entering = graph.edges(["m.05zppz"], "in")
    assert entering == {"m.05zppz": {"people.person.gender": ["m.06w2sn5", "m.0gxnnwq"]}}
    assert graph.edges([], "out") == {}


def test_edges_of_an_entity_with_too_many_are_missing(graph: Graph) -> None:
    people = ["m.0gxnnwq", "m.06w2sn5", "m.0gxnnwd", "m.0nobody"]
    assert list(graph.edges(people, "out", limit=4)) == people
    assert [*graph.edges(people, "out", limit=3)] == ["m.0gxnnwq", "m.0gxnnwd", "m.0nobody"]
    assert [*graph.edges(people, "out", limit=0)] == ["m.0nobody"]


def test_labels_prefer_english(graph: Graph) -> None:
    mids = ["m.03_r3", "m.0gxnnwq", "m.02zsn", "m.0pop1", "m.03_r3"]
    expected = {"m.03_r3": "Jamaica", "m.0gxnnwq": "Jaxon Bieber", "m.02zsn": "Weiblich"}
    assert graph.labels(mids) == expected
    assert graph.labels([]) == {}


def test_types(graph: Graph) -> None:
    assert graph.types("m.03_r3") == ["location.country", "location.location"]
    assert graph.types("m.0nobody") == []


@pytest.mark.parametrize("query", ["SELECT ?x {", "SELECT ?x { ?x other:a ?y }", "hello"])
def test_unreadable_query(graph: Graph, query: str) -> None:
    with pytest.raises(QuerySyntaxError):
        graph.select(query)


@pytest.mark.parametrize(
    "query", ["ASK {}", "DESCRIBE <a:a>", "CLEAR ALL", "SELECT * { SERVICE <a:a> {} }"]
)
def test_select_refuses_everything_else(graph: Graph, query: str) -> None:
    with pytest.raises(QueryRefused):
        graph.select(query)


def test_ask_refuses_select(graph: Graph) -> None:
    with pytest.raises(QueryRefused):
        graph.ask("SELECT * {}")


def test_slow_query_is_stopped_and_the_graph_goes_on(graph: Graph) -> None:
    with pytest.raises(QueryTimeout) as caught:
        graph.ask(SLOW, timeout_s=0.3)
    assert caught.value.timeout_s == 0.3
    assert graph.ask("ASK { ?s ?p ?o }")


def test_description_names_the_graph(graph: Graph) -> None:
    kind, _, place = graph.description.partition(" ")
    assert kind in ("store", "endpoint")
    assert place


def test_a_graph_closes_itself_at_the_end_of_a_with_block(graph: Graph, small_store: Path) -> None:
    store = open_graph(str(small_store))
    url = graph.description.partition(" ")[2]
    with store if graph.description.startswith("store") else open_graph(endpoint=url) as opened:
        assert opened.ask("ASK { ?s ?p ?o }")
    for _ in range(2):
        opened.close()
    for ask in (
        lambda: opened.ask("ASK { ?s ?p ?o }"),
        lambda: opened.select("SELECT * { ?s ?p ?o }"),
        lambda: opened.relations("m.03_r3", "out"),
        lambda: opened.neighbours("m.03_r3", "type.object.type", "out"),
        lambda: opened.labels(["m.03_r3"]),
        lambda: opened.all_relations(),
    ):
        with pytest.raises(GraphError, match="was closed"):
            ask()
    store.close()


def test_identity_says_what_determines_the_answers(graph: Graph) -> None:
    identity = graph.identity()
    assert identity.notes["graph"] == graph.description
    is_store = graph.description.startswith("store")
    assert (identity.settings["store"] is None) == (not is_store)
    assert identity.settings["endpoint"] == (None if is_store else graph.description)


def test_all_relations(graph: Graph) -> None:
    assert "location.country.currency_used" in graph.all_relations()


def test_names(graph: Graph) -> None:
    with closing(graph.names()) as names:
        assert [match.mid for match in names.lookup("Jamaica")] == ["m.03_r3"]


def test_the_schema_is_the_same_whether_it_is_whole_or_asked_for(graph: Graph) -> None:
    used = "location.country.currency_used"
    stated = GraphSchema(graph).of([used]).property(used)
    assert stated is not None
    assert (stated.domain, stated.expected_type) == ("location.country", "finance.currency")
