from collections.abc import Iterator
from pathlib import Path

import pytest

from kbqa.engine.deciding.session import ends_alike, evidence_of, ground
from kbqa.engine.embedding.embedder import Embedder
from kbqa.engine.graph_walk import Neighbourhood, Walk
from kbqa.kb.graph import Graph
from kbqa.kb.names import Names
from kbqa.kb.open import open_graph
from kbqa.kb.schema import GraphSchema
from kbqa.sparql.crp import Entity, Hop
from kbqa.sparql.terms import LiteralTerm

WALK = (
    Walk(Entity("Justin Bieber", "m.06w2sn5"))
    .then(Hop("people.person.sibling_s"), "m.0gxnnwp")
    .then(Hop("people.sibling_relationship.sibling"), "m.0gxnnwq")
)


@pytest.fixture(scope="module")
def graph(small_store: Path) -> Iterator[Graph]:
    with open_graph(small_store) as opened:
        yield opened


@pytest.fixture
def around(graph: Graph) -> Neighbourhood:
    return Neighbourhood(graph, GraphSchema(graph))


@pytest.fixture
def names(graph: Graph) -> Iterator[Names]:
    opened = graph.names()
    yield opened
    opened.close()


def test_each_answer_says_where_it_comes_from(around: Neighbourhood, names: Names) -> None:
    answers = ground(["jaxon bieber", "Kingston", "Atlantis"], [WALK], around, names)
    assert [(each.term, each.name, each.origin) for each in answers] == [
        ("m.0gxnnwq", "Jaxon Bieber", "graph"),
        ("m.03yl7", "Kingston", "named"),
        (LiteralTerm("Atlantis"), "Atlantis", "text"),
    ]


def test_an_id_names_its_node(around: Neighbourhood, names: Names) -> None:
    [answer] = ground(["m.0gxnnwp"], [WALK], around, names)
    assert (answer.term, answer.origin) == ("m.0gxnnwp", "graph")


def test_a_name_of_two_nodes_means_both(around: Neighbourhood, names: Names) -> None:
    topic = Entity("Jamaica", "m.03_r3")
    relation = Hop("location.statistical_region.population")
    walks = [
        Walk(topic).then(relation, node).then(Hop("a.b"), LiteralTerm("7", datatype))
        for node, datatype in [("m.0pop1", None), ("m.0pop2", "integer")]
    ]
    answers = ground(["7"], walks, around, names)
    assert [each.term for each in answers] == [LiteralTerm("7"), LiteralTerm("7", "integer")]


def test_a_node_goes_before_the_topic_of_its_name(around: Neighbourhood, names: Names) -> None:
    topic, namesake = Walk(Entity("Jamaica", "m.03_r3")), LiteralTerm("Jamaica")
    there, elsewhere = (topic.then(Hop("a.b"), node) for node in (namesake, LiteralTerm("7")))
    for walks, found in (([elsewhere, there], namesake), ([elsewhere], "m.03_r3")):
        assert [each.term for each in ground(["Jamaica"], walks, around, names)] == [found]


def test_evidence_ends_at_the_answer(around: Neighbourhood, names: Names) -> None:
    longer = WALK.then(Hop("people.person.gender"), "m.05zppz")
    answers = ground(["Jaxon Bieber", "Kingston"], [longer], around, names)
    triples = evidence_of(answers, [longer], around)
    assert [each.relation for each in triples] == [hop.relation for hop in WALK.hops]
    assert triples[1].object_name == "Jaxon Bieber"


def test_a_mediator_is_no_answer_if_a_walk_leads_further(
    demo: Graph, kenya: Entity, embedder: Embedder
) -> None:
    around = Neighbourhood(demo, GraphSchema(demo))
    population = Hop("location.statistical_region.population")
    [mediator, *_] = around.tails(str(kenya.mid), population).terms
    [number] = around.tails(mediator, Hop("measurement_unit.dated_integer.number")).terms
    walk = Walk(kenya).then(population, mediator)
    further = walk.then(Hop("measurement_unit.dated_integer.number"), number)
    for walks, end in [([walk], mediator), ([walk, further], number), ([further], number)]:
        _, answers = ends_alike("what is the population?", walks, around, embedder)
        assert [answer.term for answer in answers] == [end]
